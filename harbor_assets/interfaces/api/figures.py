"""What a monitoring system asks of the service: figures in Prometheus' text format. Counts, and nobody's names.

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

import logging
import platform
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Final

from fastapi import FastAPI
from fastapi.responses import Response
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from harbor_assets.domain.errors import HarborAssetsError
from harbor_assets.domain.runs import Tally
from harbor_assets.interfaces.api.guard import FIGURES
from harbor_assets.interfaces.version import version

log = logging.getLogger(__name__)

KEPT_SECONDS: Final = 10.0  # counting reads every row: two scrapers, or an impatient one, cost the database no more
_BUCKETS: Final = (0.01, 0.05, 0.25, 1.0, 5.0, 30.0)  # seconds; a look costs some milliseconds, a build minutes
_OTHER: Final = "other"  # a path of no route: whoever makes some up must not make figures
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Figures:
    """The figures of one service. `tally` counts what the catalog holds; it is asked at a look, never in between."""

    def __init__(self, tally: Callable[[], Tally]) -> None:
        disable_created_metrics()  # the library's own switch, for the whole process
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "harbor_assets_http_requests", "Answers given", ["method", "route", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "harbor_assets_http_request_seconds",
            "From a request's head to the end of its answer",
            ["method"],
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self._registry.register(_Catalog(tally))

    def text(self) -> bytes:
        """All of them, as they are now."""
        return generate_latest(self._registry)

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """A request has been answered."""
        known = method if method in _METHODS else _OTHER
        self._requests.labels(known, route, str(status)).inc()
        self._seconds.labels(known).observe(seconds)

    def serve_in(self, app: FastAPI) -> None:
        """Count the requests of an application from now on, those that are refused too, and answer with the figures."""
        app.add_middleware(_Counted, self)

        @app.get(FIGURES, include_in_schema=False)
        def figures() -> Response:
            """Runs, trials, queue, requests and versions, for a monitoring system."""
            return Response(self.text(), media_type=CONTENT_TYPE_LATEST)


class _Counted:
    """ASGI middleware, the outermost."""

    def __init__(self, app: ASGIApp, figures: Figures) -> None:
        self._app, self._figures = app, figures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin, status = time.perf_counter(), 500

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            route = getattr(scope.get("route"), "path", _OTHER)
            self._figures.count(scope["method"], route, status, time.perf_counter() - begin)


class _Catalog(Collector):
    """What the catalog holds, counted when it is asked for and then kept for a while."""

    def __init__(self, tally: Callable[[], Tally]) -> None:
        self._tally = tally
        self._lock = threading.Lock()
        self._kept: Tally | None = None
        self._kept_until = float("-inf")

    def describe(self) -> list[GaugeMetricFamily]:
        """Nothing: the names are those of `collect`, which asks the database."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Gauges. While the catalog does not answer those of runs and trials are missing, rather than wrong."""
        names = ("version", "harbor", "dagster", "python")
        build = GaugeMetricFamily("harbor_assets_build_info", "Versions, in the labels", labels=names)
        build.add_metric([version(), version("harbor"), version("dagster"), platform.python_version()], 1)
        yield build
        found = self._counted()
        yield GaugeMetricFamily("harbor_assets_catalog_up", "1 if the catalog answers", value=0 if found is None else 1)
        if found is None:
            return
        runs = GaugeMetricFamily("harbor_assets_runs", "Runs there are, by phase", labels=["phase"])
        for phase, number in found.runs.items():
            runs.add_metric([phase.value], number)
        yield runs
        trials = GaugeMetricFamily("harbor_assets_trials", "Trials that have ended, by outcome", labels=["outcome"])
        for outcome, number in found.trials.items():
            trials.add_metric([outcome.value], number)
        yield trials
        since = found.waiting_since
        yield GaugeMetricFamily(
            "harbor_assets_queue_oldest_seconds",
            "How long the oldest run has waited that has no slot yet; 0: none waits",
            value=max(0.0, (datetime.now(UTC) - since).total_seconds()) if since else 0.0,
        )

    def _counted(self) -> Tally | None:
        with self._lock:
            if time.monotonic() >= self._kept_until:
                try:
                    self._kept = self._tally()
                except HarborAssetsError as error:
                    log.warning("runs and trials cannot be counted: %s", error)
                    self._kept = None
                self._kept_until = time.monotonic() + KEPT_SECONDS
            return self._kept
