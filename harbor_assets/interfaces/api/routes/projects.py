"""Projects: names in a workspace that tasks and tasksets are put under with `?project=`. No part of the contract."""

from fastapi import APIRouter, Response

from harbor_assets.domain.tasks import Project
from harbor_assets.engine.ports import ProjectCatalog
from harbor_assets.interfaces.api.answers import Listed, Name, PageNumber, PageSize, dumped, listed, model
from harbor_assets.interfaces.api.failures import failures
from harbor_assets.interfaces.api.strict import StrictRoute


def projects_router(catalog: ProjectCatalog) -> APIRouter:
    """`/projects`."""
    router = APIRouter(prefix="/projects", tags=["projects"], route_class=StrictRoute)

    @router.get("", response_model=Listed[Project], responses=failures(422))
    def list_projects(workspace: Name, page: PageNumber = 1, page_size: PageSize = 100) -> Response:
        """The workspace's projects by name."""
        found = catalog.list_projects(workspace, page=page, page_size=page_size)
        return listed(found, dumped(found.items), sort="name")

    @router.put("/{name}", response_model=Project, responses=_MADE | failures(422))
    def put_project(workspace: Name, name: Name) -> Response:
        """Make a project: 201, or 200 if it is there."""
        project, made = catalog.put_project(workspace, name)
        return model(project, 201 if made else 200)

    @router.delete("/{name}", status_code=204, response_class=Response, responses=failures(404, 409))
    def delete_project(workspace: str, name: str) -> Response:
        """Delete a project that nothing is in."""
        catalog.delete_project(workspace, name)
        return Response(status_code=204)

    return router


_MADE = {200: {"description": "It is there"}, 201: {"description": "It was made", "model": Project}}
