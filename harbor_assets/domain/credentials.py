"""What looks like a credential: where only the name of a secret may stand, its value is refused and never repeated."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

NAME = re.compile(r"KEY|SECRET|TOKEN|PASSWORD|CREDENTIAL|AUTH", re.IGNORECASE)  # the bundle format's own test of a name

# How the keys of well-known services begin, so that one under a harmless name is seen too.
_KEY = re.compile(r"(sk|pk|rk)-|nvapi-|gh[pousr]_|github_pat_|hf_|glpat-|xox[abprs]-|AKIA[0-9A-Z]{12}|eyJ[\w-]{10,}\.")
# The same in the midst of a text ("Bearer …"), where only something as long as a real key counts.
_KEY_WITHIN = re.compile(rf"(?<![A-Za-z0-9])({_KEY.pattern})[\w-]{{16,}}")
# What an Authorization header holds, and an address with a password in it.
_AUTHORISATION = re.compile(r"\s*(Bearer|Basic)\s+\S+\s*$|[a-z][a-z0-9+.-]*://[^/\s:@]*:[^/\s@]+@", re.IGNORECASE)
_HARMLESS = re.compile(r"[+-]?[0-9.]+(e[+-]?[0-9]+)?|true|false|none|auto|", re.IGNORECASE)  # max_tokens: "4096"


def looks_like_key(text: str) -> bool:
    """True if `text` begins as the keys of well-known services do, has a whole one in it, or is what proves who calls:
    `Bearer ...`, `Basic ...`, `scheme://user:password@host`."""
    return any((_KEY.match(text), _KEY_WITHIN.search(text), _AUTHORISATION.match(text)))


def keys_in(value: Any, at: str) -> Iterator[str]:
    """The path of every text at any depth that is named like a credential and looks like a key. Other texts may well
    begin like one: the reference `sk-learn` is an answer."""
    for name, member in value.items() if isinstance(value, Mapping) else ():
        yield from keys_in(member, f"{at}.{name}")
        texts = member if isinstance(member, list) else [member]
        if NAME.search(name) and any(isinstance(text, str) and looks_like_key(text) for text in texts):
            yield f"{at}.{name}"
    for index, member in enumerate(value) if isinstance(value, list) else ():
        yield from keys_in(member, f"{at}.{index}")


def plaintext(arguments: Mapping[str, Any], at: str = "") -> Iterator[tuple[str, str]]:
    """(path, why) of every argument that holds what looks like a credential, at any depth; never its value."""
    for name, value in arguments.items():
        yield from _plaintext(str(name), value, f"{at}.{name}" if at else str(name))


def _plaintext(name: str, value: Any, at: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        yield from plaintext(value, at)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _plaintext(name, item, f"{at}.{index}")
    elif isinstance(value, str):
        if "${" in value:
            yield at, "takes no ${...}: nothing is filled in from the environment"
        elif looks_like_key(value):
            yield at, "looks like a key; secrets are named in spec.target.env_secrets, their values stay out"
        elif NAME.search(name) and not _HARMLESS.fullmatch(value):
            yield at, "is named like a credential; secrets are named in spec.target.env_secrets, their values stay out"
