import json
from pathlib import Path

import pytest

from harbor_assets.domain.metrics.bodies import bundled
from harbor_assets.domain.tasks import TaskInput, TasksetInput
from harbor_assets.sdk import read_bundle
from tests.cli.conftest import Cli
from tests.interfaces.backends import World


@pytest.fixture(autouse=True)
def _geography(w: World) -> None:
    match = {"type": "exact-match", "reference": "{{item.expected}}", "candidate": "{{item.output}}"}
    w.catalog.add_metric("default", "match", bundled(match))
    for country, city in (("france", "Paris"), ("japan", "Tokyo"), ("peru", "Lima")):
        spec = {"kind": "evaluator", "intent": "Answer.", "reference": {"expected": city}, "metrics": ["default/match"]}
        w.catalog.put_task("default", country, TaskInput.model_validate({"spec": spec}))
    w.catalog.put_taskset("default", "suite", TasksetInput(tasks=["france", "japan", "peru"]))


def outputs(folder: Path, *lines: object) -> Path:
    file = folder / "outputs.jsonl"
    file.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return file


def test_outputs_become_a_bundle_and_missing_ones_no_zero(cli: Cli, tmp_path: Path):
    file = outputs(tmp_path, {"task": "france", "output_text": "paris!"}, {"task": "japan", "output_text": "Kyoto"})
    said = cli("evaluate", "--taskset", "suite", "--outputs", file, "--output", tmp_path, "--json")
    assert said.code == 3, said.err
    assert said.json["missing_outputs"] == ["peru"]
    bundle = read_bundle(said.json["bundle"])
    exact = bundle.summary.aggregate("exact-match.exact-match")
    assert exact is not None
    assert (exact.mean, exact.count, exact.nan_count) == (0.5, 2, 1)
    assert bundle.summary.error_trial_ids == {"OutputMissing": ["peru__missing"]}
    assert bundle.metadata.labels["taskset_ref"].startswith("default/suite#")
    told = cli("evaluate", "--taskset", "suite", "--outputs", file, "--output", tmp_path)
    assert "1 of 3 tasks without an output, not counted as zero: peru" in told.out


def test_bad_lines_are_named_and_nothing_is_stored(cli: Cli, w: World, tmp_path: Path):
    file = outputs(
        tmp_path,
        {"task": "france", "output_text": "x", "trial": "a"},
        "{broken",
        {"task": "frnace", "output_text": "x"},
        {"task": "japan"},
        {"task": "peru", "output_text": "x", "trial": "a"},
    )
    said = cli("evaluate", "--taskset", "suite", "--outputs", file, "--output", tmp_path)
    assert said.code == 2
    for words in ("line 2: is not a JSON object", "line 3: ", "did you mean france", "line 4: ", "line 5: "):
        assert words in said.err
    assert w.catalog.list_jobs("default").total == 0
    assert not list(tmp_path.glob("agent-eval-*"))
