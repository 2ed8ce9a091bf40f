from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from harbor_assets.domain.access import (
    ANYWHERE,
    NOBODY_IN_PARTICULAR,
    AccessFile,
    Caller,
    Issuer,
    Role,
    TokenEntry,
    merged,
    token_hash,
)
from harbor_assets.domain.errors import Forbidden

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
roles = st.sampled_from(list(Role))
grants = st.dictionaries(st.sampled_from(["a", "b", ANYWHERE]), roles)


def issuer(**more: Any) -> Issuer:
    given = {"issuer": "https://i", "audience": "us", "jwks": "https://i/keys", "roles": {"team": {"a": "writer"}}}
    return Issuer.model_validate(given | more)


def test_a_role_includes_those_before_it():
    order = [Role.READER, Role.WRITER, Role.ADMIN]
    assert [[a.includes(b) for b in order] for a in order] == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]


def test_a_caller_may_what_is_granted_there_or_everywhere_and_nothing_else():
    who = Caller("ci", {"a": Role.WRITER, ANYWHERE: Role.READER})
    assert who.may(Role.WRITER, "a")
    assert not who.may(Role.ADMIN, "a")
    assert who.may(Role.READER, "b")
    assert not who.may(Role.WRITER, "b")
    assert not Caller("nobody").may(Role.READER, "a")
    assert not Caller("local", {"a": Role.ADMIN}).may(Role.ADMIN, ANYWHERE)
    assert NOBODY_IN_PARTICULAR.may(Role.ADMIN, ANYWHERE)


def test_what_is_forbidden_names_the_role_and_the_workspace():
    with pytest.raises(Forbidden, match=r"'ci' does not have the role writer in workspace 'b'"):
        Caller("ci", {"a": Role.ADMIN}).need(Role.WRITER, "b")
    with pytest.raises(Forbidden, match=r"the role admin in every workspace"):
        Caller("ci", {"a": Role.ADMIN}).need(Role.ADMIN, ANYWHERE)


@given(st.lists(grants), st.sampled_from(["a", "b", "c"]), roles)
def test_merged_grants_allow_exactly_what_one_of_them_allows(
    several: list[dict[str, Role]], workspace: str, role: Role
):
    assert Caller("x", merged(several)).may(role, workspace) == any(
        Caller("x", g).may(role, workspace) for g in several
    )


@pytest.mark.parametrize(
    "text", ["", "harbor_", "password", "harbor_" + "a" * 42, "harbor_" + "a" * 44, "harbor_" + "a" * 42 + "\n"]
)
def test_only_random_tokens_of_ours_have_a_hash(text: str):
    assert token_hash(text) is None
    assert token_hash("harbor_" + "a" * 43)


def test_a_token_ends_with_its_day():
    entry = TokenEntry(name="ci", sha256="0" * 64, workspaces={"a": Role.READER}, expires=NOW)
    assert entry.caller(NOW - timedelta(seconds=1)) == Caller("ci", {"a": Role.READER})
    assert entry.caller(NOW) is None


@pytest.mark.parametrize(
    ("claims", "granted"),
    [
        ({"groups": ["team"]}, {"a": Role.WRITER}),
        ({"groups": "other team"}, {"a": Role.WRITER}),
        ({"groups": ["other", 7, None]}, {}),
        ({"groups": {"team": True}}, {}),
        ({"groups": None}, {}),
        ({}, {}),
    ],
)
def test_claims_grant_what_the_file_says_of_them(claims: dict[str, Any], granted: dict[str, Role]):
    assert issuer().caller({"sub": "ann", **claims}) == Caller("ann", granted)


def test_a_claim_may_stand_inside_another_or_be_named_like_a_url():
    nested = issuer(roles_claim="realm_access.roles", name_claim="email")
    assert nested.caller({"sub": "1", "email": "ann@example", "realm_access": {"roles": ["team"]}}) == Caller(
        "ann@example", {"a": Role.WRITER}
    )
    assert (
        issuer(roles_claim="https://x.example/roles").caller({"sub": "1", "https://x.example/roles": ["team"]}).grants
    )
    assert nested.caller({"sub": "1", "email": 7, "realm_access": ["team"]}) == Caller("1", {})


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"algorithms": ["HS256"]}, "HS256 is not allowed"),
        ({"algorithms": ["none"]}, "none is not allowed"),
        ({"jwks": "http://i.example/keys"}, "https"),
        ({"jwks": "http://127.0.0.1.evil.example/keys"}, "https"),
        ({"roles": {}}, "at least 1"),
        ({"roles": {"team": {"a b": "reader"}}}, "write a workspace's name"),
        ({"roles": {"team": {"a": "owner"}}}, "reader"),
    ],
)
def test_an_issuer_that_would_let_in_others_is_refused(more: dict[str, Any], says: str):
    with pytest.raises(ValidationError, match=says):
        issuer(**more)


def test_a_name_or_a_hash_stands_once():
    one = {"name": "ci", "sha256": "0" * 64, "workspaces": {"a": "reader"}}
    for other in ({"name": "ci", "sha256": "1" * 64}, {"name": "cd", "sha256": "0" * 64}):
        with pytest.raises(ValidationError, match="more than once"):
            AccessFile.model_validate({"tokens": [one, {**one, **other}]})
