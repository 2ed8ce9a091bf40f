"""Metrics: create, read, list, delete. They never change, so there is no replacing. Statuses are the contract's."""

from typing import Annotated

from fastapi import APIRouter, Body, Query, Request, Response

from harbor_assets.domain.filter_syntax import parse_filter
from harbor_assets.domain.filters import METRIC_FIELDS
from harbor_assets.domain.metrics.bodies import Metric, MetricInline
from harbor_assets.engine.metric_ports import MetricCatalog, MetricSort
from harbor_assets.interfaces.api import examples
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
from harbor_assets.interfaces.api.routes.records import Where
from harbor_assets.interfaces.api.strict import StrictRoute

MetricBody = Annotated[MetricInline, Body(openapi_examples=examples.METRICS)]


def metrics_router(metrics: MetricCatalog) -> APIRouter:
    """`/metrics`."""
    router = APIRouter(prefix="/metrics", tags=["metrics"], route_class=StrictRoute)

    @router.post("/{name}", response_model=Metric, status_code=201)
    def create(workspace: Name, name: Name, body: MetricBody, project: str | None = None) -> Response:
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
        where: Where = None,
    ) -> Response:
        """One page; null members are left out, as everywhere in record lists."""
        asked = parse_filter(request.query_params.multi_items(), fields=METRIC_FIELDS, workspace=workspace)
        found = metrics.list_metrics(
            workspace,
            page=page,
            page_size=page_size,
            sort=sort,
            include_derived=include_derived,
            where=asked,
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
