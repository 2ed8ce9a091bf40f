"""The registry client against a registry that says what a test wants."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from harbor_assets.domain.errors import NotFound, Refused, ServiceUnavailable
from harbor_assets.images import registries_of
from harbor_assets.images.registry import MAX_BYTES, Registries, RegistryClient

OCI = "application/vnd.oci.image.manifest.v1+json"


class FakeRegistry:
    """Answers `/v2/...` from `objects`: path -> bytes, or (status, headers, bytes)."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}
        self.asked: list[tuple[str, str, str | None]] = []
        self.token: str | None = None
        self.hang_ups = 0  # requests that are cut off before their answer
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.answer(self)

            do_HEAD = do_GET

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self.server.server_port}"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        path = request.path.partition("?")[0]
        authorization = request.headers.get("Authorization")
        self.asked.append((request.command, request.path, authorization))
        if self.hang_ups:
            self.hang_ups -= 1
            request.close_connection = True
            return
        status, headers, body = 200, {}, self.objects.get(path.removeprefix("/v2/"))
        if path == "/token":
            body = json.dumps({"token": self.token}).encode()
        elif self.token and authorization != f"Bearer {self.token}":
            realm = f'Bearer realm="http://{self.host}/token",service="s",scope="x"'
            status, headers, body = 401, {"WWW-Authenticate": realm}, b""
        elif isinstance(body, tuple):
            status, headers, body = body
        elif body is None:
            status, body = 404, b'{"errors": [{"code": "MANIFEST_UNKNOWN"}]}'
        elif "/manifests/" in path:
            headers = {"Docker-Content-Digest": digest(body)}
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        if request.command == "GET":
            request.wfile.write(body)

    def put(self, repository: str, tag: str, config: dict[str, Any], *, index: bool = False) -> str:
        """An image under a tag; returns the digest the tag stands for."""
        config_bytes = json.dumps({"config": config}).encode()
        self.objects[f"{repository}/blobs/{digest(config_bytes)}"] = config_bytes
        top = json.dumps({"mediaType": OCI, "config": {"digest": digest(config_bytes)}}).encode()
        self.objects[f"{repository}/manifests/{digest(top)}"] = top
        if index:
            entries = [
                {"digest": digest(b"w"), "platform": {"os": "windows", "architecture": "amd64"}},
                {"digest": digest(top), "platform": {"os": "linux", "architecture": "strange"}},
            ]
            top = json.dumps({"manifests": entries}).encode()
            self.objects[f"{repository}/manifests/{digest(top)}"] = top
        self.objects[f"{repository}/manifests/{tag}"] = top
        return digest(top)


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    made = FakeRegistry()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


@pytest.fixture
def client(fake: FakeRegistry) -> RegistryClient:
    return RegistryClient(Registries(insecure=frozenset({fake.host}), mirrors={"docker.io": fake.host}))


@pytest.mark.parametrize("index", [False, True])
def test_a_tag_becomes_a_digest_and_tells_how_its_processes_run(
    fake: FakeRegistry, client: RegistryClient, index: bool
) -> None:
    config = {"User": "app:staff", "WorkingDir": "/app", "Env": ["PATH=/bin", "EMPTY=", "EQ=a=b"]}
    found = fake.put("library/x", "1", config, index=index)
    ref = client.resolve("x:1")
    assert ref == f"{fake.host}/library/x@{found}"
    told = client.config(ref)
    assert (told.user, told.workdir, told.env) == ("app:staff", "/app", {"PATH": "/bin", "EMPTY": "", "EQ": "a=b"})
    assert client.exists(ref)


def test_what_an_image_does_not_say_is_none(fake: FakeRegistry, client: RegistryClient) -> None:
    ref = f"{fake.host}/x@{fake.put('x', '1', {'User': '', 'Env': None})}"
    told = client.config(ref)
    assert (told.user, told.workdir, told.env) == (None, None, {})


def test_a_missing_image_is_named(fake: FakeRegistry, client: RegistryClient) -> None:
    with pytest.raises(NotFound, match=rf"{fake.host}/library/none:1 is not there"):
        client.resolve("none:1")
    assert not client.exists(f"{fake.host}/x@sha256:{'0' * 64}")


def test_a_registry_without_the_digest_header(fake: FakeRegistry, client: RegistryClient) -> None:
    fake.objects["x/manifests/1"] = (200, {}, b"{}")
    assert client.resolve(f"{fake.host}/x:1") == f"{fake.host}/x@{digest(b'{}')}"


def test_other_bytes_than_the_digest_says_are_not_believed(fake: FakeRegistry, client: RegistryClient) -> None:
    found = fake.put("x", "1", {})
    fake.objects[f"x/manifests/{found}"] = b'{"config": {"digest": "sha256:evil"}}'
    with pytest.raises(ServiceUnavailable, match="other bytes"):
        client.config(f"{fake.host}/x@{found}")


@pytest.mark.parametrize("answer", [(500, {}, b""), (200, {}, b"x" * (MAX_BYTES + 1))])
def test_a_broken_registry_is_no_fact_about_the_image(
    fake: FakeRegistry, client: RegistryClient, answer: object
) -> None:
    fake.objects["x/manifests/1"] = answer
    with pytest.raises(ServiceUnavailable):
        client.resolve(f"{fake.host}/x:1")


def test_a_request_that_is_cut_off_is_asked_once_more(fake: FakeRegistry, client: RegistryClient) -> None:
    top = fake.put("x", "1", {})
    fake.hang_ups = 1
    assert client.resolve(f"{fake.host}/x:1") == f"{fake.host}/x@{top}"
    fake.hang_ups = 2
    with pytest.raises(ServiceUnavailable, match="cannot be asked"):
        client.resolve(f"{fake.host}/x:1")


def test_a_registry_that_is_not_there(client: RegistryClient) -> None:
    with pytest.raises(ServiceUnavailable, match="cannot be asked"):
        RegistryClient(Registries(insecure=frozenset({"127.0.0.1:9"}))).resolve("127.0.0.1:9/x:1")


def test_a_name_that_is_none_is_refused(client: RegistryClient) -> None:
    with pytest.raises(Refused, match="no image's name"):
        client.resolve("Not A Name")


def test_credentials_go_to_the_registry_they_belong_to_and_a_token_is_used_again(
    fake: FakeRegistry, tmp_path: Path
) -> None:
    file = tmp_path / "config.json"
    auth = base64.b64encode(b"me:p:w").decode()
    file.write_text(json.dumps({"auths": {fake.host: {"auth": auth}, "other": {"auth": "x"}}}))
    fake.token, _ = "t0ken", fake.put("x", "1", {})
    client = RegistryClient(registries_of(fake.host, "", str(file)))
    client.config(client.resolve(f"{fake.host}/x:1"))
    tokens = [authorization for _, path, authorization in fake.asked if path.startswith("/token")]
    assert tokens == [f"Basic {auth}"]
    assert fake.asked[1][1] == "/token?service=s&scope=repository%3Ax%3Apull"


def test_without_credentials_a_registry_that_wants_some_says_so(fake: FakeRegistry, client: RegistryClient) -> None:
    fake.objects["x/manifests/1"] = (403, {}, b"")
    with pytest.raises(Refused, match=r"is not shown to us \(403\)"):
        client.resolve(f"{fake.host}/x:1")


def test_an_unreadable_docker_configuration_does_not_quote_itself(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text('{"auths": {"r": {"auth": "s3cret"')
    with pytest.raises(Refused) as refused:
        registries_of("", "", str(file)).credentials("r")
    assert "s3cret" not in str(refused.value)


def test_settings_become_registries() -> None:
    found = registries_of("a:5000,b", "docker.io=a:5000,ghcr.io=b", None)
    assert found.insecure == {"a:5000", "b"}
    assert found.mirrors == {"docker.io": "a:5000", "ghcr.io": "b"}
    assert str(found.reference("busybox")) == "a:5000/library/busybox:latest"
