from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from harbor_assets.domain.marks import Mark, Verdict, warnings

TASK, RUN = "ws/hello#" + "a" * 64, "run-" + "0" * 16
NOW = datetime(2026, 11, 29, tzinfo=UTC)


def mark(**more: Any) -> Mark:
    values = {"workspace": "ws", "subject": TASK, "verdict": "bad", "who": "ann", "why": "no", "at": NOW}
    return Mark.model_validate(values | more)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"subject": "hello"}, "neither a run"),
        ({"subject": "ws/hello"}, "neither a run"),
        ({"subject": "ws/hello#latest"}, "neither a run"),
        ({"subject": "hello#" + "a" * 64}, "neither a run"),
        ({"subject": "run-1"}, "neither a run"),
        ({"verdict": "wonderful"}, "verdict"),
        ({"why": ""}, "why"),
        ({"at": datetime(2026, 11, 29)}, "at"),
        ({"verdict": "flaky"}, "by the runs that show it"),
        ({"verdict": "flaky", "subject": RUN, "runs": [RUN]}, "said of a task"),
    ],
)
def test_what_cannot_be_said(more: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        mark(**more)


def test_who_uses_a_task_is_told_of_all_but_good_and_first_what_a_person_said() -> None:
    flaky, bad = mark(verdict="flaky", runs=[RUN]), mark()
    good = mark(verdict="good", runs=[RUN])
    assert warnings([good, flaky, bad]) == [bad, flaky]
    assert {verdict for verdict in Verdict if not verdict.warns} == {Verdict.GOOD}
    assert all(verdict.told for verdict in Verdict)
