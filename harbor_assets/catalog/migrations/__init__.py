"""How an older catalog becomes a new one. Alembic's scripts are in `versions`; `schema.REVISIONS` lists them."""

from pathlib import Path

from sqlalchemy import Connection

_SCRIPTS = Path(__file__).parent


def upgrade(connection: Connection, revision: str = "head") -> None:
    """Run the scripts that are missing, in the caller's transaction: all of them or none."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, revision)
