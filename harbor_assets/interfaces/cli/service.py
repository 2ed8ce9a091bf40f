"""The REST API behind a port, until it is told to stop; lost runs of this machine are taken up meanwhile."""

import logging
import signal
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

from harbor_assets.domain.errors import HarborAssetsError, Refused, ServiceUnavailable
from harbor_assets.interfaces.addresses import loopback
from harbor_assets.interfaces.cli.listening import check_free
from harbor_assets.interfaces.cli.output import note
from harbor_assets.interfaces.cli.signals import remembered
from harbor_assets.settings import Settings

if TYPE_CHECKING:
    from harbor_assets.engine.evaluations import Evaluations

STOP_SECONDS = 20  # what a stop leaves to answers under way; below the 30 s that Kubernetes grants a pod
CONNECTIONS_MAX = 1000  # open at once; above, 503: each holds a file descriptor, of which 1,024 are usual
RECOVER_SECONDS = 2.0  # a lost worker of this machine is missed for at most this long
log = logging.getLogger(__name__)


def serve(host: str, port: int, *, allow_remote: bool = False) -> int:
    """Serve until SIGINT or SIGTERM; answers under way are finished. Returns the exit code.

    Raises `Refused` for an address that others reach without an access file, unless that is allowed, and for a bad
    access file, a port that is taken; `ServiceUnavailable` if the port cannot be had after all.
    """
    import uvicorn

    from harbor_assets.interfaces.api.app import create_app
    from harbor_assets.interfaces.api.figures import Figures
    from harbor_assets.interfaces.api.hosts import OwnHost
    from harbor_assets.interfaces.backend import Backend
    from harbor_assets.interfaces.cli.serving import ui_address
    from harbor_assets.wiring import wire

    settings = Settings.load()
    open_to_others = not loopback(host)
    if open_to_others and not (settings.access or allow_remote or settings.allow_remote):
        raise Refused(
            f"{host} is an address that other machines reach, and there is no authentication: whoever reaches the port "
            "could submit, cancel and read. Name an access file with HARBOR_ASSETS_ACCESS (`harbor-assets access new "
            "--help` makes one), listen on 127.0.0.1, or say --insecure-no-auth where a firewall or a network policy "
            "decides who reaches it"
        )
    check_free(host, port, "serve")
    for warning in settings.warnings():
        note(f"Warning: {warning}")
    settings.prepare_home()
    services = wire(settings)
    authenticator = services.authenticator
    app = create_app(
        Backend.of(services, settings.work), authenticator=authenticator, dagster=lambda: ui_address(settings)
    )
    if authenticator is None and not open_to_others:
        app.add_middleware(OwnHost)
    Figures(services.catalog.tally).serve_in(app)
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_level="info",
        access_log=settings.debug,  # a watcher asks every second: a line each would bury what matters
        timeout_graceful_shutdown=STOP_SECONDS,
        server_header=False,
        http="h11",  # refuses a head above 64 KiB; httptools collects whatever comes, before a token is asked for
        ws="none",
        limit_concurrency=CONNECTIONS_MAX,
    )
    where = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    note(f"Serving {settings.home} at {where}, pages and API (Ctrl-C stops it; runs go on)")
    if authenticator is not None:
        note(f"Callers need a token of {settings.access}")
    elif open_to_others:
        note("Warning: no authentication; whoever reaches this port may submit, cancel and read")
    server = uvicorn.Server(config)
    with ExitStack() as stack:
        # uvicorn raises the signal that stopped it once more at its end, for whoever asked to hear of it.
        stack.enter_context(remembered(signal.SIGINT, signal.SIGTERM))
        if settings.executor == "local":
            stop = threading.Event()
            keeper = threading.Thread(
                target=take_up_lost_runs, args=(services.evaluations, stop), daemon=True, name="recover"
            )
            keeper.start()
            stack.callback(keeper.join, STOP_SECONDS)
            stack.callback(stop.set)
        try:
            server.run()
        except SystemExit as ended:  # uvicorn's way to say that it could not start; its log has said why
            raise ServiceUnavailable(f"{where} cannot be served; is it taken? Choose another with --port") from ended
    return 0


def take_up_lost_runs(evaluations: "Evaluations", stop: threading.Event) -> None:
    """Let runs go on whose worker was lost. A failure is told once, and does not end the service."""
    told = ""
    while not stop.wait(RECOVER_SECONDS):
        try:
            found = evaluations.recover()
            for taken in found.taken_up:
                log.warning("%s had lost its worker (%s); it goes on", taken.run_id, taken.why)
            held = "; ".join(f"{held.run_id}: {held.error}" for held in found.held_up)
            if held and held != told:
                log.error("runs that lost their worker cannot go on: %s", held)
            told = held
        except (HarborAssetsError, OSError) as error:
            if str(error) != told:
                log.error("runs that lost their worker could not be taken up: %s", error)  # noqa: TRY400 said in words
            told = str(error)
