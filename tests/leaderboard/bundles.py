"""Bundles on disk as the store takes them, of small runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harbor_assets.domain import bundle
from harbor_assets.domain.bundle import RunMetadata
from harbor_assets.domain.outcomes import Reason, TrialOutcome
from harbor_assets.domain.plans import RunPlan
from harbor_assets.domain.policies import OutcomeSummary
from harbor_assets.domain.ranking import ranked
from harbor_assets.engine.ranking_ports import RankedBundle
from harbor_assets.leaderboard.parquet import ParquetTables
from tests.fakes.accounts import make_bundle, make_plan, make_row

Ended = float | Reason


def run_id(n: int) -> str:
    return f"run-{n:016x}"


def make_run(n: int, rewards: Sequence[Sequence[Ended]], **plan: Any) -> tuple[RunPlan, list[TrialOutcome]]:
    """Run number `n`: the trials of each task, ended as given."""
    made = make_plan(
        [f"t{i}" for i in range(len(rewards))], n_attempts=max(map(len, rewards)), **{"run_id": run_id(n), **plan}
    )
    rows = [make_row(made, i, k, ended) for i, task in enumerate(rewards) for k, ended in enumerate(task, 1)]
    return made, rows


def write_bundle(folder: Path, plan: RunPlan, rows: Sequence[TrialOutcome], **labels: str) -> RankedBundle:
    """The files that the store reads, and the run's line."""
    own = folder / plan.run_id
    own.mkdir(parents=True, exist_ok=True)
    content = make_bundle(plan, rows)
    ParquetTables().write(content.tables, own)
    files = {name: b"".join(pieces) for name, pieces in content.files()}
    (own / bundle.OUTCOMES).write_bytes(files[bundle.OUTCOMES])
    metadata = RunMetadata.model_validate_json(files[bundle.METADATA])
    metadata = metadata.model_copy(update={"labels": {**metadata.labels, **labels}})
    account = OutcomeSummary.model_validate_json(files[bundle.OUTCOME_SUMMARY])
    return RankedBundle(ranked(plan.run_id, metadata, account), own)


def small(folder: Path, n: int, *rewards: Ended, **labels: str) -> RankedBundle:
    """A run of one trial for each task."""
    plan, rows = make_run(n, [[reward] for reward in rewards])
    return write_bundle(folder, plan, rows, **labels)
