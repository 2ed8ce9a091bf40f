"""Storing traces that others send: a whole trajectory, or spans as an exporter sends them, piece by piece."""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from harbor_assets.domain.errors import Malformed, NotFound, Refused
from harbor_assets.domain.experiments import StoredSession
from harbor_assets.domain.ingest import AtifTrajectory, Piece, atif_session, otlp_pieces, session_id_problem
from harbor_assets.domain.text import quoted
from harbor_assets.engine.experiment_ports import ExperimentCatalog

_FIRST = "must be created before it can be logged to; create it, then send the trace again"


def _now() -> datetime:
    return datetime.now(UTC)


def ingest_atif(
    catalog: ExperimentCatalog, workspace: str, body: AtifTrajectory, *, now: Callable[[], datetime] = _now
) -> StoredSession:
    """Store a trajectory as a session, in the place of the one of its id, with the results that came with it.

    Raises `Malformed` for an evaluation that is not there.
    """
    found = atif_session(body, now=now())
    try:
        stored = catalog.put_session(workspace, found.session, found.spans)
    except NotFound:
        raise Malformed(f"The evaluation {quoted(found.session.evaluation, 80)} {_FIRST}") from None
    for result in found.results:
        catalog.put_evaluator_result(workspace, result)
    return catalog.get_session(workspace, stored.session_id) if found.results else stored


def ingest_otlp(
    catalog: ExperimentCatalog,
    workspace: str,
    documents: Iterable[Mapping[str, Any]],
    *,
    now: Callable[[], datetime] = _now,
) -> list[str]:
    """Add spans to their sessions; answers what could not be stored, and why.

    A session that is not there yet is made when a span of it names its evaluation; until then its spans are refused.
    """
    errors: list[str] = []
    for piece in otlp_pieces(documents):
        try:
            _store(catalog, workspace, piece, now())
        except NotFound:
            errors.append(f"{_of(piece)}: the evaluation {quoted(piece.evaluation or '', 80)} {_FIRST}")
        except Refused as refused:
            errors.append(f"{_of(piece)}: {refused.message}")
        except ValidationError as error:
            at = ".".join(str(part) for part in error.errors()[0]["loc"])
            errors.append(f"{_of(piece)}: its {at} cannot be stored")
    return errors


def _store(catalog: ExperimentCatalog, workspace: str, piece: Piece, now: datetime) -> None:
    if problem := session_id_problem(piece.session_id):
        raise Refused(problem)
    evaluation = piece.evaluation
    if evaluation is None:
        try:
            evaluation = catalog.get_session(workspace, piece.session_id).evaluation
        except NotFound:
            raise Refused(
                "no span of it names its evaluation; set the attribute nemo.experiment.id, best on the resource, since "
                "exporters send inner spans first"
            ) from None
    catalog.add_spans(workspace, piece.session(evaluation, now=now), piece.spans)


def _of(piece: Piece) -> str:
    return f"session {quoted(piece.session_id, 80)}"
