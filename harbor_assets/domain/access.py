"""Who may do what: callers with a role in workspaces, and the access file that says which token is whose.

A role includes those below it: `reader` looks, `writer` stores, runs and deletes, `admin` also makes and removes what a
workspace is divided into. `*` stands for every workspace.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from harbor_assets.domain.errors import Forbidden
from harbor_assets.domain.names import name_problem

ANYWHERE: Final = "*"
TOKEN_PREFIX: Final = "harbor_"  # noqa: S105 programs that look for lost secrets know them by a prefix
_TOKEN: Final = re.compile(r"harbor_[A-Za-z0-9_-]{43}")  # 256 bits in base64url
# Symmetric ones would make every reader of the key set a writer of tokens (RFC 8725, 3.1 and 3.2).
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")


def anywhere(workspace: str) -> bool:
    """Every workspace: what may be read where nobody is told apart."""
    return True


class Role(StrEnum):
    """What one may do in a workspace; each includes those before it."""

    READER = "reader"
    WRITER = "writer"
    ADMIN = "admin"

    def includes(self, other: "Role") -> bool:
        """Whether who has this role may do what `other` may."""
        roles = list(Role)
        return roles.index(self) >= roles.index(other)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, and their role by workspace; that of `*` counts everywhere."""

    name: str
    grants: Mapping[str, Role] = field(default_factory=dict)

    def may(self, role: Role, workspace: str) -> bool:
        """Whether the caller has at least this role there."""
        return any(self.grants[at].includes(role) for at in (workspace, ANYWHERE) if at in self.grants)

    def need(self, role: Role, workspace: str) -> None:
        """Raises `Forbidden` unless the caller has that role there; also of a workspace that does not exist."""
        if not self.may(role, workspace):
            where = "every workspace" if workspace == ANYWHERE else f"workspace '{workspace[:80]}'"
            raise Forbidden(f"'{self.name}' does not have the role {role} in {where}, which this needs")


# Where nobody is asked who they are: on loopback, in process, and where --insecure-no-auth was said.
NOBODY_IN_PARTICULAR: Final = Caller("anyone", {ANYWHERE: Role.ADMIN})


def merged(grants: Iterable[Mapping[str, Role]]) -> dict[str, Role]:
    """Several grants as one: the highest role of each workspace."""
    found: dict[str, Role] = {}
    for grant in grants:
        for workspace, role in grant.items():
            if workspace not in found or role.includes(found[workspace]):
                found[workspace] = role
    return found


def token_hash(token: str) -> str | None:
    """SHA-256 (hex) of a token of ours, None if it has not the form of one.

    A plain hash is enough for 256 random bits, and only for these: the form keeps chosen passwords out.
    """
    return hashlib.sha256(token.encode()).hexdigest() if _TOKEN.fullmatch(token) else None


def _workspaces(grants: dict[str, Role]) -> dict[str, Role]:
    for workspace in grants:
        if workspace != ANYWHERE and (problem := name_problem(workspace)):
            raise ValueError(f"the workspace {workspace[:80]!r} {problem}; write a workspace's name, or '*' for all")
    return grants


Grants = Annotated[dict[str, Role], Field(min_length=1), AfterValidator(_workspaces)]
CallerName = Annotated[str, Field(pattern=r"^[\w\-.@+ ]+$", max_length=255)]


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TokenEntry(_Entry):
    """A token by its hash. `sha256` is of the token's text."""

    name: CallerName
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    workspaces: Grants
    expires: AwareDatetime | None = None

    def caller(self, now: datetime) -> Caller | None:
        """Whose it is, None once it has expired."""
        return None if self.expires is not None and now >= self.expires else Caller(self.name, self.workspaces)


class Issuer(_Entry):
    """Who signs tokens elsewhere (OpenID Connect), and what their claims mean here.

    `jwks`: the keys, a file or an https URL. `roles_claim` names a claim (`a.b`: inside another) that holds a list, or
    words in one text; each is looked up in `roles`. `name_claim` says what the caller is called.
    """

    issuer: str = Field(min_length=1, max_length=2000)
    audience: str = Field(min_length=1, max_length=2000)
    jwks: str = Field(min_length=1, max_length=2000)
    algorithms: list[str] = Field(default=["RS256", "ES256"], min_length=1)
    name_claim: str = Field(default="sub", min_length=1)
    roles_claim: str = Field(default="groups", min_length=1)
    roles: dict[str, Grants] = Field(min_length=1)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if bad := sorted(set(self.algorithms) - set(ALGORITHMS)):
            raise ValueError(f"algorithms: {bad[0]} is not allowed; known are {', '.join(ALGORITHMS)}")
        if "://" in self.jwks and not re.match(r"https://|http://(127\.0\.0\.1|localhost|\[::1\])[:/]", self.jwks):
            raise ValueError(
                "jwks: keys must come over https, or from this machine; write https://... or a file's path"
            )
        return self

    def caller(self, claims: Mapping[str, Any]) -> Caller:
        """Who a verified token speaks for. A claim that is missing or of another shape grants nothing."""
        held = _claim(claims, self.roles_claim)
        words = held.split() if isinstance(held, str) else held if isinstance(held, list) else []
        grants = merged(self.roles[word] for word in words if isinstance(word, str) and word in self.roles)
        name = _claim(claims, self.name_claim)
        return Caller(name[:255] if isinstance(name, str) and name else str(claims.get("sub", ""))[:255], grants)


def _claim(claims: Mapping[str, Any], path: str) -> Any:
    if path in claims:  # a URL as a name, as some issuers ask for, holds dots too
        return claims[path]
    found: Any = claims
    for step in path.split("."):
        found = found.get(step) if isinstance(found, Mapping) else None
    return found


class AccessFile(_Entry):
    """The access file: tokens of this service, and issuers whose tokens it takes."""

    tokens: list[TokenEntry] = []
    issuers: list[Issuer] = []

    @model_validator(mode="after")
    def _check(self) -> Self:
        for what, keys in (
            ("tokens: the name", [token.name for token in self.tokens]),
            ("tokens: the hash of", [token.sha256 for token in self.tokens]),
            ("issuers: the issuer", [issuer.issuer for issuer in self.issuers]),
        ):
            if twice := next((key for key in keys if keys.count(key) > 1), None):
                raise ValueError(f"{what} {twice} stands more than once")
        return self
