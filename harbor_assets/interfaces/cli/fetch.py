"""Fetching what is long: bundles and logs."""

import time
from pathlib import Path

from harbor_assets.domain.errors import Refused
from harbor_assets.interfaces.cli.edge import INTERRUPTED
from harbor_assets.interfaces.cli.output import Output, command, note, one_line
from harbor_assets.interfaces.cli.progress import RECOVER_SECONDS
from harbor_assets.interfaces.cli.session import Session, recover
from harbor_assets.settings import mask_url

MEGABYTE = 1_000_000
LOG_SHOWN_BYTES = 1024 * 1024  # of a long log, without --all: more than a terminal keeps
SHOWN_EVERY_SECONDS = 0.1  # a redraw for each piece of each file would cost more than the copying


def download(session: Session, run_id: str, output: str, out: Output, *, task: int | None = None) -> int:
    """Download a bundle to a folder or a URL, saying how far it has come on a terminal. Returns the exit code."""
    scheme, separator, rest = output.partition("://")
    if separator and scheme != "file":
        return _to_store(session, run_id, output, out, task)
    if separator and not rest.startswith("/"):
        raise Refused(f"'{mask_url(output)}' names a host; write file:///<path> or the path alone")
    folder = _download(session, run_id, Path(rest if separator else output), out, task)
    if folder is None:
        return INTERRUPTED
    out.line(f"Downloaded {folder}")
    report = folder / "report.html"
    if report.is_file():
        out.line(f"Report: {report.absolute()}")
    if out.json:
        out.document({"run_id": run_id, "folder": str(folder.absolute())})
    return 0


def _to_store(session: Session, run_id: str, url: str, out: Output, task: int | None) -> int:
    """To an object store, by way of this machine: what is there of another bundle is never mixed with this one.

    Raises `Refused` for a URL that nothing here reaches, or that holds something else; `ServiceUnavailable`.
    """
    import tempfile

    from harbor_assets.artifacts import open_artifacts

    store = open_artifacts(url)
    with tempfile.TemporaryDirectory(prefix="harbor-assets-") as scratch:
        folder = _download(session, run_id, Path(scratch), out, task)
        if folder is None:
            return INTERRUPTED
        key = folder.relative_to(scratch).as_posix()
        here = {
            path.relative_to(folder).as_posix(): path.stat().st_size for path in folder.rglob("*") if path.is_file()
        }
        there = dict(store.list(key))
        if not there.items() <= here.items():  # some of the files, each whole, is what an upload that broke off left
            raise Refused(f"{store.url(key)} holds something else already; choose another place with --output")
        if there.items() != here.items():
            store.put_tree(key, folder)
    out.line(f"Stored {store.url(key)}")
    if out.json:
        out.document({"run_id": run_id, "folder": store.url(key)})
    return 0


def _download(session: Session, run_id: str, output: Path, out: Output, task: int | None) -> Path | None:
    """The bundle's folder; None if the user broke it off."""
    shown = 0.0

    def progress(done: int, total: int) -> None:
        nonlocal shown
        if out.live and time.monotonic() - shown >= SHOWN_EVERY_SECONDS:
            shown = time.monotonic()
            out.lines.write(f"\r\x1b[K{done / MEGABYTE:.1f} of {total / MEGABYTE:.1f} MB")
            out.lines.flush()

    try:
        return session.evaluator.runs.download(run_id, output, progress, task=task)
    except KeyboardInterrupt:
        note("\nInterrupted: nothing of the bundle was kept. Repeat the command to start again.")
        return None
    finally:
        if shown:
            out.lines.write("\r\x1b[K")


def print_logs(session: Session, run_id: str, task: int | None, *, follow: bool, whole: bool = False) -> int:
    """Print a log; with `follow`, until nothing more will come. Returns the exit code.

    Of a long log the last part only, and a note that says so, unless `whole`.
    """
    out, offset, looked, told = Output(), 0, time.monotonic(), ""
    try:
        while True:
            chunk = session.evaluator.runs.logs(run_id, task=task, offset=offset)
            if offset == 0 and not whole and chunk.size is not None and chunk.size > LOG_SHOWN_BYTES:
                note(f"This log has {chunk.size / 1e6:.1f} MB; here is its end. All of it: repeat with --all")
                offset = chunk.size - LOG_SHOWN_BYTES
                skipped = session.evaluator.runs.logs(run_id, task=task, offset=offset)
                cut, newline, rest = skipped.text.partition("\n")
                chunk = skipped.model_copy(update={"text": rest if newline else cut})
            if chunk.text:
                out.text(chunk.text)
            if chunk.waiting and chunk.waiting.message != told:
                told = chunk.waiting.message
                note(f"Waits: {one_line(told)}")
            idle, offset = chunk.next_offset == offset, chunk.next_offset
            if chunk.done or (idle and not follow):
                return 0
            if idle:
                time.sleep(session.settings.watch_poll_seconds)
            if time.monotonic() - looked >= RECOVER_SECONDS:
                recover(session, run_id)
                looked = time.monotonic()
    except KeyboardInterrupt:
        note(f"Stopped following; the run goes on: {command('runs', 'status', run_id, *session.own_words())}")
        return INTERRUPTED
