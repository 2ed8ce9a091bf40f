"""Bodies, plans and outcomes to fill a catalog with."""

import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from harbor_assets.domain.outcomes import Reason, TrialOutcome
from harbor_assets.domain.plans import AgentSpec, PlannedTask, RunPlan, SandboxChoice
from harbor_assets.domain.tasks import ArchiveSource, HarborHash, HarborTask, TaskInput

A, B, C = "a" * 64, "b" * 64, "c" * 64


def body(
    content: str = "x", *, tags: Sequence[str] = (), metadata: Sequence[dict[str, Any]] = (), **spec: Any
) -> TaskInput:
    """A task whose digest follows from `content`."""
    task = HarborTask(
        native_task_id="org/task",
        source=ArchiveSource(fileset_ref=f"default/harbor-tasks#{content}/archive", files_hash=A),
        harbor_hash=HarborHash(digest=B, harbor_version="0.26.0"),
        **spec,
    )
    return TaskInput.model_validate({"spec": task, "metadata": list(metadata), "tags": list(tags)})


def plan(*, tasks: int = 2, created_at: datetime | None = None, **values: Any) -> RunPlan:
    return RunPlan(
        **{
            "run_id": f"run-{secrets.token_hex(8)}",
            "workspace": "default",
            "owner": "eva",
            "created_at": created_at or datetime.now(UTC),
            "taskset_ref": f"default/suite#{A}",
            "tasks": tuple(
                PlannedTask(
                    index=index,
                    name=f"suite-t{index}",
                    native_task_id=f"org/t{index}",
                    ref=f"default/suite-t{index}#{B}",
                    fileset_ref=f"default/harbor-tasks#{index}/archive",
                    files_hash=A,
                    trial_key=C,
                )
                for index in range(tasks)
            ),
            "agent": AgentSpec(name="oracle"),
            "sandbox": SandboxChoice(kind="process", why="nothing else is here"),
            "harbor_version": "0.26.0",
            "harbor_assets_version": "0.1.0",
            **values,
        }
    )


def outcome(run_id: str, index: int = 0, k: int = 1, reason: Reason = Reason.GRADED, **values: Any) -> TrialOutcome:
    return TrialOutcome.model_validate(
        {
            "run_id": run_id,
            "index": index,
            "task": f"suite-t{index}",
            "task_ref": f"default/suite-t{index}#{B}",
            "native_task_id": f"org/t{index}",
            "k": k,
            "trial_id": f"suite-t{index}__{index:05d}-{k}",
            "outcome": "scored" if reason is Reason.GRADED else "not_started",
            "reason": reason,
            "reward": 1.0 if reason is Reason.GRADED else None,
            "trial_key": C,
            **values,
        }
    )
