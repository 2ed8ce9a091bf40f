"""The few calls to the API server that we make, as raw JSON, with its refusals as errors of this project."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, Literal

from harbor_assets.domain.errors import Conflict, HarborAssetsError, NotFound, Refused, ServiceUnavailable

Object = dict[str, Any]
Kind = Literal["jobs", "pods", "secrets", "configmaps", "volumes"]  # volumes: claims of them
KEPT_UNREAD: tuple[Kind, ...] = ("secrets", "configmaps", "volumes")  # deleted by label, without a right to read them

TIMEOUT = (5.0, 30.0)  # seconds: a list of a thousand pods takes under two
EVENTS_MAX = 1000  # warnings of one look: the API server reads all of the namespace's events to find them
_BODY_MAX = 600  # characters of the server's own words in an error


class ClusterClient:
    """One namespace of one cluster. The Kubernetes library is imported, and the token read, at the first call.
    `timeout`: seconds to connect and to answer.

    Every method raises `ServiceUnavailable` if the server does not answer or is overloaded, `Refused` if it says no
    (`NotFound` and `Conflict` where it says so).
    """

    def __init__(self, namespace: str, *, timeout: tuple[float, float] = TIMEOUT) -> None:
        self.namespace = namespace
        self._raw = {"_preload_content": False, "_request_timeout": timeout}

    @cached_property
    def _api(self) -> Any:
        import kubernetes

        if os.environ.get("KUBERNETES_SERVICE_HOST"):
            kubernetes.config.load_incluster_config()
        else:
            kubernetes.config.load_kube_config()
        return kubernetes.client

    @cached_property
    def _batch(self) -> Any:
        return self._api.BatchV1Api()

    @cached_property
    def _core(self) -> Any:
        return self._api.CoreV1Api()

    def list(self, kind: Kind, selector: str, *, cached: bool = False, unfinished: bool = False) -> Sequence[Object]:
        """Objects by label. `cached`: from the server's own cache, which may be a moment behind and costs it less.
        `unfinished`: without the Jobs that have succeeded, most of those of a run; without the pods that have ended."""
        extra = {"resource_version": "0"} if cached else {}
        if unfinished:
            ended = "status.successful=0" if kind == "jobs" else "status.phase!=Succeeded,status.phase!=Failed"
            extra["field_selector"] = ended
        call = self._batch.list_namespaced_job if kind == "jobs" else self._core.list_namespaced_pod
        return self._call(lambda: call(self.namespace, label_selector=selector, **extra, **self._raw))["items"]

    def warnings(self, uid: str | None = None) -> Sequence[Object]:
        """The namespace's warning events, at most `EVENTS_MAX`; with `uid` every event about that one object."""
        selector = "type=Warning" if uid is None else f"involvedObject.uid={uid}"
        call = self._core.list_namespaced_event
        return self._call(lambda: call(self.namespace, field_selector=selector, limit=EVENTS_MAX, **self._raw))["items"]

    def job(self, name: str) -> Object:
        """One Job. Raises `NotFound`."""
        return self._call(lambda: self._batch.read_namespaced_job_status(name, self.namespace, **self._raw))

    def pod(self, name: str) -> Object:
        """One pod. Raises `NotFound`."""
        return self._call(lambda: self._core.read_namespaced_pod(name, self.namespace, **self._raw))

    def create_job(self, body: Mapping[str, Any]) -> Object:
        """Raises `Conflict` if there is one of that name."""
        return self._call(lambda: self._batch.create_namespaced_job(self.namespace, body, **self._raw))

    def delete_job(self, name: str) -> bool:
        """Delete a Job and, in the background, its pods. False if there was none."""
        return self._gone_or(
            lambda: self._batch.delete_namespaced_job(
                name, self.namespace, propagation_policy="Background", **self._raw
            )
        )

    def delete_pod(self, name: str) -> bool:
        """False if there was none."""
        return self._gone_or(lambda: self._core.delete_namespaced_pod(name, self.namespace, **self._raw))

    def delete_all(self, kind: Kind, selector: str, *, dry_run: bool = False) -> Sequence[Object]:
        """Delete by label in one request, which needs no right to read; the metadata of what the server named.

        With `dry_run` nothing is deleted: it answers what there is. Raises ValueError for a selector that fits all.
        """
        if not selector:
            raise ValueError(f"no selector: this would delete all {kind} of {self.namespace}")
        name = _COLLECTIONS[kind]
        call = getattr(self._core, f"delete_collection_namespaced_{name}")
        extra = {"dry_run": "All"} if dry_run else {}
        answer = self._call(lambda: call(self.namespace, label_selector=selector, **extra, **self._raw))
        return [item["metadata"] for item in answer.get("items") or ()]

    def _gone_or(self, call: Callable[[], Any]) -> bool:
        try:
            self._call(call)
        except NotFound:
            return False
        return True

    def _call(self, call: Callable[[], Any]) -> Object:
        from urllib3.exceptions import HTTPError

        try:
            return json.loads(call().data)
        except self._api.ApiException as error:
            raise _meaning(error.status, error.body or error.reason) from error
        except (HTTPError, OSError, ValueError) as error:
            # The error's own text is the client's: a pool, an address, a path. Its cause says what there is to say.
            cause = type(getattr(error, "reason", None) or error).__name__
            raise ServiceUnavailable(f"The API server did not answer ({cause})") from error


_COLLECTIONS: Mapping[Kind, str] = {
    "secrets": "secret",
    "configmaps": "config_map",
    "volumes": "persistent_volume_claim",
}


def _meaning(status: int | None, body: object) -> HarborAssetsError:
    said = _said(body)
    if status == 404:
        return NotFound(said)
    if status == 409:
        return Conflict(said)
    if status in (400, 403, 405, 413, 415, 422):
        return Refused(said)
    return ServiceUnavailable(f"The API server answered {status}: {said}")


def _said(body: object) -> str:
    text = body.decode(errors="replace") if isinstance(body, bytes) else str(body)
    with suppress(ValueError, TypeError, KeyError):
        text = json.loads(text)["message"]
    return text if len(text) <= _BODY_MAX else f"{text[:_BODY_MAX]}…"
