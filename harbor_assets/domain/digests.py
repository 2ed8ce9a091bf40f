"""Content digests: canonical JSON and SHA-256. The rules are the API's (see docs/decisions.md, "Digests")."""

import hashlib
import json
from typing import Any


def canonical_json(value: Any) -> bytes:
    """Keys sorted, no spaces, non-ASCII escaped, UTF-8; NaN and infinities are refused with ValueError."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def digest_of(value: Any) -> str:
    """64 lower-case hexadecimal characters: SHA-256 of the canonical JSON of `value`."""
    return hashlib.sha256(canonical_json(value)).hexdigest()
