"""What tasks and tasksets have in common: both have revisions, tags and references."""

import json
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel

from harbor_assets.domain.names import Ref
from harbor_assets.domain.tasks import Record, Revision
from harbor_assets.interfaces.sdk.http import query, segment
from harbor_assets.interfaces.sdk.pages import AsyncPage
from harbor_assets.interfaces.sdk.resource import JSON, AsyncResource, encoded, named


class AsyncRecords[T: Record](AsyncResource):
    """Tasks, or tasksets. `workspace` None: the client's."""

    collection: str
    _parse: Callable[[Any], T]

    async def retrieve(
        self, name: str, *, revision: str | None = None, tag: str | None = None, workspace: str | None = None
    ) -> T:
        """The record as it is now, or its content as of one revision: by digest with `revision`, by tag with `tag`.

        `name` may also be a reference as they are printed and stored: `workspace/name`, `name#digest`, `name#tag`.
        Raises `NotFound`, and `ValueError` for two revisions at once.
        """
        ref = Ref.parse(name, workspace=self._client.workspace if workspace is None else workspace)
        given = [one for one in (ref.fragment, revision, tag) if one is not None]
        if len(given) > 1:
            raise ValueError("revision=, tag= and a #fragment each select a revision; give one of them")
        path = self._record(ref.workspace, ref.name)
        if given:
            path = f"{path}/revisions/{segment(named('revision', given[0]))}"
        return self._parse(json.loads(await self._get(path)))

    async def list_revisions(
        self, name: str, *, page: int = 1, page_size: int = 100, workspace: str | None = None
    ) -> AsyncPage[Revision]:
        """The revisions, newest first; `content_hash` is what pins a reference. Raises `NotFound`."""
        path = f"{self._record(workspace, name)}/revisions"
        return await self._list(Revision.model_validate, path, [("page_size", str(page_size))], page)

    async def tag(self, name: str, *, tag: str, revision: str, workspace: str | None = None) -> T:
        """Point a tag at a revision, given by digest or by another tag; answers the record with all its tags.

        Tags may move in either direction; `latest` moves by itself. Raises `NotFound`, and `Refused` for `latest` and
        for a tag that looks like a digest.
        """
        path = f"{self._record(workspace, name)}/tags/{segment(named('tag', tag))}"
        answer = await self._http.call("PUT", path, params=query(revision=revision))
        return self._parse(json.loads(answer.content))

    async def delete(self, name: str, *, workspace: str | None = None) -> None:
        """Delete the record with its revisions. What refers to it stays, and no longer resolves. Raises `NotFound`."""
        await self._http.call("DELETE", self._record(workspace, name))

    async def _write(
        self, method: str, name: str, body: BaseModel, project: str | None, workspace: str | None
    ) -> tuple[T, bool]:
        """The revision, and whether it was cut."""
        path = self._record(workspace, name)
        answer = await self._http.call(method, path, params=query(project=project), content=encoded(body), headers=JSON)
        return self._parse(json.loads(answer.content)), answer.status == 201

    def _record(self, workspace: str | None, name: str) -> str:
        return self._at(workspace, self.collection, segment(named(self.collection.removesuffix("s"), name)))
