"""What an install changes in the manifests of an overlay. Pure: objects in, objects out."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from harbor_assets.sandboxes.kubernetes.network import policies

Object = dict[str, Any]

NAMESPACE = "harbor-assets"
PART_OF = "app.kubernetes.io/part-of"
OURS = "harbor-assets"
SERVICE_IMAGE, WORKER_IMAGE = "harbor-assets-service", "harbor-assets-worker"
ENV = "harbor-assets-env"
POSTGRES = "harbor-assets-postgres"
DATABASE, PASSWORD_KEY = "harbor-assets-database", "POSTGRES_PASSWORD"
EGRESS, EGRESS_KEY = "harbor-assets-egress", "HARBOR_ASSETS_EGRESS_SECRET"
ACCESS, ACCESS_KEY, ACCESS_FOLDER = "harbor-assets-access", "access.toml", "/etc/harbor-assets/access"
GENERATED = "-generated"  # what an install makes stands beside the overlay's own, which a plain apply would set back
CONFIGURATION = "harbor-assets/configuration"  # annotation: pods are made anew when what they read has changed


@dataclass(frozen=True, slots=True)
class Install:
    """What an install decides: images, secrets (key -> text), settings, and the nodes' addresses.

    `access` is the text of an access file that is new; `guarded`: there is one, new or of before.
    """

    service_image: str
    worker_image: str
    password: str
    egress_secret: str
    namespace: str = NAMESPACE
    settings: Mapping[str, str] = field(default_factory=dict)
    nodes: Sequence[str] = ()
    access: str | None = None
    guarded: bool = False


def adapt(objects: Iterable[Object], install: Install) -> list[Object]:
    """The overlay's objects with what the install decides."""
    made = [_adapted(deepcopy(item), install) for item in objects]
    if install.access is not None:
        made.append(_access_secret(install.access, install.namespace))
    closed = {policy["metadata"]["name"]: policy for policy in policies(install.nodes)}
    for item in made:
        name = item["metadata"]["name"]
        if item["kind"] == "NetworkPolicy" and name in closed:
            item["spec"] = closed[name]["spec"]
    read = [item for item in made if item["kind"] in ("ConfigMap", "Secret")]
    mark = hashlib.sha256(json.dumps(read, sort_keys=True).encode()).hexdigest()[:16]
    for item in made:
        if item["kind"] == "Deployment" and item["metadata"]["name"] != POSTGRES:
            item["spec"]["template"]["metadata"].setdefault("annotations", {})[CONFIGURATION] = mark
    return made


def _adapted(item: Object, install: Install) -> Object:
    kind, meta = item["kind"], item["metadata"]
    if kind == "Namespace":
        meta["name"] = install.namespace
    elif "namespace" in meta:
        meta["namespace"] = install.namespace
    for subject in item.get("subjects") or ():
        subject["namespace"] = install.namespace
    if kind == "ConfigMap" and meta["name"] == ENV:
        item["data"] |= {
            "HARBOR_ASSETS_WORKER_IMAGE": install.worker_image,
            **install.settings,
            **(_GUARDED if install.guarded else {}),
        }
    elif kind == "Secret" and meta["name"] in (DATABASE, EGRESS):
        item.pop("data", None)
        item["stringData"] = {
            DATABASE: database_secret(install.password),
            EGRESS: {EGRESS_KEY: install.egress_secret},
        }[meta["name"]]
        meta["name"] += GENERATED
    elif kind == "Deployment":
        pod = item["spec"]["template"]["spec"]
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            if container["image"].rpartition("/")[2].partition(":")[0] == SERVICE_IMAGE:
                container["image"] = install.service_image
    return item


# An upgrade that does not name the file again must not open what was shut.
_GUARDED = {"HARBOR_ASSETS_ACCESS": f"{ACCESS_FOLDER}/{ACCESS_KEY}", "HARBOR_ASSETS_ALLOW_REMOTE": "0"}


def _access_secret(text: str, namespace: str) -> Object:
    labels = {PART_OF: OURS}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": ACCESS, "namespace": namespace, "labels": labels},
        "stringData": {ACCESS_KEY: text},
    }


def database_secret(password: str) -> dict[str, str]:
    """The password for Postgres, for Dagster and in the catalog's URL, under the names that each reads.

    `password` is safe in a URL: `cluster install` makes it of hexadecimal digits.
    """
    return {
        PASSWORD_KEY: password,
        "DAGSTER_PG_PASSWORD": password,
        "HARBOR_ASSETS_CATALOG_URL": f"postgresql+psycopg://harbor:{password}@{POSTGRES}:5432/harbor_assets",
    }
