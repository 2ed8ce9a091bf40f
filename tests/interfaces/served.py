"""A service behind a real port, in a thread of the test's own process."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import uvicorn


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@contextmanager
def served(app: Any, port: int | None = None) -> Iterator[str]:
    """The service's base URL while it runs."""
    port = port or free_port()
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until = time.monotonic() + 20
    while not server.started:
        assert thread.is_alive(), "the service did not start"
        assert time.monotonic() < until, "the service did not start in time"
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


class PerThread(httpx.BaseTransport):
    """Connections of its own for each thread.

    httpcore 1.0.9 may close one that a request of another thread was just given: "bad file descriptor".
    """

    def __init__(self) -> None:
        self._local = threading.local()
        self._made: list[httpx.HTTPTransport] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if not hasattr(self._local, "transport"):
            self._local.transport = httpx.HTTPTransport(trust_env=False)
            self._made.append(self._local.transport)
        return self._local.transport.handle_request(request)

    def close(self) -> None:
        for transport in self._made:
            transport.close()


def connect(base_url: str) -> httpx.Client:
    """A client that threads may share."""
    return httpx.Client(base_url=base_url, timeout=60, transport=PerThread())
