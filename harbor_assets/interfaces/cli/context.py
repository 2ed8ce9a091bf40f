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


@app.command(epilog=examples("context add lab --base-url http://evals.example:8000"))
def add(
    name: Name,
    base_url: Annotated[str, typer.Option("--base-url", metavar="URL", help="The service's URL.", show_default=False)],
) -> None:
    """Save a service under a name. `context use NAME` chooses it."""
    from harbor_assets.interfaces.cli.output import Output, command
    from harbor_assets.interfaces.contexts import Contexts
    from harbor_assets.interfaces.sdk.http import service_url

    url = service_url(base_url)
    contexts = Contexts.load()
    contexts.add(name, url).save()
    out = Output()
    out.line(f"Saved context {name}: {url}")
    if contexts.current != name:
        out.line(f"Use it: {command('context', 'use', name)}")


@app.command(epilog=examples("context use lab", "context use local"))
def use(name: Name) -> None:
    """Let commands talk to this service; `local` is this machine's own home again."""
    from harbor_assets.interfaces.cli.output import Output
    from harbor_assets.interfaces.contexts import Contexts

    contexts = Contexts.load().use(name)
    contexts.save()
    Output().line(f"Commands talk to {contexts.url(name) or 'the home of this machine'}")


@app.command(name="list", epilog=examples("context list", "context list --json"))
def list_contexts(json: Json = False) -> None:
    """List the saved contexts; a star marks the one in use."""
    from harbor_assets.interfaces.cli.output import Output
    from harbor_assets.interfaces.cli.session import chosen_context
    from harbor_assets.interfaces.contexts import LOCAL, Contexts
    from harbor_assets.settings import Settings

    contexts, out = Contexts.load(), Output(json=json)
    current, _ = chosen_context(Settings.load(), contexts)
    found = [(LOCAL, None), *sorted(contexts.urls.items())]
    if json:
        from harbor_assets.interfaces.cli.report import envelope

        out.document(envelope([{"name": n, "base_url": url, "current": n == current} for n, url in found]))
    else:
        rows = [("*" if n == current else "", n, url or "this machine's home") for n, url in found]
        out.table(("", "NAME", "BASE URL"), rows)


@app.command(epilog=examples("context show"))
def show(json: Json = False) -> None:
    """Show which service commands talk to, and what decides it."""
    from harbor_assets.interfaces.cli.output import Output
    from harbor_assets.interfaces.cli.session import chosen_context
    from harbor_assets.interfaces.contexts import Contexts
    from harbor_assets.settings import Settings

    contexts, out = Contexts.load(), Output(json=json)
    name, why = chosen_context(Settings.load(), contexts)
    url = contexts.url(name)
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
