"""Signed tokens (JWT, RFC 7519) of known issuers: signature, issuer, audience and times are verified, then the claims
are read. Keys come from a file or a URL, are kept, and are asked for again when a token names one that is not known."""

import json
import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harbor_assets.domain.access import Caller, Issuer
from harbor_assets.domain.errors import ServiceUnavailable, Unauthenticated

if TYPE_CHECKING:
    from jwt import PyJWK

KEYS_SECONDS: Final = 600.0  # how long keys are used before they are looked up again: a withdrawn one is out by then
AGAIN_SECONDS: Final = 10.0  # between two look-ups: made-up key names must not become a flood at the issuer
FETCH_SECONDS: Final = 5.0
LEEWAY_SECONDS: Final = 30.0  # two machines' clocks
_TOKEN_MAX: Final = 16 * 1024  # characters; the largest with a few hundred groups
_KEYS_MAX: Final = 1024 * 1024
log = logging.getLogger(__name__)


class SignedTokens:
    """Verifies signed tokens. Usable from several threads."""

    def __init__(self) -> None:
        self._sets: dict[str, _KeySet] = {}
        self._making = threading.Lock()

    def authenticate(self, token: str, issuers: Mapping[str, Issuer]) -> Caller:
        """Who the token speaks for. Raises `Unauthenticated`, or `ServiceUnavailable` if the issuer's keys are away."""
        import jwt

        if not issuers or len(token) > _TOKEN_MAX:
            raise Unauthenticated("This token is not known here; ask the service's admin for one")
        try:
            header = jwt.get_unverified_header(token)
            # Only to find whose keys to take; it is verified below with everything else.
            named = jwt.decode(token, options={"verify_signature": False}).get("iss")
        except jwt.PyJWTError:
            raise Unauthenticated("This token is not known here, and no signed token either") from None
        issuer = issuers.get(named) if isinstance(named, str) else None
        if issuer is None:
            raise Unauthenticated("The token's issuer is not known here")
        key = self._key(issuer, header.get("kid"))
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=issuer.algorithms,
                audience=issuer.audience,
                issuer=issuer.issuer,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        except jwt.ExpiredSignatureError:
            raise Unauthenticated("The token has expired; get another from its issuer") from None
        except jwt.InvalidAudienceError:
            raise Unauthenticated("The token is for another audience than this service") from None
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise Unauthenticated(f"The token is not accepted ({type(error).__name__})") from None
        return issuer.caller(claims)

    def _key(self, issuer: Issuer, kid: Any) -> "PyJWK":
        with self._making:
            keys = self._sets.setdefault(issuer.jwks, _KeySet(issuer.jwks))
        found = keys.find(kid if isinstance(kid, str) else None)
        if found is None or found.algorithm_name not in issuer.algorithms:  # never by a symmetric key in a public set
            raise Unauthenticated("The token is signed with a key that its issuer does not name")
        return found


@dataclass(slots=True)
class _KeySet:
    """The keys at one place, by their names."""

    place: str
    _keys: "dict[str | None, PyJWK]" = field(default_factory=dict)
    _asked_at: float = float("-inf")
    _got_at: float = float("-inf")
    _asking: threading.Lock = field(default_factory=threading.Lock)

    def find(self, kid: str | None) -> "PyJWK | None":
        """The key of that name; without a name the only one there is. Raises `ServiceUnavailable` if there are none."""
        if self._due(kid):
            with self._asking:
                if self._due(kid):
                    self._ask()
        if not self._keys:
            raise ServiceUnavailable("The keys of the token's issuer cannot be had now; the service's log says why")
        if kid is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(kid)

    def _due(self, kid: str | None) -> bool:
        now = time.monotonic()
        wanted = now - self._got_at > KEYS_SECONDS or (kid is not None and kid not in self._keys)
        return wanted and now - self._asked_at > AGAIN_SECONDS

    def _ask(self) -> None:
        import httpx
        import jwt

        self._asked_at = time.monotonic()
        try:
            keys = jwt.PyJWKSet.from_dict(json.loads(self._read())).keys
        except (OSError, httpx.HTTPError, ValueError, TypeError, AttributeError, jwt.PyJWTError) as error:
            # What is known stays good: an issuer that is away for a while must not lock everybody out.
            log.error("the keys at %s cannot be had: %s: %s", self.place, type(error).__name__, error)  # noqa: TRY400
            return
        self._keys = {key.key_id: key for key in keys if key.public_key_use in (None, "sig")}
        self._got_at = self._asked_at

    def _read(self) -> bytes:
        if "://" not in self.place:
            with Path(self.place).open("rb") as file:
                return file.read(_KEYS_MAX)
        import httpx

        with (
            httpx.Client(timeout=FETCH_SECONDS, follow_redirects=False) as client,
            client.stream("GET", self.place) as answer,
        ):
            answer.raise_for_status()
            data = bytearray()
            for piece in answer.iter_bytes():
                data += piece
                if len(data) > _KEYS_MAX:
                    raise ValueError(f"above {_KEYS_MAX} bytes")
            return bytes(data)
