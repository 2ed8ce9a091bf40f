"""`harbor-assets config`: every setting, its value and where it comes from."""

import typer

from harbor_assets.interfaces.cli.options import Json, examples


def add_to(parent: typer.Typer) -> None:
    """Hang this command into the command line."""
    parent.command(epilog=examples("config", "config --json"))(config)


def config(json: Json = False) -> None:
    """Show every setting: its value, where it comes from and what it is for. Passwords are masked."""
    from harbor_assets.interfaces.cli.output import Output, note
    from harbor_assets.settings import Settings

    settings = Settings.load()
    out = Output(json=json)
    found = settings.describe()
    for warning in settings.warnings():
        note(f"Warning: {warning}")
    if json:
        out.document({"data": [setting._asdict() for setting in found]})
    else:
        out.table(("SETTING", "VALUE", "FROM", "WHAT IT IS FOR"), found)
