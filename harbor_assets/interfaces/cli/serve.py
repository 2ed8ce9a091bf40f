"""`harbor-assets serve`: the pages and the REST API of this home, or of a deployment, for other machines."""

from typing import Annotated

import typer

from harbor_assets.interfaces.cli.options import examples


def add_to(parent: typer.Typer) -> None:
    """Hang this command into the command line."""
    shown = examples("serve", "HARBOR_ASSETS_ACCESS=access.toml harbor-assets serve --host 0.0.0.0")
    parent.command(epilog=shown)(serve)


def serve(
    host: Annotated[str, typer.Option("--host", metavar="HOST", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="PORT", min=1, max=65535, help="Port to listen on.")] = 8000,
    insecure_no_auth: Annotated[
        bool, typer.Option("--insecure-no-auth", help="Listen on an address that others reach, though all may do all.")
    ] = False,
) -> None:
    """Serve the pages and the REST API, for a browser, `--base-url` and programs. Ctrl-C stops it; runs go on.

    With an access file (HARBOR_ASSETS_ACCESS; `harbor-assets access new` makes one) every call needs a token, and each
    token has a role in each workspace. Without one nobody is asked who they are, and only this machine is let in:
    other addresses then need --insecure-no-auth, or HARBOR_ASSETS_ALLOW_REMOTE=1.
    """
    from harbor_assets.interfaces.cli.service import serve as run

    raise typer.Exit(run(host, port, allow_remote=insecure_no_auth))
