"""The suites made for tests are what they claim to be, by Harbor's own loader."""

from pathlib import Path

import pytest
import tomli
from harbor.models.task.task import Task

from harbor_assets.examples import hello_world
from tests.suites import make


def test_hello_world_is_a_valid_suite_of_one_task() -> None:
    (folder,) = hello_world().iterdir()
    task = Task(folder)
    assert (task.name, task.config.environment.network_mode) == ("harbor/hello-world", "no-network")
    assert (folder / "solution" / "solve.sh").stat().st_mode & 0o111


def test_scenarios_are_valid_tasks_with_names_of_their_own(tmp_path: Path) -> None:
    tasks = [
        *make.scenarios(tmp_path),
        make.memory_hog(tmp_path),
        make.process_hog(tmp_path),
        make.big_output(tmp_path),
    ]
    names = [Task(task).name for task in tasks]
    assert len(set(names)) == len(names) > len(make.REWARDS)


def test_odd_names_are_allowed(tmp_path: Path) -> None:
    assert {Task(task).name for task in make.odd_names(tmp_path).iterdir()} == set(make.ODD_NAMES)


@pytest.mark.parametrize("name", sorted(make.BROKEN))
def test_broken_tasks_are_refused_by_harbor_or_known_to_slip_through(tmp_path: Path, name: str) -> None:
    task = make.BROKEN[name](tmp_path)
    if name in ("unholdable", "no_environment"):  # Harbor's constructor takes them; they fail later or elsewhere
        assert Task(task).name.endswith(task.name)
    else:
        with pytest.raises((ValueError, FileNotFoundError)):
            Task(task)


def test_twins_share_a_name(tmp_path: Path) -> None:
    assert len({Task(task).name for task in make.duplicates(tmp_path)}) == 1
    assert len({Task(task).name.casefold() for task in make.duplicates_by_case(tmp_path)}) == 1


def test_toml_is_what_it_says() -> None:
    tables = {"a": 1, "b": ["x", "y"], "t": {"s": 'q"\n', "f": 1.5, "deep": {"on": True}}}
    assert tomli.loads(make.toml(tables)) == tables
