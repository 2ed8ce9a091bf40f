"""`harbor-assets context ...`: the services that commands can talk to, by name."""

from typing import Annotated

import typer

from harbor_assets.interfaces.cli.options import Json, examples

app = typer.Typer(
    help="Save services by name, and choose the one that commands talk to.",
    epilog=examples("context add lab --base-url http://evals.example:8000", "context use lab"),
    no_args_is_help=True,
    rich_markup_mode=None,
)
Name = Annotated[str, typer.Argument(metavar="NAME", help="The context's name; local is this machine.")]


def add_to(parent: typer.Typer) -> None:
    """Hang this noun into the command line."""
    parent.add_typer(app, name="context")


@app.callback()
def _group() -> None:
    pass


@app.command(
    epilog=examples(
        "context add lab --base-url http://evals.example:8000",
        "context add lab --base-url https://evals.example --token-file ~/.config/lab-token",
    )
)
def add(
    name: Name,
    base_url: Annotated[str, typer.Option("--base-url", metavar="URL", help="The service's URL.", show_default=False)],
    token_file: Annotated[
        str | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="A file with the token the service asks for. Its path is saved, and it is read by each command.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Save a service under a name. `context use NAME` chooses it.

    A token is never an argument, which everybody on the machine could read: name the file that holds it, or set
    HARBOR_ASSETS_TOKEN, which counts for every service.
    """
    from harbor_assets.interfaces.cli.output import Output, command
    from harbor_assets.interfaces.contexts import Contexts
    from harbor_assets.interfaces.sdk.http import service_url
    from harbor_assets.interfaces.tokens import read_token

    url = service_url(base_url)
    if token_file is not None:
        from pathlib import Path

        token_file = str(Path(token_file).expanduser().absolute())
        read_token(token_file)
    contexts = Contexts.load()
    contexts.add(name, url, token_file).save()
    out = Output()
    out.line(f"Saved context {name}: {url}" + (f" (token: {token_file})" if token_file else ""))
    if contexts.current != name:
        out.line(f"Use it: {command('context', 'use', name)}")


@app.command(epilog=examples("context use lab", "context use local"))
def use(name: Name) -> None:
    """Let commands talk to this service; `local` is this machine's own home again."""
    from harbor_assets.interfaces.cli.output import Output
    from harbor_assets.interfaces.contexts import Contexts

    contexts = Contexts.load().use(name)
    contexts.save()
    context = contexts.get(name)
    Output().line(f"Commands talk to {context.base_url if context else 'the home of this machine'}")


@app.command(name="list", epilog=examples("context list", "context list --json"))
def list_contexts(json: Json = False) -> None:
    """List the saved contexts; a star marks the one in use."""
    from harbor_assets.interfaces.cli.output import Output
    from harbor_assets.interfaces.contexts import LOCAL, Contexts
    from harbor_assets.settings import Settings

    contexts, out = Contexts.load(), Output(json=json)
    current, _ = contexts.chosen(Settings.load().context)
    found = [(LOCAL, None, None), *((n, one.base_url, one.token_file) for n, one in sorted(contexts.saved.items()))]
    if json:
        from harbor_assets.interfaces.cli.report import envelope

        out.document(
            envelope([{"name": n, "base_url": url, "token_file": at, "current": n == current} for n, url, at in found])
        )
    else:
        rows = [("*" if n == current else "", n, url or "this machine's home", at or "-") for n, url, at in found]
        out.table(("", "NAME", "BASE URL", "TOKEN FILE"), rows)


@app.command(epilog=examples("context show"))
def show(json: Json = False) -> None:
    """Show which service commands talk to, and what decides it."""
    from harbor_assets.interfaces.cli.output import Output
    from harbor_assets.interfaces.contexts import Contexts
    from harbor_assets.settings import Settings

    contexts, out = Contexts.load(), Output(json=json)
    name, why = contexts.chosen(Settings.load().context)
    context = contexts.get(name)
    url = context.base_url if context else None
    if json:
        out.document({"name": name, "base_url": url, "from": why})
    else:
        out.line(f"{name}: {url or 'the home of this machine'} ({why})")


@app.command(epilog=examples("context remove lab"))
def remove(name: Name) -> None:
    """Forget a context."""
    from harbor_assets.interfaces.cli.output import Output
    from harbor_assets.interfaces.contexts import LOCAL, Contexts

    before = Contexts.load()
    if name == LOCAL:
        from harbor_assets.domain.errors import Refused

        raise Refused("The context 'local' is this machine's home; it cannot be removed")
    after = before.remove(name)
    after.save()
    out = Output()
    out.line(f"Removed context {name}")
    if after.current != before.current:
        out.line("Commands talk to the home of this machine again")
