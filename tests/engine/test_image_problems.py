"""A task whose image failed ends without a sandbox, and the others run."""

import asyncio
from pathlib import Path

import pytest

from harbor_assets.domain.endings import Ending
from harbor_assets.domain.outcomes import Outcome, Reason
from harbor_assets.domain.plans import ImageProblem, PlannedTask
from tests.engine.test_execution import HEX, House, plan

OTHER = "run-fedcba9876543210"


@pytest.mark.parametrize("reason", ["image_build", "image_pull"])
def test_a_failed_image_is_an_infrastructure_failure_and_stops_no_other(tmp_path: Path, reason: str):
    async def scored(task: PlannedTask, k: int) -> Ending:
        return Ending(Reason.GRADED, reward=1.0)

    tasks = list(plan().tasks)
    problem = ImageProblem.model_validate({"reason": reason, "message": "exit code: 1"})
    tasks[1] = tasks[1].model_copy(update={"image_problem": problem})
    house = House(tmp_path, scored)
    other = plan().model_copy(update={"run_id": OTHER, "tasks": tuple(tasks)})
    house.catalog.add_run(other, request_digest=HEX)
    house.engine.begin(OTHER)
    asyncio.run(house.engine.execute(OTHER, house.listener, asyncio.Event()))
    rows = house.catalog.outcomes(OTHER)
    assert [row.outcome for row in rows] == [Outcome.SCORED, Outcome.INFRA_FAILED, Outcome.SCORED]
    assert (rows[1].reason, rows[1].message, rows[1].evidence) == (Reason(reason), "exit code: 1", None)
    assert (1, 1) not in house.runner.ran
