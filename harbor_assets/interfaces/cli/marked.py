"""The list of marks."""

from harbor_assets.domain.marks import Mark
from harbor_assets.interfaces.cli.output import Output, moment
from harbor_assets.interfaces.cli.report import envelope, print_place
from harbor_assets.interfaces.sdk.pages import Page


def print_marks(page: Page[Mark], out: Output, *, earlier: bool) -> None:
    """A page of marks, one a line, with `earlier` what they replaced below; as JSON in the envelope of lists."""
    if out.json:
        out.document(envelope([mark.model_dump(mode="json") for mark in page.data], page.pagination))
        return
    rows: list[tuple[str, ...]] = []
    for mark in page.data:
        rows.append((mark.subject, mark.verdict, mark.who, moment(mark.at), mark.why))
        if earlier:
            rows += [(mark.subject, "(replaced)", said.who, moment(said.at), said.why) for said in mark.earlier]
    out.table(("SUBJECT", "VERDICT", "BY", "AT", "WHY"), rows)
    print_place(page.pagination, "marks")
