"""Traces that others send: an agent's trajectory (ATIF), spans of an OpenTelemetry exporter (OTLP over HTTP)."""

import asyncio
import gzip
import io
import json
import zlib
from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from harbor_assets.domain.errors import Malformed, TooMany
from harbor_assets.domain.experiments import StoredSession
from harbor_assets.domain.ingest import AtifTrajectory
from harbor_assets.engine.experiment_ports import ExperimentCatalog
from harbor_assets.engine.ingest import ingest_atif, ingest_otlp
from harbor_assets.interfaces.api import intake_examples as examples
from harbor_assets.interfaces.api.answers import Name, model
from harbor_assets.interfaces.api.failures import failures
from harbor_assets.interfaces.api.strict import StrictRoute

UNPACKED_MAX: Final = 64 * 1024 * 1024  # bytes of a body that came compressed


class Errors(BaseModel):
    """What of an export was not stored, and why; empty if all of it was."""

    errors: list[str]


def ingest_router(catalog: ExperimentCatalog) -> APIRouter:
    """`/ingest`."""
    router = APIRouter(prefix="/ingest", tags=["sessions"], route_class=StrictRoute)

    @router.post("/atif", response_model=StoredSession, status_code=201)
    def atif(workspace: Name, body: Annotated[AtifTrajectory, Body(openapi_examples=examples.ATIF)]) -> Response:
        """Store a trajectory as a session of the evaluation that it names, which must be there (else 400). The same
        `session_id` again replaces it; without one, the same content does."""
        return model(ingest_atif(catalog, workspace, body), 201)

    @router.post("/otlp/v1/traces", response_model=Errors, openapi_extra=examples.OTLP, responses=failures(400, 413))
    async def otlp(workspace: Name, request: Request) -> Response:
        """Add spans to their sessions: an export request in protobuf, or as JSON, gzipped or not. A trace is a session
        unless `session.id` or `gen_ai.conversation.id` names one. `nemo.experiment.id`, the name of the evaluation, and
        `nemo.test_case.id` are attributes of the outermost span or of the resource. What is not stored is told in
        `errors`, with 200."""
        data = await request.body()
        kind, packed = request.headers.get("content-type", ""), request.headers.get("content-encoding", "")
        errors = await asyncio.to_thread(
            lambda: ingest_otlp(catalog, workspace, [_document(data, kind.partition(";")[0].strip().lower(), packed)])
        )
        return JSONResponse({"errors": errors})

    return router


def _document(data: bytes, kind: str, packed: str) -> dict[str, Any]:
    if packed.strip().lower() in ("gzip", "x-gzip"):
        data = _unpacked(data)
    elif packed.strip().lower() not in ("", "identity"):
        raise Malformed("A body may be compressed with gzip, and with nothing else")
    if kind == "application/x-protobuf":
        from harbor_assets.interfaces.api.otlp_messages import read_export

        return read_export(data)
    if kind != "application/json":
        raise Malformed("An export request has the Content-Type application/x-protobuf or application/json")
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise Malformed("The body is not JSON") from None
    spans = found.get("resourceSpans") if isinstance(found, dict) else None
    if not isinstance(spans, list) or not all(isinstance(each, dict) for each in spans):
        raise Malformed("An export request is an object with resourceSpans, a list of objects")
    return found


def _unpacked(data: bytes) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            found = file.read(UNPACKED_MAX + 1)
    except (OSError, EOFError, zlib.error):
        raise Malformed("The body is not in gzip, as its Content-Encoding says") from None
    if len(found) > UNPACKED_MAX:
        raise TooMany(f"The body is above {UNPACKED_MAX} bytes when unpacked; send it in several pieces")
    return found
