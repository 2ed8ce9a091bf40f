"""Out of memory in three places, and too much on disk: each is the trouble of its own task. (The worker's own memory:
tests/cluster/test_on_cluster.py.)"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.harness.deployment import Deployment
from tests.cluster.test_real_trials import submit

pytestmark = pytest.mark.req_k8s
EAT = "perl -e '$x = \"x\" x 400000000; sleep 5'"
LIMIT = "memory_mb = 96\n"


def _agents_child(task: Path) -> None:
    _limit(task, LIMIT)
    _append(task / "solution" / "solve.sh", f"{EAT}\nexit 3\n")


def _verifier(task: Path) -> None:
    _limit(task, LIMIT)
    path = task / "tests" / "test.sh"
    path.write_text(f"#!/bin/bash\nset -e\n{EAT}\n{path.read_text()}")


def _sandbox(task: Path) -> None:
    """What lies in memory belongs to no process: the kernel kills one after the other, to the last."""
    _limit(task, "memory_mb = 64\n")
    fill = "for i in 1 2 3 4 5 6 7 8; do (head -c 60000000 /dev/zero > /dev/shm/$i) & done; sleep 60\n"
    _append(task / "solution" / "solve.sh", fill)


def _disk(task: Path) -> None:
    _limit(task, "storage_mb = 50\n")
    _append(task / "solution" / "solve.sh", "head -c 200000000 /dev/zero > /app/big; sleep 100\n")


def _limit(task: Path, line: str) -> None:
    path = task / "task.toml"
    path.write_text(path.read_text().replace("[environment]\n", f"[environment]\n{line}"))


def _append(path: Path, text: str) -> None:
    path.write_text(path.read_text() + text)


BREAK: tuple[tuple[Callable[[Path], None], tuple[str, str], str], ...] = (
    (_agents_child, ("scored", "graded_after_memory_limit"), "memory_limit_hit"),
    (_verifier, ("verifier_failed", "reward_missing"), "memory_limit_hit"),
    (_sandbox, ("infra_failed", "out_of_memory"), ""),
    (_disk, ("infra_failed", "storage"), "disk_limit_hit"),
)


def test_each_limit_is_the_trouble_of_its_own_task(deployed: Deployment, tmp_path: Path) -> None:
    suite = deployed.suite(tmp_path, len(BREAK) + 1)
    for i, (break_, _, _) in enumerate(BREAK):
        break_(suite / f"hello-{i:02d}")
    run_id = submit(deployed, suite, "-n", "5")
    status = deployed.wait(run_id)
    rows = deployed.rows(run_id)
    said = [(row["outcome"], row["reason"], row["message"]) for row in rows]
    expected = [*(outcome for _, outcome, _ in BREAK), ("scored", "graded")]
    assert [(row["outcome"], row["reason"]) for row in rows] == expected, said
    assert [row["reward"] for row in rows] == [1.0, None, None, None, 1.0]
    for row, (_, _, flag) in zip(rows, BREAK, strict=False):
        assert not flag or flag in row["flags"], row
    assert (status["phase"], status["executions"]) == ("completed", 1)
    deployed.nothing_left(run_id)
