"""`harbor-assets serve` as a process: it answers, refuses to be open by accident, and stops when told."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from harbor_assets.interfaces.addresses import loopback
from tests.cli.conftest import Cli
from tests.interfaces.served import free_port


def endless_head(port: int) -> bytes:
    """What a service says to a request whose head does not end; nothing if it hangs up while we still send."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        try:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nX-Endless: " + b"x" * 200_000)
            return connection.recv(65536)
        except ConnectionError:
            return b""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_it_is_told_to_stop(tmp_path: Path, number: signal.Signals):
    port = free_port()
    program = [sys.executable, "-m", "harbor_assets", "serve", "--port", str(port)]
    environment = {**os.environ, "HARBOR_ASSETS_HOME": str(tmp_path / "home")}
    with subprocess.Popen(program, env=environment, stderr=subprocess.PIPE, text=True) as service:
        try:
            base, until = f"http://127.0.0.1:{port}", time.monotonic() + 30
            while True:
                try:
                    assert httpx.get(f"{base}/healthz").json()["status"] == "ok"
                    break
                except httpx.TransportError:
                    assert time.monotonic() < until
                    assert service.poll() is None
                    time.sleep(0.1)
            assert httpx.get(f"{base}/readyz").status_code == 200
            misdirected = httpx.get(f"{base}/readyz", headers={"Host": "evil.example:80"})
            assert (misdirected.status_code, "evil.example" in misdirected.json()["detail"]) == (421, True)
            assert endless_head(port)[:13] in (b"HTTP/1.1 400 ", b"")  # else it would wait for more
            assert httpx.get(f"{base}/apis/evals/v2/workspaces/default/runs").status_code == 404
            service.send_signal(number)
            assert service.wait(30) == 0
        finally:
            service.kill()
        assert service.stderr is not None
        assert f"at {base}" in service.stderr.read()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "machine.example"])
def test_an_address_that_others_reach_is_refused_while_there_is_no_authentication(bare: Cli, host: str):
    said = bare("serve", "--host", host)
    assert said.code == 2
    assert "no authentication" in said.err
    assert "--insecure-no-auth" in said.err


def test_what_only_this_machine_reaches():
    own = ["127.0.0.1", "127.9.9.9", "::1", "localhost"]
    assert [host for host in [*own, "0.0.0.0", "::", "1.2.3.4", "example"] if loopback(host)] == own


def test_a_taken_port_is_told(bare: Cli):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        said = bare("serve", "--port", str(taken.getsockname()[1]))
    assert said.code == 2
    assert "is taken by another program; choose another: harbor-assets serve --port" in said.err
    assert "Serving" not in said.err
