"""What an overlay leaves to its admin: all that is missing is named at once, before anything is built."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from harbor_assets.domain.errors import Refused
from harbor_assets.interfaces.deployment.given import check_given
from harbor_assets.interfaces.deployment.manifests import UNFILLED

type Object = dict[str, Any]


class Cluster:
    """The objects of a namespace, as kubectl gets them."""

    def __init__(self, **there: Object) -> None:
        self.there = there

    def get(self, kind: str, name: str, *words: str) -> Object | None:
        assert words == ("-n", "evals")
        return self.there.get(f"{kind}_{name.removeprefix('harbor-assets-')}")


def lacks(cluster: Cluster, objects: list[Object], *, guarded: bool = True) -> list[str]:
    try:
        check_given(cluster, "evals", objects, guarded=guarded, hint="edit it")  # type: ignore[arg-type]
    except Refused as refused:
        assert "edit it" in refused.message
        return [problem.subject for problem in refused.problems]
    return []


@pytest.fixture
def production(kustomized: Callable[[str], list[Object]]) -> list[Object]:
    return kustomized("production")


def filled(objects: list[Object]) -> list[Object]:
    return json.loads(json.dumps(objects).replace(UNFILLED, "there"))


DATABASE = {"data": {"DAGSTER_PG_PASSWORD": "", "HARBOR_ASSETS_CATALOG_URL": ""}}


def test_everything_that_is_missing_is_named_at_once(production: list[Object]):
    missing = lacks(Cluster(), production, guarded=False)
    for wanted in ("DAGSTER_PG_HOST", "ARTIFACTS_URL", "storageClassName", "DAGSTER_PG_PASSWORD", "--access"):
        assert [where for where in missing if wanted in where], (wanted, missing)


def test_what_has_everything_is_taken(production: list[Object]):
    assert lacks(Cluster(secret_database=DATABASE), filled(production)) == []
    half = {"data": {"DAGSTER_PG_PASSWORD": ""}}
    assert lacks(Cluster(secret_database=half), filled(production)) == [
        "Secret harbor-assets-database: HARBOR_ASSETS_CATALOG_URL"
    ]
    own = {"kind": "Secret", "metadata": {"name": "harbor-assets-database"}}
    assert lacks(Cluster(), [*filled(production), own]) == []


def test_a_database_in_the_namespace_is_not_left_behind_silently(production: list[Object]):
    there = Cluster(secret_database=DATABASE, deployment_postgres={})
    assert lacks(there, filled(production)) == ["namespace evals"]


@pytest.mark.parametrize("name", ["test", "dev"])
def test_overlays_with_all_they_need_ask_for_nothing(name: str, kustomized: Callable[[str], list[Object]]):
    assert lacks(Cluster(deployment_postgres={}), kustomized(name), guarded=False) == []
