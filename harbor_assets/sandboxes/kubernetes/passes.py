"""What a sandbox shows the egress proxy: its hosts, signed by the worker. Pure.

A pass is `<claims>.<signature>`, both base64url; claims are JSON, the signature is HMAC-SHA256 over them with a secret
that worker and proxy share and no sandbox sees. It holds for one pod's address, one port (so one phase), and until it
ends; a sandbox can show it but cannot write another.
"""

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from harbor_assets.domain.outcomes import Frozen

SECRET_MIN = 16  # bytes: below that a secret can be guessed


class Pass(Frozen):
    """`hosts` as in a profile; `address` of the pod; `port` of the proxy; `expires` in seconds since 1970."""

    sandbox: str
    hosts: tuple[str, ...]
    address: str
    port: int
    expires: int


def sign(secret: bytes, claims: Pass) -> str:
    """The pass as text. Raises ValueError for a secret too short to be one."""
    if len(secret) < SECRET_MIN:
        raise ValueError(f"the egress secret has {len(secret)} bytes; it needs at least {SECRET_MIN}")
    body = _encode(json.dumps(claims.model_dump(mode="json"), separators=(",", ":"), sort_keys=True).encode())
    return f"{body}.{_signature(secret, body)}"


def verify(secret: bytes, text: str) -> Pass | None:
    """The claims of a pass that was signed with the secret; None for any other text."""
    body, _, signature = text.partition(".")
    if not hmac.compare_digest(signature.encode(), _signature(secret, body).encode()):
        return None
    try:
        return Pass.model_validate_json(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    except (ValueError, ValidationError):
        return None


def variables(text: str, address: str, port: int) -> Mapping[str, str]:
    """The environment variables by which programs find the proxy. Both cases: curl reads one, others the other."""
    url = f"http://sandbox:{text}@{address}:{port}"
    found: dict[str, Any] = {}
    for name, value in (("http_proxy", url), ("https_proxy", url), ("no_proxy", "localhost,127.0.0.1,::1")):
        found[name] = found[name.upper()] = value
    return found


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _signature(secret: bytes, body: str) -> str:
    return _encode(hmac.new(secret, body.encode(), hashlib.sha256).digest())
