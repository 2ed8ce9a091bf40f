"""Metrics of the catalog. They never change: there are no revisions, and nothing to replace."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from harbor_assets.domain.errors import Refused
from harbor_assets.domain.metrics.bodies import Metric, MetricInline, bundled
from harbor_assets.domain.metrics.builtin import Definition
from harbor_assets.domain.validation import problems_of
from harbor_assets.interfaces.sdk.blocking import Blocking, blocking, blocking_page
from harbor_assets.interfaces.sdk.http import query, segment
from harbor_assets.interfaces.sdk.pages import AsyncPage
from harbor_assets.interfaces.sdk.resource import JSON, AsyncResource, Order, Where, conditions, encoded, named


class AsyncMetrics(AsyncResource):
    """Metrics: what scores a task's outputs. `workspace` None: the client's."""

    async def create(
        self,
        name: str,
        *,
        metric: Definition | MetricInline | Mapping[str, Any],
        project: str | None = None,
        workspace: str | None = None,
    ) -> Metric:
        """Store a metric: one of the classes here, as `ExactMatchMetric`, its members as a mapping, or a whole body.

        Raises `Conflict` if the name is taken, `Refused` for a definition that is not of its type.
        """
        answer = await self._http.call(
            "POST",
            self._metric(workspace, name),
            params=query(project=project),
            content=encoded(_body(metric)),
            headers=JSON,
        )
        return Metric.model_validate_json(answer.content)

    async def retrieve(self, name: str, *, workspace: str | None = None) -> Metric:
        """The metric without its payload. Raises `NotFound`."""
        return await self._read(Metric, self._metric(workspace, name))

    async def list(
        self,
        *,
        page: int = 1,
        page_size: int = 100,
        sort: Order = "created_at",
        metric_type: str | None = None,
        description_contains: str | None = None,
        include_derived: bool = False,
        filter: Where = None,
        workspace: str | None = None,
    ) -> AsyncPage[Metric]:
        """A page of the metrics; iterate over it for all that follow. Every argument must hold.

        `include_derived`: also those that came inside tasks.
        """
        asked = conditions(
            filter,
            metric_type=metric_type,
            description=None if description_contains is None else {"$like": description_contains},
        )
        parameters = [*query(page_size=page_size, sort=sort, include_derived=include_derived).items(), *asked]
        return await self._list(Metric.model_validate, self._at(workspace, "metrics"), parameters, page)

    async def delete(self, name: str, *, workspace: str | None = None) -> None:
        """Delete a metric, also one that tasks name: these then cannot be scored. Raises `NotFound`."""
        await self._http.call("DELETE", self._metric(workspace, name))

    def _metric(self, workspace: str | None, name: str) -> str:
        owner, _, bare = name.rpartition("/")  # a reference, as tasks hold it
        return self._at(owner or workspace, "metrics", segment(named("metric", bare)))


def _body(metric: Definition | MetricInline | Mapping[str, Any]) -> MetricInline:
    if isinstance(metric, MetricInline):
        return metric
    members = metric.model_dump(mode="json") if isinstance(metric, Definition) else dict(metric)
    try:
        return MetricInline.model_validate(members) if "payload" in members else bundled(members)
    except ValidationError as error:
        raise Refused("The metric cannot be stored:", problems_of(error, MetricInline)) from None
    except ValueError as error:
        raise Refused(f"The metric cannot be stored: {error}") from None


class Metrics(Blocking):
    """Metrics: what scores a task's outputs."""

    create = blocking(AsyncMetrics.create)
    retrieve = blocking(AsyncMetrics.retrieve)
    list = blocking_page(AsyncMetrics.list)
    delete = blocking(AsyncMetrics.delete)
