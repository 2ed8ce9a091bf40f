"""Fetching what is long: bundles and logs."""

import time
from pathlib import Path

from harbor_assets.interfaces.cli.edge import INTERRUPTED
from harbor_assets.interfaces.cli.output import Output, command, note, one_line
from harbor_assets.interfaces.cli.progress import RECOVER_SECONDS
from harbor_assets.interfaces.cli.session import Session, recover

MEGABYTE = 1_000_000
LOG_SHOWN_BYTES = 1024 * 1024  # of a long log, without --all: more than a terminal keeps
SHOWN_EVERY_SECONDS = 0.1  # a redraw for each piece of each file would cost more than the copying


def download(session: Session, run_id: str, output: Path, out: Output, *, task: int | None = None) -> int:
    """Download a bundle, saying how far it has come on a terminal. Returns the exit code."""
    shown = 0.0

    def progress(done: int, total: int) -> None:
        nonlocal shown
        if out.live and time.monotonic() - shown >= SHOWN_EVERY_SECONDS:
            shown = time.monotonic()
            out.lines.write(f"\r\x1b[K{done / MEGABYTE:.1f} of {total / MEGABYTE:.1f} MB")
            out.lines.flush()

    try:
        folder = session.evaluator.runs.download(run_id, output, progress, task=task)
    except KeyboardInterrupt:
        note("\nInterrupted: nothing of the bundle was kept. Repeat the command to start again.")
        return INTERRUPTED
    finally:
        if shown:
            out.lines.write("\r\x1b[K")
    out.line(f"Downloaded {folder}")
    report = folder / "report.html"
    if report.is_file():
        out.line(f"Report: {report.absolute()}")
    if out.json:
        out.document({"run_id": run_id, "folder": str(folder.absolute())})
    return 0


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
