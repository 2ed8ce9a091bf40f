"""The token that a service may ask for: read from a file or the environment, sent as a header, shown nowhere."""

import os
import re

from harbor_assets.domain.errors import Refused

TOKEN_MAX = 16 * 1024  # bytes; a signed token with many claims has a few thousand
_TOKEN = re.compile(r"[\x21-\x7e]+")  # what a header can carry, as the setting `token`


def read_token(path: str | os.PathLike[str]) -> str:
    """The token in a file, without the line end. Raises `Refused` if there is none that could be sent."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 it may be a pipe: <(pass show lab)
            data = file.read(TOKEN_MAX + 1)
    except OSError as error:
        raise Refused(f"The token file {os.fspath(path)} cannot be read: {error.strerror}") from None
    if len(data) > TOKEN_MAX:
        raise Refused(f"The token file {os.fspath(path)} has more than {TOKEN_MAX} bytes; is it the right file?")
    return check_token(data.decode("ascii", errors="replace").strip(), f"The token in {os.fspath(path)}")


def check_token(token: str, what: str) -> str:
    """`token` if a header can carry it. Raises `Refused`, which names `what` it is and never repeats it."""
    if not _TOKEN.fullmatch(token):
        fault = "is empty" if not token else "must be printable ASCII without spaces"
        raise Refused(f"{what} {fault}; it is not sent")
    return token
