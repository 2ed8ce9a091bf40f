"""The list of marks."""

from harbor_assets.domain.marks import Mark
from harbor_assets.interfaces.cli.output import Output, moment
from harbor_assets.interfaces.cli.report import envelope, print_place
from harbor_assets.interfaces.sdk.pages import Page


def print_marks(page: Page[Mark], out: Output) -> None:
    """A page of marks, one a line; as JSON in the envelope of lists."""
    if out.json:
        out.document(envelope([mark.model_dump(mode="json") for mark in page.data], page.pagination))
        return
    rows = [(mark.subject, mark.verdict, mark.who, moment(mark.at), mark.why) for mark in page.data]
    out.table(("SUBJECT", "VERDICT", "BY", "AT", "WHY"), rows)
    print_place(page.pagination, "marks")
