"""What every `PublishTarget` does: the client of the service, and the one in memory that tests use."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import tomli

from harbor_assets.domain.archives import fileset_ref
from harbor_assets.domain.errors import Refused
from harbor_assets.domain.tasks import ArchiveSource, HarborHash, HarborTask, TaskInput, TasksetInput
from harbor_assets.engine.publish import PublishTarget
from harbor_assets.interfaces.cli.session import open_session
from harbor_assets.sources.archive import pack
from tests.fakes.publishing import MemoryPublishTarget
from tests.suites.make import INSTRUCTION, make_task


@pytest.fixture(params=["memory", "client"])
def target(request: pytest.FixtureRequest) -> Iterator[PublishTarget]:
    if request.param == "memory":
        yield MemoryPublishTarget()
        return
    with open_session() as session:
        yield session.evaluator.publishing


def archived(target: PublishTarget, tmp_path: Path, native: str, content: str = "a") -> TaskInput:
    """A task's definition by a real archive, which is stored."""
    folder = make_task(tmp_path / content, native, files={"content.txt": content})
    files_hash = pack(folder, tmp_path / "archive")
    source = ArchiveSource(fileset_ref=fileset_ref("default", native, files_hash), files_hash=files_hash)
    target.put_archive(source.fileset_ref, source.files_hash, tmp_path / "archive")
    spec = HarborTask(
        native_task_id=native,
        source=source,
        harbor_hash=HarborHash(digest="1" * 64, harbor_version="0.26.0"),
        instruction=INSTRUCTION.strip(),
        config=tomli.loads((folder / "task.toml").read_text()),
    )
    return TaskInput(spec=spec)


def test_archives_are_there_once_stored(target: PublishTarget, tmp_path: Path):
    ref = fileset_ref("default", "größe (1)", "c" * 64)
    assert not target.has_archive(ref, "c" * 64)
    (tmp_path / "archive").write_bytes(b"bytes")
    target.put_archive(ref, "c" * 64, tmp_path / "archive")
    target.put_archive(ref, "c" * 64, tmp_path / "archive")
    assert target.has_archive(ref, "c" * 64)
    assert (tmp_path / "archive").exists()


def test_a_revision_is_cut_only_on_change(target: PublishTarget, tmp_path: Path):
    body = archived(target, tmp_path, "one")
    first, cut = target.put_task("default", "s-one", body)
    assert cut
    assert (first.revision, first.digest, first.spec) == (1, body.digest(), body.spec)
    again, cut = target.put_task("default", "s-one", body)
    assert (again.ref, again.revision, cut) == (first.ref, 1, False)
    changed, cut = target.put_task("default", "s-one", archived(target, tmp_path, "one", "b"))
    assert (changed.revision, cut) == (2, True)
    assert target.get_tasks("default", ["s-one", "unknown"])["s-one"].ref == changed.ref


def test_only_those_that_exist_are_found_and_only_in_their_workspace(target: PublishTarget, tmp_path: Path):
    task, _ = target.put_task("default", "s-one", archived(target, tmp_path, "one"))
    names = [f"unknown-{number}" for number in range(1200)]
    assert dict(target.get_tasks("default", [*names, "s-one"])) == {"s-one": task}
    assert target.get_tasks("other", ["s-one"]) == {}
    assert target.get_tasks("default", []) == {}


def test_tasksets_are_pinned_and_cut_only_on_change(target: PublishTarget, tmp_path: Path):
    refs = [target.put_task("default", f"s-{n}", archived(target, tmp_path, n))[0].ref for n in ("one", "two")]
    first, cut = target.put_taskset("default", "s-set", TasksetInput(tasks=refs))
    assert cut
    assert first.tasks == sorted(refs)
    again, cut = target.put_taskset("default", "s-set", TasksetInput(tasks=refs[::-1]))
    assert (again.ref, cut) == (first.ref, False)
    with pytest.raises(Refused):
        target.put_taskset("default", "s-set", TasksetInput(tasks=[f"default/s-one#{'0' * 64}"]))
