"""A live log in the store: what others see of a trial on another machine, and what is kept of a lost one."""

import asyncio
from pathlib import Path

import pytest

from harbor_assets.domain.endings import Ending
from harbor_assets.domain.errors import NotFound, ServiceUnavailable
from harbor_assets.domain.outcomes import Reason
from harbor_assets.domain.plans import PlannedTask, trial_id
from harbor_assets.engine import logs
from harbor_assets.engine.account import evidence_path
from harbor_assets.engine.execution import Ended, plan_work
from harbor_assets.engine.logs import LIVE, TaskLogs, chunk, live_key, mirror, stored_piece, text_piece
from tests.engine.test_execution import RUN, House, graded
from tests.fakes.artifacts import MemoryArtifacts


def test_the_first_chunk_tells_the_size_of_all(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(logs, "CHUNK_BYTES", 4)
    pieces = [text_piece("abc"), text_piece(""), text_piece("défg")]
    first = chunk(iter(pieces), 0, ended=True)
    assert (first.text, first.next_offset, first.done, first.size) == ("abcd", 4, False, 8)
    second = chunk(iter(pieces), 4, ended=True)
    assert (second.text, second.done, second.size) == ("éfg", False, None)
    last = chunk(iter(pieces), 8, ended=True)
    assert (last.text, last.next_offset, last.done) == ("", 8, True)
    assert not chunk([text_piece("abc")], 0, ended=False).done


def test_a_live_log_is_stored_as_it_grows_and_no_more_than_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(logs, "LIVE_MAX_BYTES", 10)
    source, writes = tmp_path / LIVE, []

    class Store(MemoryArtifacts):
        away = True

        def put_bytes(self, key: str, data: bytes) -> None:
            if self.away:
                self.away = False
                raise ServiceUnavailable("the store is away")
            writes.append(data)

    async def scenario() -> None:
        ended = asyncio.Event()
        mirroring = asyncio.create_task(mirror(Store(), source, "k", 0.01, ended))
        await asyncio.sleep(0.05)
        assert writes == []
        for text in ("one\n", "one\ntwo\n", "one\ntwo\nthree\n", "one\ntwo\nthree\nfour\n"):
            source.write_text(text)
            await asyncio.sleep(0.1)
        ended.set()
        await asyncio.wait_for(mirroring, 5)

    asyncio.run(scenario())
    assert writes == [b"one\n", b"one\ntwo\n", b"one\ntwo\nth"]


def test_a_log_is_a_stream_before_and_after_the_trial_ended(tmp_path: Path):
    seen: list[tuple[str, bool]] = []

    async def script(task: PlannedTask, k: int) -> Ending:
        key = live_key(RUN, trial_id(task, k))
        while not house.artifacts.exists(key):
            await asyncio.sleep(0.01)
        piece = read(0)
        seen.append((piece.text, piece.done))
        return Ending(Reason.GRADED, reward=1.0)

    house = House(tmp_path, script, tasks=1)
    house.engine._mirror_seconds = 0.01
    run = house.catalog.get_run(RUN)
    reader = TaskLogs(
        runs=house.catalog,
        artifacts=house.artifacts,
        live=lambda run, task, k: stored_piece(house.artifacts, live_key(run.id, trial_id(task, k))),
    )

    def read(offset: int) -> logs.LogChunk:
        return reader.read(run, 0, offset)

    with pytest.raises(NotFound):  # asked for before the trial began
        read(0)
    assert asyncio.run(house.engine.execute_task(RUN, 0, house.listener, asyncio.Event())) is Ended.DONE
    [(live, done)] = seen
    after = read(0)
    assert live.endswith("/trial.log\nbegan\n")
    assert not done
    assert after.text.startswith(live)
    assert after.done
    assert not [key for key in house.artifacts.objects if "/live/" in key]


def test_the_log_of_a_lost_worker_is_kept_with_its_try(tmp_path: Path):
    """On a cluster a worker's disk is gone with its pod."""
    house = House(tmp_path, graded, tasks=1)
    house.engine._mirror_seconds = 60.0
    run = house.catalog.get_run(RUN)
    task = run.plan.task(0)
    house.catalog.add_try(RUN, 0, 1, run.created_at, "")
    house.artifacts.put_bytes(live_key(RUN, trial_id(task, 1)), b"the last words\n")
    assert asyncio.run(house.engine.execute_task(RUN, 0, house.listener, asyncio.Event())) is Ended.DONE
    kept = f"runs/{RUN}/agent-eval-results/{evidence_path(RUN, task, 1, earlier_try=1)}/{LIVE}"
    assert house.artifacts.objects[kept] == b"the last words\n"
    [row] = house.catalog.outcomes(RUN)
    assert row.tries[0].leftovers == evidence_path(RUN, task, 1, earlier_try=1)
    assert plan_work(tmp_path / "work", run.plan).is_dir()
