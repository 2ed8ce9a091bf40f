"""Benchmarks as files: what is read, and that what is wrong is told by file, field and rule."""

import subprocess
import sys
from pathlib import Path

import pytest

from harbor_assets.components.folder import FILE_MAX, read_benchmarks
from harbor_assets.domain.errors import Refused

GOOD = """\
type: harbor_assets.components.ScheduledBenchmark
attributes:
  name: nightly
  taskset: default/suite
  cron: "0 2 * * *"
  start: 2026-11-01
"""


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def refusal(folder: Path) -> str:
    with pytest.raises(Refused) as refused:
        read_benchmarks(folder)
    return str(refused.value)


def test_files_as_a_configmap_and_as_dg_have_them(tmp_path: Path) -> None:
    assert read_benchmarks(tmp_path / "none") == []
    write(tmp_path, "nightly.yaml", GOOD)
    more = GOOD.replace("nightly", "weekly").replace("0 2 * * *", "0 2 * * 1") + "  budget: {usd: 20, runs_a_day: 2}\n"
    write(tmp_path, "weekly/defs.yaml", more + "---\n" + GOOD.replace("nightly", "third"))
    write(tmp_path, "..data/nightly.yaml", GOOD)  # where a mounted ConfigMap's files really are
    write(tmp_path, "..data/x/defs.yaml", "broken: [")
    write(tmp_path, "README.md", "no benchmark")
    read = {each.benchmark.name: each.benchmark for each in read_benchmarks(tmp_path)}
    assert sorted(read) == ["nightly", "third", "weekly"]
    assert (read["nightly"].agent, read["nightly"].budget.usd, read["weekly"].budget.usd) == ("oracle", None, 20)


@pytest.mark.parametrize(
    ("was", "becomes", "told"),
    [
        ('"0 2 * * *"', '"0 25 * * *"', "cron: '0 25 * * *' is no cron expression"),
        ('"0 2 * * *"', '"0 2,3 * * *"', "cron: '0 2,3 * * *' fires more than once a day"),
        ('"0 2 * * *"', '"@daily"', "cron: '@daily' is no cron expression of five fields"),
        ("nightly", "Nightly-1", "name: String should match pattern"),
        ("default/suite", "'a b'", "taskset: 'a b' is not a reference"),
        ("  start: 2026-11-01\n", "", "start: is missing"),
        ("2026-11-01", "soon", "start: Input should be a valid date"),
        ("  start:", "  timezone: Mars/Base\n  start:", "timezone: 'Mars/Base' is no time zone"),
        ("  start:", "  agnt: oracle\n  start:", "agnt: is no field of a benchmark"),
        ("  start:", "  cap: 0\n  start:", "cap: Input should be greater than or equal to 1 (it is '0')"),
        ("  start:", "  budget: {usd: -1}\n  start:", "budget.usd: Input should be greater than 0"),
        (
            "  start:",
            "  agent: orcale\n  start:",
            "attributes: agent 'orcale': is no built-in Harbor agent; did you",
        ),
        ("ScheduledBenchmark", "Scheduled", "type: 'harbor_assets.components.Scheduled' is not"),
        ("attributes:", "attributs:", "attributs: not known here"),
        (GOOD, "[1, 2", "is no YAML: while parsing"),
        (GOOD, "a: &a [*a]", "type: 'None' is not"),
    ],
)
def test_what_is_wrong_is_told_by_file_field_and_rule(tmp_path: Path, was: str, becomes: str, told: str) -> None:
    path = write(tmp_path, "nightly.yaml", GOOD.replace(was, becomes, 1))
    assert f"{path}: {told}" in refusal(tmp_path)


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml", GOOD.replace("2026-11-01", "soon").replace("0 2 * * *", "x"))
    write(tmp_path, "b.yaml", GOOD)
    write(tmp_path, "c.yaml", GOOD)
    write(tmp_path, "d.yaml", "#" * (FILE_MAX + 1))
    said = refusal(tmp_path)
    assert "a.yaml: cron:" in said
    assert "a.yaml: start:" in said
    assert f"c.yaml: name: 'nightly' is the name of {tmp_path / 'b.yaml'} too" in said
    assert "d.yaml: has" in said


def loaded(folder: Path, monkeypatch: pytest.MonkeyPatch, executor: str) -> subprocess.CompletedProcess[str]:
    monkeypatch.setenv("HARBOR_ASSETS_BENCHMARKS", str(folder))
    monkeypatch.setenv("HARBOR_ASSETS_EXECUTOR", executor)
    code = (
        "from harbor_assets.definitions import defs\n"
        "repository = defs.get_repository_def()\n"
        "print(*sorted(s.name for s in [*repository.schedule_defs, *repository.sensor_defs]))\n"
        "assets = repository.asset_graph\n"
        "print(*sorted(k.to_user_string() for k in assets.get_all_asset_keys() if assets.get(k).freshness_policy))"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_dagster_loads_them_and_a_bad_one_stops_a_laptop_but_not_a_deployment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "nightly/defs.yaml", GOOD)
    done = loaded(tmp_path, monkeypatch, "local")
    names, fresh = done.stdout.splitlines()
    assert {"benchmark_nightly", "publications"} <= set(names.split()), done.stderr
    assert fresh.split() == ["benchmark/nightly", "leaderboard"]
    path = write(tmp_path, "nightly/defs.yaml", GOOD.replace("start", "begin"))
    done = loaded(tmp_path, monkeypatch, "local")
    assert done.returncode != 0
    assert f"{path}: start: is missing" in done.stderr
    done = loaded(tmp_path, monkeypatch, "kubernetes")
    assert {"benchmarks", "settle"} <= set(done.stdout.split()), done.stderr
    assert f"{path}: begin: is no field of a benchmark" in done.stderr
