"""URLs as they may be shown: without what could be a password."""

import re

_SECRET_PARAMETER = re.compile(r"pass|secret|token|key|sig|cred|auth", re.IGNORECASE)


def mask_url(text: str) -> str:
    """`text` with what could be a password in a URL replaced by `***`; rather too much than too little."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        return text
    address, question, query = rest.partition("?")
    user, at, host = address.rpartition("@")
    if at:
        address = f"{user.partition(':')[0]}:***@{host}" if ":" in user else f"{user}@{host}"
    if question:
        query = "&".join(
            f"{part.partition('=')[0]}=***" if _SECRET_PARAMETER.search(part.partition("=")[0]) else part
            for part in query.split("&")
        )
    return f"{scheme}://{address}{question}{query}"
