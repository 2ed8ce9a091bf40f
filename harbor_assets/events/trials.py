"""The event of one task of a run: what its trials came to, and where the evidence lies."""

from collections.abc import Callable, Sequence
from typing import Any

import dagster as dg

from harbor_assets.domain.digests import digest_of
from harbor_assets.domain.names import Ref
from harbor_assets.domain.outcomes import Outcome, TrialOutcome
from harbor_assets.domain.plans import PlannedTask
from harbor_assets.domain.text import visible
from harbor_assets.events.links import partition_link
from harbor_assets.partitions import run_task_key

MESSAGE_MAX = 2000  # characters; the outcome row and the report have all of it

Place = Callable[[str], str]  # a path relative to the run's bundle -> where a person finds it


def task_result_event(
    run_id: str, task: PlannedTask, rows: Sequence[TrialOutcome], place: Place
) -> dg.AssetMaterialization | dg.AssetObservation:
    """A materialisation if at least one trial was scored, else an observation: the partition then shows as failed.

    The data version is the digest of the rows.
    """
    key, metadata = run_task_key(run_id, task.index), task_metadata(run_id, task, rows, place)
    told = ", ".join(f"{row.outcome} ({row.reason})" for row in rows)
    description = f"{task.name}: {told}"
    if any(row.outcome is Outcome.SCORED for row in rows):
        tags = {"dagster/data_version": digest_of([row.model_dump(mode="json") for row in rows])}
        return dg.AssetMaterialization(
            "trial_results", partition=key, description=description, metadata=metadata, tags=tags
        )
    return dg.AssetObservation("trial_results", partition=key, description=description, metadata=metadata)


def task_metadata(run_id: str, task: PlannedTask, rows: Sequence[TrialOutcome], place: Place) -> dict[str, Any]:
    """What stands beside the event. Unknown figures are left out, never 0."""
    first = rows[0]
    rewards = [row.reward for row in rows if row.reward is not None]
    seconds = sum((t.seconds or 0.0 for row in rows for t in row.tries), 0.0)
    costs = [row.measurements.cost_usd for row in rows if row.measurements.cost_usd is not None]
    metadata: dict[str, Any] = {
        "task": task.name,
        "outcome": _joined(row.outcome for row in rows),
        "reason": _joined(row.reason for row in rows),
        "reward": dg.MetadataValue.float(sum(rewards) / len(rewards)) if rewards else None,
        "trials_scored": dg.MetadataValue.int(len(rewards)),
        "trials": dg.MetadataValue.int(len(rows)),
        "message": next((visible(row.message[:MESSAGE_MAX]) for row in rows if row.message), None),
        "duration_seconds": dg.MetadataValue.float(round(seconds, 3)),
        "cost_usd": dg.MetadataValue.float(sum(costs)) if costs else None,
        "evidence": dg.MetadataValue.path(place(first.evidence)) if first.evidence else None,
        "logs": f"harbor-assets runs logs {run_id} --task {task.index}",
        "task_ref": task.ref,
        "task_revision": partition_link("harbor_task", Ref.parse(task.ref, workspace="default").partition_key),
        "bundle": partition_link("merged_bundle", run_id),
        "files_hash": task.files_hash,
        "images": dg.MetadataValue.json(task.images) if task.images else None,
        "trial_key": task.trial_key,
    }
    if any(len(row.rewards) > 1 for row in rows):
        metadata["rewards"] = dg.MetadataValue.json({str(row.k): row.rewards for row in rows if row.rewards})
    if flags := sorted({flag for row in rows for flag in row.flags}):
        metadata["flags"] = ", ".join(flags)
    if len(rows) > 1:
        metadata["attempts"] = dg.MetadataValue.table([_attempt(row, place) for row in rows], ATTEMPTS)
    return {name: value for name, value in metadata.items() if value is not None}


ATTEMPTS = dg.TableSchema(
    [
        dg.TableColumn("k", "int", description="attempt, from 1"),
        dg.TableColumn("outcome"),
        dg.TableColumn("reason"),
        dg.TableColumn("reward", "float", description="empty unless scored"),
        dg.TableColumn("seconds", "float"),
        dg.TableColumn("evidence"),
    ]
)


def _attempt(row: TrialOutcome, place: Place) -> dg.TableRecord:
    return dg.TableRecord(
        {
            "k": row.k,
            "outcome": str(row.outcome),
            "reason": str(row.reason),
            "reward": row.reward,
            "seconds": seconds_of(row),
            "evidence": place(row.evidence) if row.evidence else None,
        }
    )


def seconds_of(row: TrialOutcome) -> float | None:
    """How long the trial's tries took together; None if nobody saw an end."""
    ended = [seconds for t in row.tries if (seconds := t.seconds) is not None]
    return round(sum(ended), 3) if ended else None


def _joined(words: "Sequence[str] | Any") -> str:
    """Each word once, in the order they came."""
    return ", ".join(dict.fromkeys(str(word) for word in words))
