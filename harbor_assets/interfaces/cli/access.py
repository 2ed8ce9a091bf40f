"""`harbor-assets access ...`: tokens of the service, in the access file that `serve` reads."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harbor_assets.interfaces.cli.options import Json, examples

if TYPE_CHECKING:
    from datetime import datetime

    from harbor_assets.domain.access import Role

app = typer.Typer(
    help="Make tokens for callers of `serve`, and see which are there.",
    epilog=examples("access new ci --grant default=writer --file access.toml", "access list --file access.toml"),
    no_args_is_help=True,
    rich_markup_mode=None,
)
File = Annotated[
    Path | None,
    typer.Option("--file", metavar="FILE", help="The access file. [default: HARBOR_ASSETS_ACCESS]", show_default=False),
]


def add_to(parent: typer.Typer) -> None:
    """Hang this noun into the command line."""
    parent.add_typer(app, name="access")


@app.callback()
def _group() -> None:
    pass


@app.command(
    epilog=examples(
        "access new ci --grant default=writer --file access.toml",
        "access new ops --grant '*=admin' --expires 2027-01-31",
    )
)
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose token it is; runs are submitted under this name.")],
    grant: Annotated[
        list[str],
        typer.Option(
            "--grant",
            metavar="WS=ROLE",
            help="reader, writer or admin in a workspace, or in all: '*=reader'. Repeatable.",
        ),
    ],
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="DATE", help="The day (UTC) from which it is not accepted.")
    ] = None,
    file: File = None,
) -> None:
    """Make a token and print it, this once: the file, which is made if it is missing, keeps its hash.

    A service that runs takes it at once. To withdraw a token, remove its entry from the file.
    """
    from harbor_assets.access import add_token
    from harbor_assets.interfaces.cli.output import Output, note

    path = _file(file)
    token = add_token(path, name, dict(map(_grant, grant)), expires=_day(expires))
    note(f"Added the token of {name} to {path}; it is shown only now. Callers set it as HARBOR_ASSETS_TOKEN:")
    Output().line(token)


@app.command(name="list", epilog=examples("access list", "access list --file access.toml --json"))
def list_tokens(file: File = None, json: Json = False) -> None:
    """Check the access file, and list who may do what. Tokens are not in it, so none is shown."""
    from harbor_assets.access import read_access
    from harbor_assets.interfaces.cli.output import Output, moment

    access, out = read_access(_file(file)), Output(json=json)
    if json:
        from harbor_assets.interfaces.cli.report import envelope

        out.document(envelope([entry.model_dump(mode="json", exclude={"sha256"}) for entry in access.tokens]))
        return
    rows = [
        (entry.name, ", ".join(f"{at}={role}" for at, role in sorted(entry.workspaces.items())), moment(entry.expires))
        for entry in access.tokens
    ]
    out.table(("NAME", "ROLES", "EXPIRES"), rows)
    for issuer in access.issuers:
        out.line(f"Tokens of {issuer.issuer} for {issuer.audience}: {', '.join(sorted(issuer.roles))}")


def _file(given: Path | None) -> Path:
    from harbor_assets.domain.errors import Refused
    from harbor_assets.settings import Settings

    if given is not None:
        return given
    named = Settings.load().access
    if not named:
        raise Refused("Which access file? Name it with --file, or for every command with HARBOR_ASSETS_ACCESS")
    return Path(named)


def _grant(text: str) -> "tuple[str, Role]":
    from harbor_assets.domain.access import Role
    from harbor_assets.domain.errors import Refused

    workspace, _, role = text.rpartition("=")
    if not workspace or role not in tuple(Role):
        raise Refused(f"--grant {text!r} is not WORKSPACE=ROLE with a role of {', '.join(Role)}; write default=writer")
    return workspace, Role(role)


def _day(text: str | None) -> "datetime | None":
    from datetime import UTC, datetime

    from harbor_assets.domain.errors import Refused

    if text is None:
        return None
    try:
        day = datetime.fromisoformat(text)
    except ValueError:
        raise Refused(f"--expires {text!r} is no date; write one as 2027-01-31") from None
    return day if day.tzinfo else day.replace(tzinfo=UTC)
