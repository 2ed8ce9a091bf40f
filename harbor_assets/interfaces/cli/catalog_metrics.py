"""What the commands of `metrics` do and print."""

from typing import Any

from harbor_assets.domain.metrics.bodies import Metric
from harbor_assets.interfaces.cli.catalog import Listing, ask, deleted, listed, named, nearest_named
from harbor_assets.interfaces.cli.output import Output, counted, moment
from harbor_assets.interfaces.cli.records_shown import print_facts
from harbor_assets.interfaces.cli.report import print_place
from harbor_assets.interfaces.cli.session import Session


def list_metrics(session: Session, asked: Listing, out: Output, *, derived: bool) -> None:
    """A page of metrics, one a line."""
    page = session.evaluator.metrics.list(
        page=asked.page, page_size=asked.page_size, sort=asked.sort, filter=asked.filter, include_derived=derived
    )
    if listed(session, page, "metrics", asked, out, [one.model_dump(mode="json") for one in page.data]):
        return
    rows = [
        (
            one.name,
            one.metric_type,
            ", ".join(o.name for o in one.outputs),
            moment(one.created_at),
            one.description or "",
        )
        for one in page.data
    ]
    out.table(("NAME", "TYPE", "OUTPUTS", "CREATED", "DESCRIPTION"), rows)
    print_place(page.pagination, "metrics")


def show_metric(session: Session, name: str, out: Output) -> None:
    """One metric."""
    ref = named(session, name)
    with nearest_named(session.evaluator.metrics, ref):
        found = session.evaluator.metrics.retrieve(ref.name, workspace=ref.workspace)
    if out.json:
        out.document(found.model_dump(mode="json"))
        return
    print_facts(
        [
            ("Metric", f"{found.workspace}/{found.name}"),
            ("Type", found.metric_type),
            ("Outputs", ", ".join(one.name for one in found.outputs)),
            ("Payload", f"{found.payload_kind}, SHA-256 {found.payload_digest}"),
            ("Secrets", ", ".join(f"{at} from {secret}" for at, secret in found.secrets.items())),
            ("Description", found.description or ""),
            ("Created", moment(found.created_at)),
        ],
        out,
    )


def create_metric(session: Session, name: str, body: dict[str, Any], out: Output, *, project: str | None) -> None:
    """Store a metric."""
    ref = named(session, name)
    found: Metric = session.evaluator.metrics.create(ref.name, metric=body, project=project, workspace=ref.workspace)
    if out.json:
        out.document(found.model_dump(mode="json"))
    else:
        out.line(f"Created metric {found.workspace}/{found.name} ({found.metric_type})")


def delete_metric(session: Session, name: str, out: Output, *, yes: bool) -> None:
    """Delete a metric, after asking."""
    ref = named(session, name)
    if not yes:
        used = session.evaluator.tasks.list(metric=ref.bare, page_size=1, workspace=ref.workspace)
        by = counted(used.pagination.total_results, "task")
        ask(session, "metrics", ref, f"Delete the metric {ref.bare}, which {by} of its workspace name?")
    with nearest_named(session.evaluator.metrics, ref):
        session.evaluator.metrics.delete(ref.name, workspace=ref.workspace)
    deleted("metrics", ref, out)
