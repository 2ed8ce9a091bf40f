"""What scoring needs from outside, as Protocols; as `ports.py`, kept apart for its size."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from pydantic import JsonValue

from harbor_assets.domain.agent_eval import AgentEvalJob, AgentEvalResult
from harbor_assets.domain.filters import Filter
from harbor_assets.domain.metrics.bodies import Metric, MetricInline
from harbor_assets.engine.ports import Page

MetricSort = Literal["created_at", "-created_at", "updated_at", "-updated_at", "name", "-name"]


class MetricCatalog(Protocol):
    """Stored metrics. They never change: a name is made once, and may be made anew after it was deleted."""

    def add_metric(self, workspace: str, name: str, body: MetricInline, *, project: str | None = None) -> Metric:
        """Store it. Raises `Conflict` if the name is taken, `Refused` for bad names or an unknown project."""
        ...

    def get_metric(self, workspace: str, name: str) -> Metric:
        """Raises `NotFound`."""
        ...

    def metric_bodies(self, refs: Sequence[str]) -> Mapping[str, MetricInline]:
        """`workspace/name` -> what is stored under it; those that are not there are left out."""
        ...

    def list_metrics(
        self,
        workspace: str,
        *,
        page: int = 1,
        page_size: int = 100,
        sort: MetricSort = "created_at",
        include_derived: bool = False,
        where: Filter | None = None,
    ) -> Page[Metric]:
        """Those that match `where`, made by name; with `include_derived` also those that came inside tasks."""
        ...

    def delete_metric(self, workspace: str, name: str) -> None:
        """Also one that tasks name: they then fail when they are scored. Raises `NotFound`."""
        ...

    def resolve(self, workspace: str, metrics: Sequence[str | dict[str, Any]]) -> Sequence[str]:
        """References `workspace/name` in the order given; a bare name takes `workspace`. Metrics given whole are stored
        first, equal ones once. Raises `Refused` with every one that is not stored or cannot be."""
        ...


class EvalCatalog(Protocol):
    """Evaluations of given outputs: what was asked (jobs), and what came of it (results)."""

    def add_job(self, job: AgentEvalJob, result: AgentEvalResult | None = None) -> None:
        """Store a job, and its result where it has one, together. Raises `Conflict` if the name is taken."""
        ...

    def get_job(self, workspace: str, name: str) -> AgentEvalJob:
        """Raises `NotFound`."""
        ...

    def list_jobs(
        self, workspace: str, *, page: int = 1, page_size: int = 100, sort: MetricSort = "created_at"
    ) -> Page[AgentEvalJob]: ...

    def get_result(self, workspace: str, name: str) -> AgentEvalResult:
        """Raises `NotFound`."""
        ...

    def list_results(
        self, workspace: str, *, page: int = 1, page_size: int = 100, sort: MetricSort = "created_at"
    ) -> Page[AgentEvalResult]: ...

    def delete_result(self, workspace: str, name: str) -> None:
        """Raises `NotFound`."""
        ...


class Templates(Protocol):
    """Renders templates of strangers."""

    def check(self, template: str) -> None:
        """Raises `Refused` for what is no template, or holds what none may."""
        ...

    def render(self, template: str, values: Mapping[str, JsonValue]) -> str:
        """Raises `Refused` where a value is missing, the text would be too long, or as `check`."""
        ...
