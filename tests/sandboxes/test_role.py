"""Whose sandbox it is, by the names that Harbor itself gives."""

from types import SimpleNamespace
from typing import Any

import pytest
from harbor.trial.trial import Trial
from hypothesis import given
from hypothesis import strategies as st

from harbor_assets.sandboxes.environment import role_of

names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,54}", fullmatch=True)


def verifiers(trial: str, key: str) -> str:
    own: Any = SimpleNamespace(config=SimpleNamespace(trial_name=trial))
    return Trial._separate_verifier_session_id(own, key)


@given(names, st.sampled_from(["trial", "grade", "a-step__env", "x" * 60]))
def test_no_length_and_no_word_in_a_name_confuses_the_two(trial: str, key: str):
    assert role_of(f"{trial}__env", trial) == "agent"
    assert role_of(verifiers(trial, key), trial) == "verifier"


@pytest.mark.parametrize("trial", ["a__verifier__b__00000-1", "suite-" + "long-" * 7 + "__00000-1"])
def test_names_that_were_taken_for_the_others(trial: str):
    assert role_of(f"{trial}__env", trial) == "agent"
    assert role_of(verifiers(trial, "trial"), trial) == "verifier"
