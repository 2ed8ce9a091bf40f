"""A run's life with a publication: its Evaluation first, its trials while it goes on, its end when it is settled."""

import asyncio
from pathlib import Path

import pytest

from harbor_assets.domain.endings import Ending
from harbor_assets.domain.experiments import ExperimentInput
from harbor_assets.domain.outcomes import Reason
from harbor_assets.domain.phases import ResultState, RunPhase
from harbor_assets.domain.plans import PlannedTask
from harbor_assets.domain.publication import Publication
from harbor_assets.engine.publication import Publisher
from tests.engine.test_execution import RUN, House, Script, graded
from tests.fakes.experiments import MemoryExperiments

PUBLICATION = Publication(
    experiment="e", evaluation=f"oracle-{RUN}", dataset="suite", dataset_version="v1", agent_name="oracle"
)


def house_of(root: Path, script: Script, *, tasks: int = 2) -> tuple[House, MemoryExperiments]:
    experiments = MemoryExperiments()
    experiments.create_experiment("w", ExperimentInput(name="e"))
    house = House(root, script, tasks=tasks, publication=PUBLICATION)
    house.engine._publisher = Publisher(experiments, house.artifacts)
    return house, experiments


def test_a_trial_is_to_be_seen_while_others_are_still_at_work(tmp_path: Path) -> None:
    seen: list[tuple[int, str | None]] = []

    async def second_waits_for_the_first(task: PlannedTask, k: int) -> Ending:
        evaluation = experiments.get_evaluation("w", PUBLICATION.evaluation)
        seen.append((task.index, evaluation.status))
        if task.index == 1:
            for _ in range(500):
                if experiments.list_sessions("w", PUBLICATION.evaluation).total == 1:
                    return Ending(Reason.GRADED, reward=0.0)
                await asyncio.sleep(0.01)
            raise AssertionError("the first was not published")
        return Ending(Reason.GRADED, reward=1.0)

    house, experiments = house_of(tmp_path, second_waits_for_the_first)
    asyncio.run(house.execute())
    assert sorted(seen) == [(0, "running"), (1, "running")]
    assert house.settle() == (RunPhase.COMPLETED, ResultState.READY)
    evaluation = experiments.get_evaluation("w", PUBLICATION.evaluation)
    assert (evaluation.status, evaluation.run_count) == ("completed", 2)
    assert evaluation.aggregate_scores["harbor_reward.reward"].mean == 0.5
    assert house.catalog.get_run(RUN).error is None


def test_what_was_lost_on_the_way_is_published_when_the_run_is_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house, experiments = house_of(tmp_path, graded)
    monkeypatch.setattr(Publisher, "publish_trials", lambda self, run, rows: 1 / 0)
    asyncio.run(house.execute())
    assert experiments.list_sessions("w", PUBLICATION.evaluation).total == 0
    monkeypatch.undo()
    house.settle()
    assert experiments.list_sessions("w", PUBLICATION.evaluation).total == 2


def test_a_run_whose_evaluation_was_deleted_ends_as_its_trials_did_and_says_so(tmp_path: Path) -> None:
    house, experiments = house_of(tmp_path, graded)
    asyncio.run(house.execute())
    experiments.delete_evaluation("w", PUBLICATION.evaluation)
    assert house.settle() == (RunPhase.COMPLETED, ResultState.READY)
    error = house.catalog.get_run(RUN).error
    assert error is not None
    assert error.startswith("not published to the Evaluation")
    house.engine.begin(RUN)  # another worker does not make it anew
    assert experiments.list_evaluations("w").total == 0


def test_a_task_is_published_by_name_as_long_as_the_run_goes_on(tmp_path: Path) -> None:
    house, _experiments = house_of(tmp_path, graded)
    asyncio.run(house.execute())
    published = house.engine.publish_trials(RUN, 1)
    assert published is not None
    assert published.sessions == 1
    house.settle()
    assert house.engine.publish_trials(RUN, 1) is None
