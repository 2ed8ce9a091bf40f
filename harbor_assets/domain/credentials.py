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
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
# Harbor's test of a variable's name: what such a one holds is scrubbed from the trial's files, and nothing else is.
_SCRUBBED = re.compile(r"KEY|SECRET|TOKEN(?!S)|PASSWORD|CREDENTIAL|AUTH", re.IGNORECASE)
_FLAG = re.compile(r"\s*(true|false|yes|no|1|0)\s*", re.IGNORECASE)  # Harbor scrubs these nowhere
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


def reference(value: str) -> str | None:
    """The NAME of a value that is exactly `${NAME}`; None for any other."""
    match = _REFERENCE.fullmatch(value)
    return match[1] if match else None


def variable_problem(name: str, value: str) -> str | None:
    """Why an agent's variable may not have this value, which is not repeated; None if it may. Reads on from its name.

    A value is a text, or exactly `${NAME}`: what NAME holds where trials run. A secret comes in as such a reference
    only, and under a name that Harbor scrubs from the trial's files.
    """
    named = reference(value)
    how = f"write '{name}=${{NAME}}' in single quotes, where NAME is a variable that trials are given"
    if "\0" in value:
        return "holds a NUL, which no variable can"
    if named is not None:
        if _SCRUBBED.search(named) and not _SCRUBBED.search(name):
            return (
                f"takes {named}, which is named like a credential; name it like one too (as {named}), so that its "
                "value is kept out of the results"
            )
        return None
    if "${" in value:
        return "holds ${ beside other text; only a value that is exactly ${NAME} is filled in, where trials run"
    if looks_like_key(value):
        return f"looks like a key; keys are never given as text: {how}"
    if _SCRUBBED.search(name) and not value:
        return f"is empty; is the variable set that was meant to hold it? A key is never given as text: {how}"
    if _SCRUBBED.search(name) and not _FLAG.fullmatch(value):
        return f"is named like a credential, and those are never given as text: {how}"
    return None


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
