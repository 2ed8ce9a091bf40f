"""The Porter stemmer, as ROUGE's common implementation uses it.

Source: M. Porter, "An algorithm for suffix stripping", Program 14.3 (1980), with the additions of NLTK's
`PorterStemmer` (irregular words, short `ies` and `ied`, `y` after a consonant, `alli`, `fulli`, `logi`), which are
in the published scores that ours are compared with. A test holds it to NLTK's own results.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import pairwise

_IRREGULAR = {
    "skies": "sky",
    "sky": "sky",
    "dying": "die",
    "lying": "lie",
    "tying": "tie",
    "news": "news",
    "innings": "inning",
    "inning": "inning",
    "outings": "outing",
    "outing": "outing",
    "cannings": "canning",
    "canning": "canning",
    "howe": "howe",
    "proceed": "proceed",
    "exceed": "exceed",
    "succeed": "succeed",
}
# Suffix -> what takes its place, where the stem before it has a measure above 0. The first that fits decides.
_STEP_2 = (
    ("ational", "ate"),
    ("tional", "tion"),
    ("enci", "ence"),
    ("anci", "ance"),
    ("izer", "ize"),
    ("bli", "ble"),
    ("alli", "al"),
    ("entli", "ent"),
    ("eli", "e"),
    ("ousli", "ous"),
    ("ization", "ize"),
    ("ation", "ate"),
    ("ator", "ate"),
    ("alism", "al"),
    ("iveness", "ive"),
    ("fulness", "ful"),
    ("ousness", "ous"),
    ("aliti", "al"),
    ("iviti", "ive"),
    ("biliti", "ble"),
    ("fulli", "ful"),
)
_STEP_3 = (
    ("icate", "ic"),
    ("ative", ""),
    ("alize", "al"),
    ("iciti", "ic"),
    ("ical", "ic"),
    ("ful", ""),
    ("ness", ""),
)
_STEP_4 = (
    *("al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent"),
    *("ion", "ou", "ism", "ate", "iti", "ous", "ive", "ize"),
)


@lru_cache(maxsize=65536)  # texts repeat their words
def stem(word: str) -> str:
    """The stem of a word in lower case; words of one or two letters are their own."""
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if len(word) <= 2:
        return word
    word = _plural(word)
    word = _past(word)
    if word.endswith("y") and len(word) > 2 and _consonants(word[:-1])[-1]:
        word = word[:-1] + "i"
    word = _step_2(word)
    word = _replaced(word, _STEP_3, lambda found: _measure(found) > 0)
    word = _step_4(word)
    if word.endswith("e"):
        m = _measure(word[:-1])
        if m > 1 or (m == 1 and not _ends_cvc(word[:-1])):
            word = word[:-1]
    return word[:-1] if word.endswith("ll") and _measure(word[:-1]) > 1 else word


def _plural(word: str) -> str:
    if word.endswith("ies"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("sses"):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _past(word: str) -> str:
    if word.endswith("ied"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    suffix = next((s for s in ("ed", "ing") if word.endswith(s) and not all(_consonants(word[: -len(s)]))), None)
    if suffix is None:
        return word
    word = word[: -len(suffix)]
    if word.endswith(("at", "bl", "iz")):
        return word + "e"
    if len(word) >= 2 and word[-1] == word[-2] and _consonants(word)[-1]:
        return word if word[-1] in "lsz" else word[:-1]
    return word + "e" if _measure(word) == 1 and _ends_cvc(word) else word


def _step_2(word: str) -> str:
    if word.endswith("alli") and _measure(word[:-4]) > 0:
        return _step_2(word[:-2])
    if word.endswith("logi") and not word.endswith(tuple(suffix for suffix, _ in _STEP_2)):
        return word[:-1] if _measure(word[:-3]) > 0 else word  # the `l` counts with the stem, so that geo is one
    return _replaced(word, _STEP_2, lambda found: _measure(found) > 0)


def _step_4(word: str) -> str:
    def long(found: str) -> bool:
        return _measure(found) > 1 and (not word.endswith("ion") or found.endswith(("s", "t")))

    return _replaced(word, ((suffix, "") for suffix in _STEP_4), long)


def _replaced(word: str, rules: Iterable[tuple[str, str]], fits: Callable[[str], bool]) -> str:
    for suffix, instead in rules:
        if word.endswith(suffix):
            found = word[: -len(suffix)]
            return found + instead if fits(found) else word
    return word


def _consonants(word: str) -> list[bool]:
    """For each letter whether it is a consonant: `y` is one unless it follows one."""
    flags: list[bool] = []
    for letter in word:
        flags.append(not flags or not flags[-1] if letter == "y" else letter not in "aeiou")
    return flags


def _measure(word: str) -> int:
    """How often a vowel is followed by a consonant."""
    flags = _consonants(word)
    return sum(after and not before for before, after in pairwise(flags))


def _ends_cvc(word: str) -> bool:
    flags = _consonants(word)
    if len(word) == 2:
        return flags == [False, True]
    return len(word) >= 3 and flags[-3:] == [True, False, True] and word[-1] not in "wxy"
