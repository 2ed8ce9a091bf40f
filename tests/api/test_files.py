"""The Files API as its contract says, and as far as hostile paths and bodies go."""

import base64
import hashlib

import pytest
from fastapi.testclient import TestClient

from harbor_assets.interfaces.api.app import create_app
from harbor_assets.interfaces.api.routes import files
from tests.interfaces.backends import World

BASE = "/apis/files/v2/workspaces/default/filesets"


@pytest.fixture
def http(w: World) -> TestClient:
    return TestClient(create_app(w.backend), raise_server_exceptions=False)


def test_a_fileset_is_made_once_and_read(http: TestClient):
    made = http.post(BASE, json={"name": "harbor-tasks"})
    assert made.status_code == 201
    assert http.post(BASE, json={"name": "harbor-tasks"}).status_code == 409
    found = http.get(f"{BASE}/harbor-tasks")
    assert found.json() == made.json()
    assert (found.json()["purpose"], found.json()["project"], found.json()["metadata"]) == ("generic", "", {})
    assert http.get(f"{BASE}/other").status_code == 404
    assert http.post(BASE, json={"name": "a/b"}).status_code == 422


def test_a_file_comes_back_as_it_was_sent(http: TestClient):
    data = b"x" * 2_500_000
    sent = http.put(f"{BASE}/harbor-tasks/-/some/file.bin", content=data)
    assert sent.status_code == 200
    assert sent.json() == {
        "file_ref": "default/harbor-tasks#some/file.bin",
        "file_url": f"{BASE}/harbor-tasks/-/some/file.bin",
        "path": "some/file.bin",
        "size": len(data),
    }
    got = http.get(f"{BASE}/harbor-tasks/-/some/file.bin")
    assert got.content == data
    assert got.headers["content-security-policy"].startswith("sandbox")
    head = http.head(f"{BASE}/harbor-tasks/-/some/file.bin")
    assert (head.status_code, head.headers["content-length"]) == (200, str(len(data)))
    assert http.put(f"{BASE}/harbor-tasks/-/some/file.bin", content=b"y").status_code == 200
    assert http.get(f"{BASE}/harbor-tasks/-/some/file.bin").content == b"y"
    assert http.head(f"{BASE}/harbor-tasks/-/none").status_code == 404


def test_an_archives_path_holds_it_to_its_hash_for_ever(http: TestClient, w: World):
    digest = hashlib.sha256(b"archive").hexdigest()
    path = f"{BASE}/harbor-tasks/-/task/{digest}/task_archive"
    wrong = http.put(path, content=b"archivf")
    assert wrong.status_code == 422
    assert digest in wrong.json()["detail"]
    assert not w.artifacts.objects
    assert http.put(path, content=b"archive").json()["size"] == 7
    assert http.put(path, content=b"something else").status_code == 200  # nothing is replaced
    assert http.get(path).content == b"archive"


def test_an_announced_digest_is_held_to(http: TestClient, w: World):
    digest = base64.b64encode(hashlib.sha256(b"a").digest()).decode()
    for header, body, status in (
        (f"sha-256=:{digest}:", b"a", 200),
        (f"md5=:x:, sha-256=:{digest}:", b"b", 422),
        ("sha-256=:not base64:", b"a", 422),
    ):
        answer = http.put(f"{BASE}/f/-/p", content=body, headers={"Repr-Digest": header})
        assert answer.status_code == status, answer.text
    assert list(w.artifacts.objects.values()) == [b"a"]


@pytest.mark.parametrize("path", ["%2e%2e/x", "a/%2e%2e/%2e%2e/%2e%2e/x", "a//b", "%2fetc/passwd", "a%00b", "a%5cb"])
def test_no_path_leads_out_of_its_fileset(http: TestClient, w: World, path: str):
    assert http.put(f"{BASE}/f/-/{path}", content=b"x").status_code in (404, 405, 422)
    assert not w.artifacts.objects


def test_a_body_beyond_the_limit_is_413_and_leaves_nothing(http: TestClient, w: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(files, "MAX_ARCHIVE_BYTES", 1000)
    assert http.put(f"{BASE}/f/-/p", content=b"x" * 1001).status_code == 413
    assert not w.artifacts.objects
    assert http.put(f"{BASE}/f/-/p", content=b"x" * 1000).status_code == 200
