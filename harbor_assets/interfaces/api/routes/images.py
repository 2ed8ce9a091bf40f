"""Images of tasksets: begin with what is missing, look how far it is, read the log of a build."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from harbor_assets.domain.images import BuildRequest, ImageStatus
from harbor_assets.domain.plans import SandboxWord
from harbor_assets.engine.taskset_images import TasksetImages
from harbor_assets.interfaces.api import examples
from harbor_assets.interfaces.api.answers import Name, model
from harbor_assets.interfaces.api.strict import StrictRoute

_TEXT = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox; default-src 'none'"}


def images_router(images: TasksetImages) -> APIRouter:
    """`/tasksets/{name}/images` and `/images/{key}/log`."""
    router = APIRouter(tags=["images"], route_class=StrictRoute)

    @router.post("/tasksets/{name}/images", response_model=ImageStatus, status_code=202)
    def build(workspace: Name, name: Name, body: BuildRequest) -> Response:
        """Begin with every image that is not ready, also with those that failed before; answers at once."""
        return model(images.start(workspace, name, body), 202)

    @router.get("/tasksets/{name}/images", response_model=ImageStatus)
    def status(
        workspace: Name,
        name: Name,
        revision: Annotated[str | None, Query(min_length=1, max_length=255)] = None,
        sandbox: SandboxWord = "auto",
    ) -> Response:
        """What is known of the images of every task, for one kind of sandbox."""
        return model(images.status(workspace, name, revision, sandbox))

    @router.get("/images/{key}/log", response_class=Response, responses=examples.TEXT)
    def log(workspace: Name, key: Annotated[str, Path(pattern=r"^[0-9a-f]{64}$")]) -> Response:
        """The log of an image's last build, as the builder wrote it."""
        return Response(images.log(key), media_type="text/plain; charset=utf-8", headers=_TEXT)

    return router
