"""Building the images of a taskset, and the lines that tell of it."""

import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from harbor_assets.domain.images import BuildRequest, ImageStatus, ImageView
from harbor_assets.domain.names import Ref
from harbor_assets.interfaces.cli.output import Output, command, one_line
from harbor_assets.interfaces.cli.progress import REMOTE_POLL_SECONDS, patiently

if TYPE_CHECKING:
    from harbor_assets.domain.plans import SandboxWord
    from harbor_assets.interfaces.cli.session import Session

ALL_READY, SOME_READY, NONE_READY = 0, 3, 4  # the codes of a run's end: all, some, none
LOG_LINES = 20  # of a failed build: the command that failed and what it said
RESTARTS_MAX = 3  # a service that was restarted while building is asked again so often
PROGRESS_SECONDS = 10.0  # between lines that say what is being built
NAMES_SHOWN = 5
_POLL_MAX_SECONDS = 2.0
_ENDS = ("ready", "unchanged", "failed", "missing")


def build_images(
    session: "Session",
    ref: str,
    out: Output,
    *,
    wait: bool,
    concurrency: int,
    sandbox: "SandboxWord" = "auto",
    names: Sequence[str] | None = None,
) -> int:
    """`tasksets build-images`: begin with what is missing, follow it if asked to; `names`: only of these tasks.
    Returns the exit code."""
    named = Ref.parse(ref, workspace=session.workspace)
    chosen = None if names is None else list(names)
    request = BuildRequest(revision=named.fragment, select=chosen, concurrency=concurrency, sandbox=sandbox)
    status = session.evaluator.images.build(named, request)
    if status.needed and not wait and not session.remote and not status.done:
        out.line("No service goes on building when this command ends, so it waits.")
        wait = True
    if status.needed and wait:
        status = follow(session, named, request, status, out)
    elif status.needed and not status.done:
        words = command("tasksets", "build-images", status.taskset_ref, "--wait", *session.own_words())
        out.line(f"Being built: {_count(status)}; follow it with: {words}")
    elif status.needed:
        _tell_all(status, out)
    else:
        out.line(f"The sandbox {status.sandbox} needs no images: there is nothing to build.")
    if out.json:
        out.document(document(session, status))
    return exit_code(status) if wait else 0


def document(session: "Session", status: ImageStatus) -> dict[str, Any]:
    """The images as `--json` tells them: a log by where a person finds it."""
    views = tuple(view.model_copy(update={"log": _log(session, view)}) for view in status.images)
    return status.model_copy(update={"images": views}).model_dump(mode="json")


def see_to_images(
    session: "Session", ref: str, names: Sequence[str] | None, out: Output, sandbox: "SandboxWord" = "auto"
) -> None:
    """Before a run from a source: build what its tasks lack, and wait. Failed ones are told and do not stop it."""
    named = Ref.parse(ref, workspace=session.workspace)
    chosen = None if names is None else list(names)
    request = BuildRequest(revision=named.fragment, select=chosen, sandbox=sandbox)
    status = session.evaluator.images.build(named, request)
    if status.needed:
        follow(session, named, request, status, out)


def follow(session: "Session", named: Ref, request: BuildRequest, status: ImageStatus, out: Output) -> ImageStatus:
    """Wait until nothing is being built, a line for each image as it is ready or has failed."""
    told: set[tuple[str, str | None]] = set()
    tasks = {view.task for view in status.images}
    kind = status.sandbox
    request = request.model_copy(update={"sandbox": kind})  # decided: a later question must not be decided otherwise
    out.line(f"Images of {len(tasks)} tasks of {status.taskset_ref}")
    pause = REMOTE_POLL_SECONDS if session.remote else session.settings.watch_poll_seconds
    restarts, told_at = 0, time.monotonic()
    while True:
        for view in status.images:
            if view.task in tasks and view.state in ("ready", "failed") and (view.task, view.role) not in told:
                told.add((view.task, view.role))
                _tell(session, view, out)
        if status.done:
            lost = any(view.state == "missing" and view.task in tasks for view in status.images)
            if not lost or restarts == RESTARTS_MAX:
                kept = tuple(view for view in status.images if view.task in tasks)
                out.line(_summary(kept))
                return status.model_copy(update={"images": kept})
            restarts += 1
            status = patiently(session, lambda: session.evaluator.images.build(named, request), "builds go on")
            continue
        if time.monotonic() - told_at >= PROGRESS_SECONDS:
            told_at = time.monotonic()
            out.line(_progress([view for view in status.images if view.task in tasks]))
        time.sleep(pause)
        pause = min(_POLL_MAX_SECONDS, pause * 1.2)
        status = patiently(session, lambda: session.evaluator.images.status(named, kind), "builds go on")


def exit_code(status: ImageStatus) -> int:
    """0: every image is ready; 3: some are; 4: none."""
    ready = sum(view.state == "ready" for view in status.images)
    if ready == len(status.images):
        return ALL_READY
    return SOME_READY if ready else NONE_READY


def _tell(session: "Session", view: ImageView, out: Output) -> None:
    out.line(_line(view))
    if view.state == "failed" and view.key and (log := session.evaluator.images.build_log(view.key)):
        lines = log.rstrip("\n").split("\n")
        if len(lines) > LOG_LINES:
            out.line(f"    … {len(lines) - LOG_LINES} lines before")
        for text in lines[-LOG_LINES:]:
            out.line(f"    {one_line(text)}")
        out.line(f"    The whole log: {_log(session, view)}")


def _log(session: "Session", view: ImageView) -> str | None:
    return session.evaluator.images.build_log_location(view.key) if view.key and view.log else None


def _progress(views: Sequence[ImageView]) -> str:
    """What is under way, for whom a long build leaves without a line."""
    building = sorted({view.task for view in views if view.state == "building"})
    waiting = len({view.task for view in views if view.state == "waiting"})
    more = ", …" if len(building) > NAMES_SHOWN else ""
    return f"Building {', '.join(building[:NAMES_SHOWN]) or 'nothing'}{more}; {waiting} tasks wait"


def _summary(views: Sequence[ImageView]) -> str:
    count = Counter("unchanged" if view.unchanged else view.state for view in views)
    return f"{len(views)} images: " + ", ".join(f"{n} {word}" for word in _ENDS if (n := count[word]))


def _tell_all(status: ImageStatus, out: Output) -> None:
    for view in status.images:
        out.line(_line(view))


def _line(view: ImageView) -> str:
    what = f"image of {view.task}" + (f" ({view.role})" if view.role == "verifier" else "")
    if view.state == "ready":
        return f"{'Unchanged' if view.unchanged else 'Ready'} {what}: {view.ref}"
    if view.state == "failed":
        return f"Failed {what}: {one_line(view.message or '')}"
    return f"{view.state.capitalize()} {what}"


def _count(status: ImageStatus) -> str:
    waiting = sum(view.state in ("waiting", "building") for view in status.images)
    return f"the images of {waiting} tasks"
