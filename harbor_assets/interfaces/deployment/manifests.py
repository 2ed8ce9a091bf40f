"""What an install changes in the manifests of an overlay. Pure: objects in, objects out."""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from harbor_assets.domain.errors import Refused
from harbor_assets.sandboxes.kubernetes.network import policies

Object = dict[str, Any]

NAMESPACE = "harbor-assets"
PART_OF = "app.kubernetes.io/part-of"
OURS = "harbor-assets"
MINE = f"{PART_OF}={OURS}"  # the label of all that is ours
SERVICE_IMAGE, WORKER_IMAGE = "harbor-assets-service", "harbor-assets-worker"
ENV = "harbor-assets-env"
POSTGRES = "harbor-assets-postgres"
DATABASE, PASSWORD_KEY = "harbor-assets-database", "POSTGRES_PASSWORD"
EGRESS, EGRESS_KEY = "harbor-assets-egress", "HARBOR_ASSETS_EGRESS_SECRET"
ACCESS, ACCESS_KEY, ACCESS_FOLDER = "harbor-assets-access", "access.toml", "/etc/harbor-assets/access"
EXTERNAL_KEYS = ("DAGSTER_PG_PASSWORD", "HARBOR_ASSETS_CATALOG_URL")  # of a database that is not the overlay's own
UNFILLED = "CHANGE-ME"  # what stands in a manifest where an admin has to put something
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
    objects = list(objects)
    inner = has(objects, "Deployment", POSTGRES)  # else the database is elsewhere, and its password not ours to make
    made = [_adapted(deepcopy(item), install, inner=inner) for item in objects]
    if not any(item["kind"] == "Secret" and item["metadata"]["name"] == EGRESS + GENERATED for item in made):
        made.append(_secret(EGRESS + GENERATED, {EGRESS_KEY: install.egress_secret}, install.namespace))
    if install.access is not None:
        made.append(_secret(ACCESS, {ACCESS_KEY: install.access}, install.namespace))
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


def _adapted(item: Object, install: Install, *, inner: bool) -> Object:
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
    elif kind == "Secret" and meta["name"] in ((DATABASE, EGRESS) if inner else (EGRESS,)):
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


def _secret(name: str, data: Mapping[str, str], namespace: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace, "labels": {PART_OF: OURS}},
        "stringData": dict(data),
    }


def check_name(namespace: str) -> None:
    """Raises `Refused` for what can be the name of no namespace."""
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", namespace):
        raise Refused(
            f"{namespace!r} is no name of a namespace: at most 63 of a-z, 0-9 and -, which is not at its ends"
        )


def environment(objects: Iterable[Object]) -> dict[str, str]:
    """The settings that an overlay gives to every program."""
    return next((o["data"] for o in objects if o["kind"] == "ConfigMap" and o["metadata"]["name"] == ENV), {})


def has(objects: Iterable[Object], kind: str, name: str) -> bool:
    """Whether such an object is there."""
    return any(item["kind"] == kind and item["metadata"]["name"] == name for item in objects)


def unfilled(objects: Iterable[Object]) -> list[str]:
    """What an admin has to fill in and has not, each as `<kind> <name>: <field>`. The two images are left out: an
    install sets them."""
    found: dict[str, None] = {}
    for item in objects:
        for path, text in _texts(item):
            image = path.endswith(("image", "HARBOR_ASSETS_WORKER_IMAGE"))
            if UNFILLED in text and not image:
                found[f"{item['kind']} {item['metadata']['name']}: {path}"] = None
    return list(found)


def _texts(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Every text in a value with the path of its field."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _texts(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for n, inner in enumerate(value):
            yield from _texts(inner, f"{path}[{n}]")


def database_secret(password: str) -> dict[str, str]:
    """The password for Postgres, for Dagster and in the catalog's URL, under the names that each reads.

    `password` is safe in a URL: `cluster install` makes it of hexadecimal digits.
    """
    return {
        PASSWORD_KEY: password,
        "DAGSTER_PG_PASSWORD": password,
        "HARBOR_ASSETS_CATALOG_URL": f"postgresql+psycopg://harbor:{password}@{POSTGRES}:5432/harbor_assets",
    }
