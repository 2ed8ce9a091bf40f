"""Filesets: files by workspace, fileset and path, as far as publishing needs them (contract B.7).

A task's archive lies at a path that holds its own hash (`<folder>/<SHA-256>/task_archive`): what is sent there must
have that hash, and what lies there is never replaced. `Repr-Digest: sha-256=:<base64>:` (RFC 9530) is held to anywhere.
"""

import asyncio
import base64
import hashlib
import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from harbor_assets.domain.archives import ARCHIVE_NAME, MAX_ARCHIVE_BYTES, archive_key
from harbor_assets.domain.errors import NO_SPACE, Conflict, NotFound, Problem, Refused, StorageFull
from harbor_assets.domain.names import NAME_MAX, is_digest, name_problem
from harbor_assets.domain.tasks import Body
from harbor_assets.engine.ports import Artifacts
from harbor_assets.interfaces.api import examples
from harbor_assets.interfaces.api.answers import Name, model
from harbor_assets.interfaces.api.limits import TooLarge
from harbor_assets.interfaces.api.parts import FILES
from harbor_assets.interfaces.api.streams import CHUNK, UNTRUSTED, streamed
from harbor_assets.interfaces.api.strict import StrictRoute

_RECORDS = "fileset-records"  # beside `filesets`: a record under a fileset's own name could meet one of its files


class NewFileset(Body):
    """The body that makes a fileset."""

    name: str = Field(max_length=NAME_MAX)
    description: str = Field(default="", max_length=1000)


class Fileset(BaseModel):
    """A fileset's record: the contract's members, its strings never null."""

    id: str
    name: str
    workspace: str
    description: str = ""
    purpose: str = "generic"
    storage: dict[str, str]
    metadata: dict[str, str] = {}
    custom_fields: dict[str, str] = {}
    project: str = ""
    created_at: datetime
    updated_at: datetime


class StoredFile(BaseModel):
    """What was stored, and where. `size` in bytes."""

    file_ref: str
    file_url: str
    path: str
    size: int


def files_router(artifacts: Artifacts, scratch: Path | None) -> APIRouter:
    """`/filesets`. Uploads are written below `scratch` (None: the system's temporary folder) until they are whole."""
    router = APIRouter(prefix="/filesets", tags=["files"], route_class=StrictRoute)

    @router.post("", response_model=Fileset, status_code=201)
    def create(workspace: Name, body: NewFileset) -> Response:
        """Make a fileset: 201; 409 if it exists."""
        if problem := name_problem(body.name):
            raise Refused("The fileset was not made:", [Problem("name", f"'{body.name}' {problem}")])
        key = _record_key(workspace, body.name)
        if artifacts.exists(key):
            raise Conflict(f"Fileset with workspace '{workspace}' and name '{body.name}' already exists")
        now = datetime.now(UTC)
        made = Fileset(
            id=f"fileset-{hashlib.sha256(key.encode()).hexdigest()[:22]}",
            name=body.name,
            workspace=workspace,
            description=body.description,
            storage={"type": "local", "path": f"{workspace}/{body.name}"},
            created_at=now,
            updated_at=now,
        )
        artifacts.put_bytes(key, made.model_dump_json().encode())
        return model(made, 201)

    @router.get("/{name}", response_model=Fileset)
    def get(workspace: Name, name: Name) -> Response:
        """The fileset's record."""
        try:
            with artifacts.open(_record_key(workspace, name)) as file:
                return model(Fileset.model_validate(json.loads(file.read())))
        except NotFound:
            raise NotFound(f"Fileset not found: {workspace}/{name}") from None

    @router.put("/{name}/-/{path:path}", response_model=StoredFile, openapi_extra=examples.UPLOAD)
    async def put_file(workspace: Name, name: Name, path: str, request: Request) -> Response:
        """Store the body as one file; all of it or nothing."""
        ref = f"{workspace}/{name}#{path}"
        key, wanted = archive_key(ref), _wanted(path, request.headers.get("repr-digest"))
        if _addressed(path) and await asyncio.to_thread(artifacts.exists, key):
            size = await asyncio.to_thread(artifacts.size, key)
            return _stored(ref, workspace, name, path, size)
        try:
            with tempfile.TemporaryDirectory(prefix="upload-", dir=scratch) as folder:
                file = Path(folder, "body")
                size, digest = await _receive(request.stream(), file)
                if wanted and digest != wanted:
                    raise Refused(
                        "The file was not stored:",
                        [Problem(path, f"has SHA-256 {digest}, {wanted} was announced; send it again")],
                    )
                await asyncio.to_thread(artifacts.put_file, key, file)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            raise StorageFull("The service has no space left for uploads; its admin must free some") from error
        return _stored(ref, workspace, name, path, size)

    @router.head("/{name}/-/{path:path}", response_class=Response)
    def has_file(workspace: Name, name: Name, path: str) -> Response:
        """Whether the file is there, and its size. What is there is whole."""
        return Response(headers={"Content-Length": str(artifacts.size(archive_key(f"{workspace}/{name}#{path}")))})

    @router.get("/{name}/-/{path:path}", response_class=StreamingResponse, responses=examples.BYTES)
    def get_file(workspace: Name, name: Name, path: str) -> Response:
        """The file's bytes."""
        with ExitStack() as opened:
            file = opened.enter_context(artifacts.open(archive_key(f"{workspace}/{name}#{path}")))
            return streamed(file, opened, media_type="application/octet-stream", headers=UNTRUSTED)

    return router


def _record_key(workspace: str, name: str) -> str:
    return f"{_RECORDS}/{workspace}/{name}.json"


def _addressed(path: str) -> bool:
    parts = path.split("/")
    return len(parts) >= 2 and parts[-1] == ARCHIVE_NAME and is_digest(parts[-2])


def _wanted(path: str, header: str | None) -> str | None:
    """The hash (hex) that the body must have, or None if nothing says so."""
    if _addressed(path):
        return path.split("/")[-2]
    for member in (header or "").split(","):
        algorithm, _, value = member.strip().partition("=")
        if algorithm == "sha-256":
            try:
                return base64.b64decode(value.strip(":"), validate=True).hex()
            except ValueError:
                raise Refused(f"Repr-Digest {value[:100]!r} is not sha-256=:<base64>: (RFC 9530)") from None
    return None


async def _receive(pieces: AsyncIterator[bytes], path: Path) -> tuple[int, str]:
    """Write a body to a file; returns its size and SHA-256. Never holds more than about a megabyte of it."""
    size, digest, waiting = 0, hashlib.sha256(), bytearray()

    def flush(file: BinaryIO) -> None:
        digest.update(waiting)
        file.write(waiting)
        waiting.clear()

    with path.open("wb") as file:
        async for piece in pieces:
            size += len(piece)
            if size > MAX_ARCHIVE_BYTES:
                raise TooLarge(MAX_ARCHIVE_BYTES)
            waiting += piece
            if len(waiting) >= CHUNK:
                await asyncio.to_thread(flush, file)
        await asyncio.to_thread(flush, file)
    return size, digest.hexdigest()


def _stored(ref: str, workspace: str, name: str, path: str, size: int) -> Response:
    url = f"{FILES.format(workspace=workspace)}/filesets/{name}/-/{path}"
    return model(StoredFile(file_ref=ref, file_url=url, path=path, size=size))
