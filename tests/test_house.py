"""Promises about the project itself: its files, its packages, what Dagster loads."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest
import tomli

ROOT = Path(__file__).parents[1]
OURS = ("harbor_assets", "resources", "sensors")


def test_one_content_of_dagster_yaml() -> None:
    from harbor_assets.local.instance import configuration

    assert configuration() == (ROOT / "dagster.yaml").read_bytes()


def test_the_workspace_names_the_location_that_workers_write() -> None:
    text = (ROOT / "workspace.yaml").read_text()
    assert "module_name: harbor_assets.definitions" in text
    assert "location_name: harbor_assets" in text
    assert 'location_name="harbor_assets"' in (ROOT / "harbor_assets" / "worker.py").read_text()


def test_nobody_else_owns_our_names() -> None:
    owners = importlib.metadata.packages_distributions()
    for name in OURS:
        assert set(owners.get(name, [])) <= {"harbor-assets"}, owners[name]


def test_only_definitions_imports_the_generic_names() -> None:
    found = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "harbor_assets").rglob("*.py")
        if any(line.startswith(("from resources", "from sensors", "import resources", "import sensors"))
               for line in path.read_text().splitlines())
    ]  # fmt: skip
    assert found == ["harbor_assets/definitions.py"]


def test_what_dagster_loads() -> None:
    from harbor_assets.definitions import defs

    repository = defs.get_repository_def()
    keys = {key.to_user_string() for key in repository.asset_graph.get_all_asset_keys()}
    assert {"harbor_task", "taskset", "task_image", "trial_results", "merged_bundle"} <= keys
    for key in repository.asset_graph.get_all_asset_keys():
        node = repository.asset_graph.get(key)
        assert node.description, key
        assert node.group_name != "default", key
        assert node.owners, key
        assert node.partitions_def is not None or key.to_user_string() == "leaderboard", key


def test_materialising_trial_results_by_hand_is_refused_with_the_command_to_use() -> None:
    import dagster as dg

    from harbor_assets.assets.runs import trial_results_alone

    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("run_task", ["run-1|00000"])
        result = dg.materialize(
            [trial_results_alone],
            partition_key="run-1|00000",
            instance=instance,
            resources={"engine": object()},
            raise_on_error=False,
        )
    assert not result.success
    failure = next(event for event in result.all_events if event.is_step_failure)
    assert "harbor-assets runs submit" in str(failure.step_failure_data.error)


@pytest.mark.parametrize("words", [["--help"], ["--version"]])
def test_help_imports_nothing_heavy(words: list[str]) -> None:
    code = (
        "import sys; sys.argv = ['harbor-assets', *sys.argv[1:]]\n"
        "from harbor_assets.interfaces.cli.main import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "heavy = 'dagster harbor sqlalchemy fastapi starlette httpx pydantic duckdb kubernetes alembic'.split()\n"
        "print([name for name in heavy if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    assert done.stderr.strip().splitlines()[-1] == "[]"


def test_every_installed_version_is_pinned() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomli.load(file)
    pins = {line.split("==")[0].strip().lower() for line in project["tool"]["uv"]["constraint-dependencies"]}
    needed = [*project["project"]["dependencies"], *project["dependency-groups"]["dev"]]
    names = {"".join(c for c in d.split(">")[0].split("=")[0].split("[")[0] if c not in " ").lower() for d in needed}
    assert names <= pins
