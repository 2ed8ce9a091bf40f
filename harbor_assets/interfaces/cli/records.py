"""The commands that `tasks` and `tasksets` have in common."""

from dataclasses import dataclass
from typing import Annotated

import typer

from harbor_assets.interfaces.cli.options import (
    BaseUrl,
    BodyFile,
    Filter,
    Json,
    Page,
    PageSize,
    Project,
    Sort,
    Workspace,
    Yes,
    examples,
)

Ref = Annotated[
    str, typer.Argument(metavar="REF", help="NAME or WS/NAME, either with #TAG or #DIGEST.", show_default=False)
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="NAME or WS/NAME.", show_default=False)]


@dataclass(frozen=True, slots=True)
class Noun:
    """One kind of record: its word, one to show in examples, and a filter for such."""

    word: str
    example: str
    filter: str

    @property
    def many(self) -> str:
        return f"{self.word}s"


def add_commands(app: typer.Typer, noun: Noun) -> None:
    """Hang list, show, replace, revisions, tag and delete into the commands of a noun."""
    _reading(app, noun)
    _writing(app, noun)


def _reading(app: typer.Typer, noun: Noun) -> None:
    many, name = noun.many, noun.example

    @app.command(
        "list",
        help=f"List the {many} of a workspace as they are now.",
        epilog=examples(
            f"{many} list --sort -updated_at", f"{many} list --filter '{noun.filter}'", f"{many} list --page 2 --json"
        ),
    )
    def list_records(
        filter: Filter = None,
        sort: Sort = "name",
        page: Page = 1,
        page_size: PageSize = 100,
        workspace: Workspace = None,
        base_url: BaseUrl = None,
        json: Json = False,
    ) -> None:
        from harbor_assets.interfaces.cli import catalog
        from harbor_assets.interfaces.cli.output import Output
        from harbor_assets.interfaces.cli.session import open_session

        with open_session(workspace, base_url) as session:
            asked = catalog.Listing(filter=filter, sort=sort, page=page, page_size=page_size)
            catalog.list_records(session, many, asked, Output(json=json))

    @app.command(
        help=f"Show a {noun.word} as it is now, or as of one revision.",
        epilog=examples(f"{many} show {name}", f"{many} show '{name}#stable' --json", f"{many} show {name} --body"),
    )
    def show(
        ref: Ref,
        body: Annotated[bool, typer.Option("--body", help="Print what `replace` takes, to edit it.")] = False,
        workspace: Workspace = None,
        base_url: BaseUrl = None,
        json: Json = False,
    ) -> None:
        from harbor_assets.interfaces.cli import catalog
        from harbor_assets.interfaces.cli.output import Output
        from harbor_assets.interfaces.cli.session import open_session

        with open_session(workspace, base_url) as session:
            catalog.show(session, many, ref, Output(json=json), body=body)

    @app.command(
        help=f"List the revisions of a {noun.word}, newest first.",
        epilog=examples(f"{many} revisions {name}", f"{many} revisions {name} --json"),
    )
    def revisions(
        name: Name,
        page: Page = 1,
        page_size: PageSize = 100,
        workspace: Workspace = None,
        base_url: BaseUrl = None,
        json: Json = False,
    ) -> None:
        from harbor_assets.interfaces.cli import catalog
        from harbor_assets.interfaces.cli.output import Output
        from harbor_assets.interfaces.cli.session import open_session

        with open_session(workspace, base_url) as session:
            catalog.revisions(session, many, name, Output(json=json), page=page, page_size=page_size)


def _writing(app: typer.Typer, noun: Noun) -> None:
    many, name = noun.many, noun.example

    @app.command(
        help=f"Publish new content of a {noun.word}, or a new one. Content that is there already cuts no revision.",
        epilog=examples(
            f"{many} replace {name} --file {noun.word}.yaml", f"{many} show {name} --body | sed s/a/b/ | "
            f"harbor-assets {many} replace {name} --file -"
        ),
    )  # fmt: skip
    def replace(
        name: Name,
        file: BodyFile,
        project: Project = None,
        workspace: Workspace = None,
        base_url: BaseUrl = None,
        json: Json = False,
    ) -> None:
        from harbor_assets.interfaces.cli import catalog
        from harbor_assets.interfaces.cli.bodies import read_body
        from harbor_assets.interfaces.cli.output import Output
        from harbor_assets.interfaces.cli.session import open_session

        body = read_body(file, catalog.body_of(many))
        with open_session(workspace, base_url) as session:
            catalog.write(session, many, name, body, Output(json=json), project=project, create=False)

    @app.command(
        help=f"Point a tag at a revision of a {noun.word}: the one of the reference, by default the newest.",
        epilog=examples(f"{many} tag {name} stable", f"{many} tag '{name}#3f9a…' stable"),
    )
    def tag(
        ref: Ref,
        tag: Annotated[str, typer.Argument(metavar="TAG", help="The tag; it is moved if it exists.")],
        workspace: Workspace = None,
        base_url: BaseUrl = None,
        json: Json = False,
    ) -> None:
        from harbor_assets.interfaces.cli import catalog
        from harbor_assets.interfaces.cli.output import Output
        from harbor_assets.interfaces.cli.session import open_session

        with open_session(workspace, base_url) as session:
            catalog.tag(session, many, ref, tag, Output(json=json))

    @app.command(
        help=f"Delete a {noun.word} with all its revisions. What refers to it stays, and no longer resolves.",
        epilog=examples(f"{many} delete {name}", f"{many} delete {name} --yes"),
    )
    def delete(
        name: Name, yes: Yes = False, workspace: Workspace = None, base_url: BaseUrl = None, json: Json = False
    ) -> None:
        from harbor_assets.interfaces.cli import catalog
        from harbor_assets.interfaces.cli.output import Output
        from harbor_assets.interfaces.cli.session import open_session

        with open_session(workspace, base_url) as session:
            catalog.delete(session, many, name, Output(json=json), yes=yes)
