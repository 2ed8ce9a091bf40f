"""The formulas, held to the results of their common implementations: rouge-score 0.1.2, sacrebleu 2.6.0, NLTK 3.10."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbor_assets.domain.metrics import overlap
from harbor_assets.domain.metrics.porter import stem

# (reference, candidate, ROUGE-1, -2, -3, -L, BLEU)
PUBLISHED = [
    ("The cat sat on the mat.", "The cats were sitting on a mat", 8 / 13, 2 / 11, 0.0, 8 / 13, 8.643019616),
    (
        "Paris is the capital of France",
        "The capital city of France is Paris",
        12 / 13,
        4 / 11,
        0.0,
        8 / 13,
        16.51582159,
    ),
    (
        "A price of $3.50, up 10-15%, isn't bad",
        "price of $3.50 up 10-15% is not bad",
        *(0.761904761905, 0.631578947368, 0.588235294118, 0.761904761905),
        46.154154653,
    ),
    ("running runners ran easily", "runners run easily", 0.857142857143, 0.0, 0.0, 0.571428571429, 24.840753131),
    ("x", "", 0.0, 0.0, 0.0, 0.0, 0.0),
    ("", "", 0.0, 0.0, 0.0, 0.0, 0.0),
]
STEMS = dict(
    pair.split(":")
    for pair in (
        "caresses:caress ponies:poni ties:tie cats:cat feed:feed agreed:agre plastered:plaster motoring:motor "
        "sing:sing conflated:conflat troubled:troubl sized:size hopping:hop falling:fall hissing:hiss failing:fail "
        "filing:file happy:happi sky:sky enjoy:enjoy relational:relat conditional:condit rational:ration "
        "valenci:valenc radically:radic geology:geolog hopefully:hope electrical:electr goodness:good revival:reviv "
        "allowance:allow adoption:adopt homologous:homolog probate:probat rate:rate cease:ceas controlling:control "
        "roll:roll dying:die skies:sky news:news died:die spied:spi flies:fli dies:die yyyyyy:yyyyyi "
        "generalizations:gener oscillators:oscil of:of "
    ).split()
)


@pytest.mark.parametrize("row", PUBLISHED, ids=[row[1][:12] or repr(row[0]) for row in PUBLISHED])
def test_rouge_and_bleu_are_those_of_the_common_implementations(row):
    reference, candidate, one, two, three, longest, bleu = row
    for n, expected in enumerate((one, two, three), 1):
        assert overlap.rouge_n(reference, candidate, n) == pytest.approx(expected, abs=1e-11)
    assert overlap.rouge_l(reference, candidate) == pytest.approx(longest, abs=1e-11)
    assert overlap.sentence_bleu([reference], candidate) == pytest.approx(bleu, abs=1e-8)


def test_bleu_takes_the_best_of_several_references():
    references = ["the quick brown fox jumped over the lazy dog", "a fast brown fox jumps over a lazy dog"]
    found = overlap.sentence_bleu(references, "the fast brown fox jumps over the lazy dog")
    assert found == pytest.approx(74.767439061, abs=1e-8)


@pytest.mark.parametrize(("word", "expected"), STEMS.items())
def test_stems_are_those_of_the_common_implementation(word, expected):
    assert stem(word) == expected


@given(st.text(max_size=200), st.text(max_size=200))
def test_every_figure_stays_in_its_range(reference, candidate):
    assert overlap.exact_match(reference, candidate) in (0.0, 1.0)
    figures = [overlap.f1(reference, candidate), overlap.rouge_l(reference, candidate)]
    figures += [overlap.rouge_n(reference, candidate, n) for n in (1, 2, 3)]
    assert all(0.0 <= figure <= 1.0 for figure in figures)
    assert 0.0 <= overlap.sentence_bleu([reference], candidate) <= 100.0 + 1e-9


@given(st.lists(st.sampled_from("abcd"), max_size=12), st.lists(st.sampled_from("abcd"), max_size=12))
def test_the_longest_common_subsequence_is_that_of_the_textbook(one, other):
    table = [[0] * (len(other) + 1) for _ in range(len(one) + 1)]
    for i, a in enumerate(one):
        for j, b in enumerate(other):
            table[i + 1][j + 1] = table[i][j] + 1 if a == b else max(table[i][j + 1], table[i + 1][j])
    expected = 2 * table[-1][-1] / (len(one) + len(other)) if table[-1][-1] else 0.0
    assert overlap.rouge_l(" ".join(one), " ".join(other)) == pytest.approx(expected)


def test_exact_match_minds_neither_case_nor_articles_nor_punctuation():
    assert overlap.exact_match("The Eiffel Tower", "eiffel  tower!") == 1.0
    assert overlap.exact_match("Paris", "Paris, France") == 0.0


def test_f1_of_words():
    assert overlap.f1("the capital is Paris", "Paris") == pytest.approx(0.5)
    assert overlap.f1("", "") == 1.0
    assert overlap.f1("a", "word") == 0.0
