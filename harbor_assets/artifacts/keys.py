"""Keys: relative POSIX paths that mean one object in every store, and never a place outside it."""

import unicodedata

from harbor_assets.domain.errors import Refused

SEGMENT_MAX_BYTES = 255  # a file name on Linux
KEY_MAX_BYTES = 1024  # an object's name on S3 and Google Cloud Storage; Azure takes as many characters
INCOMING = ".incoming-"  # what is being written; no object's key begins with it
_SHOWN = 200


def segment_problem(segment: str) -> str | None:
    """Why one segment of a path cannot stand in a key, or None."""
    if segment in ("", ".", ".."):
        return "has an empty, '.' or '..' segment"
    if "/" in segment or "\\" in segment or any(ord(c) < 32 or 127 <= ord(c) < 160 for c in segment):
        return "holds a slash, a backslash or a control character"
    try:
        size = len(segment.encode())
    except UnicodeEncodeError:  # a file name that is not UTF-8, as Python hands it over
        return "is not UTF-8"
    if size > SEGMENT_MAX_BYTES:
        return f"has a segment of {size} bytes, at most {SEGMENT_MAX_BYTES} are allowed"
    if not unicodedata.is_normalized("NFC", segment):
        return "is not in Unicode's normal form C: two ways to write one name would be two objects"
    return None


def key_problem(key: str) -> str | None:
    """Why `key` cannot name an object, or None."""
    if not key:
        return "is empty"
    if key.startswith("/"):
        return "is not relative"
    if key.startswith(INCOMING):
        return f"begins with {INCOMING!r}, which is what unfinished writes are called"
    if problem := next(filter(None, map(segment_problem, key.split("/"))), None):
        return problem
    if (size := len(key.encode())) > KEY_MAX_BYTES:
        return f"has {size} bytes, at most {KEY_MAX_BYTES} are allowed"
    return None


def check_key(key: str) -> str:
    """`key`, if it can name an object; else raises `Refused`."""
    if problem := key_problem(key):
        raise Refused(f"the artifact key {key[:_SHOWN]!r} {problem}")
    return key
