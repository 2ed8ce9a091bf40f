"""Signed tokens, made here as an issuer makes them, with keys from a file and over HTTP."""

import base64
import hmac
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from harbor_assets.access import signed
from harbor_assets.access.signed import SignedTokens
from harbor_assets.domain.access import Caller, Issuer, Role
from harbor_assets.domain.errors import ServiceUnavailable, Unauthenticated

RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())
OTHER = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def jwk(key: Any, kid: str) -> dict[str, Any]:
    algorithm = (
        jwt.algorithms.ECAlgorithm if isinstance(key, ec.EllipticCurvePrivateKey) else jwt.algorithms.RSAAlgorithm
    )
    return {**json.loads(algorithm.to_jwk(key.public_key())), "kid": kid, "use": "sig"}


KEYS = {"keys": [jwk(RSA, "rsa"), jwk(EC, "ec")]}


def token(key: Any = RSA, alg: str = "RS256", kid: str | None = "rsa", **claims: Any) -> str:
    given = {"iss": "https://i", "aud": "us", "sub": "ann", "exp": time.time() + 60, "groups": ["team"], **claims}
    headers = {"kid": kid} if kid else {}
    return jwt.encode({k: v for k, v in given.items() if v is not None}, key, alg, headers=headers)


def issuers(place: str) -> dict[str, Issuer]:
    made = Issuer(issuer="https://i", audience="us", jwks=place, roles={"team": {"a": Role.WRITER}})
    return {made.issuer: made}


@pytest.fixture
def known(tmp_path: Path) -> dict[str, Issuer]:
    (tmp_path / "keys.json").write_text(json.dumps(KEYS))
    return issuers(str(tmp_path / "keys.json"))


@pytest.mark.parametrize(("key", "alg", "kid"), [(RSA, "RS256", "rsa"), (EC, "ES256", "ec")])
def test_a_good_token_speaks_for_its_subject(known: dict[str, Issuer], key: Any, alg: str, kid: str):
    assert SignedTokens().authenticate(token(key, alg, kid), known) == Caller("ann", {"a": Role.WRITER})


def unsigned(header: dict[str, Any], signature: bytes = b"") -> str:
    parts = [header, {"iss": "https://i", "aud": "us", "sub": "ann", "exp": time.time() + 60, "groups": ["team"]}]
    body = b".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts)
    return (body + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")).decode()


def confused() -> str:
    """Signed by HMAC with the public key as the secret: what a library without an algorithm list accepts."""
    head = unsigned({"alg": "HS256", "kid": "rsa"}).rpartition(".")[0]
    secret = json.dumps(KEYS["keys"][0]).encode()
    return f"{head}." + base64.urlsafe_b64encode(hmac.digest(secret, head.encode(), "sha256")).rstrip(b"=").decode()


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (token(OTHER), "InvalidSignature"),
        (token(exp=time.time() - 60), "expired"),
        (token(exp=None), "MissingRequiredClaim"),
        (token(sub=None), "MissingRequiredClaim"),
        (token(aud="others"), "another audience"),
        (token(aud=None), "MissingRequiredClaim|audience"),
        (token(nbf=time.time() + 600), "ImmatureSignature"),
        (token(iss="https://evil"), "issuer is not known"),
        (token(iss=None), "issuer is not known"),
        (token(kid="unknown"), "does not name"),
        (token(kid=None), "does not name"),
        (token(alg="RS512"), "InvalidAlgorithm|InvalidSignature"),
        (unsigned({"alg": "none", "kid": "rsa"}), "not accepted"),
        (unsigned({"alg": "RS256", "kid": "rsa"}), "not accepted"),
        (unsigned({"alg": "RS256", "kid": ["rsa"]}), "."),
        (confused(), "not accepted"),
        ("a.b.c", "no signed token"),
        ("", "no signed token"),
        ("x" * 20_000, "not known"),
    ],
)
def test_everything_else_is_not_accepted(known: dict[str, Issuer], bad: str, says: str):
    with pytest.raises(Unauthenticated, match=says):
        SignedTokens().authenticate(bad, known)


def test_a_symmetric_key_in_the_set_signs_nothing(tmp_path: Path):
    secret = base64.urlsafe_b64encode(b"s" * 32).rstrip(b"=").decode()
    (tmp_path / "k").write_text(json.dumps({"keys": [{"kty": "oct", "k": secret, "kid": "s", "alg": "HS256"}]}))
    with pytest.raises(Unauthenticated):
        SignedTokens().authenticate(token(b"s" * 32, "HS256", "s"), issuers(str(tmp_path / "k")))


def test_without_issuers_no_signed_token_is_accepted():
    with pytest.raises(Unauthenticated):
        SignedTokens().authenticate(token(), {})


class KeyHost:
    """An issuer's keys over HTTP; counts how often it is asked."""

    def __init__(self) -> None:
        self.answer: bytes | None = json.dumps(KEYS).encode()
        self.asked = 0
        host = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                host.asked += 1
                self.send_response(200 if host.answer is not None else 503)
                self.end_headers()
                self.wfile.write(host.answer or b"")

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/keys"


@pytest.fixture
def host() -> Iterator[KeyHost]:
    made = KeyHost()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


def test_keys_are_asked_for_once_and_made_up_names_are_no_flood(host: KeyHost):
    tokens, known = SignedTokens(), issuers(host.url)
    for _ in range(3):
        assert tokens.authenticate(token(), known).name == "ann"
    for n in range(5):
        with pytest.raises(Unauthenticated):
            tokens.authenticate(token(kid=f"made-up-{n}"), known)
    assert host.asked == 1


def test_a_new_key_is_found_and_a_host_that_is_away_locks_nobody_out(host: KeyHost, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(signed, "AGAIN_SECONDS", -1.0)
    tokens, known = SignedTokens(), issuers(host.url)
    tokens.authenticate(token(), known)
    host.answer = json.dumps({"keys": [*KEYS["keys"], jwk(OTHER, "new")]}).encode()
    assert tokens.authenticate(token(OTHER, kid="new"), known).name == "ann"
    monkeypatch.setattr(signed, "KEYS_SECONDS", -1.0)
    host.answer = None
    assert tokens.authenticate(token(), known).name == "ann"
    host.answer = json.dumps({"keys": [jwk(EC, "ec")]}).encode()  # withdrawn
    with pytest.raises(Unauthenticated, match="does not name"):
        tokens.authenticate(token(), known)


@pytest.mark.parametrize(
    "answer", [None, b"<html>", b"[]", b"{}", b'{"keys": []}', b'{"keys": [{"kty": "RSA"}]}', b"x" * 2_000_000]
)
def test_keys_that_cannot_be_had_are_told_as_that(host: KeyHost, answer: bytes | None):
    host.answer = answer
    with pytest.raises(ServiceUnavailable, match="cannot be had now"):
        SignedTokens().authenticate(token(), issuers(host.url))
