"""How a worker ended, as its log and its exit status tell."""

from pathlib import Path

import pytest

from harbor_assets.local.last_words import last_words

BEGUN = "2026-01-02 03:04:05,678 INFO harbor_assets.worker: execution 1 of run-x (2 tasks)\n"
FAILED = "2026-01-02 03:04:06,678 ERROR harbor_assets.worker: the worker of run-x failed\n"
TRACEBACK = "Traceback (most recent call last):\n  File x\nOSError: [Errno 28] No space left on device\n"


@pytest.mark.parametrize(
    ("log", "status", "said"),
    [
        (BEGUN, -9, "killed by SIGKILL; last in its log: execution 1 of run-x (2 tasks)"),
        (BEGUN, None, "it ended without a word; last in its log: execution 1 of run-x (2 tasks)"),
        (BEGUN + FAILED + TRACEBACK, 1, "exit code 1: the worker of run-x failed: OSError: [Errno 28] No space left"),
        (BEGUN + FAILED, None, "the worker of run-x failed"),
        ("", -64, "killed by SIGRTMAX"),
        ("", -200, "killed by signal 200"),
        ("", None, None),
        (None, 3, "exit code 3"),
    ],
)
def test_last_words(tmp_path: Path, log: str | None, status: int | None, said: str | None) -> None:
    path = tmp_path / "run-x.log"
    if log is not None:
        path.write_text(log)
    found = last_words(path, status)
    assert found == said or (said and found and found.startswith(said))
