"""Text of strangers, made fit to be shown: cut, and with nothing in it that a terminal or a page would act on."""

QUOTE_MAX = 200  # characters of a file that an error message may carry


def visible(text: str) -> str:
    """`text` with every control, format and unpaired surrogate character written as its escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def quoted(text: str, limit: int = QUOTE_MAX) -> str:
    """`text` in single quotes, escaped and cut to `limit` characters; the cut says how much there was."""
    shown = visible(text[:limit])
    if len(text) <= limit and len(shown) <= limit:
        return f"'{shown}'"
    return f"'{shown[:limit]}…' (cut, {len(text)} characters)"


def whole(text: str) -> str:
    """`text` with every unpaired surrogate, as names that are not UTF-8 leave them, replaced by `?`."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


FIGURE_MAX = 1e6  # from here on a figure with places would be wider than what it says


def figure(value: float) -> str:
    """A score as a person reads it: four places, more where they would turn what is no pass, or not zero, into one that
    is; very large ones as a power of ten."""
    if abs(value) >= FIGURE_MAX:
        return f"{value:.6g}"
    shown = f"{value:.4f}"
    return repr(value) if float(shown) != value and abs(float(shown)) in (0.0, 1.0) else shown
