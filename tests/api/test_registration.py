"""What a client says of a task counts only if the archive it names says so too."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harbor_assets.domain.archives import archive_key
from harbor_assets.sources.archive import pack
from harbor_assets.sources.folders import ArchiveTaskFolders
from harbor_assets.sources.verify import ArchiveVerifier
from tests.api.test_api import Api
from tests.interfaces.backends import World
from tests.suites import make


@pytest.fixture
def api(w: World, tmp_path: Path) -> Api:
    verifier = ArchiveVerifier(ArchiveTaskFolders(w.artifacts, tmp_path / "cache"))
    w.backend = replace(w.backend, verifier=verifier)
    return Api(w)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make.make_task(tmp_path / "suite", "one", native_id="org/one", environment={"memory_mb": 16384})


def stored(w: World, data: bytes, files_hash: str | None = None) -> dict[str, Any]:
    """A task's definition by an archive of these bytes, with nothing told of what is in it."""
    files_hash = files_hash or hashlib.sha256(data).hexdigest()
    ref = f"default/harbor-tasks#one/{files_hash}/task_archive"
    w.artifacts.put_bytes(archive_key(ref), data)
    return {
        "spec": {
            "kind": "harbor",
            "native_task_id": "org/one",
            "source": {
                "kind": "fileset-archive",
                "fileset_ref": ref,
                "files_hash": files_hash,
                "archive_format": "tar-gzip-v1",
            },
            "harbor_hash": {"digest": "1" * 64, "method": "harbor-packager-content-v1", "harbor_version": "0.26.0"},
        }
    }


def archive(folder: Path, tmp_path: Path) -> bytes:
    file = tmp_path / "archive"
    pack(folder, file)
    return file.read_bytes()


def test_instruction_and_config_are_the_archives_whatever_the_client_says(
    api: Api, w: World, folder: Path, tmp_path: Path
):
    body = stored(w, archive(folder, tmp_path))
    body["spec"] |= {"instruction": "Do nothing.", "config": {"environment": {"memory_mb": 1}}}
    answer = api("PUT", "/tasks/one", json=body)
    assert answer.status_code == 201
    spec = answer.json()["spec"]
    assert spec["instruction"] == make.INSTRUCTION.strip()
    assert spec["config"]["environment"]["memory_mb"] == 16384
    body["spec"] |= {"instruction": None, "config": {}}
    assert api("PUT", "/tasks/one", json=body).status_code == 200


def test_an_archive_that_does_not_fit_is_400_and_nothing_is_stored(api: Api, w: World, folder: Path, tmp_path: Path):
    data = archive(folder, tmp_path)
    other = stored(w, data)
    other["spec"]["native_task_id"] = "org/two"
    answers = [
        api("PUT", "/tasks/one", json=body)
        for body in (stored(w, data, "a" * 64), stored(w, data[:-9]), stored(w, b"not an archive"), other)
    ]
    assert [answer.status_code for answer in answers] == [400] * 4
    assert "aaaaaaaa" in answers[0].text
    assert "native_task_id: 'org/two' is not the archive's, 'org/one'" in answers[3].json()["detail"]
    assert not w.catalog.list_tasks("default").items


def test_a_missing_archive_is_404(api: Api, w: World):
    body = stored(w, b"x")
    body["spec"]["source"]["fileset_ref"] = "default/harbor-tasks#gone/task_archive"
    assert api("PUT", "/tasks/one", json=body).status_code == 404


def test_a_task_that_is_none_is_400_with_every_fault(api: Api, w: World, folder: Path, tmp_path: Path):
    (folder / "instruction.md").unlink()
    (folder / "tests" / "test.sh").unlink()
    answer = api("PUT", "/tasks/one", json=stored(w, archive(folder, tmp_path)))
    assert answer.status_code == 400
    assert {problem["subject"] for problem in answer.json()["problems"]} >= {"instruction.md", "tests/test.sh"}


def test_an_archive_known_from_another_place_must_also_be_where_the_task_says(
    api: Api, w: World, folder: Path, tmp_path: Path
):
    body = stored(w, archive(folder, tmp_path))
    assert api("PUT", "/tasks/one", json=body).status_code == 201
    source = body["spec"]["source"]
    source["fileset_ref"] = "default/harbor-tasks#elsewhere/task_archive"
    assert api("PUT", "/tasks/two", json=body).status_code == 404
    w.artifacts.put_bytes(archive_key(source["fileset_ref"]), b"another file")
    answer = api("PUT", "/tasks/two", json=body)
    assert (answer.status_code, source["files_hash"] in answer.text) == (400, True)
    assert [task.name for task in w.catalog.list_tasks("default").items] == ["one"]
