import pytest

from harbor_assets.domain import errors
from harbor_assets.domain.errors import HarborAssetsError, Problem, Refused
from harbor_assets.interfaces.problems import from_answer, to_answer

PROBLEMS = [Problem("task 'a'", "is broken"), Problem("", "and more")]


def family(kind: type[HarborAssetsError] = HarborAssetsError) -> list[type[HarborAssetsError]]:
    return [
        found for sub in kind.__subclasses__() for found in (sub, *family(sub)) if found.__module__ == errors.__name__
    ]


@pytest.mark.parametrize("kind", family())
def test_every_error_of_the_family_comes_back_as_itself(kind: type[HarborAssetsError]):
    sent = kind("It cannot be done:", PROBLEMS) if issubclass(kind, Refused) else kind("It cannot be done")
    status, body = to_answer(sent)
    import json

    got = from_answer(status, json.dumps(body).encode())
    assert type(got) is kind
    assert str(got) == str(sent)
    assert getattr(got, "problems", ()) == getattr(sent, "problems", ())


def test_detail_alone_says_everything_for_clients_that_show_only_that():
    _, body = to_answer(Refused("No:", PROBLEMS))
    assert body["detail"] == "No:\n  task 'a': is broken\n  and more"


def test_a_relative_of_the_family_answers_as_the_nearest_member():
    class Stricter(Refused):
        pass

    status, body = to_answer(Stricter("no"))
    assert (status, body["error"]) == (422, "Refused")


def test_validation_errors_become_problems_by_place():
    content = b'{"detail": [{"loc": ["body", "spec", "target"], "msg": "is odd", "type": "x"}, "odd"]}'
    got = from_answer(422, content)
    assert isinstance(got, Refused)
    assert [str(problem) for problem in got.problems] == ["spec.target: is odd", "odd"]


@pytest.mark.parametrize(
    ("status", "content", "kind"),
    [
        (404, b'{"detail": "Task not found"}', errors.NotFound),
        (409, b'{"detail": "exists"}', errors.Conflict),
        (400, b'{"detail": "bad filter"}', errors.Refused),
        (500, b'{"detail": "Internal"}', errors.Broken),
        (503, b"<html>gateway</html>", errors.ServiceUnavailable),
        (502, b"\xff\xfe", errors.Broken),
        (418, b"[]", errors.Refused),
        (422, b'{"detail": "x", "error": "SystemExit", "problems": [1, {"message": 2}]}', errors.Refused),
    ],
)
def test_answers_of_other_services_map_by_status(status: int, content: bytes, kind: type[HarborAssetsError]):
    assert type(from_answer(status, content)) is kind


def test_a_long_answer_of_unknown_shape_is_cut():
    assert len(str(from_answer(500, b"x" * 1_000_000))) < 3000
