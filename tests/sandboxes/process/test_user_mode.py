"""As an ordinary user: a sandbox in a user namespace. Started by root, the test becomes one."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from harbor_assets.sandboxes.process.inside.keeper import remove_tree

from .as_user import UID

PROJECT = Path(__file__).parents[3]


@pytest.fixture
def user_home() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="sandbox-tests-user-"))
    if os.geteuid() == 0:
        os.chown(path, UID, UID)
    yield path
    remove_tree(str(path))


def as_user(home: Path, code: str, **variables: str) -> str:
    """Run a program as an ordinary user; what it printed."""
    program = [sys.executable, "-c", code, str(home)]
    if os.geteuid() == 0:
        program = [sys.executable, str(Path(__file__).with_name("as_user.py")), *program]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT), **variables}
    done = subprocess.run(program, capture_output=True, text=True, env=environment, cwd="/", timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


HEAD = """
import asyncio, os, socket, sys
from pathlib import Path
from harbor_assets.sandboxes.process.host import check
from harbor_assets.sandboxes.process.limits import Limits
from harbor_assets.sandboxes.process.reap import reap
from harbor_assets.sandboxes.process.sandbox import Sandbox, SandboxLost
home = Path(sys.argv[1])
assert os.getuid() != 0
async def sh(box, script, **how):
    return await box.exec(["bash", "-c", script], **how)
"""


def test_a_sandbox(user_home: Path) -> None:
    code = """
async def main():
    found = check(home)
    assert found.ok and found.mode == "user" and found.shared_network, found
    box = Sandbox(home / "sandboxes" / "x", [], home=home, limits=Limits(memory_mb=64, storage_mb=64))
    await box.start()
    try:
        assert [reason.split(":")[0] for reason in box.cgroups.missing] == ["memory", "storage"], box.cgroups
        done = await sh(box, "id -u; mkdir /app && echo hello > /app/x; cat /app/x; touch /usr/a /etc/a && echo new")
        assert done.stdout == b"0\\nhello\\nnew\\n", done
        done = await sh(box, "tail -n +3 /proc/net/dev | cut -d: -f1; cd /proc/1; ls -A net task/1/net /home /root")
        assert [line for line in done.stdout.split() if not line.endswith(b":")] == [b"lo"], done
        done = await sh(box, "mount -t tmpfs x /mnt || mknod /tmp/d c 1 3 || cat /etc/shadow || chmod 0 /dev/null")
        assert (done.code, done.stdout) == (1, b""), done
        assert (await sh(box, "id", user="daemon")).code == 126
        assert (await sh(box, "sleep 100 & setsid sleep 100", timeout=0.3)).timed_out
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            connect = f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo met"
            assert (await sh(box, connect)).code != 0
            await box.attach_network()
            assert (await sh(box, connect)).stdout == b"met\\n"  # the machine's own network
            left = await sh(box, "sleep 300 >/dev/null 2>&1 & echo $!")
            await box.detach_network()
            assert (await sh(box, connect)).code != 0
            assert (await sh(box, f"kill -0 {int(left.stdout)}")).code != 0  # it could not be cut off, so it ended
        assert os.stat("/dev/null").st_mode & 0o777 == 0o666
    finally:
        await box.stop()
    assert not box.folder.exists()
asyncio.run(main())
print("done")
"""
    assert as_user(user_home, HEAD + code) == "done\n"


@pytest.mark.req_root
def test_something_mounted_below_a_shown_folder(user_home: Path) -> None:
    """An ordinary user's overlay may not have such a folder as a lower layer."""
    public = [path for path in sorted(Path("/var/lib").iterdir()) if path.is_dir() and path.stat().st_mode & 0o5 == 0o5]
    mounted, shown = [path for path in public if not path.is_symlink() and any(path.iterdir())][:2]
    code = f"""
async def main():
    box = Sandbox(home / "sandboxes" / "x", [], home=home, keep_upper=True)
    await box.start()
    done = await sh(box, "ls -A {mounted}; ls -A {shown} | wc -l; echo x > /var/lib/new && cat /var/lib/new")
    assert done.stdout.decode().split() == ["{len(list(shown.iterdir()))}", "x"], done
    assert (await sh(box, "readlink /var/run")).stdout == b"/run\\n"
    await box.stop()
    assert (box.upper / "var/lib/new").read_text() == "x\\n"
    box.upper.rename(home / "layer")
    reap(home)
    box = Sandbox(home / "sandboxes" / "y", [home / "layer"], home=home)
    await box.start()
    assert (await sh(box, "cat /var/lib/new")).stdout == b"x\\n"
    await box.stop()
asyncio.run(main())
print("done")
"""
    assert as_user(user_home, HEAD + code, AS_USER_MOUNT=str(mounted)) == "done\n"


def test_a_killed_worker(user_home: Path) -> None:
    code = """
async def main():
    box = Sandbox(home / "sandboxes" / "x", [], home=home)
    await box.start()
    asyncio.create_task(sh(box, "setsid sleep 300 & sleep 300"))
    await asyncio.sleep(0.2)
    os._exit(9)
pid = os.fork()
if pid == 0:
    asyncio.run(main())
os.waitpid(pid, 0)
reap(home)
assert list((home / "sandboxes").iterdir()) == []
print("done")
"""
    assert as_user(user_home, HEAD + code) == "done\n"


def test_processes_are_limited(user_home: Path) -> None:
    code = """
async def main():
    box = Sandbox(home / "sandboxes" / "x", [], home=home, limits=Limits(pids=50))
    await box.start()
    try:
        done = await sh(box, "ulimit -Hu; ulimit -u 60; for i in $(seq 100); do sleep 30 & done; jobs -p | wc -l")
        assert done.stdout.split()[0] == b"50", done
        assert b"Resource temporarily unavailable" in done.stderr, done
    finally:
        await box.stop()
asyncio.run(main())
print("done")
"""
    assert as_user(user_home, HEAD + code) == "done\n"


def test_a_trial(user_home: Path, tmp_path: Path) -> None:
    code = f"""
sys.path.insert(0, {str(PROJECT)!r})
os.environ["HOME"] = str(home)
from tests.sandboxes.process.test_environment import PASS, make_task, trial
task = make_task(home / "task", solve="echo hello > x", test=PASS, dockerfile="FROM scratch\\nWORKDIR /app\\n")
result, folder = asyncio.run(trial(home, task, home / "out"))
assert result.verifier_result.rewards == {{"reward": 1.0}}, (result.exception_info, result.verifier_result)
print((folder / "sandbox.json").read_text())
"""
    printed = as_user(user_home, HEAD + code)
    assert '"mode": "user"' in printed
    assert '"how": "of the machine"' in printed
    assert "Without root the public network is this machine's own" in printed
