import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbor_assets.domain.outcomes import OUTCOME_OF, Outcome, Reason
from harbor_assets.domain.rewards import NAMES_MAX, READ_MAX_BYTES, RewardVerdict, judge, over_steps


@pytest.mark.parametrize(
    ("text", "reward"),
    [("1.0\n", 1.0), ("0", 0.0), (" 0.25 ", 0.25), ("-0.5", -0.5), ("1e-3", 0.001), ("17", 17.0)],
)
def test_a_number_in_reward_txt_is_the_reward(text: str, reward: float):
    verdict = judge(text.encode(), None)
    assert (verdict.reward, verdict.rewards, verdict.reason) == (reward, {"reward": reward}, None)


@pytest.mark.parametrize(
    ("text", "json_text", "reason", "quote"),
    [
        (None, None, Reason.REWARD_MISSING, "neither"),
        ("", None, Reason.REWARD_EMPTY, "reward.txt is empty"),
        (" \n\t", None, Reason.REWARD_EMPTY, "reward.txt is empty"),
        ("passed", None, Reason.REWARD_NOT_A_NUMBER, "'passed'"),
        ("True", None, Reason.REWARD_NOT_A_NUMBER, "'True'"),
        ("1.0 2.0", None, Reason.REWARD_NOT_A_NUMBER, "'1.0 2.0'"),
        ("1_0", None, Reason.REWARD_NOT_A_NUMBER, "'1_0'"),
        ("\u0661", None, Reason.REWARD_NOT_A_NUMBER, "'\u0661'"),
        ("nan", None, Reason.REWARD_NOT_FINITE, "'nan'"),
        ("-inf", None, Reason.REWARD_NOT_FINITE, "'-inf'"),
        ("1e400", None, Reason.REWARD_NOT_FINITE, "'1e400'"),
        (None, "", Reason.REWARD_EMPTY, "reward.json is empty"),
        (None, '{"reward": 0.', Reason.REWARD_UNREADABLE, '{"reward": 0.'),
        (None, "[" * 100_000, Reason.REWARD_UNREADABLE, "cut, 100000 characters"),
        (None, "[1.0]", Reason.REWARD_NOT_A_NUMBER, "'[1.0]'"),
        (None, "null", Reason.REWARD_NOT_A_NUMBER, "'null'"),
        (None, "1.0", Reason.REWARD_KEY_MISSING, "bare number '1.0'"),
        (None, "{}", Reason.REWARD_KEY_MISSING, "'{}'"),
        (None, '{"accuracy": 1.0}', Reason.REWARD_KEY_MISSING, "no 'reward'"),
        (None, '{"reward": true}', Reason.REWARD_NOT_A_NUMBER, "boolean"),
        (None, '{"reward": null}', Reason.REWARD_NOT_A_NUMBER, "null"),
        (None, '{"reward": "0.5"}', Reason.REWARD_NOT_A_NUMBER, '"0.5"'),
        (None, '{"reward": [1]}', Reason.REWARD_NOT_A_NUMBER, "[1]"),
        (None, '{"reward": {"reward": 1}}', Reason.REWARD_NOT_A_NUMBER, "not a number"),
        (None, '{"reward": NaN}', Reason.REWARD_NOT_FINITE, "NaN"),
        (None, '{"reward": 1e309}', Reason.REWARD_NOT_FINITE, "1e309"),
        (None, '{"reward": ' + "9" * 6000 + "}", Reason.REWARD_NOT_FINITE, "cut, 6012 characters"),
        (None, '{"reward": 0, "reward": 1}', Reason.REWARDS_CONTRADICT, "twice"),
        ("1", '{"reward": 0}', Reason.REWARDS_CONTRADICT, "reward.txt says 1.0; reward.json says 0.0"),
        ("", '{"reward": 0}', Reason.REWARDS_CONTRADICT, "reward.txt is empty; reward.json says 0.0"),
        ("1", '{"accuracy": 1}', Reason.REWARDS_CONTRADICT, "accuracy"),
        ("no", "[]", Reason.REWARD_NOT_A_NUMBER, "'no'"),
    ],
)
def test_anything_else_is_a_verifier_failure_that_quotes_what_was_found(
    text: str | None, json_text: str | None, reason: Reason, quote: str
):
    verdict = judge(None if text is None else text.encode(), None if json_text is None else json_text.encode())
    assert verdict.reward is None
    assert verdict.reason is reason
    assert OUTCOME_OF[reason] is Outcome.VERIFIER_FAILED
    assert verdict.message is not None
    assert quote in verdict.message
    assert "reward" not in verdict.rewards


def test_both_files_in_agreement_give_the_json_with_its_side_rewards():
    verdict = judge(b"0.5\n", b'{"reward": 0.5, "format_ok": 1}')
    assert verdict.reward == 0.5
    assert verdict.rewards == {"reward": 0.5, "format_ok": 1.0}


def test_a_broken_side_reward_does_not_cost_the_trial_its_reward():
    document = {"reward": 1, "a": True, "b": "x", "c": [1], "d.pass@2": 1, "": 1, "e\x07": 1, "f" * 256: 1, "g": 2}
    verdict = judge(None, json.dumps(document).encode())
    assert verdict.reward == 1.0
    assert verdict.rewards == {"reward": 1.0, "g": 2.0}
    assert verdict.rejections == {"a": "boolean", "b": "non_numeric", "c": "non_numeric", "d.pass@2": "reserved_key"}
    assert verdict.entry_rejections == ("invalid_key",) * 3


def test_a_side_reward_given_two_values_is_not_taken():
    verdict = judge(None, b'{"reward": 1, "a": 0, "a": 1, "b": 2, "b": 2}')
    assert verdict.rewards == {"reward": 1.0, "b": 2.0}
    assert verdict.rejections == {"a": "contradictory"}


@pytest.mark.parametrize(("text", "flags"), [(b"-0.1", ("reward_below_0",)), (b"1.1", ("reward_above_1",)), (b"1", ())])
def test_rewards_outside_0_to_1_are_kept_and_flagged(text: bytes, flags: tuple[str, ...]):
    verdict = judge(text, None)
    assert verdict.reward == float(text)
    assert verdict.flags == flags


def test_another_reward_key_is_looked_up_by_name_only():
    assert judge(None, b'{"score": 0.5, "reward": 1}', reward_key="score").reward == 0.5
    assert judge(b"1", b'{"score": 0.5}', reward_key="score").reward == 0.5
    verdict = judge(b"1", None, reward_key="score")
    assert (verdict.reason, verdict.rewards) == (Reason.REWARD_KEY_MISSING, {"reward": 1.0})


def test_what_is_not_text_or_too_large_is_unreadable():
    assert judge(b"\xff\xfe1", None).reason is Reason.REWARD_UNREADABLE
    assert judge(b"1" + b" " * READ_MAX_BYTES, None).reason is Reason.REWARD_UNREADABLE
    assert judge(b"1", None, text_cut=True).reason is Reason.REWARD_UNREADABLE
    many = {"reward": 1, **{f"n{i}": 1 for i in range(NAMES_MAX)}}
    assert judge(None, json.dumps(many).encode()).reason is Reason.REWARD_UNREADABLE


def test_a_message_carries_no_control_characters_and_little_of_the_file():
    verdict = judge(b"\x1b[2J\x00\xe2\x80\xae" + b"x" * 5000, None)
    assert verdict.message is not None
    assert verdict.message.isprintable()
    assert "\\x1b[2J" in verdict.message
    assert len(verdict.message) < 400


@pytest.mark.parametrize("file", ["reward.txt", "reward.json"])
def test_what_stands_in_place_of_a_file_is_named(file: str):
    verdict = judge(b"1", b'{"reward": 1}', odd={file: "a folder"})
    assert (verdict.reward, verdict.reason) == (None, Reason.REWARD_UNREADABLE)
    assert verdict.message == f"{file} is a folder; the tests have to write a plain file"


def steps(*contents: bytes | None, key: str = "reward") -> list[tuple[str, RewardVerdict]]:
    return [(f"s{i}", judge(None, content, reward_key=key)) for i, content in enumerate(contents)]


def test_a_task_in_steps_is_the_mean_of_each_name_or_the_last_step():
    graded = steps(b'{"reward": 1, "a": 3}', b'{"reward": 0.5}', b'{"reward": 0}')
    assert over_steps(graded).rewards == {"reward": 0.5, "a": 1.0}
    assert over_steps(graded, final=True).rewards == {"reward": 0.0}
    by_a = steps(b'{"reward": 1, "a": 3}', b'{"reward": 0.5}', key="a")
    assert over_steps(by_a, reward_key="a").reward == 1.5
    assert over_steps(steps(b'{"reward": 3}', b'{"reward": 2}')).flags == ("reward_above_1",)


def test_a_step_whose_reward_cannot_be_read_does_not_raise_the_mean():
    for broken in (None, b"", b'{"reward": true}', b"1", b"{}"):
        verdict = over_steps(steps(b'{"reward": 1}', broken))
        assert verdict.reward is None
        assert (verdict.message or "").startswith("step 's1': ")
        assert over_steps(steps(broken, b'{"reward": 1}'), final=True).reward == 1.0


def test_a_name_that_a_step_lacks_counts_as_zero_there():
    assert over_steps(steps(b'{"reward": 1}', b'{"other": 1}')).rewards == {"reward": 0.5, "other": 0.5}
    assert over_steps(steps(b'{"x": 1}', b'{"y": 1}')).reason is Reason.REWARD_KEY_MISSING
    assert over_steps([]).reason is Reason.REWARD_MISSING


def test_side_rewards_that_one_step_broke_are_no_rewards():
    verdict = over_steps(steps(b'{"reward": 1, "a": 1}', b'{"reward": 1, "a": "x"}'))
    assert (verdict.reward, verdict.rewards, verdict.rejections) == (1.0, {"reward": 1.0}, {"a": "non_numeric"})
    huge = over_steps(steps(b'{"reward": 1.7e308}', b'{"reward": 1.7e308}'))
    assert (huge.reward, huge.reason) == (None, Reason.REWARD_NOT_FINITE)


@given(st.lists(st.dictionaries(st.sampled_from("abr"), st.floats(-10, 10), min_size=1), min_size=1, max_size=5))
def test_means_are_harbors(rewards: list[dict[str, float]]):
    """Its rule in one line: the sum over the steps, a missing name as 0, over their number."""
    key = next(iter(rewards[0]))
    verdict = over_steps(steps(*(json.dumps(r).encode() for r in rewards), key=key), reward_key=key)
    assert verdict.rewards == {k: sum(r.get(k, 0) for r in rewards) / len(rewards) for r in rewards for k in r}


@given(st.one_of(st.none(), st.binary(max_size=40)), st.one_of(st.none(), st.binary(max_size=40)))
def test_any_bytes_get_a_verdict_that_tells_one_story(text: bytes | None, json_bytes: bytes | None):
    verdict = judge(text, json_bytes)
    if verdict.reward is None:
        assert verdict.reason is not None
        assert OUTCOME_OF[verdict.reason] is Outcome.VERIFIER_FAILED
        assert verdict.message
        assert verdict.message.isprintable()
    else:
        assert math.isfinite(verdict.reward)
        assert verdict.reason is None
        assert verdict.rewards["reward"] == verdict.reward


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_finite_number_survives_the_file(value: float):
    assert judge(repr(value).encode(), json.dumps({"reward": value}).encode()).reward == value


@given(st.floats().map(repr) | st.floats().map(lambda x: f"{x:e}") | st.text("0123456789.eE+-_ infaty", max_size=8))
def test_what_harbor_reads_as_a_number_is_read_alike_but_for_separators(text: str):
    try:
        harbor = float(text.strip())
    except ValueError:
        harbor = None
    verdict = judge(text.encode(), None)
    if harbor is None or not math.isfinite(harbor) or "_" in text:
        assert verdict.reward is None
    else:
        assert verdict.reward == harbor
