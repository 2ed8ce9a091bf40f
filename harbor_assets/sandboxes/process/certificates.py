"""Where the machine's clients find the certificate authorities they trust: a network with its own needs that inside."""

import os
from functools import lru_cache
from pathlib import Path

_NAMES = (
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "NODE_EXTRA_CA_CERTS",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
)


@lru_cache(maxsize=1)
def certificate_variables() -> dict[str, str]:
    """Those of the worker's variables that name certificates a task can see (below /etc or /usr). Nothing else of the
    worker's environment gets in: proxies and package indexes carry passwords."""
    found = {}
    for name in _NAMES:
        value = os.environ.get(name, "")
        path = Path(value)
        if value.startswith(("/etc/", "/usr/")) and path.exists() and path.resolve().parts[1] in ("etc", "usr"):
            found[name] = value
    return found
