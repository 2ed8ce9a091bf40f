"""How much two texts have in common: exact match, F1, ROUGE and BLEU, each by its published formula."""

import math
import re
import string
from collections import Counter
from collections.abc import Iterator, Sequence

from harbor_assets.domain.metrics.porter import stem

BLEU_ORDER = 4
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_NOT_A_WORD = re.compile(r"[^a-z0-9]+")
# mteval-v13a's tokenisation, as BLEU's common implementation has it.
_ENTITIES = (("&quot;", '"'), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">"))
_SPLITS = (
    (re.compile(r"([\{-\~\[-\` -\&\(-\+\:-\@\/])"), r" \1 "),
    (re.compile(r"([^0-9])([\.,])"), r"\1 \2 "),
    (re.compile(r"([\.,])([^0-9])"), r" \1 \2"),
    (re.compile(r"([0-9])(-)"), r"\1 \2 "),
)


def normalised(text: str) -> str:
    """Lower case without punctuation, articles and spare blanks.

    Source: the evaluation script of SQuAD v1.1 (Rajpurkar et al., 2016), `normalize_answer`.
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(reference: str, candidate: str) -> float:
    """1.0 if both are equal once normalised, else 0.0."""
    return float(normalised(reference) == normalised(candidate))


def f1(reference: str, candidate: str) -> float:
    """The harmonic mean of precision and recall of normalised words, 0 to 1 (SQuAD v1.1, `f1_score`).

    Where one has no words at all: 1.0 if neither has, else 0.0.
    """
    wanted, given = normalised(reference).split(), normalised(candidate).split()
    if not wanted or not given:
        return float(wanted == given)
    return _f(_common(Counter(wanted), Counter(given)), len(wanted), len(given))


def rouge_n(reference: str, candidate: str, n: int) -> float:
    """The F measure of common n-grams of stemmed words, 0 to 1.

    Source: C.-Y. Lin, "ROUGE: A Package for Automatic Evaluation of Summaries", 2004, section 2; words of more than
    three letters are stemmed.
    """
    wanted, given = Counter(_grams(_words(reference), n)), Counter(_grams(_words(candidate), n))
    return _f(_common(wanted, given), wanted.total(), given.total())


def rouge_l(reference: str, candidate: str) -> float:
    """The F measure of the longest common subsequence of stemmed words, 0 to 1 (Lin 2004, section 3, beta = 1)."""
    wanted, given = _words(reference), _words(candidate)
    return _f(_longest_common_subsequence(wanted, given), len(wanted), len(given))


def sentence_bleu(references: Sequence[str], candidate: str) -> float:
    """BLEU of one sentence against one or more references, 0 to 100.

    Source: Papineni et al., "BLEU: a Method for Automatic Evaluation of Machine Translation", 2002, with what is usual
    for one sentence (Post, "A Call for Clarity in Reporting BLEU Scores", 2018): tokenisation 13a, only the orders that
    the candidate has n-grams of, and where none of an order is right, 1/2, 1/4, ... of one (Chen and Cherry 2014,
    method 3).
    """
    given = _tokens(candidate)
    wanted = [_tokens(reference) for reference in references]
    counts = [[Counter(_grams(tokens, n)) for tokens in wanted] for n in range(1, BLEU_ORDER + 1)]
    correct, of = [], []
    for n, per_reference in enumerate(counts, 1):
        grams, most = Counter(_grams(given, n)), Counter[tuple[str, ...]]()
        for one in per_reference:
            most |= one
        correct.append(_common(most, grams))
        of.append(grams.total())
    if not any(correct):
        return 0.0
    halved, logs = 1, []
    for right, all_given in zip(correct, of, strict=True):
        if not all_given:
            break
        if not right:
            halved *= 2
        logs.append(math.log((right or 1 / halved) / all_given))
    nearest = min((len(tokens) for tokens in wanted), key=lambda length: (abs(length - len(given)), length))
    brevity = min(0.0, 1 - nearest / len(given))
    return 100 * math.exp(brevity + math.fsum(logs) / len(logs))


def _f(common: int, wanted: int, given: int) -> float:
    """2PR / (P + R) of `common` things out of those wanted and those given, as one division."""
    return 2 * common / (wanted + given) if common else 0.0


def _common[T](one: Counter[T], other: Counter[T]) -> int:
    return (one & other).total()


def _grams(tokens: Sequence[str], n: int) -> Iterator[tuple[str, ...]]:
    return zip(*(tokens[at:] for at in range(n)), strict=False)


def _words(text: str) -> list[str]:
    return [stem(word) if len(word) > 3 else word for word in _NOT_A_WORD.sub(" ", text.lower()).split()]


def _tokens(text: str) -> list[str]:
    text = text.strip().replace("<skipped>", "").replace("-\n", "").replace("\n", " ")
    for entity, character in _ENTITIES:
        text = text.replace(entity, character)
    text = f" {text} "
    for pattern, instead in _SPLITS:
        text = pattern.sub(instead, text)
    return text.split()


def _longest_common_subsequence(one: Sequence[str], other: Sequence[str]) -> int:
    """Its length. Each row of the table is one big integer, a bit for each word of `one`: 20,000 words a side take a
    second, where a table of cells would take minutes.

    Source: Hyyro, "Bit-parallel LCS-length computation revisited", 2004.
    """
    where: dict[str, int] = {}
    for at, word in enumerate(one):
        where[word] = where.get(word, 0) | 1 << at
    full = (1 << len(one)) - 1
    row = full
    for word in other:
        matches = row & where.get(word, 0)
        row = ((row + matches) | (row - matches)) & full
    return len(one) - row.bit_count()
