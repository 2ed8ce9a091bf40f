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
) -> None:
    """Serve the Dagster UI of this home: runs, partitions, lineage. Ctrl-C stops it; runs go on."""
    from harbor_assets.interfaces.cli.serving import serve

    raise typer.Exit(serve(host, port))
