"""Lineage both ways: what a number was made of, and what a task or image was made into."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from harbor_assets.domain.lineage import Lineage, asked
from harbor_assets.engine.lineage import Lineages
from harbor_assets.interfaces.api.answers import Name, model
from harbor_assets.interfaces.api.failures import failures
from harbor_assets.interfaces.api.guard import need_reader
from harbor_assets.interfaces.api.references import of_refs


def lineage_router(lineages: Lineages) -> APIRouter:
    """`/lineage`."""
    router = APIRouter(prefix="/lineage", tags=["lineage"])

    @router.get("", response_model=Lineage, responses=failures(404))
    def lineage(
        workspace: Name,
        of: Annotated[
            str,
            Query(
                min_length=1,
                max_length=1000,
                description="RUN, RUN/TASK or RUN/TASK/K: what it was made of. [WORKSPACE/]NAME[#REVISION] of a task "
                "or taskset, or an image's sha256:...: every run, trial and score of this workspace that it touches.",
                examples=["run-0123456789abcdef"],
            ),
        ],
    ) -> Response:
        """The tree, with what is said of everything in it."""
        if (ref := asked(of).ref) is not None:
            need_reader(of_refs([ref], workspace))
        return model(lineages.of(workspace, of))

    return router
