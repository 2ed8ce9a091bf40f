import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbor_assets.domain.bundle import RunMetadata
from harbor_assets.domain.errors import Refused
from harbor_assets.domain.names import name_problem
from harbor_assets.domain.plans import RunPlan
from harbor_assets.domain.publication import Publication, evaluation_name, read_dataset
from harbor_assets.domain.reruns import request_again
from tests.fakes.accounts import make_bundle, make_plan, make_row

PUBLICATION = Publication(
    experiment="e", evaluation="oracle-run-1", dataset="org/suite", dataset_version="v1", agent_name="oracle"
)


@pytest.mark.parametrize(
    ("text", "is_"),
    [
        ("datacurve/deep-swe@sha256:3f9a", ("datacurve/deep-swe", "sha256:3f9a")),
        ("suite", ("suite", None)),
        ("a@b@main", ("a@b", "main")),
        ("https://host/repo.git@0f3c", ("https://host/repo.git", "0f3c")),
    ],
)
def test_the_version_is_what_follows_the_last_at(text: str, is_: tuple[str, str | None]) -> None:
    assert read_dataset(text) == is_


@pytest.mark.parametrize("text", ["", "@", "@v1", "suite@", "a\nb", " a", "a@ b", "x" * 256, "a@" + "v" * 256])
def test_a_label_without_a_name_or_with_what_no_page_can_show_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        read_dataset(text)


@given(st.text(min_size=1, max_size=40), st.text(min_size=1, max_size=40).filter(lambda text: "@" not in text))
def test_name_and_version_come_back_as_they_were(name: str, version: str) -> None:
    try:
        assert read_dataset(f"{name}@{version}") == (name, version)
    except Refused:
        assert not (
            name.isprintable() and version.isprintable() and name == name.strip() and version == version.strip()
        )


def test_a_plan_of_before_reads_and_one_without_a_publication_is_written_as_before() -> None:
    plan = make_plan(["alpha"])
    before = plan.model_dump(mode="json")
    assert "publication" not in before
    assert RunPlan.model_validate(before).publication is None
    published = plan.model_copy(update={"publication": PUBLICATION})
    assert RunPlan.model_validate_json(published.model_dump_json()).publication == PUBLICATION


def test_an_evaluation_has_a_name_that_the_catalog_takes() -> None:
    assert evaluation_name("oracle", "run-0123456789abcdef") == "oracle-run-0123456789abcdef"
    assert name_problem(evaluation_name("a" * 300, "run-0123456789abcdef")) is None


def test_a_rerun_is_published_where_the_run_was_as_an_evaluation_of_its_own() -> None:
    plan = make_plan(["alpha"])
    assert request_again(plan, [0]).spec.publication is None
    again = request_again(plan.model_copy(update={"publication": PUBLICATION}), [0]).spec.publication
    assert again is not None
    assert (again.intake.experiment, again.intake.evaluation_id) == ("e", None)
    assert (again.intake.dataset_name, again.intake.dataset_version) == ("org/suite", "v1")
    old = PUBLICATION.model_copy(update={"new": False})
    again = request_again(plan.model_copy(update={"publication": old}), [0]).spec.publication
    assert again is not None
    assert (again.intake.experiment, again.intake.evaluation_id) == (None, "oracle-run-1")


def test_the_bundle_of_a_published_run_says_where_it_stands() -> None:
    plan = make_plan(["alpha"])
    names = ("experiment", "evaluation", "dataset", "dataset_version")
    for about, expected in ((None, []), (PUBLICATION, ["e", "oracle-run-1", "org/suite", "v1"])):
        content = make_bundle(plan.model_copy(update={"publication": about}), [make_row(plan, 0)])
        files = {name: b"".join(pieces) for name, pieces in content.files()}
        labels = RunMetadata.model_validate_json(files["metadata.json"]).labels
        assert [labels[name] for name in names if name in labels] == expected
