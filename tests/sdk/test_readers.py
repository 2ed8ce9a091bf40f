import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harbor_assets.domain.errors import Broken, NotFound, Refused
from harbor_assets.domain.outcomes import Reason
from harbor_assets.interfaces.sdk import readers
from harbor_assets.sdk import read_bundle, read_trials
from tests.fakes.accounts import FILES, agent_error, make_bundle, make_plan, make_row

FOLDER = "evidence/harbor/run-0123456789abcdef-task-0/hello-alpha__00000-1"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A bundle as a run leaves it: two trials, the evidence of the first in place."""
    plan = make_plan(["alpha", "beta"])
    rows = [
        make_row(plan, 0, 1, 0.5, reason=Reason.GRADED_AFTER_AGENT_TIMEOUT, error=agent_error()),
        make_row(plan, 1, 1, Reason.NEVER_STARTED),
    ]
    root = tmp_path / "agent-eval-results"
    for name, _ in FILES:
        path = root / FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    for name, pieces in make_bundle(plan, rows).files():
        (root / name).write_bytes(b"".join(pieces))
    return root


def change_trial(folder: Path, change: Callable[[dict[str, Any]], object], line: int = 0) -> None:
    path = folder / "trials.jsonl"
    rows = path.read_text().splitlines()
    row = json.loads(rows[line])
    change(row)
    rows[line] = json.dumps(row)
    path.write_text("\n".join(rows) + "\n")


def ref(folder: Path, key: str = "result") -> str | None:
    evidence = read_trials(folder)[0].evidence
    assert evidence is not None
    return evidence.descriptors[key].ref


def test_a_bundle_comes_back_whole_and_typed(folder: Path):
    found = read_bundle(folder)
    assert found.run.run_id == "run-0123456789abcdef"
    assert [task.id for task in found.tasks] == ["org/alpha", "org/beta"]
    assert [trial.status for trial in found.trials] == ["partial", "failed"]
    assert len(found.scores) == 2
    assert found.outcomes is not None
    assert found.outcomes[0].reward == 0.5
    assert found.outcome_summary is not None
    mean = found.summary.aggregate("harbor_reward.reward")
    assert mean is not None
    assert found.outcome_summary.policies.scored_only.mean == mean.mean == 0.5
    assert found.metadata.labels["sandbox"] == "process"
    assert found.trials == read_trials(folder)


def test_a_bundle_of_another_maker_has_no_outcomes(folder: Path):
    (folder / "outcomes.jsonl").unlink()
    (folder / "outcomes.json").unlink()
    (folder / "report.html").unlink(missing_ok=True)
    found = read_bundle(str(folder))
    assert found.outcomes is None
    assert found.outcome_summary is None


def test_blank_lines_are_skipped_and_lines_are_counted_with_them(folder: Path):
    path = folder / "trials.jsonl"
    path.write_text("\n\n" + path.read_text() + "\n{}\n")
    with pytest.raises(Broken, match=r"trials.jsonl line 6 is not of the format: id: Field required"):
        read_trials(folder)


def test_refs_become_paths_where_the_file_is_there(folder: Path):
    assert ref(folder) == str(folder / FOLDER / "result.json")
    assert ref(folder, "trial_dir") == str(folder / FOLDER)
    (folder / FOLDER / "result.json").unlink()
    assert ref(folder) == f"{FOLDER}/result.json"


@pytest.mark.parametrize(
    "stored", ["/somewhere/else/agent-eval-results/{path}", "s3://bucket/run/{path}", "/data/evidence/old/{path}"]
)
def test_a_ref_of_another_place_is_found_by_its_tail(folder: Path, stored: str):
    path = f"{FOLDER}/result.json"
    change_trial(folder, lambda row: row["evidence"]["descriptors"]["result"].update(ref=stored.format(path=path)))
    assert ref(folder) == str(folder / path)


def test_an_absolute_ref_that_exists_is_kept(folder: Path, tmp_path: Path):
    other = tmp_path / "evidence"
    other.write_text("x")
    change_trial(folder, lambda row: row["evidence"]["descriptors"]["result"].update(ref=str(other)))
    assert ref(folder) == str(other)


@pytest.mark.parametrize(
    "stored", ["../secret", "evidence/../../secret", "evidence/link", "evidence/linked/secret", "nul\0", "", "."]
)
def test_a_ref_never_leads_out_of_the_bundle(folder: Path, tmp_path: Path, stored: str):
    (tmp_path / "secret").write_text("x")
    (folder / "evidence" / "link").symlink_to(tmp_path / "secret")
    (folder / "evidence" / "linked").symlink_to(tmp_path)
    change_trial(folder, lambda row: row["evidence"]["descriptors"]["result"].update(ref=stored))
    assert ref(folder) == stored


def test_a_link_inside_the_bundle_is_followed(folder: Path):
    (folder / "evidence" / "link").symlink_to(folder / FOLDER / "trial.log")
    change_trial(folder, lambda row: row["evidence"]["descriptors"]["result"].update(ref="evidence/link"))
    assert ref(folder) == str(folder / FOLDER / "trial.log")


def test_evidence_as_a_bare_mapping_is_read(folder: Path):
    change_trial(folder, lambda row: row.update(evidence=row["evidence"]["descriptors"]))
    assert ref(folder) == str(folder / FOLDER / "result.json")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 1 is not JSON"),
        ("[]", "line 1 is not of the format"),
        ("[" * 100_000, "line 1 is not JSON"),
        ('{"id": NaN}', "NaN is no JSON number"),
        ('{"id": "1", "task_id": "t", "status": "failed", "extra\\u001b": 1}', r"extra\\x1b: Extra inputs"),
        ('{"id": "1", "task_id": "t", "status": "completed"}', "a completed trial has an output"),
        ("\xff", "line 1 is not JSON"),
    ],
)
def test_a_bad_row_is_named_by_file_and_line(folder: Path, line: str, message: str):
    (folder / "trials.jsonl").write_bytes(line.encode("latin-1"))
    with pytest.raises(Broken, match=message):
        read_trials(folder)


def test_what_is_no_bundle_says_what_is_missing(folder: Path, tmp_path: Path):
    with pytest.raises(NotFound, match=r"did you mean .*agent-eval-results"):
        read_trials(tmp_path)
    with pytest.raises(NotFound, match=r"no trials\.jsonl"):
        read_trials(tmp_path / "nowhere")
    (folder / "summary.json").unlink()
    with pytest.raises(NotFound, match=r"no summary\.json"):
        read_bundle(folder)
    (folder / "trials.jsonl").unlink()
    (folder / "trials.jsonl").mkdir()
    with pytest.raises(Refused, match="not a file"):
        read_trials(folder)


@pytest.mark.parametrize("name", ["../trials.jsonl", "/etc/passwd", "..", ""])
def test_a_manifest_cannot_name_parts_elsewhere(folder: Path, name: str):
    manifest = json.loads((folder / "run.json").read_text())
    manifest["artifacts"]["trials"] = name
    (folder / "run.json").write_text(json.dumps(manifest))
    with pytest.raises(Broken, match="plain name"):
        read_bundle(folder)


@pytest.mark.parametrize(
    ("limit", "message"),
    [("DOCUMENT_MAX_BYTES", "more than 10 bytes"), ("LINE_MAX_BYTES", "line 1 has"), ("ROWS_MAX", "more than 1 rows")],
)
def test_files_beyond_the_limits_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch, limit: str, message: str):
    monkeypatch.setattr(readers, limit, 1 if limit == "ROWS_MAX" else 10)
    with pytest.raises(Refused, match=message):
        read_bundle(folder)


def test_the_public_door_loads_nothing_until_asked():
    code = """
import sys, harbor_assets.sdk as sdk
assert not {"pydantic", "httpx", "fastapi"} & set(sys.modules)
for name in sdk.__all__: getattr(sdk, name)
assert not {"fastapi", "sqlalchemy", "duckdb", "dagster", "harbor"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    import harbor_assets.sdk

    with pytest.raises(AttributeError, match="nonsense"):
        _ = harbor_assets.sdk.nonsense
