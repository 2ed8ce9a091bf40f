"""`tasksets build-images`, and submit on a deployment that needs images."""

import shutil
import time
from pathlib import Path

import pytest

from harbor_assets.domain.tasks import ArchiveSource, HarborHash, HarborTask, TaskInput, TasksetInput
from harbor_assets.engine.images import ImageBuilds
from harbor_assets.engine.ports import BuildFailed
from harbor_assets.examples import hello_world
from harbor_assets.sources.folders import ArchiveTaskFolders
from tests.cli.conftest import Cli
from tests.engine.test_images import PREFIX, SHA, Builder, Folders, Registry, fails_for
from tests.interfaces.backends import World


@pytest.fixture
def builder(w: World, tmp_path: Path) -> Builder:
    """Makes the world a deployment."""
    made = Builder()
    made.outcome = fails_for("bad", BuildFailed("exit code: 1"))
    w.images = ImageBuilds(
        tasks=w.catalog,
        images=w.catalog,
        folders=Folders(tmp_path),
        registry=Registry(),
        artifacts=w.artifacts,
        builder=made,
        prefix=PREFIX,
    )
    w.sandboxes.kind = "kubernetes"
    return made


def publish(w: World, tmp_path: Path, **dockerfiles: str) -> str:
    for name, text in dockerfiles.items():
        (tmp_path / name / "environment").mkdir(parents=True)
        (tmp_path / name / "environment" / "Dockerfile").write_text(text)
        source = ArchiveSource(fileset_ref="w/f#x", files_hash=name.rjust(8, "0").ljust(64, "0"))
        harbor = HarborHash(digest="1" * 64, harbor_version="0.26.0")
        spec = HarborTask(native_task_id=name, source=source, harbor_hash=harbor)
        w.catalog.put_task("default", name, TaskInput(spec=spec))
    return w.catalog.put_taskset("default", "suite", TasksetInput(tasks=list(dockerfiles)))[0].ref


def test_each_image_gets_a_line_and_a_failed_one_its_log(cli: Cli, w: World, builder: Builder, tmp_path: Path):
    ref = publish(w, tmp_path, a="FROM x", b="FROM bad")
    said = cli("tasksets", "build-images", ref, "--wait")
    assert said.code == 3
    lines = said.out.splitlines()
    assert lines[0] == f"Images of 2 tasks of {ref}"
    assert f"Ready image of a: {PREFIX}/a@{SHA}" in lines
    at = lines.index("Failed image of b: exit code: 1")
    assert lines[at + 1 : at + 3] == [f"    {line}" for line in lines_of_log(w, ref)[:2]]
    assert lines[-1] == "2 images: 1 ready, 1 failed"
    (whole,) = [line.partition("    The whole log: ")[2] for line in lines if "The whole log" in line]
    with w.artifacts.open(whole.removeprefix("memory:/").lstrip("/")) as file:
        assert file.read().decode().splitlines() == lines_of_log(w, ref)
    again = cli("tasksets", "build-images", "suite", "--wait")
    assert f"Unchanged image of a: {PREFIX}/a@{SHA}" in again.out.splitlines()
    assert again.out.splitlines()[-1] == "2 images: 1 unchanged, 1 failed"
    views = {view["task"]: view for view in cli("tasksets", "build-images", "suite", "--wait", "--json").json["images"]}
    assert views["b"]["log"] == whole


def test_a_long_build_says_what_it_is_about(
    cli: Cli, w: World, builder: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("harbor_assets.interfaces.cli.building.PROGRESS_SECONDS", 0)
    publish(w, tmp_path, a="FROM x", b="FROM y")
    builder.outcome = lambda text: time.sleep(0.3)
    said = cli("tasksets", "build-images", "suite", "--wait", "--concurrency", "1")
    assert "Building a; 1 tasks wait" in said.out.splitlines()


def lines_of_log(w: World, ref: str) -> list[str]:
    assert w.images
    (key,) = [view.key for view in w.images.status("default", "suite").images if view.state == "failed"]
    return w.images.log(str(key)).decode().splitlines()


def test_all_ready_is_0_and_none_is_4(cli: Cli, w: World, builder: Builder, tmp_path: Path):
    publish(w, tmp_path, b="FROM bad")
    assert cli("tasksets", "build-images", "suite", "--wait").code == 4
    builder.outcome = lambda text: None
    assert cli("tasksets", "build-images", "suite", "--wait").code == 0


def test_a_command_that_serves_itself_waits_and_json_is_one_document(
    cli: Cli, w: World, builder: Builder, tmp_path: Path
):
    ref = publish(w, tmp_path, a="FROM x")
    said = cli("tasksets", "build-images", "suite", "--json")
    assert said.json["taskset_ref"] == ref
    assert [view["state"] for view in said.json["images"]] == ["ready"]
    assert "so it waits" in said.err


def test_a_laptop_has_nothing_to_build(cli: Cli, w: World):
    w.publish("a")
    said = cli("tasksets", "build-images", "suite", "--wait")
    assert (said.code, said.out) == (0, "The sandbox process needs no images: there is nothing to build.\n")


def test_an_unknown_taskset_is_2(cli: Cli, w: World, builder: Builder):
    said = cli("tasksets", "build-images", "nothing", "--wait")
    assert (said.code, said.out) == (2, "")
    assert "Taskset not found: default/nothing" in said.err


def test_submit_of_a_stored_taskset_refuses_what_was_never_built(cli: Cli, w: World, builder: Builder, tmp_path: Path):
    ref = publish(w, tmp_path, a="FROM x", b="FROM y")
    said = cli("runs", "submit", "--taskset", ref)
    assert said.code == 2
    assert said.err.count("image_not_built") == 2
    assert not builder.built
    cli("tasksets", "build-images", ref, "--wait")
    assert cli("runs", "submit", "--taskset", ref).code == 0
    (run,) = w.catalog.list_runs().items
    assert run.plan.tasks[0].images == {"agent": f"{PREFIX}/a@{SHA}"}


def test_submit_from_a_source_builds_first_and_a_failed_image_stops_no_other(
    cli: Cli, w: World, builder: Builder, tmp_path: Path
):
    assert w.images
    w.images._folders = ArchiveTaskFolders(w.artifacts, tmp_path / "unpacked")
    suite = tmp_path / "suite"
    for name, text in {"good": "FROM x", "broken": "FROM bad"}.items():
        shutil.copytree(hello_world() / "hello-world", suite / name)
        (suite / name / "environment" / "Dockerfile").write_text(text)
        config = suite / name / "task.toml"
        config.write_text(config.read_text().replace("harbor/hello-world", f"org/{name}"))
    said = cli("runs", "submit", "--harbor-dir", suite)
    assert said.code == 0, said.err
    lines = said.out.splitlines()
    assert "Failed image of suite-broken: exit code: 1" in lines
    assert any(line.startswith("Ready image of suite-good: ") for line in lines)
    (run,) = w.catalog.list_runs().items
    broken, good = run.plan.tasks
    assert broken.image_problem
    assert broken.image_problem.reason == "image_build"
    assert good.images["agent"].startswith(f"{PREFIX}/suite-good@")
