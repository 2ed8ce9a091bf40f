"""`tasksets build-images --harbor-dir --update-config`: images in task.toml files, and what is asked for again."""

from pathlib import Path

import pytest
import tomli

from harbor_assets.domain.images import context_key
from harbor_assets.engine.images import ImageBuilds
from harbor_assets.engine.ports import BuildFailed
from harbor_assets.images.context import key_entries
from harbor_assets.sources.folders import ArchiveTaskFolders
from harbor_assets.sources.verify import ArchiveVerifier
from tests.cli.conftest import Cli
from tests.engine.test_images import PREFIX, SHA, Builder, Registry, fails_for
from tests.interfaces.backends import World
from tests.suites import make


class Pushed(Registry):
    """Knows what the builder pushed, until it is `gone`."""

    def resolve(self, image: str) -> str:
        name, _, digest = image.partition("@")
        if not digest or image in self.gone:
            return super().resolve(image)
        return f"{name}@{digest}"


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    made = make.make_suite(tmp_path / "geo", 2)
    for task in made.iterdir():  # equal ones would share an image
        (task / "environment" / "name").write_text(task.name)
    return made


@pytest.fixture
def registry() -> Pushed:
    return Pushed()


@pytest.fixture
def builder(w: World, tmp_path: Path, registry: Pushed) -> Builder:
    """Makes the world a deployment."""
    made = Builder()
    folders = ArchiveTaskFolders(w.artifacts, tmp_path / "unpacked")
    w.images = ImageBuilds(
        tasks=w.catalog,
        images=w.catalog,
        folders=folders,
        registry=registry,
        artifacts=w.artifacts,
        builder=made,
        prefix=PREFIX,
    )
    w.verifier = ArchiveVerifier(folders)
    w.sandboxes.kind = "kubernetes"
    return made


def image_of(task: Path) -> dict[str, str]:
    table = tomli.loads((task / "task.toml").read_text())["environment"]
    return {name: table[name] for name in ("docker_image", "built_content_hash", "image_sha256") if name in table}


def test_images_are_written_and_then_run_without_a_build(cli: Cli, w: World, builder: Builder, suite: Path):
    path = suite / "task-000" / "task.toml"
    path.write_text("# ours\n" + path.read_text().replace("[environment]", "[environment]  # pods"))
    said = cli("tasksets", "build-images", "--harbor-dir", suite, "--update-config")
    assert said.code == 0
    assert "Updated geo-task-000: [environment] docker_image" in said.out.splitlines()
    assert said.out.splitlines()[-2:] == [
        "2 task.toml files updated",
        f"Run it: harbor-assets runs submit --harbor-dir {suite}",
    ]
    assert image_of(suite / "task-000") == {
        "docker_image": f"{PREFIX}/geo-task-000@{SHA}",
        "built_content_hash": context_key(key_entries(suite / "task-000" / "environment")),
        "image_sha256": SHA,
    }
    assert path.read_text().startswith("# ours\n")
    assert "[environment]  # pods\n" in path.read_text()
    builds = len(builder.built)
    submitted = cli("runs", "submit", "--harbor-dir", suite, "--strict")
    assert (submitted.code, submitted.err) == (0, "")
    (run_id,) = w.executions.started
    assert {task.images["agent"] for task in w.catalog.get_run(run_id).plan.tasks} == {
        f"{PREFIX}/geo-task-000@{SHA}",
        f"{PREFIX}/geo-task-001@{SHA}",
    }
    files = [(suite / f"task-00{n}" / "task.toml").read_bytes() for n in (0, 1)]
    again = cli("tasksets", "build-images", "--harbor-dir", suite, "--update-config", "--json")
    assert (again.code, again.json["updated"]) == (0, [])
    assert [view["state"] for view in again.json["images"]] == ["ready", "ready"]
    assert [(suite / f"task-00{n}" / "task.toml").read_bytes() for n in (0, 1)] == files
    assert len(builder.built) == builds


def test_what_changed_is_told_and_built_anew_and_the_rest_may_be_left_out(
    cli: Cli, w: World, builder: Builder, suite: Path
):
    words = ("tasksets", "build-images", "--harbor-dir", suite, "--update-config", "--skip-unchanged")
    assert cli(*words).code == 0
    (suite / "task-001" / "environment" / "new").write_text("more")
    warned = cli("tasksets", "create", "--harbor-dir", suite)
    assert warned.err.startswith("Warning: geo-task-001: changed since the docker_image in task.toml was built")
    old = image_of(suite / "task-001")
    said = cli(*words, "--json")
    assert said.code == 0
    assert "changed since" not in said.err
    assert (said.json["left_out"], [entry["task"] for entry in said.json["updated"]]) == (
        ["geo-task-000"],
        ["geo-task-001"],
    )
    assert image_of(suite / "task-001")["built_content_hash"] != old["built_content_hash"]
    assert [order.context.parent.name for order in builder.built].count("task-000") == 1
    assert cli("tasksets", "create", "--harbor-dir", suite).err == ""
    nothing = cli(*words)
    assert (nothing.code, nothing.out.splitlines()[-1]) == (0, "Nothing is left to build")


def test_an_image_that_is_gone_is_built_anew(cli: Cli, builder: Builder, suite: Path, registry: Pushed):
    words = ("tasksets", "build-images", "--harbor-dir", suite, "--update-config")
    cli(*words)
    before = image_of(suite / "task-000")
    registry.gone.add(before["docker_image"])
    built = len(builder.built)
    said = cli(*words)
    assert said.code == 0
    assert "Built anew, since their image is gone: geo-task-000" in said.out.splitlines()
    assert len(builder.built) == built + 1
    assert image_of(suite / "task-000") == before


def test_a_failed_build_leaves_no_image_and_an_authors_own_is_left_alone(
    cli: Cli, w: World, builder: Builder, suite: Path, registry: Pushed
):
    words = ("tasksets", "build-images", "--harbor-dir", suite, "--update-config")
    cli(*words)
    make.make_task(suite, "own", native_id="tests/own", environment={"docker_image": "busybox:1"})
    own = (suite / "own" / "task.toml").read_bytes()
    builder.outcome = fails_for("bad", BuildFailed("exit code: 1"))
    (suite / "task-001" / "environment" / "Dockerfile").write_text("FROM bad\n")
    said = cli(*words, "--json")
    assert said.code == 3
    assert image_of(suite / "task-001") == {}
    assert (suite / "own" / "task.toml").read_bytes() == own
    assert {view["task"]: view["state"] for view in said.json["images"]} == {
        "geo-own": "ready",
        "geo-task-000": "ready",
        "geo-task-001": "failed",
    }


def test_names_that_no_registry_takes_become_one_that_it_does(cli: Cli, builder: Builder, tmp_path: Path):
    suite = tmp_path / "Ünï suite"
    for name, text in (("A_b", "FROM a\n"), ("a-b", "FROM b\n")):
        make.make_task(suite, name, native_id=f"Org.X/{name}", dockerfile=text)
    assert cli("tasksets", "build-images", "--harbor-dir", suite, "--update-config").code == 0
    tags = [order.tag for order in builder.built]
    assert len(set(tags)) == 2
    for tag in tags:
        name = tag.removeprefix(f"{PREFIX}/").partition(":")[0]
        assert name.isascii()
        assert name == name.lower()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "Write REF for a stored taskset, or --harbor-dir DIR"),
        (("suite", "--harbor-dir", "x"), "one of them"),
        (("suite", "--update-config"), "--update-config is about task.toml files; write --harbor-dir DIR"),
        (("suite", "--skip-unchanged"), "--skip-unchanged is about task.toml files"),
    ],
)
def test_what_it_is_about_is_one_thing(cli: Cli, words: tuple[str, ...], says: str):
    said = cli("tasksets", "build-images", *words)
    assert (said.code, said.out) == (2, "")
    assert says in said.err


def test_a_laptop_has_no_image_that_others_could_pull(cli: Cli, w: World, suite: Path):
    before = (suite / "task-000" / "task.toml").read_bytes()
    said = cli("tasksets", "build-images", "--harbor-dir", suite, "--update-config")
    assert said.code == 2
    assert (
        "--update-config: the sandbox process needs no images; what stands in task.toml must be in a registry"
        in said.err
    )
    assert (suite / "task-000" / "task.toml").read_bytes() == before


def test_only_chosen_tasks_of_a_stored_taskset_are_built(cli: Cli, builder: Builder, suite: Path):
    ref = cli("tasksets", "create", "--harbor-dir", suite).out.splitlines()[-1]
    said = cli("tasksets", "build-images", ref, "-x", "task-000", "--wait")
    assert (said.code, said.out.splitlines()[-1]) == (0, "1 images: 1 ready")
    assert len(builder.built) == 1
