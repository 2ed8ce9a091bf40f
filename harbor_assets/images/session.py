"""BuildKit's session: the builder calls back for files and credentials over a stream that we opened.

Our side is a real gRPC server on a unix socket in a private folder; the bytes of that socket travel inside the
messages of `Control/Session`. So no program and no port of ours need to be reachable by the builder.
"""

import queue
import socket
import tempfile
import threading
import urllib.parse
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc

from harbor_assets.domain.ignores import BadPattern, Ignore
from harbor_assets.images import messages as m
from harbor_assets.images.context import CHUNK, MTIME_NS, Entry, entries, read

_DIFF_COPY = "/moby.filesync.v1.FileSync/DiffCopy"
_CREDENTIALS = "/moby.filesync.v1.Auth/Credentials"
_THREADS = 8  # calls at once: two folders, a health check, credentials
_SERVING = 1  # grpc.health.v1.HealthCheckResponse.SERVING
LocalFolders = Mapping[str, Path]
Credentials = Callable[[str], tuple[str, str] | None]


class Session:
    """Serves `folders` (by the names BuildKit's frontend asks for) and credentials while the `with` block lasts."""

    def __init__(self, channel: grpc.Channel, folders: LocalFolders, credentials: Credentials) -> None:
        self.id = uuid.uuid4().hex
        self._channel, self._folders, self._credentials = channel, folders, credentials

    def __enter__(self) -> Self:
        self._home = tempfile.TemporaryDirectory(prefix="harbor-build-")
        address = Path(self._home.name) / "s"
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="buildkit-session")
        self._server = grpc.server(self._pool, options=[("grpc.max_receive_message_length", -1)])
        self._server.add_generic_rpc_handlers((_Handlers(self._folders, self._credentials),))
        self._server.add_insecure_port(f"unix:{address}")
        self._server.start()
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(address))
        call = self._channel.stream_stream(
            "/moby.buildkit.v1.Control/Session",
            request_serializer=m.BytesMessage.SerializeToString,
            response_deserializer=m.BytesMessage.FromString,
        )
        metadata = (
            ("x-docker-expose-session-uuid", self.id),
            ("x-docker-expose-session-name", "harbor-assets"),
            ("x-docker-expose-session-sharedkey", ""),
            ("x-docker-expose-session-grpc-method", _DIFF_COPY),
            ("x-docker-expose-session-grpc-method", _CREDENTIALS),
        )
        self._stream: Any = call(self._outgoing(), metadata=metadata)
        self._pump = threading.Thread(target=self._incoming, name="buildkit-session", daemon=True)
        self._pump.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stream.cancel()
        self._socket.close()
        self._server.stop(grace=None).wait()
        self._pool.shutdown(wait=False)  # gRPC leaves it to whoever made it
        self._pump.join()
        self._home.cleanup()

    def _outgoing(self) -> Iterator[Any]:
        try:
            while data := self._socket.recv(CHUNK):
                yield m.BytesMessage(data=data)
        except OSError:  # closed by us: the session is over
            return

    def _incoming(self) -> None:
        try:
            for message in self._stream:
                self._socket.sendall(message.data)
        except (grpc.RpcError, OSError):
            pass  # what it means for the build, the build's own call tells
        finally:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)


class _Handlers(grpc.GenericRpcHandler):
    def __init__(self, folders: LocalFolders, credentials: Credentials) -> None:
        self._folders, self._credentials = folders, credentials

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[Any, Any] | None":
        match handler_call_details.method:
            case "/grpc.health.v1.Health/Check":
                return grpc.unary_unary_rpc_method_handler(
                    lambda request, context: m.HealthCheckResponse(status=_SERVING),
                    request_deserializer=m.Empty.FromString,
                    response_serializer=m.HealthCheckResponse.SerializeToString,
                )
            case m_ if m_ == _CREDENTIALS:
                return grpc.unary_unary_rpc_method_handler(
                    self._give_credentials,
                    request_deserializer=m.CredentialsRequest.FromString,
                    response_serializer=m.CredentialsResponse.SerializeToString,
                )
            case m_ if m_ == _DIFF_COPY:
                return grpc.stream_stream_rpc_method_handler(
                    self._send_folder,
                    request_deserializer=m.Packet.FromString,
                    response_serializer=m.Packet.SerializeToString,
                )
            case _:
                return None

    def _give_credentials(self, request: Any, context: grpc.ServicerContext) -> Any:
        found = self._credentials(request.Host)
        return m.CredentialsResponse(Username=found[0], Secret=found[1]) if found else m.CredentialsResponse()

    def _send_folder(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        options = _options(context)
        name = next(iter(options.get("dir-name", ())), "")
        root = self._folders.get(name)
        if root is None:
            context.abort(grpc.StatusCode.NOT_FOUND, f"no folder {name!r} here")
            return
        try:
            ignore = Ignore.of(options.get("exclude-patterns", ()))
        except BadPattern as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            return
        wanted = frozenset(options.get("followpaths", ())) if name == "dockerfile" else None
        yield from send(root, [e for e in entries(root, ignore) if wanted is None or e.path in wanted], requests)


def _options(context: grpc.ServicerContext) -> dict[str, list[str]]:
    """The call's options. BuildKit escapes values that are not ASCII and says so in a second header."""
    found: dict[str, list[str]] = {}
    for key, value in context.invocation_metadata():
        found.setdefault(key, []).append(value if isinstance(value, str) else value.decode())
    return {
        key: list(map(urllib.parse.unquote_plus, values)) if found.get(f"{key}-encoded") == ["1"] else values
        for key, values in found.items()
    }


def send(root: Path, found: list[Entry], requests: Iterator[Any]) -> Iterator[Any]:
    """fsutil's sender: every entry's status, then the bytes of the files the receiver asks for, until it is done."""
    asked: queue.SimpleQueue[int | None] = queue.SimpleQueue()

    def listen() -> None:
        try:
            for packet in requests:
                if packet.type == m.REQUEST:
                    asked.put(packet.ID)
                elif packet.type in (m.FIN, m.ERROR):
                    return
        except Exception:  # noqa: BLE001 the call has ended: what it means, the build tells
            return
        finally:
            asked.put(None)

    threading.Thread(target=listen, name="buildkit-files", daemon=True).start()
    for entry in found:
        yield m.Packet(type=m.STAT, stat=_stat(entry))
    yield m.Packet(type=m.STAT)
    while (number := asked.get()) is not None:
        for piece in read(root, found[number].path):
            yield m.Packet(type=m.DATA, ID=number, data=piece)
        yield m.Packet(type=m.DATA, ID=number)
    yield m.Packet(type=m.FIN)


def _stat(entry: Entry) -> Any:
    return m.Stat(path=entry.path, mode=entry.go_mode, size=entry.size, modTime=MTIME_NS, linkname=entry.target or "")
