"""Whether tasks can be trusted: each judged by what the agents `oracle` (its own solution) and `nop` (nothing) got.

A trial **passes** with a reward of at least 1 (`statistics.PASS`, as pass@k counts). A task is `good` if the oracle
passes in every trial and nop in none. What failed outside the task (infrastructure, a cancel, the deadline) says
nothing of it: where such trials could turn the verdict, there is none. A verifier that gives no reward is the task's
own: that trial did not pass. A step of the task's Dockerfile that fails is most often the task's own as well, but also
fails when what it fetches is away: there is no verdict, and the text names the step.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from pydantic import Field

from harbor_assets.domain.marks import Verdict
from harbor_assets.domain.outcomes import Frozen, Outcome, Reason, TrialOutcome
from harbor_assets.domain.plans import RUN_ID, PlannedTask
from harbor_assets.domain.statistics import PASS

ATTEMPTS: Final = 3  # of each agent, where nobody says how many
_SAID_MAX: Final = 300  # characters of what a failed step of a Dockerfile said
# Outcomes that say something of the task: a reward, or that its own verifier gave none.
_TELLING: Final = (Outcome.SCORED, Outcome.VERIFIER_FAILED)


class Attempts(Frozen):
    """What an agent's trials of a task came to. `undecided`: those that say nothing of the task, and those missing;
    `reasons`: reason -> number of the trials that did not pass or say nothing, where they have no reward."""

    planned: int = Field(ge=1)
    passed: int = Field(ge=0)
    failed: int = Field(ge=0)
    reasons: dict[str, int] = {}

    @property
    def undecided(self) -> int:
        return self.planned - self.passed - self.failed

    def told(self, agent: str) -> str:
        """In words: `oracle passed 2 of 3 (1 reward_missing)`."""
        why = ", ".join(f"{n} {reason}" for reason, n in self.reasons.items())
        return f"{agent} passed {self.passed} of {self.planned}{f' ({why})' if why else ''}"


class VerificationRequest(Frozen):
    """Two ended runs of one taskset: of the agent oracle, and of nop."""

    oracle_run: str = Field(pattern=RUN_ID)
    nop_run: str = Field(pattern=RUN_ID)


class JudgedTask(Frozen):
    """One task, judged. `verdict` None: nothing can be said, `why` tells what was in the way.

    `newer_runs`: those that were submitted later and have marked the task; their mark stays, this verdict is not kept.
    """

    index: int
    task: str
    task_ref: str
    verdict: Verdict | None
    why: str
    oracle: Attempts
    nop: Attempts
    newer_runs: tuple[str, ...] = ()


class Verification(Frozen):
    """What verifying a taskset found: its tasks in the order of their indexes, and the two runs that show it."""

    workspace: str
    taskset_ref: str
    oracle_run: str
    nop_run: str
    tasks: tuple[JudgedTask, ...]

    @property
    def good(self) -> int:
        """How many tasks are good."""
        return sum(task.verdict is Verdict.GOOD for task in self.tasks)


def attempts(rows: Sequence[TrialOutcome], planned: int) -> Attempts:
    """What the outcome rows of one task and agent come to."""
    telling = [row for row in rows if row.outcome in _TELLING]
    passed = sum(row.reward is not None and row.reward >= PASS for row in telling)
    reasons = Counter(row.reason.value for row in rows if row.reward is None)
    if missing := planned - len(rows):
        reasons["no outcome"] = missing
    return Attempts(planned=planned, passed=passed, failed=len(telling) - passed, reasons=dict(sorted(reasons.items())))


def judge(oracle: Attempts, nop: Attempts) -> Verdict | None:
    """The verdict, or None where trials that say nothing could turn it.

    One pass of nop, or an oracle that passes and fails, is enough for its verdict whatever the others would have been.
    """
    if nop.passed:
        return Verdict.NOP_PASSES
    if oracle.passed and oracle.failed:
        return Verdict.FLAKY
    if oracle.undecided or nop.undecided:
        return None
    return Verdict.GOOD if oracle.passed else Verdict.ORACLE_FAILS


def judged(
    tasks: Iterable[PlannedTask],
    oracle: Iterable[TrialOutcome],
    nop: Iterable[TrialOutcome],
    planned: tuple[int, int],
    *,
    where: str,
) -> list[JudgedTask]:
    """Every task, judged. `oracle` and `nop`: the rows of the two runs; `planned`: their trials of each task; `where`
    they ran, in words."""
    by_task: tuple[dict[int, list[TrialOutcome]], ...] = ({}, {})
    for rows, found in zip((oracle, nop), by_task, strict=True):
        for row in rows:
            found.setdefault(row.index, []).append(row)
    told: list[JudgedTask] = []
    for task in tasks:
        mine, nothing = (attempts(found.get(task.index, []), n) for found, n in zip(by_task, planned, strict=True))
        verdict = judge(mine, nothing)
        why = f"{mine.told('oracle')}, {nothing.told('nop')} {where}"
        if verdict is None:
            why = f"undecided: {why}; {_in_the_way([row for rows in by_task for row in rows.get(task.index, [])])}"
        told.append(
            JudgedTask(
                index=task.index,
                task=task.name,
                task_ref=task.ref,
                verdict=verdict,
                why=why,
                oracle=mine,
                nop=nothing,
            )
        )
    return told


def _in_the_way(rows: Sequence[TrialOutcome]) -> str:
    """Why these trials of a task give no verdict."""
    broken = next((row for row in rows if row.reason is Reason.IMAGE_BUILD), None)
    if broken is None:
        return "what failed outside the task says nothing of it"
    said = " ".join((broken.message or "").split())
    step = f": {said[:_SAID_MAX]}{'…' if len(said) > _SAID_MAX else ''}" if said else ""
    return (
        f"a step of the task's own Dockerfile failed{step}. Correct it and publish the suite again, or verify again if "
        "only what the step fetches was away"
    )
