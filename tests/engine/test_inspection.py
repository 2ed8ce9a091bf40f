"""What is found when a bundle is read back: nothing in a good one, each fault by its name in a spoilt one."""

import hashlib
import json
from collections.abc import Callable, Sequence

import pytest

from harbor_assets.domain import bundle
from harbor_assets.domain.archives import archive_key
from harbor_assets.domain.outcomes import Reason, TrialOutcome
from harbor_assets.domain.phases import ResultState, RunPhase
from harbor_assets.domain.runs import Run, bundle_key
from harbor_assets.engine.inspection import Finding, Inspection
from tests.fakes.accounts import START, make_bundle, make_plan, make_row
from tests.fakes.artifacts import MemoryArtifacts

ARCHIVE = b"an archive"
type Bundle = tuple[MemoryArtifacts, list[TrialOutcome], Callable[[], dict[str, Finding]]]


@pytest.fixture(params=[None])
def made(request: pytest.FixtureRequest) -> Bundle:
    """Two tasks, one trial without a score; written as settling writes it. The parameter: what share is asked for."""
    plan = make_plan(["alpha", "beta"], n_attempts=2).model_copy(update={"min_coverage": request.param})
    hashed = hashlib.sha256(ARCHIVE).hexdigest()
    plan = plan.model_copy(
        update={"tasks": tuple(task.model_copy(update={"files_hash": hashed}) for task in plan.tasks)}
    )
    rows = [
        make_row(plan, 0, 1, 1.0),
        make_row(plan, 0, 2, 0.5),
        make_row(plan, 1, 1, 0.0),
        make_row(plan, 1, 2, Reason.SANDBOX_LOST),
    ]
    store = MemoryArtifacts()
    key = bundle_key(plan.run_id)
    for name, pieces in make_bundle(plan, rows).files():
        store.put_bytes(f"{key}/{name}", b"".join(pieces))
    for name in (bundle.REPORT, bundle.TRIALS_TABLE, bundle.SCORES_TABLE):
        store.put_bytes(f"{key}/{name}", b"x")
    for row in rows:
        if row.evidence:
            store.put_bytes(f"{key}/{row.evidence}/trial.log", b"x")
    for task in plan.tasks:
        store.put_bytes(archive_key(task.fileset_ref), ARCHIVE)
    run = Run(plan=plan, phase=RunPhase.COMPLETED, result_state=ResultState.READY, created_at=START)
    return store, rows, lambda: {f.name: f for f in Inspection(run, rows, store).find()}


def failed(findings: dict[str, Finding]) -> Sequence[str]:
    return [name for name, finding in findings.items() if not finding.passed and not finding.warning]


def spoil(store: MemoryArtifacts, name: str, change: Callable[[list[dict]], None]) -> None:  # type: ignore[type-arg]
    key = f"{bundle_key('run-0123456789abcdef')}/{name}"
    with store.open(key) as file:
        lines = [json.loads(line) for line in file]
    change(lines)
    store.put_bytes(key, "".join(json.dumps(line, sort_keys=True) + "\n" for line in lines).encode())


def test_a_good_bundle_passes_and_says_what_its_figures_rest_on(made: Bundle):
    findings = made[2]()
    assert failed(findings) == []
    cover = findings["coverage"]
    assert (cover.passed, cover.warning) == (False, True)
    assert cover.text == "scored 3 of 4 trials, 2 of 2 tasks; not scored: 1 infra_failed"


def test_a_lost_row_is_missed(made: Bundle):
    store, _, look = made
    spoil(store, bundle.OUTCOMES, lambda lines: lines.pop(0))
    findings = look()
    assert "no row of task 0 trial 1" in findings["bundle_complete"].text
    assert failed(findings) == ["bundle_complete", "digests_match"]


@pytest.mark.parametrize("made", [0.8], indirect=True)
def test_less_than_the_run_asks_for_is_an_error(made: Bundle):
    cover = made[2]()["coverage"]
    assert (cover.passed, cover.warning, cover.facts["min_coverage"]) == (False, False, 0.8)
    assert "the run asks for a share of 0.8" in cover.text


@pytest.mark.parametrize("made", [0.75], indirect=True)
def test_as_much_as_the_run_asks_for_passes_though_not_all_is_scored(made: Bundle):
    assert made[2]()["coverage"].passed


@pytest.mark.parametrize("name", [bundle.OUTCOMES, bundle.TRIALS, bundle.SCORES])
def test_a_row_that_stands_twice_is_found(made: Bundle, name: str):
    store, _, look = made
    spoil(store, name, lambda lines: lines.append(lines[0]))
    finding = look()["no_doubles"]
    assert not finding.passed
    assert f"{name} has 2 rows of" in finding.text


@pytest.mark.parametrize("name", [bundle.TRIALS, bundle.SCORES])
def test_a_row_of_a_trial_that_was_not_planned_is_found_and_the_one_it_replaced_is_missed(made: Bundle, name: str):
    store, rows, look = made
    at = "id" if name == bundle.TRIALS else "trial_id"
    spoil(store, name, lambda lines: lines[0].update({at: "another"}))
    findings = look()
    assert f"{name} has a row of another, not planned" in findings["no_doubles"].text
    assert f"{name} has no row of {rows[0].trial_id}" in findings["bundle_complete"].text


def test_a_reward_outside_of_0_to_1_is_a_warning(made: Bundle):
    _, rows, look = made
    assert look()["rewards_in_range"].passed
    rows[1] = rows[1].model_copy(update={"reward": 1.5})
    finding = look()["rewards_in_range"]
    assert (finding.passed, finding.warning) == (False, True)
    assert "has the reward 1.5" in finding.text


@pytest.mark.parametrize("gone", [bundle.MANIFEST, bundle.REPORT, bundle.SUMMARY])
def test_a_lost_file_is_missed(made: Bundle, gone: str):
    store, _, look = made
    store.remove(f"{bundle_key('run-0123456789abcdef')}/{gone}")
    assert f"{gone} is missing" in look()["bundle_complete"].text


def test_lost_evidence_is_missed(made: Bundle):
    store, rows, look = made
    store.remove(f"{bundle_key('run-0123456789abcdef')}/{rows[0].evidence}")
    assert f"{rows[0].trial_id} has no evidence" in look()["bundle_complete"].text


def test_a_score_that_is_no_finite_number_is_found(made: Bundle):
    store, _, look = made
    spoil(store, bundle.SCORES, lambda lines: lines[0]["outputs"][0].update(value="NaN"))
    spoil(store, bundle.OUTCOMES, lambda lines: lines[3].update(reward=0.0))
    finding = look()["scores_finite"]
    assert "is 'NaN'" in finding.text
    assert "is infra_failed, and yet has the reward 0.0" in finding.text


def test_a_changed_reward_is_found(made: Bundle):
    store, _, look = made
    spoil(store, bundle.OUTCOMES, lambda lines: lines[1].update(reward=1.0))
    assert failed(look()) == ["digests_match"]


def test_a_changed_archive_is_found_and_a_lost_one(made: Bundle):
    store, _, look = made
    keys = [key for key in store.objects if "task_archive" in key]
    store.put_bytes(keys[0], b"another")
    store.remove(keys[1])
    text = look()["digests_match"].text
    assert "is not the one that was run" in text
    assert "is gone" in text


def test_what_cannot_be_read_is_a_finding(made: Bundle):
    store, _, look = made
    store.put_bytes(f"{bundle_key('run-0123456789abcdef')}/{bundle.OUTCOMES}", b"{")
    assert "cannot be read" in look()["bundle_complete"].text
