"""What a verifier wrote, and whether it is a reward: one finite number under the run's reward key, never a guess.

`judge` reads the raw files `reward.txt` and `reward.json` of a trial, or of one step of it; `over_steps` makes one
verdict of those on the steps of a task.

Where the rules come from: the files and their precedence are Harbor's (`harbor.verifier.verifier`); the names of the
rejections are the bundle format's. Harbor refuses a whole file for one bad value; here each name stands for itself, so
that a broken side metric does not cost a trial its reward. Stricter than Harbor in four places, each because the file
says something other than one number: a boolean, two files with different rewards, one name given two values, a text
that only Python takes for a number (`1_0`, digits of other scripts).
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from harbor_assets.domain.flags import Flag
from harbor_assets.domain.outcomes import Frozen, Reason
from harbor_assets.domain.text import QUOTE_MAX, quoted, visible

READ_MAX_BYTES = 1024 * 1024  # a reward file is a few bytes; what is larger is not one
NAMES_MAX = 1000  # each name becomes a column of every table and a row of every summary
_NAME_MAX = 255  # the bundle format's limit for a reward's name
_RESERVED = re.compile(r"\.pass@\d+$")  # names of aggregates that the summary makes itself
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_NUMBER = re.compile(
    r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf(?:inity)?|nan)", re.IGNORECASE | re.ASCII
)
TEXT_KEY = "reward"  # the one name reward.txt can speak for (Harbor)

Rejection = Literal["boolean", "non_numeric", "non_finite", "invalid_key", "reserved_key", "contradictory"]
_REASON_OF: dict[Rejection, Reason] = {
    "boolean": Reason.REWARD_NOT_A_NUMBER,
    "non_numeric": Reason.REWARD_NOT_A_NUMBER,
    "non_finite": Reason.REWARD_NOT_FINITE,
    "contradictory": Reason.REWARDS_CONTRADICT,
}
_SAID_AS: dict[Rejection, str] = {
    "boolean": "is a boolean",
    "non_numeric": "is not a number",
    "non_finite": "is not finite",
    "contradictory": "is given twice with different values",
    "reserved_key": "is a name that summaries make themselves",
    "invalid_key": "is no name",
}


class RewardVerdict(Frozen):
    """What the reward files say.

    `reward` is the primary reward, or None together with a `reason` (a member of `verifier_failed`) and a `message`
    that quotes what was found. `rewards` holds every usable name, `rejections` why another name's value was not taken,
    `entry_rejections` the same for entries whose name cannot be shown. `flags` are remarks that change no verdict.
    """

    reward: float | None = None
    rewards: dict[str, float] = {}
    rejections: dict[str, str] = {}
    entry_rejections: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    reason: Reason | None = None
    message: str | None = None


def judge(
    text: bytes | None,
    json_bytes: bytes | None,
    *,
    reward_key: str = TEXT_KEY,
    text_cut: bool = False,
    json_cut: bool = False,
    odd: Mapping[str, str] | None = None,
) -> RewardVerdict:
    """Judge the contents of `reward.txt` and `reward.json`; None means the file does not exist.

    The caller reads at most `READ_MAX_BYTES` and says with `*_cut` that there was more. `odd` says what stands in place
    of a plain file (`{"reward.txt": "a folder"}`). With both files, the primary reward must be the same number in
    both; then `reward.json` counts, as in Harbor. `reward.txt` speaks only for the name `reward`: under another reward
    key it has nothing to say beside a `reward.json`.

    A bare number in `reward.json` is refused: Harbor parses it and then fails on it, since its result holds a mapping
    of names. A number in quotes is refused as Harbor refuses it, so that a suite checked here runs elsewhere.
    """
    for file, what in (odd or {}).items():
        return _failed(Reason.REWARD_UNREADABLE, f"{file} is {what}; the tests have to write a plain file")
    if text is None and json_bytes is None:
        return _failed(Reason.REWARD_MISSING, "the verifier wrote neither reward.txt nor reward.json")
    if json_bytes is None:
        assert text is not None
        return _judge_text(text, reward_key, cut=text_cut)
    from_json = _judge_json(json_bytes, reward_key, cut=json_cut)
    if text is None or reward_key != TEXT_KEY:
        return from_json
    from_text = _judge_text(text, reward_key, cut=text_cut)
    if from_text.reward == from_json.reward and from_json.reward is not None:
        return from_json
    told = f"{_told(from_text, 'reward.txt')}; {_told(from_json, 'reward.json')}"
    if from_text.reward is None and from_json.reward is None:
        return from_json.model_copy(update={"message": told})
    return RewardVerdict(
        rewards={name: value for name, value in from_json.rewards.items() if name != reward_key},
        rejections={**from_json.rejections, reward_key: "contradictory"},
        entry_rejections=from_json.entry_rejections,
        reason=Reason.REWARDS_CONTRADICT,
        message=told,
    )


def over_steps(
    steps: Sequence[tuple[str, RewardVerdict]], *, final: bool = False, reward_key: str = TEXT_KEY
) -> RewardVerdict:
    """The verdict on a task in steps from those on its graded steps, as (name of the step, verdict), in order.

    `final`: the last of them counts alone. Else each name's mean over all of them, where a step without the name counts
    as 0; both are Harbor's strategies (`Trial._select_multi_step_reward`). Stricter than Harbor: a step whose reward
    cannot be read is not left out of the mean, which would raise it, but makes the whole trial's reward unknown.
    """
    counted = steps[-1:] if final else steps
    if not counted:
        return _failed(Reason.REWARD_MISSING, "no step of the task was graded")
    named = any(verdict.reward is not None for _, verdict in counted)
    for name, verdict in counted:
        other_names = verdict.reason is Reason.REWARD_KEY_MISSING and bool(verdict.rewards)
        if verdict.reason is not None and not (named and other_names):
            return verdict.model_copy(update={"message": f"step '{name}': {verdict.message}"})
    rejections = {key: why for _, verdict in counted for key, why in verdict.rejections.items()}
    names = dict.fromkeys(key for _, verdict in counted for key in verdict.rewards if key not in rejections)
    rewards = {key: sum(verdict.rewards.get(key, 0.0) for _, verdict in counted) / len(counted) for key in names}
    endless = [key for key, value in rewards.items() if not math.isfinite(value)]
    verdict = RewardVerdict(
        rewards={key: value for key, value in rewards.items() if key not in endless},
        rejections={**rejections, **dict.fromkeys(endless, "non_finite")},
        entry_rejections=tuple(why for _, verdict in counted for why in verdict.entry_rejections),
    )
    primary = verdict.rewards.get(reward_key)
    if primary is None:
        reason = Reason.REWARD_NOT_FINITE if reward_key in endless else Reason.REWARD_KEY_MISSING
        message = f"over {len(counted)} steps '{reward_key}' is {'not finite' if endless else 'no common name'}"
        return verdict.model_copy(update={"reason": reason, "message": message})
    return verdict.model_copy(update={"reward": primary, "flags": _outside(primary)})


def _judge_text(content: bytes, reward_key: str, *, cut: bool) -> RewardVerdict:
    problem = _unreadable(content, "reward.txt", cut=cut)
    if problem:
        return problem
    found = content.decode().strip()
    value: float | str = float(found) if _NUMBER.fullmatch(found) else found
    return _judge_entries([(TEXT_KEY, value)], reward_key, "reward.txt", found)


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as its entries, so that a name given twice is seen. A JSON array stays a plain list."""


def _judge_json(content: bytes, reward_key: str, *, cut: bool) -> RewardVerdict:
    problem = _unreadable(content, "reward.json", cut=cut)
    if problem:
        return problem
    found = content.decode().strip()
    try:
        # every number as float: rewards are floats, and an integer of a million digits must not cost a minute
        value = json.loads(found, object_pairs_hook=_Pairs, parse_int=float)
    except (ValueError, RecursionError):
        return _failed(Reason.REWARD_UNREADABLE, f"reward.json is not JSON: {quoted(found)}")
    if isinstance(value, _Pairs):
        return _judge_entries(value, reward_key, "reward.json", found)
    if isinstance(value, float):
        return _failed(
            Reason.REWARD_KEY_MISSING,
            f'reward.json holds the bare number {quoted(found)}; write {{"{reward_key}": <number>}}',
        )
    return _failed(
        Reason.REWARD_NOT_A_NUMBER,
        f'reward.json holds {quoted(found)}; it must be an object like {{"{reward_key}": <number>}}',
    )


def _unreadable(content: bytes, file: str, *, cut: bool) -> RewardVerdict | None:
    if cut or len(content) > READ_MAX_BYTES:
        start = visible(content[:QUOTE_MAX].decode(errors="replace"))[:QUOTE_MAX]
        return _failed(Reason.REWARD_UNREADABLE, f"{file} is larger than {READ_MAX_BYTES} bytes; it begins '{start}…'")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return _failed(
            Reason.REWARD_UNREADABLE, f"{file} is not UTF-8 text: {quoted(content[:400].decode(errors='replace'))}"
        )
    return None if text.strip() else _failed(Reason.REWARD_EMPTY, f"{file} is empty")


def _judge_entries(entries: list[tuple[Any, Any]], reward_key: str, source: str, found: str) -> RewardVerdict:
    if len(entries) > NAMES_MAX:
        return _failed(Reason.REWARD_UNREADABLE, f"{source} holds {len(entries)} names; at most {NAMES_MAX} are taken")
    taken: dict[str, float | Rejection] = {}
    nameless: list[str] = []
    for name, value in entries:
        if not isinstance(name, str) or not name or len(name) > _NAME_MAX or _CONTROL.search(name):
            nameless.append("invalid_key")
            continue
        judged = "reserved_key" if _RESERVED.search(name) else _number(value)
        taken[name] = judged if taken.get(name, judged) == judged else "contradictory"
    verdict = RewardVerdict(
        rewards={name: value for name, value in taken.items() if not isinstance(value, str)},
        rejections={name: value for name, value in taken.items() if isinstance(value, str)},
        entry_rejections=tuple(nameless),
    )
    primary = taken.get(reward_key)
    if isinstance(primary, int | float):
        return verdict.model_copy(update={"reward": primary, "flags": _outside(primary)})
    if primary is None:
        reason, wrong = Reason.REWARD_KEY_MISSING, f"it has no '{reward_key}', the run's reward key"
    else:
        reason = _REASON_OF.get(primary, Reason.REWARD_KEY_MISSING)
        wrong = f"'{reward_key}' {_SAID_AS[primary]}"
    message = f"{source} holds {quoted(found)}: {wrong}; a reward is one finite number"
    return verdict.model_copy(update={"reason": reason, "message": message})


def _outside(reward: float) -> tuple[str, ...]:
    return (Flag.REWARD_BELOW_0.value,) if reward < 0 else (Flag.REWARD_ABOVE_1.value,) if reward > 1 else ()


def _number(value: Any) -> float | Rejection:
    if isinstance(value, bool):
        return "boolean"
    if not isinstance(value, int | float):
        return "non_numeric"
    try:
        number = float(value)
    except OverflowError:
        return "non_finite"
    return number if math.isfinite(number) else "non_finite"


def _told(verdict: RewardVerdict, file: str) -> str:
    return f"{file} says {verdict.reward!r}" if verdict.reward is not None else (verdict.message or file)


def _failed(reason: Reason, message: str, **more: Any) -> RewardVerdict:
    return RewardVerdict(reason=reason, message=message, **more)
