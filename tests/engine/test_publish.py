"""Publishing: what changed moves, nothing else does, and an interruption leaves no half."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harbor_assets.domain.bundle import SemanticView, ViewSignal
from harbor_assets.domain.errors import Refused, StorageFull
from harbor_assets.domain.names import is_digest
from harbor_assets.domain.suites import Suite, select
from harbor_assets.domain.tasks import Annotation, HarborHash
from harbor_assets.engine.publish import Published, PublishEvent, publish_suite
from harbor_assets.sources.directory import read_suite
from harbor_assets.sources.packing import FolderArchive, FolderPacker
from tests.fakes.publishing import MemoryPublishTarget
from tests.suites.make import make_suite, make_task

VIEW = SemanticView(reducer="single", signals=[ViewSignal(metric="exact", output="score")])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_suite(tmp_path / "demo", 3)


@pytest.fixture
def target() -> MemoryPublishTarget:
    return MemoryPublishTarget()


@pytest.fixture
def packer(tmp_path: Path) -> FolderPacker:
    (tmp_path / "scratch").mkdir()
    return FolderPacker(tmp_path / "scratch")


def publish(
    root: Path, target: MemoryPublishTarget, packer: FolderPacker, tasks: list[str] | None = None, **options
) -> tuple[Published, list[str]]:
    suite = read_suite(root)
    lines: list[str] = []

    def report(event: PublishEvent) -> None:
        lines.append(str(event))

    options = {"workspace": "default", "target": target, "packer": packer, "report": report} | options
    return publish_suite(suite, select(suite, tasks), **options), lines


def test_the_first_time_everything_is_published(root: Path, target: MemoryPublishTarget, packer: FolderPacker):
    published, lines = publish(root, target, packer)
    refs = [task.ref for task, _ in published.tasks]
    assert lines == [
        *(f"Published task {ref}" for ref in refs),
        f"Published taskset {published.taskset.ref} (3 of 3 tasks)",
    ]
    assert [task.name for task, _ in published.tasks] == ["demo-task-000", "demo-task-001", "demo-task-002"]
    assert published.taskset.tasks == sorted(refs)
    assert published.taskset.name == f"demo-{published.taskset.digest[:8]}"
    assert published.cut
    assert all(cut for _, cut in published.tasks)
    spec = published.tasks[0][0].spec
    assert spec.native_task_id == "tests/task-000"
    assert spec.source.fileset_ref == f"default/harbor-tasks#task-000/{spec.source.files_hash}/task_archive"
    assert spec.harbor_hash.harbor_version == packer.harbor_version
    assert spec.instruction == "Write the word `done` to `/app/answer.txt`."
    assert spec.config["task"] == {"name": "tests/task-000"}
    assert len(target.archives) == 3


def test_the_second_time_nothing_moves_but_the_taskset_is_asked_for(
    root: Path, target: MemoryPublishTarget, packer: FolderPacker
):
    first, _ = publish(root, target, packer)
    target.calls.clear()
    second, lines = publish(root, target, packer)
    assert target.calls == [f"put_taskset {first.taskset.name}"]
    assert lines[0] == f"Unchanged task {first.tasks[0][0].ref}"
    assert lines[-1] == f"Unchanged taskset {first.taskset.ref} (3 of 3 tasks)"
    assert second.tasks == tuple((task, False) for task, _ in first.tasks)
    assert (second.taskset, second.cut) == (first.taskset, False)


def test_only_what_changed_gets_a_revision(root: Path, target: MemoryPublishTarget, packer: FolderPacker):
    first, _ = publish(root, target, packer)
    (root / "task-001" / "instruction.md").write_text("Something else\n")
    second, lines = publish(root, target, packer)
    assert [line.split()[0] for line in lines] == ["Unchanged", "Published", "Unchanged", "Published"]
    assert [task.revision for task, _ in second.tasks] == [1, 2, 1]
    assert second.taskset.name != first.taskset.name
    (root / "task-001" / "tests" / "test.sh").chmod(0o700)  # not in the package digest, but in the archive
    assert publish(root, target, packer)[0].tasks[1][0].revision == 3


def test_a_new_harbor_version_alone_cuts_no_revision(root: Path, target: MemoryPublishTarget, packer: FolderPacker):
    first, _ = publish(root, target, packer)
    packer.harbor_version = "99.0"
    second, _ = publish(root, target, packer)
    assert second.taskset == first.taskset
    (root / "task-000" / "instruction.md").write_text("Something else\n")
    third, _ = publish(root, target, packer)
    assert third.tasks[0][0].spec.harbor_hash.harbor_version == "99.0"


def test_an_archive_that_lies_elsewhere_is_left_there(root: Path, target: MemoryPublishTarget, packer: FolderPacker):
    first, _ = publish(root, target, packer)
    task = first.tasks[0][0]
    moved = task.spec.source.model_copy(update={"fileset_ref": "default/other#somewhere/task_archive"})
    target.archives[moved.fileset_ref, moved.files_hash] = b""
    spec = task.spec.model_copy(
        update={
            "source": moved,
            "harbor_hash": HarborHash(digest=task.spec.harbor_hash.digest, harbor_version="0.20.1"),
        }
    )
    target.tasks["default", task.name] = task.model_copy(update={"spec": spec, "digest": "f" * 64})
    target.calls.clear()
    second, _ = publish(root, target, packer)
    assert second.tasks[0][0].spec == spec
    assert not [call for call in target.calls if "put_task " in call or "archive" in call]


def test_a_lost_archive_is_stored_again_and_told(root: Path, target: MemoryPublishTarget, packer: FolderPacker):
    first, _ = publish(root, target, packer)
    kept = dict(target.archives)
    source = first.tasks[1][0].spec.source
    del target.archives[source.fileset_ref, source.files_hash]
    target.calls.clear()
    _, lines = publish(root, target, packer)
    assert target.calls == [f"put_archive {source.fileset_ref}", f"put_taskset {first.taskset.name}"]
    assert lines[1].endswith("(its archive was missing and is stored again)")
    assert target.archives == kept


def test_what_others_added_to_a_task_stays(root: Path, target: MemoryPublishTarget, packer: FolderPacker):
    first, _ = publish(root, target, packer)
    added = {"metadata": [Annotation(key="owner", value="us")], "digest": "e" * 64}
    for task, _ in first.tasks:
        spec = task.spec.model_copy(update={"metrics": ["default/exact"], "views": {"v": VIEW}})
        target.tasks["default", task.name] = task.model_copy(update=added | {"spec": spec})
    (root / "task-000" / "instruction.md").write_text("Something else\n")
    second, _ = publish(root, target, packer)
    changed, unchanged = second.tasks[0][0], second.tasks[1][0]
    assert unchanged == target.tasks["default", "demo-task-001"]
    assert changed.revision == 2
    assert changed.metadata == [Annotation(key="owner", value="us")]
    assert (changed.spec.metrics, changed.spec.views) == (["default/exact"], {"v": VIEW})


def test_a_selection_is_published_under_the_names_of_the_whole_source(
    tmp_path: Path, target: MemoryPublishTarget, packer: FolderPacker
):
    root = tmp_path / "twins"
    for org in ("one", "two"):
        make_task(root, org, native_id=f"{org}/x")
    both, _ = publish(root, target, packer)
    only, lines = publish(root, target, packer, ["two/x"])
    assert [task.name for task, _ in only.tasks] == [
        task.name for task, _ in both.tasks if task.spec.native_task_id == "two/x"
    ]
    assert lines[-1].endswith("(1 of 2 tasks)")
    assert len(only.taskset.tasks) == 1


def test_the_same_tasks_give_the_same_taskset_in_any_order(
    root: Path, target: MemoryPublishTarget, packer: FolderPacker
):
    suite = read_suite(root)
    there = publish_suite(suite, suite.tasks, workspace="w", target=target, packer=packer)
    back = publish_suite(suite, suite.tasks[::-1], workspace="w", target=target, packer=packer)
    assert back.taskset == there.taskset
    assert is_digest(there.taskset.digest)


def test_equal_tasks_of_two_suites_are_two_tasks_with_one_archive(
    tmp_path: Path, target: MemoryPublishTarget, packer: FolderPacker
):
    for suite in ("a", "b"):
        make_task(tmp_path / suite, "same", native_id="tests/same")
        publish(tmp_path / suite, target, packer)
    assert {name for _, name in target.tasks} == {"a-same", "b-same"}
    assert len(target.archives) == 1


@pytest.mark.parametrize("error", [StorageFull("The disk is full."), KeyboardInterrupt()])
@pytest.mark.parametrize("call", ["put_archive", "put_task demo-task-001"])
def test_an_interruption_leaves_whole_tasks_and_no_taskset(
    root: Path, target: MemoryPublishTarget, packer: FolderPacker, error: Exception, call: str, tmp_path: Path
):
    if call == "put_archive":
        probe = MemoryPublishTarget()
        call = f"put_archive {publish(root, probe, packer)[0].tasks[1][0].spec.source.fileset_ref}"
    target.fail[call] = error
    with pytest.raises(type(error)):
        publish(root, target, packer)
    assert {name for _, name in target.tasks} == {"demo-task-000"}
    assert not target.tasksets
    assert list((tmp_path / "scratch").iterdir()) == []
    target.fail.clear()
    published, lines = publish(root, target, packer)
    assert [line.split()[0] for line in lines] == ["Unchanged", "Published", "Published", "Published"]
    assert published.cut


def test_a_task_without_its_archive_is_never_registered(root: Path, target: MemoryPublishTarget, packer: FolderPacker):
    publish(root, target, packer)
    written = [call.split()[0] for call in target.calls]
    assert written == ["put_archive", "put_task"] * 3 + ["put_taskset"]  # the fake refuses the other order as well


def test_a_task_edited_meanwhile_stops_the_publication(root: Path, target: MemoryPublishTarget, packer: FolderPacker):
    class Editing(FolderPacker):
        @contextmanager
        def open(self, task) -> Iterator[FolderArchive]:
            (root / "task-001" / "instruction.md").write_text("edited")
            with super().open(task) as packed:
                yield packed

    suite = read_suite(root)
    with pytest.raises(Refused, match="task-001 changed since it was read"):
        publish_suite(suite, suite.tasks, workspace="default", target=target, packer=Editing(packer._scratch))
    assert not target.tasksets


def test_nothing_to_publish_and_bad_workspaces_are_refused(
    root: Path, target: MemoryPublishTarget, packer: FolderPacker
):
    suite: Suite = read_suite(root)
    with pytest.raises(Refused, match="no task of 'demo'"):
        publish_suite(suite, [], workspace="default", target=target, packer=packer)
    with pytest.raises(Refused, match="The workspace 'a/b' holds"):
        publish_suite(suite, suite.tasks, workspace="a/b", target=target, packer=packer)
    assert target.calls == []
