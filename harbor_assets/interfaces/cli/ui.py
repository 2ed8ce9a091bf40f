"""`harbor-assets ui`: Dagster's web interface and daemon on this home."""

from typing import Annotated

import typer

from harbor_assets.interfaces.cli.options import examples


def add_to(parent: typer.Typer) -> None:
    """Hang this command into the command line."""
    parent.command(epilog=examples("ui", "ui --port 3001"))(ui)


def ui(
    host: Annotated[str, typer.Option("--host", metavar="HOST", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="PORT", min=1, max=65535, help="Port to listen on.")] = 3000,
    insecure_no_auth: Annotated[
        bool, typer.Option("--insecure-no-auth", help="Listen on an address that others reach, though all may do all.")
    ] = False,
) -> None:
    """Serve the Dagster UI of this home: runs, partitions, lineage, and a daemon for sensors and launches.

    The URL is printed once the pages answer. Ctrl-C stops it with exit code 0 (130 before the pages answered);
    evaluation runs go on.
    """
    from harbor_assets.interfaces.cli.serving import serve

    raise typer.Exit(serve(host, port, allow_remote=insecure_no_auth))
