"""Images built by a BuildKit that answers on a TCP or unix socket, over its gRPC API: no program is needed here."""

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc

from harbor_assets.domain.errors import Refused, ServiceUnavailable
from harbor_assets.domain.images import DOCKERFILE, base_images, context_key
from harbor_assets.engine.ports import BuildFailed, BuildLines, BuildOrder
from harbor_assets.images import messages as m
from harbor_assets.images.context import key_entries
from harbor_assets.images.progress import BuildLog
from harbor_assets.images.reference import parse
from harbor_assets.images.registry import Registries
from harbor_assets.images.session import Session

CONNECT_SECONDS = 10.0  # a BuildKit that is there answers in milliseconds
STATUS_SECONDS = 10.0  # the log's stream ends by itself with the build; this only bounds a broken one
CACHE_TAG = "cache"  # beside the image's own tags, in its repository
_ERROR_MAX = 2000
_CHANNEL = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_http_proxy", 0),  # a builder stands beside the service; a proxy of the environment is for registries
]
_DEADLINE_SLACK_SECONDS = 0.5  # BuildKit keeps the same deadline, and may be the first to break the call off at it
_OURS = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.RESOURCE_EXHAUSTED})


class BuildKit:
    """Implements the engine's `ImageBuilder`. `address`: `tcp://host:port` or `unix:///path`."""

    def __init__(self, address: str, registries: Registries, *, platform: str | None = None) -> None:
        self._address, self._registries, self._platform = address, registries, platform

    def key(self, folder: Path) -> str:
        """See `ImageBuilder`."""
        return context_key(key_entries(folder), platform=self._platform)

    def log(self) -> BuildLog:
        """See `ImageBuilder`."""
        return BuildLog()

    def build(self, order: BuildOrder, log: BuildLines) -> str:
        """See `ImageBuilder`."""
        assert isinstance(log, BuildLog)
        ref = uuid.uuid4().hex
        folders = {"context": order.context, "dockerfile": order.context}
        with self._channel() as channel, Session(channel, folders, self._registries.credentials) as session:
            watcher = threading.Thread(target=self._follow, args=(channel, ref, log), name="buildkit-log", daemon=True)
            watcher.start()
            solve = channel.unary_unary(
                "/moby.buildkit.v1.Control/Solve",
                request_serializer=m.SolveRequest.SerializeToString,
                response_deserializer=m.SolveResponse.FromString,
            )
            begin = time.monotonic()
            try:
                answer = solve(self._request(order, ref, session.id), timeout=order.seconds)
            except grpc.RpcError as error:
                late = time.monotonic() - begin > order.seconds - _DEADLINE_SLACK_SECONDS
                watcher.join(STATUS_SECONDS)
                raise self._meaning(error, order, late=late) from None
            watcher.join(STATUS_SECONDS)
        digest = answer.ExporterResponse.get("containerimage.digest", "")
        if not digest:
            raise ServiceUnavailable(f"BuildKit at {self._address} did not say the digest of {order.tag}")
        return f"{order.tag.rpartition(':')[0]}@{digest}"

    @contextmanager
    def _channel(self) -> Iterator[grpc.Channel]:
        with grpc.insecure_channel(self._address.removeprefix("tcp://"), options=_CHANNEL) as channel:
            try:
                grpc.channel_ready_future(channel).result(timeout=CONNECT_SECONDS)
            except grpc.FutureTimeoutError:
                raise ServiceUnavailable(
                    f"BuildKit at {self._address} does not answer; see that it runs, and HARBOR_ASSETS_BUILDKIT"
                ) from None
            yield channel

    def _request(self, order: BuildOrder, ref: str, session: str) -> object:
        repository = order.tag.rpartition(":")[0]
        plain = {"registry.insecure": "true"} if repository.split("/", 1)[0] in self._registries.insecure else {}
        request = m.SolveRequest(
            Ref=ref,
            Session=session,
            Exporter="image",
            ExporterAttrs={"name": order.tag, "push": "true", **plain},
            Frontend="dockerfile.v0",
            FrontendAttrs={
                "filename": DOCKERFILE,
                **({"platform": self._platform} if self._platform else {}),
                **self.mirrored(order.context),
            },
        )
        cache = {"ref": f"{repository}:{CACHE_TAG}", **plain}
        request.Cache.Imports.append(m.CacheEntry(Type="registry", Attrs=cache))
        # A cache that cannot be written must not fail an image that was built and pushed.
        request.Cache.Exports.append(
            m.CacheEntry(Type="registry", Attrs={**cache, "mode": "max", "ignore-error": "true"})
        )
        return request

    def mirrored(self, context: Path) -> dict[str, str]:
        """What a build takes in place of the images it begins from, where their registry has a mirror: the builder's
        own configuration need not know of it.

        A "named context" by the name as docker shortens it, see
        https://docs.docker.com/build/concepts/context/#named-contexts
        """
        try:
            text = (context / DOCKERFILE).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return {}  # the build says so
        found: dict[str, str] = {}
        for image in base_images(text) if self._registries.mirrors else ():
            try:
                asked, meant = parse(image), self._registries.reference(image)
            except (ValueError, Refused):
                continue  # a variable that only the build knows, or a fault that it tells
            if asked.registry != meant.registry:
                found[f"context:{asked.familiar}"] = f"docker-image://{meant}"
        return found

    def _follow(self, channel: grpc.Channel, ref: str, log: BuildLog) -> None:
        status = channel.unary_stream(
            "/moby.buildkit.v1.Control/Status",
            request_serializer=m.StatusRequest.SerializeToString,
            response_deserializer=m.StatusResponse.FromString,
        )
        try:
            for update in status(m.StatusRequest(Ref=ref)):
                log.update(update)
        except (grpc.RpcError, ValueError) as error:  # ValueError: the channel was closed
            log.line(f"(the log ends here: {error.code() if isinstance(error, grpc.Call) else error})")

    def _meaning(self, error: grpc.RpcError, order: BuildOrder, *, late: bool) -> Exception:
        assert isinstance(error, grpc.Call)
        code, text = error.code(), " ".join((error.details() or "").split())[:_ERROR_MAX]
        if code is grpc.StatusCode.DEADLINE_EXCEEDED or (late and code in _OURS):
            return BuildFailed(
                f"the build did not end within {order.seconds:g} s; raise [environment] build_timeout_sec in task.toml"
            )
        if code in _OURS:
            return ServiceUnavailable(f"BuildKit at {self._address} broke off: {text or code}")
        return BuildFailed(text or str(code))
