"""Commands: how they end, what becomes of their processes, and what of their output."""

import asyncio
import io
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbor_assets.sandboxes.process.inside.command import account
from harbor_assets.sandboxes.process.sandbox import ExecResult, Sandbox, SandboxDiskFull, SandboxLost, SandboxStartError

from .conftest import run, sandbox, sh

Inside = Callable[..., ExecResult]


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 7", 7), ("kill -TERM $$", -15), ("kill -9 $$", -9), ("true", 0), ("/etc/hostname", 126), ("nowhere", 127)],
)
def test_exit_codes_are_exact(inside: Inside, script: str, code: int) -> None:
    assert inside(script).code == code


def test_what_cannot_be_started_says_so(home: Path) -> None:
    async def work() -> list[ExecResult]:
        async with sandbox(home) as box:
            return [
                await box.exec(["nowhere"]),
                await box.exec(["/etc/hostname"]),
                await box.exec(["true"], cwd="/nowhere"),
                await box.exec(["true"], user="nobody-of-that-name"),
            ]

    results = run(work())
    assert [result.code for result in results] == [127, 126, 126, 126]
    assert [b"nowhere" in results[0].stderr, b"/nowhere" in results[2].stderr, b"no such user" in results[3].stderr]


def test_working_folder_environment_and_input(inside: Inside) -> None:
    done = inside("pwd; echo $GREETING; cat", cwd="/usr", env={"GREETING": "hello you"}, stdin=b"from outside")
    assert done.stdout == b"/usr\nhello you\nfrom outside"


def test_large_input_from_a_file(inside: Inside) -> None:
    data = os.urandom(1 << 10) * 3000
    done = inside("wc -c; exec 0<&-; sleep 0.01", stdin=io.BytesIO(data))
    assert done.stdout.split() == [str(len(data)).encode()]
    assert inside("exec 0<&-; echo not read", stdin=io.BytesIO(data)).stdout == b"not read\n"


def test_no_input_is_an_end_of_file(inside: Inside) -> None:
    assert inside("cat; echo end").stdout == b"end\n"


def test_output_that_is_not_text(inside: Inside) -> None:
    assert inside("printf '\\xff\\x00\\xfe'; printf '\\xc3' >&2").stdout == b"\xff\x00\xfe"


def test_output_beyond_the_cap_is_counted(inside: Inside) -> None:
    size = 300 << 20
    done = inside(f"head -c {size} /dev/zero; echo end >&2")
    assert (len(done.stdout), done.dropped, done.stderr) == (64 << 20, size - (64 << 20), b"end\n")


def test_output_arrives_in_pieces(home: Path) -> None:
    seen: list[tuple[bytes, str]] = []

    async def work() -> ExecResult:
        async with sandbox(home) as box:
            return await sh(
                box, "echo a; sleep 0.1; echo b >&2", on_chunk=lambda chunk, name: seen.append((chunk, name))
            )

    assert run(work()).code == 0
    assert seen == [(b"a\n", "stdout"), (b"b\n", "stderr")]


def test_a_long_script(inside: Inside) -> None:
    """The kernel takes 128 KiB for one argument."""
    done = inside("# " + "x" * 300_000 + "\necho done $0")
    assert done.code == 0
    assert done.stdout.startswith(b"done")


def test_many_at_once(home: Path) -> None:
    async def work() -> list[bytes]:
        async with sandbox(home) as box:
            return [r.stdout for r in await asyncio.gather(*(sh(box, f"echo {n}") for n in range(30)))]

    assert run(work()) == [f"{n}\n".encode() for n in range(30)]


# Daemons that left their session, their parent and their standard streams.
DAEMONS = (
    "setsid sleep 300 & (setsid sh -c 'sleep 301 & sleep 302' </dev/null >/dev/null 2>&1 &) ; "
    "perl -e 'fork and exit; setpgrp; fork and exit; sleep 303' & "
)


def test_a_timeout_ends_everything_a_command_started(home: Path) -> None:
    async def work() -> tuple[ExecResult, float, bytes]:
        async with sandbox(home) as box:
            began = time.monotonic()
            done = await sh(box, DAEMONS + "echo started; sleep 304", timeout=0.5)
            took = time.monotonic() - began
            return done, took, (await sh(box, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")).stdout

    done, took, left = run(work())
    assert (done.code, done.timed_out, done.stdout) == (124, True, b"started\n")
    assert took < 3
    assert b"sleep 30" not in left


def test_a_cancel_ends_everything_a_command_started(home: Path) -> None:
    async def work() -> bytes:
        async with sandbox(home) as box:
            task = asyncio.create_task(sh(box, DAEMONS + "sleep 304"))
            await asyncio.sleep(0.4)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return (await sh(box, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")).stdout

    assert b"sleep 30" not in run(work())


def test_a_cancel_at_any_moment_is_quick(home: Path) -> None:
    """The order to kill may arrive together with the command itself."""

    async def work() -> float:
        worst = 0.0
        async with sandbox(home) as box:
            for delay in range(40):
                task = asyncio.create_task(sh(box, "sleep 100"))
                for _ in range(delay % 5):
                    await asyncio.sleep(0)
                await asyncio.sleep(0.001 * (delay // 5))
                began = time.monotonic()
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                worst = max(worst, time.monotonic() - began)
            assert b"sleep" not in (await sh(box, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")).stdout.replace(
                b"sh -c", b""
            )
        return worst

    assert run(work()) < 10  # twenty, if an order is lost


@pytest.mark.req_root
def test_a_fork_bomb_ends_with_its_timeout(home: Path) -> None:
    from harbor_assets.sandboxes.process.limits import Limits

    async def work() -> tuple[float, bytes]:
        async with sandbox(home, limits=Limits(pids=300)) as box:
            began = time.monotonic()
            await sh(box, ":(){ :|:& };:; sleep 100", timeout=1)
            took = time.monotonic() - began
            return took, (await sh(box, "ls -d /proc/[0-9]* | wc -l")).stdout

    took, left = run(work())
    assert took < 6
    assert int(left) < 8


def test_what_is_left_running_lives_on(home: Path) -> None:
    """A server that an agent leaves for the tests, with its output still on the command's pipe."""
    script = "(while true; do echo line; sleep 0.02; done) & echo $! >&2"

    async def work() -> tuple[bytes, bytes]:
        async with sandbox(home) as box:
            first = await sh(box, script)
            await asyncio.sleep(0.5)
            pid = first.stderr.decode().strip()
            assert (await sh(box, "true", timeout=5)).code == 0
            alive = (await sh(box, f"kill -0 {pid} && echo alive")).stdout
            await box.kill_all()
            return alive, (await sh(box, f"kill -0 {pid} 2>&1 || echo dead")).stdout

    alive, dead = run(work())
    assert alive == b"alive\n"
    assert dead.endswith(b"dead\n")


def test_kill_all_ends_running_commands(home: Path) -> None:
    async def work() -> list[int]:
        async with sandbox(home) as box:
            tasks = [asyncio.create_task(sh(box, "setsid sleep 100 & sleep 100")) for _ in range(3)]
            await asyncio.sleep(0.3)
            await box.kill_all()
            codes = [(await task).code for task in tasks]
            assert (await sh(box, "ls -d /proc/[0-9]* | wc -l")).stdout.strip() in (b"4", b"5")
            return codes

    assert run(work()) == [-9, -9, -9]


def test_a_task_that_kills_everything_is_not_a_lost_sandbox(home: Path) -> None:
    """`kill -9 -1` hits the supervisors too. How the command itself ends is told all the same."""

    async def work() -> list[tuple[int, bytes]]:
        async with sandbox(home) as box:
            other = asyncio.create_task(sh(box, "sleep 100"))
            await asyncio.sleep(0.2)
            done = [
                await sh(box, "kill -9 -1; echo survived; exit 5"),
                await other,
                await sh(box, "(kill -9 -1) & sleep 100"),
                await sh(box, "kill -9 -1; sleep 100 & sleep 101", timeout=0.5),
                await sh(box, "sleep 0.2; echo fine"),
            ]
            left = (await sh(box, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")).stdout
            assert b"sleep 10" not in left
            return [(result.code, result.stdout) for result in done]

    assert run(work()) == [(5, b"survived\n"), (-9, b""), (-9, b""), (124, b""), (0, b"fine\n")]


def test_a_dead_sandbox_is_lost(home: Path) -> None:
    async def work() -> None:
        async with sandbox(home) as box:
            task = asyncio.create_task(sh(box, "sleep 100"))
            await asyncio.sleep(0.2)
            assert box._init_pid is not None
            os.kill(box._init_pid, 9)
            with pytest.raises(SandboxLost):
                await task
            with pytest.raises(SandboxLost):
                await sh(box, "true")
            with pytest.raises(SandboxLost):
                await box.kill_all()

    run(work())


def test_stop_is_idempotent_and_final(home: Path) -> None:
    async def work() -> None:
        async with sandbox(home) as box:
            await asyncio.gather(box.stop(), box.stop())
            await box.stop()
            assert not box.folder.exists()
            with pytest.raises(SandboxLost):
                await sh(box, "true")

    run(work())


def test_what_cannot_be_started_leaves_nothing(home: Path) -> None:
    async def work() -> None:
        with pytest.raises(SandboxStartError, match="no-such-layer"):
            await Sandbox(home / "sandboxes" / "broken", [home / "no-such-layer"], home=home).start()
        async with sandbox(home, name="taken") as box:
            with pytest.raises(SandboxStartError, match="in use"):
                await Sandbox(box.folder, [], home=home).start()
            assert (await sh(box, "true")).code == 0

    run(work())
    assert not list((home / "sandboxes").glob("*"))


def test_a_cancelled_start_leaves_nothing(home: Path) -> None:
    async def work() -> None:
        for delay in (0.0, 0.002, 0.01, 0.02, 0.03):
            box = Sandbox(home / "sandboxes" / f"cancelled-{delay}", [], home=home)
            task = asyncio.create_task(box.start())
            await asyncio.sleep(delay)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await box.stop()
            assert not box.folder.exists()

    run(work())


def test_deep_and_barred_folders_are_removed(home: Path) -> None:
    async def work() -> Path:
        async with sandbox(home) as box:
            script = "$d = 'd' x 9; for (('/deep') x 1, ($d) x 1200) { mkdir $_ or die; chdir $_ } chmod 0, '/deep'"
            assert (await box.exec(["perl", "-e", script])).code == 0
            return box.folder

    assert not run(work()).exists()


@pytest.mark.req_root
def test_descriptors_of_the_worker_stay_with_it(home: Path, tmp_path: Path) -> None:
    """A lock that a keeper held as well would outlive its worker."""
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    os.set_inheritable(lock, True)

    async def work() -> list[str]:
        async with sandbox(home) as box:
            await sh(box, "sleep 100 >/dev/null 2>&1 &")
            texts = (box.folder / "processes").read_text().splitlines()
            pids = {int(line.split()[0]) for line in texts}
            for path in Path("/proc").glob("[0-9]*/status"):
                parent = path.read_text().partition("PPid:")[2].split()[0]
                pids |= {int(path.parent.name)} if int(parent) in pids else set()
            assert len(pids) >= 3
            links = [fd for pid in pids for fd in Path(f"/proc/{pid}/fd").iterdir()]
            return [str(fd.readlink()) for fd in links if fd.is_symlink()]

    found = run(work())
    os.close(lock)
    assert str(tmp_path / "lock") not in found


@pytest.mark.req_root
def test_a_full_disk_of_the_machine_has_a_name(home: Path) -> None:
    from harbor_assets.sandboxes.process import mask
    from harbor_assets.sandboxes.process.inside import calls

    from .own_machine import in_own_machine

    def work() -> None:
        small = home / "small"
        small.mkdir()
        calls.mount("tmpfs", str(small), "tmpfs", 0, "size=64k,nr_inodes=30")
        mask._known.clear()

        async def start() -> None:
            with pytest.raises(SandboxDiskFull, match="Free space"):
                await Sandbox(small / "sandboxes" / "x", [], home=small).start()

        run(start())
        assert sorted(path.name for path in small.rglob("*") if path.is_dir()) == ["masks", "sandboxes"]
        calls.detach(str(small))

    in_own_machine(work)
    (home / "small").rmdir()


def test_keep_upper_leaves_what_was_written(home: Path) -> None:
    async def work() -> Sandbox:
        box = Sandbox(home / "sandboxes" / "kept", [], home=home, keep_upper=True)
        await box.start()
        await sh(box, "mkdir /app; echo x > /app/x")
        await box.stop()
        return box

    box = run(work())
    assert (box.upper / "ROOT/app/x").read_text() == "x\n"
    from harbor_assets.sandboxes.process.inside.keeper import remove_tree

    remove_tree(str(box.folder))


@pytest.mark.req_root
def test_other_users(home: Path) -> None:
    async def work() -> list[bytes]:
        async with sandbox(home) as box:
            await sh(box, "useradd -m -s /bin/bash -u 4321 someone && usermod -aG games someone")
            return [
                (await sh(box, "id; echo $HOME $USER; echo out > /dev/stdout", user="someone")).stdout,
                (await sh(box, "id -u; id -g", user="1234:60")).stdout,
                (await sh(box, "cat /etc/shadow || echo refused", user=4321)).stdout,
                (await sh(box, "grep CapEff /proc/self/status", user="someone")).stdout,
            ]

    named, numbered, refused, capabilities = run(work())
    assert b"uid=4321(someone)" in named
    assert b"games" in named
    assert named.endswith(b"/home/someone someone\nout\n")
    assert numbered == b"1234\n60\n"
    assert refused == b"refused\n"
    assert capabilities.split()[1] == b"0000000000000000"


PASSWD = "root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000::/home/user:/bin/sh\n77:x:5:5::/odd:/bin/sh\nbroken\n"
GROUP = "root:x:0:\nuser:x:1000:\nstaff:x:50:user,root\n"


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ("user", (1000, 1000, [50, 1000], "/home/user", "user")),
        (1000, (1000, 1000, [50, 1000], "/home/user", "user")),
        ("user:staff", (1000, 50, [50], "/home/user", "user")),
        ("77", (5, 5, [5], "/odd", "77")),  # a name first, as Docker does
        ("2000", (2000, 0, [0], "/", "2000")),
        ("2000:3000", (2000, 3000, [3000], "/", "2000")),
    ],
)
def test_accounts(user: str | int, expected: tuple) -> None:
    assert account(user, PASSWD, GROUP) == expected


@given(st.text(), st.text(), st.text())
def test_accounts_of_any_text(user: str, passwd: str, group: str) -> None:
    """The files are the task's: whatever stands there, a command gets numbers or a refusal."""
    try:
        uid, gid, groups, _, _ = account(user, passwd, group)
    except (LookupError, ValueError):
        return
    assert all(isinstance(number, int) for number in (uid, gid, *groups))
