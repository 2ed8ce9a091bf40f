"""What a trial used, as far as only its agent's own trace says: Harbor's sum knows nothing of it.

Read where the trial ran, so that the row, and with it every table, page and session, names what the trace names. The
folder was written by a stranger: nothing in it keeps a trial from its ending.
"""

import logging
import os
import stat
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from harbor_assets.domain.endings import Ending
from harbor_assets.domain.trace_reading import DOCUMENT_MAX_BYTES
from harbor_assets.engine.trial_traces import completed, is_trace, look

log = logging.getLogger(__name__)

_ONE_AT_A_TIME = threading.Lock()  # a document becomes many times its size in memory


def with_usage(ending: Ending, folder: Path) -> Ending:
    """The ending with what the trace in the trial's folder says of tokens and cost that Harbor does not know."""
    own = ending.measurements
    if None not in (own.prompt_tokens, own.completion_tokens, own.cost_usd):
        return ending
    try:
        with _ONE_AT_A_TIME:
            files = dict(_plain_files(folder))
            found = look(files, lambda path: _read(folder / path)).trajectory if files else None
            return replace(ending, measurements=completed(own, found))
    except Exception:  # whatever an agent writes, its trial has ended as it has
        log.exception("what the agent of %s used is not read from its trace", folder.name)
        return ending


def _plain_files(folder: Path) -> Iterator[tuple[str, int]]:
    """Path and size of the files that may be a trace. No links are followed."""
    for root, _, names in os.walk(folder):
        at = Path(root).relative_to(folder)
        for name in names:
            if is_trace(path := (at / name).as_posix()):
                facts = (folder / path).lstat()
                if stat.S_ISREG(facts.st_mode):
                    yield path, facts.st_size


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(DOCUMENT_MAX_BYTES + 1)
