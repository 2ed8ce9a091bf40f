"""A client of this machine's home."""

from harbor_assets.interfaces.backend import Backend
from harbor_assets.interfaces.sdk.client import Client
from harbor_assets.wiring import local_services


def local_client(workspace: str | None = None) -> Client:
    """A client of the home that the environment names, made if it is missing. Use it in a `with` block.

    Runs that lost their worker are taken up first, as by every command. `workspace` None: the setting's. Raises
    `Refused` for bad settings, `HomeUnusable` for a home that cannot be used.
    """
    services = local_services()
    client = Client(Backend.of(services), workspace=workspace or services.settings.workspace)
    try:
        client.recover()
    except BaseException:
        client.close()
        raise
    return client
