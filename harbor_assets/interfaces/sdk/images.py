"""Images of the tasks of a taskset."""

from harbor_assets.domain.errors import NotFound
from harbor_assets.domain.images import BuildRequest, ImageStatus, log_key
from harbor_assets.domain.names import Ref
from harbor_assets.domain.plans import SandboxWord
from harbor_assets.interfaces.sdk.blocking import Blocking, blocking
from harbor_assets.interfaces.sdk.http import segment
from harbor_assets.interfaces.sdk.resource import AsyncResource, named


class AsyncImages(AsyncResource):
    """Images that sandboxes are made of."""

    async def build(self, taskset: Ref, request: BuildRequest) -> ImageStatus:
        """Begin with every image of a taskset that is not ready; answers at once how things stand."""
        return await self._send(ImageStatus, "POST", self._images(taskset), request)

    async def status(self, taskset: Ref, sandbox: SandboxWord = "auto") -> ImageStatus:
        """What is known of the images of every task of a taskset, for one kind of sandbox."""
        return await self._read(ImageStatus, self._images(taskset), revision=taskset.fragment, sandbox=sandbox)

    async def build_log(self, key: str) -> str:
        """The log of an image's last build; empty if there is none."""
        try:
            content = await self._get(self._log(key))
        except NotFound:
            return ""
        return content.decode("utf-8", errors="replace")

    def build_log_location(self, key: str) -> str:
        """Where a person finds that log: a path or URL in the artifact store, or the service's URL."""
        backend = self._client.service.backend
        return f"{self._client.base_url}{self._log(key)}" if backend is None else backend.artifacts.url(log_key(key))

    def _log(self, key: str) -> str:
        return self._at(None, "images", segment(key), "log")

    def _images(self, taskset: Ref) -> str:
        return self._at(taskset.workspace, "tasksets", segment(named("taskset", taskset.name)), "images")


class Images(Blocking):
    """Images that sandboxes are made of."""

    _twin: AsyncImages

    build = blocking(AsyncImages.build)
    status = blocking(AsyncImages.status)
    build_log = blocking(AsyncImages.build_log)

    def build_log_location(self, key: str) -> str:
        """Where a person finds that log: a path or URL in the artifact store, or the service's URL."""
        return self._twin.build_log_location(key)
