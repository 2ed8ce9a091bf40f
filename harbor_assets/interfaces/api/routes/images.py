"""Images of tasksets: begin with what is missing, look how far it is, read the log of a build."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from harbor_assets.domain.errors import NotFound
from harbor_assets.domain.images import BuildRequest, ImageStatus
from harbor_assets.engine.images import ImageBuilds
from harbor_assets.engine.ports import TaskCatalog
from harbor_assets.interfaces.api.answers import Name, model
from harbor_assets.interfaces.api.strict import StrictRoute

_TEXT = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox; default-src 'none'"}


def images_router(builds: ImageBuilds | None, catalog: TaskCatalog) -> APIRouter:
    """`/tasksets/{name}/images` and `/images/{key}/log`; `builds` None: sandboxes here need no images."""
    router = APIRouter(tags=["images"], route_class=StrictRoute)

    @router.post("/tasksets/{name}/images", response_model=ImageStatus, status_code=202)
    def build(workspace: Name, name: Name, body: BuildRequest) -> Response:
        """Begin with every image that is not ready, also with those that failed before; answers at once."""
        if builds is None:
            return model(_none(workspace, name, body.revision), 202)
        return model(builds.start(workspace, name, body), 202)

    @router.get("/tasksets/{name}/images", response_model=ImageStatus)
    def status(
        workspace: Name, name: Name, revision: Annotated[str | None, Query(min_length=1, max_length=255)] = None
    ) -> Response:
        """What is known of the images of every task."""
        if builds is None:
            return model(_none(workspace, name, revision))
        return model(builds.status(workspace, name, revision))

    @router.get("/images/{key}/log", response_class=Response)
    def log(workspace: Name, key: Annotated[str, Path(pattern=r"^[0-9a-f]{64}$")]) -> Response:
        """The log of an image's last build, as the builder wrote it."""
        if builds is None:
            raise NotFound("Nothing is built here, so there are no logs of builds")
        return Response(builds.log(key), media_type="text/plain; charset=utf-8", headers=_TEXT)

    def _none(workspace: str, name: str, revision: str | None) -> ImageStatus:
        return ImageStatus(taskset_ref=catalog.get_taskset(workspace, name, revision).ref, needed=False)

    return router
