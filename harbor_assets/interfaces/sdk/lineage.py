"""Lineage both ways."""

from harbor_assets.domain.lineage import Lineage
from harbor_assets.interfaces.sdk.blocking import Blocking, blocking
from harbor_assets.interfaces.sdk.resource import AsyncResource


class AsyncLineages(AsyncResource):
    """What a number was made of, and what a task, taskset or image was made into."""

    async def of(self, subject: str, *, workspace: str | None = None) -> Lineage:
        """Up from `RUN`, `RUN/TASK` or `RUN/TASK/K`; down from `[WORKSPACE/]NAME[#REVISION]` or `sha256:...`.

        Raises `NotFound` for what there is not.
        """
        return await self._read(Lineage, self._at(workspace, "lineage"), of=subject)


class Lineages(Blocking):
    """What a number was made of, and what a task, taskset or image was made into."""

    of = blocking(AsyncLineages.of)
