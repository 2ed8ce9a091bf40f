"""Names of images as Docker reads them: `python:3.12` is `docker.io/library/python:3.12`. Pure.

Grammar: https://pkg.go.dev/github.com/distribution/reference
"""

import re
from typing import NamedTuple

HUB = "docker.io"
_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_DOMAIN = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9a-fA-F:]+\])(?::[0-9]+)?"
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"(?:(?P<domain>{_DOMAIN})/)?(?P<path>{_PART}(?:/{_PART})*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
_MAX = 1024  # characters quoted of a bad one are fewer, this only bounds the pattern's work


class Reference(NamedTuple):
    """An image's full name. With a digest the tag says nothing."""

    registry: str
    repository: str
    tag: str | None
    digest: str | None

    @property
    def name(self) -> str:
        """Registry and repository: what stands before `@`."""
        return f"{self.registry}/{self.repository}"

    @property
    def asked(self) -> str:
        """What to ask the registry for: the digest, else the tag."""
        return self.digest or self.tag or "latest"

    @property
    def familiar(self) -> str:
        """The name as docker shortens it: without what is the default (the Hub, `library/`, `latest`)."""
        path = self.name
        if self.registry == HUB:
            path = self.repository.removeprefix("library/") if self.repository.count("/") == 1 else self.repository
        tag = f":{self.tag}" if self.tag and self.tag != "latest" else ""
        return f"{path}{tag}@{self.digest}" if self.digest else f"{path}{tag}"

    def __str__(self) -> str:
        return f"{self.name}@{self.digest}" if self.digest else f"{self.name}:{self.asked}"


def parse(text: str) -> Reference:
    """Raises ValueError with the rule for what is no image's name."""
    match = _REFERENCE.fullmatch(text) if len(text) <= _MAX else None
    if match is None:
        raise ValueError(f"{text[:200]!r} is no image's name; write registry/repository:tag, in lower case")
    domain, path = match["domain"], match["path"]
    if domain and not (set(".:") & set(domain) or domain == "localhost" or domain != domain.lower()):
        domain, path = None, f"{domain}/{path}"  # `org/name` is a repository of the Hub
    if domain in (None, "index.docker.io", HUB):
        domain = HUB
        path = path if "/" in path else f"library/{path}"
    return Reference(domain, path, match["tag"], match["digest"])
