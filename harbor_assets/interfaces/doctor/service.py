"""Checks of a service by its URL, as a client of it: no kubeconfig needed."""

from collections.abc import Iterator

from harbor_assets.domain.errors import Forbidden, HarborAssetsError, Unauthenticated
from harbor_assets.interfaces.doctor.findings import Finding, fail, ok, warn
from harbor_assets.interfaces.version import version
from harbor_assets.settings import Settings

_SECONDS = 10.0


def look(base_url: str, settings: Settings) -> Iterator[Finding]:
    """Every check in turn; ends after the first if nothing answers. Raises `Refused` for what is no URL."""
    import httpx

    from harbor_assets.interfaces.sdk.http import service_url

    url = service_url(base_url)
    with httpx.Client(timeout=_SECONDS) as client:
        try:
            health = client.get(f"{url}/healthz").json()
            ready = client.get(f"{url}/readyz").status_code
        except (httpx.HTTPError, ValueError) as error:
            yield fail("service", f"{url} does not answer as one of ours: {error or type(error).__name__}", _ADDRESS)
            return
    if not isinstance(health, dict) or health.get("plugin") != "evals":
        yield fail("service", f"{url} answers, and is not harbor-assets", _ADDRESS)
        return
    theirs = str(health.get("version"))[:40]
    yield ok("service", f"{url} is harbor-assets {theirs}")
    if theirs != version():
        yield warn("version", f"this harbor-assets is {version()}, the service's is {theirs}", "Install the same one")
    if ready == httpx.codes.OK:
        yield ok("catalog", "answers")
    else:
        yield fail("catalog", f"does not answer (/readyz: {ready})", "Its admin sees why in the service's log")
        return
    yield _may_read(base_url, settings)


_ADDRESS = "Look at the address; `cluster install` prints it as its last line"


def _may_read(base_url: str, settings: Settings) -> Finding:
    from harbor_assets.interfaces.cli.session import open_session

    try:
        with open_session(base_url=base_url) as session:
            runs = session.evaluator.runs.list(page_size=1).pagination.total_results
    except Unauthenticated as error:
        return fail("token", str(error), "Ask its admin for a token: `harbor-assets access new` makes one")
    except Forbidden as error:
        return fail("token", str(error), "Name your workspace with HARBOR_ASSETS_WORKSPACE")
    except HarborAssetsError as error:
        return fail("runs", str(error))
    return ok("access", f"you may read workspace '{settings.workspace}' ({runs} runs)")
