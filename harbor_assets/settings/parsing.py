"""How each kind of setting is read from its text. Raises `BadValue` with the rule."""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path

from harbor_assets.domain.names import name_problem

_OWNER_MAX = 255
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*)://")


class BadValue(Exception):
    """What the rule is, as the rest of a sentence that began with the value."""


def folder(text: str) -> Path:
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError as error:  # ~somebody, who does not exist
        raise BadValue("names a user's home that is not known; write the full path") from error


def workspace(text: str) -> str:
    if problem := name_problem(text):
        raise BadValue(f"{problem}; choose another name for the workspace")
    return text


def owner(text: str) -> str:
    if len(text) > _OWNER_MAX or not text.isprintable():
        raise BadValue(f"must be at most {_OWNER_MAX} printable characters")
    return text


def catalog_url(text: str) -> str:
    if text.startswith("sqlite:///"):
        return f"sqlite:///{folder(text.removeprefix('sqlite:///'))}"
    if text.startswith(("postgresql://", "postgresql+psycopg://")):
        return text
    raise BadValue("must be sqlite:///<path of a file> or postgresql+psycopg://<user>:<password>@<host>/<database>")


def artifacts_url(text: str) -> str:
    if _SCHEME.match(text):
        return text
    return str(folder(text))


def buildkit(text: str) -> str:
    if re.fullmatch(r"tcp://[^/\s]+:[0-9]+|unix:///\S+", text):
        return text
    raise BadValue("must be tcp://<host>:<port> or unix:///<path>")


_HOST = r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]+)?"


def prefix(text: str) -> str:
    if re.fullmatch(rf"{_HOST}(/[a-z0-9]+([._-]+[a-z0-9]+)*)*/?", text):
        return text.rstrip("/")
    raise BadValue("must be <host>[:<port>][/<folder>], the folder in lower case")


def hosts(text: str) -> str:
    hosts = [host.strip() for host in text.split(",")]
    if all(re.fullmatch(_HOST, host) for host in hosts):
        return ",".join(hosts)
    raise BadValue("must be <host>[:<port>], several by commas")


def variables(text: str) -> str:
    names = [name.strip() for name in text.split(",")]
    if all(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) for name in names):
        return ",".join(names)
    raise BadValue("must be names of variables, several by commas")


def mirrors(text: str) -> str:
    pairs = [pair.strip() for pair in text.split(",")]
    if all(re.fullmatch(rf"{_HOST}={_HOST}", pair) for pair in pairs):
        return ",".join(pairs)
    raise BadValue("must be <registry>=<mirror>, several by commas")


def optional_file(text: str) -> str:
    return str(folder(text))


def token(text: str) -> str:
    if not re.fullmatch(r"[\x21-\x7e]{1,16384}", text):
        raise BadValue("must be printable ASCII without spaces")
    return text


WEBHOOK_EVENTS = ("ended", "failed", "regressed")  # kept equal to domain/notices.py by a test


def webhook_url(text: str) -> str:
    if not re.fullmatch(r"https?://[^\s/@]+(/[\x21-\x7e]*)?", text) or len(text) > 4096:
        raise BadValue("must be http://... or https://... with a host, without a user, blanks or line breaks")
    return text


def webhook_format(text: str) -> str:
    if text not in ("generic", "slack"):
        raise BadValue("must be generic or slack")
    return text


def webhook_events(text: str) -> str:
    names = [name.strip() for name in text.split(",")]
    if all(name in WEBHOOK_EVENTS for name in names):
        return ",".join(dict.fromkeys(names))
    raise BadValue(f"must be some of {', '.join(WEBHOOK_EVENTS)}, by commas")


def whole(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,9}", text) or not low <= int(text) <= high:
            raise BadValue(f"must be a whole number from {low} to {high}")
        return int(text)

    return parse


def seconds(low: float, high: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            raise BadValue(f"must be a number of seconds from {low} to {high:g}")
        return value

    return parse


def switch(text: str) -> bool:
    value = {"1": True, "true": True, "on": True, "0": False, "false": False, "off": False}.get(text.lower())
    if value is None:
        raise BadValue("must be 1 or 0")
    return value


def executor(text: str) -> str:
    if text not in ("local", "kubernetes"):
        raise BadValue("must be local (a worker on this machine) or kubernetes (a Job per task)")
    return text


def namespace(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", text):
        raise BadValue("must be a Kubernetes namespace: at most 63 of a-z, 0-9 and -, not at its ends")
    return text


def image(text: str) -> str:
    if not re.fullmatch(r"[\x21-\x7e]{1,512}", text):
        raise BadValue("must be an image reference without spaces, such as registry/harbor-assets-worker@sha256:...")
    return text


# What says where a pod goes and what may fetch its image; the rest of a worker's pod is fixed.
POD_FIELDS = (
    "affinity",
    "imagePullSecrets",
    "nodeSelector",
    "priorityClassName",
    "schedulerName",
    "tolerations",
    "topologySpreadConstraints",
)


def pod_fields(text: str) -> str:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise BadValue('must be a JSON object of pod fields, such as {"nodeSelector": {"pool": "evals"}}')
    if other := sorted(found.keys() - set(POD_FIELDS)):
        raise BadValue(f"may not set {', '.join(other)}; it may set {', '.join(POD_FIELDS)}")
    return text
