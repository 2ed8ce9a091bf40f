import os
import subprocess
import sys
from pathlib import Path

from harbor_assets.local import locks


def test_a_lock_is_held_once_and_seen_by_others(tmp_path: Path) -> None:
    fd = locks.hold(tmp_path, "run-1")
    assert fd is not None
    assert locks.held(tmp_path, "run-1")
    assert locks.hold(tmp_path, "run-1") is None
    os.close(fd)
    assert not locks.held(tmp_path, "run-1")


def test_looking_makes_no_file(tmp_path: Path) -> None:
    assert not locks.held(tmp_path, "nothing")
    assert list(tmp_path.iterdir()) == []


def test_an_inherited_lock_outlives_the_one_who_took_it(tmp_path: Path) -> None:
    fd = locks.hold(tmp_path, "run-1")
    assert fd is not None
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(fd,))
    os.close(fd)
    assert locks.held(tmp_path, "run-1")
    child.kill()
    child.wait()
    assert child.stdin is not None
    child.stdin.close()
    assert not locks.held(tmp_path, "run-1")


def test_a_wait_ends_when_the_holder_dies(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from harbor_assets.local import locks\n"
        "with locks.lock(pathlib.Path(sys.argv[1]), 'p'): print('in', flush=True); input()"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdin is not None
    assert child.stdout.readline() == b"in\n"
    assert locks.held(tmp_path, "p")
    child.kill()
    with locks.lock(tmp_path, "p"):
        pass
    child.wait()
    child.stdin.close()
    child.stdout.close()
