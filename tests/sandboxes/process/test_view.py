"""What a task sees of the machine, and that nothing it writes reaches it."""

import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harbor_assets.sandboxes.process.sandbox import ExecResult

from .conftest import run, sandbox, sh

Inside = Callable[..., ExecResult]


def test_shows_an_allow_list(inside: Inside) -> None:
    done = inside("ls -A /; echo --; ls -A /root /home /tmp /srv /mnt; echo --; ls /usr/bin/env /etc/passwd")
    top, empty, shown = done.stdout.decode().split("--\n")
    allowed = {"bin", "boot", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "media", "mnt", "opt", "proc"}
    assert set(top.split()) <= allowed | {"root", "run", "sbin", "srv", "sys", "tmp", "usr", "var"}
    assert [line for line in empty.splitlines() if line and not line.endswith(":")] == []
    assert sorted(shown.split()) == ["/etc/passwd", "/usr/bin/env"]


def test_absolute_paths_of_tasks_can_be_made(inside: Inside) -> None:
    done = inside("mkdir /app /tests /logs /solution && echo x > /app/x && cat /app/x")
    assert (done.code, done.stdout) == (0, b"x\n")


def test_writes_do_not_reach_the_machine(inside: Inside) -> None:
    marks = [Path("/etc/hostname"), Path("/etc/passwd")]
    before = [(path.read_bytes(), path.stat()) for path in marks]
    done = inside(
        "echo mine > /etc/hostname; touch /usr/mine /var/mine /opt/mine /etc/mine; mkdir /mine; "
        "ls /usr/mine /var/mine /opt/mine /etc/mine -d /mine; cat /etc/hostname"
    )
    if os.geteuid() == 0:
        assert done.stdout.decode().split() == ["/etc/mine", "/mine", "/opt/mine", "/usr/mine", "/var/mine", "mine"]
    for name in ("/usr/mine", "/var/mine", "/opt/mine", "/etc/mine", "/mine"):
        assert not Path(name).exists()
    assert [(path.read_bytes(), path.stat()) for path in marks] == before


@pytest.mark.req_root
def test_what_root_destroys_inside_stays_whole_outside(inside: Inside) -> None:
    before = sorted(Path("/usr/share/perl5").iterdir()), Path("/etc/passwd").read_bytes()
    done = inside(
        "rm -rf /usr/share/perl5 /var/lib/dpkg/*; : > /etc/passwd; mv /usr/bin /usr/moved && /usr/moved/ls /usr"
    )
    assert done.code == 0
    assert b"moved" in done.stdout
    assert (sorted(Path("/usr/share/perl5").iterdir()), Path("/etc/passwd").read_bytes()) == before


@pytest.mark.req_root
def test_devices_are_its_own(inside: Inside) -> None:
    """A bound /dev/full would be the machine's node."""
    before = {name: Path("/dev", name).stat().st_mode for name in ("null", "zero", "full", "random", "urandom", "tty")}
    done = inside("chmod 000 /dev/full /dev/null /dev/zero && ls /dev && stat -c %a /dev/full && : > /dev/null")
    assert done.code == 0
    assert "0" in done.stdout.decode().split()
    assert {name: Path("/dev", name).stat().st_mode for name in before} == before


@pytest.mark.req_root
def test_standard_input_is_not_the_machines_null(inside: Inside) -> None:
    """fchmod on a descriptor that came from the worker changed the machine's /dev/null."""
    done = inside(
        "perl -e 'chmod(0, *STDIN) or die $!; chmod(0, *STDOUT); chmod(0, *STDERR)'; readlink /proc/self/fd/0"
    )
    assert done.code == 0, done.stderr
    assert stat.S_IMODE(Path("/dev/null").stat().st_mode) == 0o666


def test_descriptors_of_a_command(inside: Inside) -> None:
    done = inside("ls -l /proc/self/fd | awk '{print $9, $11}'; ls -l /proc/$$/fd | awk '{print $9, $11}'", stdin=b"")
    kinds = {line.split()[1].split(":")[0] for line in done.stdout.decode().splitlines() if len(line.split()) == 2}
    assert kinds <= {"pipe"} | {kind for kind in kinds if kind.startswith("/proc/")}


def test_environment_is_plain(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "do-not-tell")
    done = inside("env -0 | tr '\\0' '\\n'; cat /proc/1/environ /proc/1/cmdline /proc/mounts")
    text = done.stdout.decode()
    assert "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n" in text
    assert "HOME=/root\n" in text
    assert "do-not-tell" not in text
    assert "sandbox-tests-" not in text  # neither the home nor the folder of the sandbox


def test_own_proc_and_names(inside: Inside) -> None:
    done = inside("ls -d /proc/[0-9]* | wc -l; hostname; cat /etc/hostname; ls /proc/1/root/; readlink /proc/1/fd/*")
    count, *names = done.stdout.decode().splitlines()
    assert int(count) < 8  # init, supervisor, shell, ls, wc
    assert names == ["sandbox", "sandbox"]


def test_settings_of_the_kernel_are_read_only(inside: Inside) -> None:
    done = inside(
        "for f in /proc/sys/kernel/hostname /proc/sys/vm/drop_caches /proc/sys/net/ipv4/ip_forward /proc/sysrq-trigger "
        "/sys/power/state /proc/irq/default_smp_affinity; do [ -e $f ] && (echo 1 > $f) 2>/dev/null && echo wrote $f; "
        "done; cat /proc/keys /proc/kallsyms /proc/iomem; ls -A /sys/firmware /sys/kernel /sys/fs/cgroup "
        "| grep -v :; true"
    )
    assert done.stdout.split() == []


@pytest.mark.req_root
def test_root_inside_has_few_rights(inside: Inside) -> None:
    done = inside(
        "grep -E 'Cap(Prm|Eff|Bnd|Amb)' /proc/self/status | cut -f2; "
        "for c in 'mknod /tmp/d b 8 0' 'mount -t tmpfs x /mnt' 'date -s 2001-01-01' 'hostname other' 'dmesg' "
        "'nsenter -t 1 -m true' 'mount -o remount,rw /proc/sys' 'umount /proc/keys' 'chroot /proc/1/root true'; "
        "do $c >/dev/null 2>&1 && echo did $c; done; kill -9 1; kill -STOP 1; echo alive"
    )
    *capabilities, alive = done.stdout.decode().split()
    assert capabilities == ["00000000a00425fb"] * 3 + ["0000000000000000"]
    assert alive == "alive"


@pytest.mark.req_root
def test_a_nested_namespace_gets_no_fresh_proc(inside: Inside) -> None:
    """It would be without the masks, and give write access to the kernel's settings."""
    done = inside(
        "unshare -Urmpf sh -c 'mount -t proc p /mnt && echo proc; mount -t sysfs s /mnt && echo sysfs; "
        "umount /proc/sys && echo lifted; umount /proc/keys && echo lifted; "
        "mount -o remount,rw,bind /proc/sys && echo rw; "
        "mount -t cgroup2 c /mnt && echo cgroup; true'"
    )
    assert done.stdout == b""


def test_keyrings_are_refused(inside: Inside) -> None:
    """Root's user keyring is the same inside and outside."""
    if not Path("/usr/bin/python3").exists():
        pytest.skip("no python3 to show")
    script = "import ctypes; l = ctypes.CDLL(None, use_errno=True); print(l.syscall({}, 0, -4, 0), ctypes.get_errno())"
    number = {"x86_64": 250, "aarch64": 219}[os.uname().machine]
    assert inside(f"python3 -c '{script.format(number)}'").stdout.split() == [b"-1", b"38"]  # ENOSYS


@pytest.fixture
def secrets() -> Iterator[list[Path]]:
    """Private things in shown folders."""
    made = [Path("/etc/test-secret"), Path("/var/lib/test-secret"), Path("/opt/test-secret")]
    for folder in made:
        folder.mkdir(mode=0o700)
        (folder / "key").write_text("do-not-tell")
    file = Path("/etc/test-secret.conf")
    file.write_text("do-not-tell")
    file.chmod(0o600)
    yield [*made, file]
    for folder in made:
        (folder / "key").unlink()
        folder.rmdir()
    file.unlink()


@pytest.mark.req_root
def test_what_not_every_user_may_read_is_not_shown(
    secrets: list[Path], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harbor_assets.sandboxes.process.mask._known", {})  # else a mask is good for a minute

    async def work() -> None:
        async with sandbox(home) as box:
            done = await sh(
                box, f"cat {' '.join(map(str, secrets))} {' '.join(f'{p}/*' for p in secrets)}; ls -d /etc/ssh/*"
            )
            assert b"do-not-tell" not in done.stdout
            assert done.stdout == b""
            done = await sh(
                box, "cut -d: -f2 /etc/shadow | sort -u; sudo -n true 2>&1 || true; su -c 'id -u' daemon -s /bin/sh"
            )
            assert done.stdout.decode().splitlines()[0] == "*"
            assert done.stdout.decode().splitlines()[-1] == "1"

    run(work())


@pytest.mark.req_root
def test_sockets_of_the_machine_do_not_answer(inside: Inside) -> None:
    """A socket file in a shown folder is a name without a listener."""
    path = Path("/var/lib/test-sandbox.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        path.chmod(0o777)
        listener.listen()
        try:
            done = inside(
                f"python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"{path}\")' 2>&1 | tail -1"
            )
        finally:
            path.unlink()
    assert b"Error" in done.stdout
    assert b"No such file" not in done.stdout  # it is seen, and dead


def test_a_layer_is_under_what_is_written(home: Path, tmp_path: Path) -> None:
    layer = tmp_path / "layer"
    (layer / "ROOT/app").mkdir(parents=True)
    (layer / "ROOT/app/file").write_text("from the layer")

    async def work() -> bytes:
        async with sandbox(home, [layer]) as box:
            return (await sh(box, "cat /app/file; echo changed > /app/file; rm /app/file; ls /app")).stdout

    assert run(work()) == b"from the layer"
    assert (layer / "ROOT/app/file").read_text() == "from the layer"
