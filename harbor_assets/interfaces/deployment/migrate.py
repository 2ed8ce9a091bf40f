"""What comes before a deployment's programs start: its databases brought up to date, by one of them at a time."""

from collections.abc import Callable

from harbor_assets.settings import Settings


def migrate(say: Callable[[str], None], wait_seconds: float) -> None:
    """Make or upgrade the catalog and, if DAGSTER_HOME is set, Dagster's own storage. Idempotent.

    Raises `ServiceUnavailable` if the database does not answer in time, `Refused` if it lets nobody in.
    """
    import os

    from harbor_assets.catalog.migrate import alone, bring_up_to_date

    settings = Settings.load()
    with alone(settings.catalog_url, wait_seconds):
        bring_up_to_date(settings.catalog_url)
        say("The catalog is up to date")
        if os.environ.get("DAGSTER_HOME"):
            import dagster as dg

            with dg.DagsterInstance.get() as instance:  # makes what is missing
                instance.upgrade()
            say("Dagster's storage is up to date")
