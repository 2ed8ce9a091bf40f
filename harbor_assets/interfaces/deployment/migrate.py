"""What comes before a deployment's programs start: its databases brought up to date, by one of them at a time."""

from collections.abc import Callable

from harbor_assets.domain.errors import Refused
from harbor_assets.settings import Settings


def migrate(say: Callable[[str], None], wait_seconds: float) -> None:
    """Make or upgrade the catalog and, if DAGSTER_HOME is set, Dagster's own storage. Idempotent.

    Raises `ServiceUnavailable` if the database does not answer in time, `Refused` if it lets nobody in.
    """
    import os

    from harbor_assets.catalog.migrate import alone, bring_up_to_date

    settings = Settings.load()
    if settings.executor == "kubernetes" and settings.catalog_url.startswith("sqlite"):
        raise Refused(
            "A deployment's catalog is a Postgres, which all its pods reach; name it with HARBOR_ASSETS_CATALOG_URL in "
            "the Secret harbor-assets-database"
        )
    with alone(settings.catalog_url, wait_seconds):
        bring_up_to_date(settings.catalog_url)
        say("The catalog is up to date")
        if os.environ.get("DAGSTER_HOME"):
            say(_upgrade_dagster())


def _upgrade_dagster() -> str:
    import dagster as dg
    from alembic.util import CommandError

    with dg.DagsterInstance.get() as instance:  # makes what is missing
        try:
            instance.upgrade()
        except CommandError as error:
            if "Can't locate revision" not in str(error):
                raise
            # Its own schema changes are made so that the version before goes on working: nothing to do, or to undo.
            return "Dagster's storage was upgraded by a newer Dagster, and stays as it is"
    return "Dagster's storage is up to date"
