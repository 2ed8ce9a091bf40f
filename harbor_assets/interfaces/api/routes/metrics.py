"""Metrics: create, read, list, delete. They never change, so there is no replacing. Statuses are the contract's."""

from collections.abc import Iterable
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from harbor_assets.domain.errors import Refused
from harbor_assets.domain.metrics.bodies import Metric, MetricInline
from harbor_assets.engine.metric_ports import MetricCatalog, MetricSort
from harbor_assets.interfaces.api.answers import (
    Listed,
    Name,
    PageNumber,
    PageSize,
    dumped,
    listed,
    model,
    without_nulls,
)
from harbor_assets.interfaces.api.strict import StrictRoute

_TYPE = "filter[metric_type]"


def metrics_router(metrics: MetricCatalog) -> APIRouter:
    """`/metrics`."""
    router = APIRouter(prefix="/metrics", tags=["metrics"], route_class=StrictRoute)

    @router.post("/{name}", response_model=Metric, status_code=201)
    def create(workspace: Name, name: Name, body: MetricInline, project: str | None = None) -> Response:
        """Store a metric: 201; 409 if the name is taken. Its payload is kept, and never loaded or answered."""
        return model(metrics.add_metric(workspace, name, body, project=project), 201)

    @router.get("", response_model=Listed[Metric])
    def list_metrics(
        request: Request,
        workspace: Name,
        include_derived: Annotated[bool, Query(description="Also those that came inside tasks.")] = False,
        page: PageNumber = 1,
        page_size: PageSize = 100,
        sort: MetricSort = "created_at",
        metric_type: Annotated[str | None, Query(alias=_TYPE, max_length=255)] = None,
    ) -> Response:
        """One page; null members are left out, as everywhere in record lists."""
        _known_filters(request.query_params.keys())
        found = metrics.list_metrics(
            workspace,
            page=page,
            page_size=page_size,
            sort=sort,
            include_derived=include_derived,
            metric_type=metric_type,
        )
        return listed(found, [without_nulls(row) for row in dumped(found.items)], sort=sort)

    @router.get("/{name}", response_model=Metric)
    def get(workspace: str, name: str) -> Response:
        """The metric without its payload."""
        return model(metrics.get_metric(workspace, name))

    @router.delete("/{name}", status_code=204, response_class=Response)
    def delete(workspace: str, name: str) -> Response:
        """Remove it, also if tasks name it: these then cannot be scored."""
        metrics.delete_metric(workspace, name)
        return Response(status_code=204)

    return router


def _known_filters(parameters: Iterable[str]) -> None:
    others = [name for name in parameters if name.startswith("filter") and name != _TYPE]
    if others:  # ignored, it would look as if it had matched
        raise Refused(f"Metrics are filtered by {_TYPE} alone; leave {', '.join(others)[:200]} out")
