"""Files as answers of pages: those of tasks and agents are downloads that no browser shows or runs from here."""

from contextlib import AbstractContextManager, ExitStack
from pathlib import PurePosixPath
from typing import BinaryIO
from urllib.parse import quote

from fastapi import Response

from harbor_assets.interfaces.api.streams import UNTRUSTED, streamed
from harbor_assets.interfaces.web.site import POLICY

# Of a bundle's own files, which this project writes itself. The report carries a stricter policy of its own.
_SHOWN = {
    ".json": ("application/json", POLICY),
    ".jsonl": ("text/plain; charset=utf-8", POLICY),
    ".html": (
        "text/html; charset=utf-8",
        "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
}


def untrusted(path: str, file: AbstractContextManager[BinaryIO]) -> Response:
    """A file of a trial's folder, under its own name, to be saved."""
    name = path.rpartition("/")[2]
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "_" for c in name) or "file"
    encoded = quote(name, safe="", errors="surrogateescape")
    said = f"attachment; filename=\"{plain}\"; filename*=UTF-8''{encoded}"
    return _answer(file, "application/octet-stream", {**UNTRUSTED, "Content-Disposition": said})


def own(path: str, file: AbstractContextManager[BinaryIO]) -> Response:
    """A file that stands at the top of a bundle: shown if a browser can, else saved."""
    if "/" in path or (shown := _SHOWN.get(PurePosixPath(path).suffix)) is None:
        return untrusted(path, file)
    media_type, policy = shown
    return _answer(file, media_type, {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": policy})


def _answer(file: AbstractContextManager[BinaryIO], media_type: str, headers: dict[str, str]) -> Response:
    with ExitStack() as opened:
        found = opened.enter_context(file)
        return streamed(found, opened, media_type=media_type, headers={**headers, "Cache-Control": "private, no-store"})
