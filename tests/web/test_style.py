"""Colours that everybody can read, in light and in dark: the contrast that WCAG 2.2 AA asks for."""

import re

import pytest

from harbor_assets.domain.outcomes import Outcome
from harbor_assets.interfaces.web.site import script, style

SCHEMES = ("light", "dark")
TEXTS = ("ink", "soft", "link", "bar-out", *(outcome.value for outcome in Outcome))
GROUNDS = ("ground", "paper", "faint")


def colours(scheme: str) -> dict[str, str]:
    css = style()
    dark = "".join(re.findall(r"prefers-color-scheme: dark\) \{\s*:root \{(.*?)\}", css, re.DOTALL))
    light = "".join(re.findall(r"(?m)^:root \{(.*?)\}", css, re.DOTALL))
    found = dict(re.findall(r"--([\w-]+): (#[0-9a-f]+)", light))
    return found | (dict(re.findall(r"--([\w-]+): (#[0-9a-f]+)", dark)) if scheme == "dark" else {})


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[n : n + 2], 16) / 255 for n in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_the_measure_itself():
    assert contrast("#000", "#fff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("ground", GROUNDS)
def test_texts_can_be_read(scheme: str, ground: str):
    found = colours(scheme)
    poor = {text: round(contrast(found[text], found[ground]), 2) for text in TEXTS}
    assert {text: ratio for text, ratio in poor.items() if ratio < 4.5} == {}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_controls_can_be_seen(scheme: str):
    found = colours(scheme)
    for ground in ("ground", "paper"):
        assert contrast(found["control"], found[ground]) >= 3
        assert contrast(found["bar"], found[ground]) >= 3


def test_dark_is_another_set_of_colours():
    light, dark = colours("light"), colours("dark")
    assert light.keys() == dark.keys()
    assert not [name for name in light if light[name] == dark[name]]


def test_nothing_is_asked_of_foreign_hosts():
    for text in (style(), script()):
        assert "://" not in text
        assert "url(http" not in text
        assert "@import" not in text
