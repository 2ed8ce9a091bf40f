"""What a bundle takes from the stores."""

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta

import pytest

from harbor_assets.domain import bundle
from harbor_assets.domain.phases import ResultState, RunPhase
from harbor_assets.domain.runs import Run
from harbor_assets.engine.bundles import gather
from tests.catalog.samples import body
from tests.fakes.accounts import START, make_plan, make_row
from tests.fakes.artifacts import MemoryArtifacts
from tests.fakes.catalog import MemoryCatalog


def run_over(refs: Mapping[str, str], names: Sequence[str]) -> Run:
    """An ended run over tasks `hello-<name>`, pinned where `refs` (name -> pinned reference) has them."""
    plan = make_plan(names)
    tasks = (task.model_copy(update={"ref": refs.get(task.name, task.ref)}) for task in plan.tasks)
    plan = plan.model_copy(update={"tasks": tuple(tasks)})
    return Run(plan=plan, phase=RunPhase.RUNNING, result_state=ResultState.PENDING, created_at=START, started_at=START)


@pytest.mark.parametrize("gone", [(), (0,), (1, 450)], ids=["all there", "the first gone", "two gone"])
def test_instructions_are_read_by_the_chunk_and_a_task_deleted_since_is_left_out(gone: Sequence[int]):
    catalog, refs = MemoryCatalog(), dict[str, str]()
    names = [f"t{i:03d}" for i in range(451)]  # three chunks, the last not full
    for i, name in enumerate(names):
        if i not in gone:
            task, _ = catalog.put_task("default", f"hello-{name}", body(name, instruction=name.upper()))
            refs[task.name] = f"default/{task.name}#{task.digest}"
    run = run_over(refs, names)
    rows = [make_row(run.plan, task.index) for task in run.plan.tasks]
    content = gather(
        run,
        rows,
        tasks=catalog,
        artifacts=MemoryArtifacts(),
        phase=RunPhase.COMPLETED,
        ended_at=START + timedelta(hours=1),
    )
    lines = next(b"".join(pieces) for name, pieces in content.files() if name == bundle.TASKS).splitlines()
    told = [json.loads(line)["inputs"]["instruction"] for line in lines]
    assert told == [None if i in gone else name.upper() for i, name in enumerate(names)]
