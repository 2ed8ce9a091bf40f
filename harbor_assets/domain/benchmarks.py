"""Benchmarks that run by a schedule: what a `defs.yaml` says, and what its runs are called. Pure.

A benchmark asks for its runs as everybody does. That a run is one of its days stands in the run's idempotency key, not
in its plan: a run of a schedule is in nothing another than one that somebody started.
"""

import re
from collections.abc import Iterable
from datetime import date
from typing import Annotated, NamedTuple, Self
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, Field, field_validator, model_validator

from harbor_assets.domain.errors import Refused
from harbor_assets.domain.names import Ref, name_problem
from harbor_assets.domain.outcomes import TrialOutcome
from harbor_assets.domain.plans import RUN_TIMEOUT_MAX_SECONDS, SandboxWord
from harbor_assets.domain.publication import ExperimentName, Intake, PublicationRequest
from harbor_assets.domain.requests import (
    AgentSource,
    Execution,
    ModelRef,
    RunRequest,
    SandboxRequest,
    Spec,
    Target,
    TaskSelection,
    unsupported,
)
from harbor_assets.domain.retries import RETRIES_MAX
from harbor_assets.domain.tasks import Body

NAME = r"^[a-z][a-z0-9_]{0,59}$"  # part of names of Dagster's, which allow no more signs
TRIES_MAX = 20  # runs of one day: each but the last ended without a score
_KEY = re.compile(r"benchmark/(?P<name>[a-z][a-z0-9_]{0,59})/(?P<day>\d{4}-\d{2}-\d{2})(/(?P<number>\d{1,2}))?")


def _workspace(name: str) -> str:
    if problem := name_problem(name):
        raise ValueError(problem)
    return name


class Budget(Body):
    """What a benchmark's runs may cost: `usd` within the last `days` days, and how many may be begun on one day."""

    usd: Annotated[float, Field(gt=0, le=1_000_000)] | None = None
    days: int = Field(default=30, ge=1, le=366)
    runs_a_day: int | None = Field(default=None, ge=1, le=100)


class Benchmark(Body):
    """One scheduled benchmark.

    `start` is its first day; `cap` how many trials run at once; `workspace` None: the home's or deployment's own.
    """

    name: str = Field(pattern=NAME)
    taskset: str = Field(min_length=1)
    agent: str = Field(default="oracle", min_length=1, max_length=128)
    model: str | None = None
    cron: str
    timezone: str = "UTC"
    start: date
    cap: int | None = Field(default=None, ge=1, le=1000)
    attempts: int = Field(default=1, ge=1, le=1000)
    max_retries: int = Field(default=0, ge=0, le=RETRIES_MAX)
    tasks: list[str] | None = None
    sandbox: SandboxWord = "auto"
    profile: str | None = None
    timeout_seconds: Annotated[int, Field(ge=1, le=RUN_TIMEOUT_MAX_SECONDS)] | None = None
    experiment: ExperimentName | None = None
    budget: Budget = Budget()
    workspace: Annotated[str, AfterValidator(_workspace)] | None = None
    enabled: bool = True

    @field_validator("taskset")
    @classmethod
    def _reads_as_ref(cls, text: str) -> str:
        try:
            Ref.parse(text, workspace="default")
        except Refused as refused:
            raise ValueError(refused.message) from refused
        return text

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, text: str) -> str:
        try:
            ZoneInfo(text)
        except (ValueError, OSError, KeyError) as error:
            raise ValueError(f"{text[:60]!r} is no time zone; name one as Europe/Berlin, or UTC") from error
        return text

    @model_validator(mode="after")
    def _can_run(self) -> Self:
        if problems := unsupported(self.request().spec):
            raise ValueError("; ".join(map(str, problems)))
        return self

    def request(self) -> RunRequest:
        """What each of its days asks for: the body of a submit."""
        return RunRequest(
            spec=Spec(
                target=Target(
                    source=AgentSource(name=self.agent, model=ModelRef(ref=self.model) if self.model else None),
                    n_attempts=self.attempts,
                    max_retries=self.max_retries,
                ),
                publication=PublicationRequest(intake=Intake(experiment=self.experiment)) if self.experiment else None,
                tasks=TaskSelection(taskset=self.taskset, select=self.tasks),
            ),
            execution=Execution(
                sandbox=SandboxRequest(kind=self.sandbox, profile=self.profile), max_concurrent_task_jobs=self.cap
            ),
            timeout_seconds=self.timeout_seconds,
        )

    @property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.timezone)

    @property
    def prefix(self) -> str:
        """What the keys of all its runs begin with."""
        return f"benchmark/{self.name}/"

    def key(self, day: str, number: int = 1) -> str:
        """The idempotency key of a day's run; `number` above 1: of a further one, as those before left no score."""
        return f"{self.prefix}{day}" + (f"/{number}" if number > 1 else "")


class DayOf(NamedTuple):
    """Which day of which benchmark a run is for. `number` counts the tries of the day from 1."""

    benchmark: str
    day: str
    number: int

    @classmethod
    def read(cls, key: str | None) -> "DayOf | None":
        """From a run's idempotency key; None for a run of no benchmark."""
        found = _KEY.fullmatch(key or "")
        return cls(found["name"], found["day"], int(found["number"] or 1)) if found else None


class Spent(NamedTuple):
    """What trials cost in US dollars, and of how many nobody knows it."""

    usd: float
    unknown: int

    @classmethod
    def on(cls, rows: Iterable[TrialOutcome]) -> "Spent":
        """Tries that were thrown away cost, too; where a trial's own cost is unknown it is not guessed."""
        usd, unknown = 0.0, 0
        for row in rows:
            costs = [each.cost for each in row.tries if each.cost is not None]
            own = row.measurements.cost_usd
            if not costs and own is None:
                unknown += 1
            usd += max(sum(costs), own or 0.0)
        return cls(usd, unknown)

    def __add__(self, other: "Spent") -> "Spent":  # type: ignore[override]  # of tuples nobody adds these
        return Spent(self.usd + other.usd, self.unknown + other.unknown)
