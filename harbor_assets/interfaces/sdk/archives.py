"""Where archives of published tasks go: into this machine's own store, or to a service's Files API."""

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

from harbor_assets.domain.archives import archive_key
from harbor_assets.domain.errors import NotFound
from harbor_assets.engine.ports import Artifacts
from harbor_assets.interfaces.sdk.client import Client
from harbor_assets.interfaces.sdk.http import segment

PIECE = 1024 * 1024  # bytes read and sent at a time


class Archives(Protocol):
    """Archives by fileset reference."""

    def has(self, ref: str) -> bool:
        """True if it is there; what is there is whole."""
        ...

    def put(self, ref: str, files_hash: str, path: Path) -> None:
        """Store the file at `path`, all of it or nothing."""
        ...


class StoredArchives:
    """Archives in an artifact store that this process writes itself."""

    def __init__(self, artifacts: Artifacts) -> None:
        self._artifacts = artifacts

    def has(self, ref: str) -> bool:
        """See `Archives`."""
        return self._artifacts.exists(archive_key(ref))

    def put(self, ref: str, files_hash: str, path: Path) -> None:
        """See `Archives`."""
        self._artifacts.put_file(archive_key(ref), path)


class RemoteArchives:
    """Archives behind a service's Files API, sent as streams and checked there by hash."""

    def __init__(self, client: Client) -> None:
        self._http, self._run = client.twin.http, client.loop.run

    def has(self, ref: str) -> bool:
        """See `Archives`."""
        try:
            self._run(self._http.call("HEAD", _url(ref)))
        except NotFound:
            return False
        return True

    def put(self, ref: str, files_hash: str, path: Path) -> None:
        """See `Archives`. Raises `Refused` if what arrives has not this hash."""
        headers = {
            "Content-Type": "application/octet-stream",
            "Content-Length": str(path.stat().st_size),
            "Repr-Digest": f"sha-256=:{_base64(files_hash)}:",
        }
        self._run(self._http.call("PUT", _url(ref), headers=headers, pieces=lambda: _pieces(path)))


def _url(ref: str) -> str:
    archive_key(ref)  # refuses what is no reference
    location, _, path = ref.partition("#")
    workspace, _, fileset = location.partition("/")
    parts = "/".join(map(segment, path.split("/")))
    return f"/apis/files/v2/workspaces/{segment(workspace)}/filesets/{segment(fileset)}/-/{parts}"


def _base64(hex_digest: str) -> str:
    return base64.b64encode(bytes.fromhex(hex_digest)).decode()


async def _pieces(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while piece := await asyncio.to_thread(file.read, PIECE):
            yield piece
