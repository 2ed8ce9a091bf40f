"""Trials of a regrade: what the old run kept is given to the verifier as it was, or it is said what was not kept."""

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harbor_assets.domain.endings import Ending
from harbor_assets.domain.kept import KEPT
from harbor_assets.domain.outcomes import Measurements, Reason, TrialOutcome
from harbor_assets.domain.plans import PlannedTask, RunPlan
from harbor_assets.domain.runs import bundle_key
from harbor_assets.engine.regrading import RegradingRunner
from harbor_assets.trials.kept import write_kept
from tests.fakes.accounts import RUN_ID, make_plan, make_row
from tests.fakes.artifacts import MemoryArtifacts
from tests.fakes.catalog import MemoryCatalog

NEW = "run-fedcba9876543210"
PAID = Measurements(cost_usd=3.0, prompt_tokens=1000)


class Verifiers:
    """Plays the verifier: looks at what it was given."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.look: Callable[[Path], Ending] = lambda recorded: Ending(Reason.GRADED, reward=1.0, measurements=PAID)

    async def run(self, plan: RunPlan, task: PlannedTask, k: int, *, source: Path, folder: Path) -> Ending:
        self.ran.append("agent")
        return Ending(Reason.GRADED, reward=0.0, measurements=PAID)

    async def regrade(
        self, plan: RunPlan, task: PlannedTask, k: int, *, source: Path, recorded: Path, folder: Path
    ) -> Ending:
        self.ran.append("verifier")
        return self.look(recorded)


class House:
    """An old run with one trial, whose folder a test fills; `run` is the trial of the regrade."""

    def __init__(self, root: Path) -> None:
        self.root, self.catalog, self.artifacts, self.verifiers = root, MemoryCatalog(), MemoryArtifacts(), Verifiers()
        self.old = make_plan(["x"])
        self.catalog.add_run(self.old, request_digest="a" * 64)
        self.folder = root / "old"
        self.write("result.json", "{}")
        self.write("artifacts/manifest.json", "[]")

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)

    def end(self, ended: float | Reason = 1.0, **more: Any) -> TrialOutcome:
        row = make_row(self.old, 0, 1, ended, measurements=PAID, **more)
        if row.evidence:
            write_kept(self.folder)
            self.artifacts.put_tree(f"{bundle_key(RUN_ID)}/{row.evidence}", self.folder)
        self.catalog.add_outcome(row)
        return row

    def run(self, **changes: Any) -> Ending:
        plan = make_plan(["x"], **{"run_id": NEW, "regrade_of": RUN_ID, **changes})
        runner = RegradingRunner(self.verifiers, runs=self.catalog, artifacts=self.artifacts)
        folder = self.root / "work" / "trial"
        ending = asyncio.run(runner.run(plan, plan.tasks[0], 1, source=self.root, folder=folder))
        assert not (self.root / "work" / ".recorded" / "trial").exists()
        return ending


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def test_an_ordinary_run_is_left_as_it_is(house: House) -> None:
    assert house.run(regrade_of=None).reward == 0.0
    assert house.verifiers.ran == ["agent"]


def test_what_was_kept_is_as_it_was_although_the_store_keeps_bytes_only(house: House) -> None:
    house.write("artifacts/app/tool", "#!/bin/sh\n", 0o4751)
    house.write("artifacts/app/secret", "x", 0o600)
    (house.folder / "artifacts/app/empty").mkdir(mode=0o700)
    (house.folder / "artifacts/app/link").symlink_to("tool")
    house.write("agent/log.txt", "a long talk")
    house.end()
    seen: dict[str, Any] = {}

    def look(recorded: Path) -> Ending:
        for path in sorted(recorded.rglob("*")):
            mode = "link" if path.is_symlink() else oct(path.stat().st_mode & 0o7777)
            seen[path.relative_to(recorded).as_posix()] = mode
        return Ending(Reason.GRADED, reward=1.0)

    house.verifiers.look = look
    assert house.run().reward == 1.0
    assert seen["artifacts/app/tool"] == "0o751"  # without set-uid: it lies on the worker's own disk
    assert seen["artifacts/app/secret"] == "0o600"
    assert seen["artifacts/app/empty"] == "0o700"
    assert seen["artifacts/app/link"] == "link"
    assert "result.json" in seen
    assert "agent/log.txt" not in seen


def test_the_agent_is_paid_once_and_the_row_says_by_whom(house: House) -> None:
    house.end(Reason.VERIFIER_TIMEOUT)
    ending = house.run()
    assert (ending.reason, ending.reward) == (Reason.GRADED, 1.0)
    assert ending.measurements == Measurements()
    assert ending.flags == ("regraded",)
    assert ending.details["regraded"]["run_id"] == RUN_ID
    assert ending.details["regraded"]["paid"] == {"cost_usd": 3.0, "prompt_tokens": 1000}
    assert ending.details["regraded"]["reason"] == "verifier_timeout"
    assert f"what {RUN_ID} kept" in (ending.message or "")


LOST_LATE = {
    "verifier": {"started_at": "2026-01-01T00:00:05Z"},
    "exception_info": {"occurred_at": "2026-01-01T00:00:06Z"},
}
LOST_EARLY = {"verifier": None, "exception_info": {"occurred_at": "2026-01-01T00:00:06Z"}}


@pytest.mark.parametrize(
    ("ended", "result", "said"),
    [
        (Reason.CANCELLED_BY_USER, {}, "it ended cancelled"),
        (Reason.NEVER_STARTED, {}, "it ended not_started"),
        (Reason.AGENT_SETUP_ERROR, {}, "it ended agent_setup_failed"),
        (Reason.TASK_UNREADABLE, {}, "left no folder"),
        (Reason.SANDBOX_LOST, LOST_EARLY, "before its agent was done"),
        (Reason.SANDBOX_LOST, {}, "before its agent was done"),
    ],
)
def test_work_that_is_not_whole_is_named_and_never_scored(
    house: House, ended: Reason, result: dict[str, Any], said: str
) -> None:
    house.write("result.json", json.dumps(result))
    house.end(ended)
    ending = house.run()
    assert (ending.reason, ending.reward) == (Reason.WORK_NOT_KEPT, None)
    assert said in (ending.message or "")
    assert RUN_ID in (ending.message or "")
    assert house.verifiers.ran == []


def test_a_verifiers_sandbox_that_was_lost_left_the_agents_work_whole(house: House) -> None:
    house.write("result.json", json.dumps(LOST_LATE))
    house.end(Reason.SANDBOX_LOST)
    assert house.run().reward == 1.0


LISTED = (
    b'"files": {"artifacts/app/answer": {"mode": 420, "size": 2}, "artifacts/manifest.json": {"mode": 420, "size": 2}}'
)


def spoil(house: House, name: str, data: bytes | None) -> None:
    key = next(key for key in house.artifacts.objects if key.endswith(name))
    if data is None:
        del house.artifacts.objects[key]
    else:
        house.artifacts.objects[key] = data


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("app/answer", None, "1 of 2 files of its artifacts are not in the store as they were: artifacts/app/answer"),
        ("app/answer", b"other", "not in the store as they were"),
        ("result.json", None, "its folder is not in the store any more"),
        (KEPT, None, "a version that did not keep their modes"),
        (KEPT, b"{", "cannot be read"),
        (KEPT, b'{"files": {"/etc/passwd": 1}}', "cannot be read"),
        (KEPT, b"{}", "artifacts that it did not leave: artifacts/app/answer"),
        (KEPT, b'{"folders": {"../../out": 493}, %s}' % LISTED, "leads out of its trial's folder"),
        (KEPT, b'{"links": {"artifacts/app/answer": "/etc"}, %s}' % LISTED, "is not of this folder"),
    ],
)
def test_a_store_that_lost_or_changed_something_gives_no_score(
    house: House, name: str, data: bytes | None, said: str
) -> None:
    house.write("artifacts/app/answer", "42")
    house.end()
    spoil(house, name, data)
    ending = house.run()
    assert (ending.reason, ending.reward) == (Reason.WORK_NOT_KEPT, None)
    assert said in (ending.message or ""), ending.message
    assert house.verifiers.ran == []
    assert not (house.root / "work" / "out").exists()


def test_a_pipe_among_the_artifacts_is_named_with_what_to_do(house: House) -> None:
    house.write("artifacts/app/answer", "42")
    os.mkfifo(house.folder / "artifacts/app/pipe")
    house.end()
    message = house.run().message or ""
    assert "artifacts/app/pipe: neither a file nor a folder nor a link; leave it out with `exclude`" in message


def test_without_artifacts_there_is_nothing_to_lose(house: House) -> None:
    (house.folder / "artifacts/logs/artifacts").mkdir(parents=True)
    house.end()
    found: list[bool] = []

    def look(recorded: Path) -> Ending:
        found.append((recorded / "artifacts/logs/artifacts").is_dir())
        return Ending(Reason.GRADED, reward=1.0)

    house.verifiers.look = look
    assert house.run().reward == 1.0
    assert found == [True]


def test_what_the_verifier_finds_missing_carries_no_flag(house: House) -> None:
    house.end()
    house.verifiers.look = lambda recorded: Ending(Reason.WORK_NOT_KEPT, "no such artifact")
    ending = house.run()
    assert (ending.reason, ending.flags) == (Reason.WORK_NOT_KEPT, ())
    assert ending.details["regraded"]["trial_id"]


def test_a_run_that_is_gone_is_told(house: House) -> None:
    ending = house.run(regrade_of="run-" + "9" * 16)
    assert ending.reason is Reason.WORK_NOT_KEPT
    assert "no outcome there" in (ending.message or "")
