"""Ended runs to test with: a plan, its outcome rows, and what their folders hold."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from harbor_assets.domain.outcomes import OUTCOME_OF, Measurements, Outcome, Reason, TrialError, TrialOutcome, Try
from harbor_assets.domain.phases import RunPhase
from harbor_assets.domain.plans import AgentSpec, PlannedTask, RunPlan, SandboxChoice, job_name, trial_id
from harbor_assets.engine.merge import BundleContent, merge

RUN_ID = "run-0123456789abcdef"
START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
FILES = [
    ("config.json", 900),
    ("result.json", 4000),
    ("trial.log", 300),
    ("agent/oracle.txt", 12),
    ("verifier/reward.txt", 4),
    ("verifier/test-stdout.txt", 2000),
    ("artifacts/manifest.json", 20),
]


def make_plan(names: Sequence[str], *, n_attempts: int = 1, **more: Any) -> RunPlan:
    """A plan of tasks `hello-<name>` with native ids `org/<name>`."""
    tasks = tuple(
        PlannedTask(
            index=i,
            name=f"hello-{name}",
            native_task_id=f"org/{name}",
            ref=f"default/hello-{name}#{i:064x}",
            fileset_ref=f"default/harbor-tasks#{name}/{i:064x}/task_archive",
            files_hash=f"{i:064x}",
            trial_key=f"{i:064x}",
        )
        for i, name in enumerate(names)
    )
    return RunPlan(
        **{
            "run_id": RUN_ID,
            "workspace": "default",
            "owner": "ada",
            "created_at": START - timedelta(seconds=2),
            "taskset_ref": f"default/hello#{'a' * 64}",
            "tasks": tasks,
            "agent": AgentSpec(name="oracle"),
            "sandbox": SandboxChoice(
                kind="process",
                why="no container engine answers",
                notes=("the image of each task is replaced by this machine",),
                fingerprint="debian-12-x86_64",
            ),
            "n_attempts": n_attempts,
            "harbor_version": "0.26.0",
            "harbor_assets_version": "0.1.0",
            **more,
        }
    )


def make_row(plan: RunPlan, index: int, k: int = 1, ended: float | Reason = 1.0, **more: Any) -> TrialOutcome:
    """Trial (index, k), scored with a number or ended for a reason. Trials begin a second apart and take 1.5 s."""
    task = plan.task(index)
    reason = ended if isinstance(ended, Reason) else Reason.GRADED
    ran = reason not in (Reason.NEVER_STARTED, Reason.TASK_UNREADABLE)
    start = START + timedelta(seconds=index * plan.n_attempts + k - 1)
    folder = f"evidence/harbor/{job_name(plan.run_id, index)}/{trial_id(task, k)}" if ran else None
    fields: dict[str, Any] = {
        "run_id": plan.run_id,
        "index": index,
        "task": task.name,
        "task_ref": task.ref,
        "native_task_id": task.native_task_id,
        "k": k,
        "trial_id": trial_id(task, k),
        "outcome": OUTCOME_OF[reason],
        "reason": reason,
        "reward": None if isinstance(ended, Reason) else ended,
        "reward_key": plan.reward_key,
        "rewards": {} if isinstance(ended, Reason) else {plan.reward_key: ended},
        "trial_key": task.trial_key,
        "tries": (Try(start=start, end=start + timedelta(seconds=1.5), leftovers=folder),) if ran else (),
        "measurements": Measurements(runtime_sec=0.7) if ran else Measurements(),
        "evidence": folder,
        **more,
    }
    return TrialOutcome(**fields)


def agent_error(kind: str = "AgentTimeoutError") -> TrialError:
    return TrialError(
        type=kind, message="the agent used up its 60 s", traceback="Traceback ...", occurred_at="2026-01-02T03:04:06"
    )


def make_bundle(plan: RunPlan, rows: Sequence[TrialOutcome], **more: Any) -> BundleContent:
    """The merged content of an ended run."""
    facts: dict[str, Any] = {
        "evidence": {row.trial_id: FILES for row in rows if row.evidence},
        "instructions": {task.index: f"Say {task.name}." for task in plan.tasks},
        "phase": RunPhase.COMPLETED if any(r.outcome is Outcome.SCORED for r in rows) else RunPhase.FAILED,
        "started_at": START,
        "finished_at": START + timedelta(seconds=30),
        "output_dir": "runs/agent-eval-results",
        **more,
    }
    return merge(plan, rows, **facts)
