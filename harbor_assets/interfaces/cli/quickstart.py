"""`harbor-assets quickstart`: the whole way once, with the suite that ships in the package."""

import typer

from harbor_assets.interfaces.cli.options import Json, Workspace, examples


def add_to(parent: typer.Typer) -> None:
    """Hang this command into the command line."""
    parent.command(epilog=examples("quickstart"))(quickstart)


def quickstart(workspace: Workspace = None, json: Json = False) -> None:
    """Publish the hello-world suite, run it with oracle in the process sandbox, and show the score and the report.

    Needs no container engine, no network and no account. The same path as `runs submit --wait`.
    """
    from harbor_assets.examples import hello_world
    from harbor_assets.interfaces.cli.asked import Asked
    from harbor_assets.interfaces.cli.output import Output
    from harbor_assets.interfaces.cli.source import Choice
    from harbor_assets.interfaces.cli.submit import Submission

    submission = Submission(choice=Choice(harbor_dir=str(hello_world())), asked=Asked(sandbox="process"), wait=True)
    raise typer.Exit(submission.run(workspace, out=Output(json=json), local=True))
