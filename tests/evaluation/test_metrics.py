"""Scores agree with sacrebleu called directly, and say how they were counted."""

from __future__ import annotations

import numpy as np
import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st

from seqloom.errors import UserError
from seqloom.evaluation.error_rates import (
    character_error_rate,
    phone_error_rate,
    sequence_error_rate,
    word_error_rate,
)
from seqloom.evaluation.figures import METRICS
from seqloom.evaluation.metrics import (
    TEXT_METRICS,
    USUAL,
    corpus_scores,
    exact_match,
    looks_tokenized,
    rescored,
    signatures,
)

HYPOTHESES = ["The cat sat on the mat .", "a dog barks, loudly, at Night", "it's 3.5 percent"]
REFERENCES = ["the cat sat on a mat.", "A dog barks loudly at night", "it's 3.5 percent"]


def test_default_scores_equal_sacrebleu() -> None:
    scores = corpus_scores(HYPOTHESES, REFERENCES)
    assert list(scores) == ["bleu", "chrf", "ter", "exact_match"]
    assert scores["bleu"] == sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score
    assert scores["chrf"] == sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score
    assert scores["ter"] == sacrebleu.corpus_ter(HYPOTHESES, [REFERENCES]).score
    assert scores["exact_match"] == pytest.approx(100 / 3)


def test_options_reach_sacrebleu_and_change_the_score() -> None:
    plain = corpus_scores(HYPOTHESES, REFERENCES, ["bleu"])["bleu"]
    lower = corpus_scores(HYPOTHESES, REFERENCES, ["bleu"], lowercase=True)["bleu"]
    split = corpus_scores(HYPOTHESES, REFERENCES, ["bleu"], tokenized=True)["bleu"]
    assert lower == sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES], lowercase=True).score
    assert split == sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES], tokenize="none", force=True).score
    assert len({plain, lower, split}) == 3
    chrf = corpus_scores(HYPOTHESES, REFERENCES, ["chrf"], lowercase=True)["chrf"]
    assert chrf == sacrebleu.CHRF(lowercase=True).corpus_score(HYPOTHESES, [REFERENCES]).score
    assert chrf > corpus_scores(HYPOTHESES, REFERENCES, ["chrf"])["chrf"]


def test_signatures() -> None:
    found = signatures()
    assert set(found) == {"bleu", "chrf", "ter"}
    assert "tok:13a" in found["bleu"]
    assert "nrefs:1" in found["bleu"]
    assert f"version:{sacrebleu.__version__}" in found["chrf"]
    changed = signatures(["bleu"], lowercase=True, tokenized=True)["bleu"]
    assert "case:lc" in changed
    assert "tok:none" in changed


def test_exact_match_ignores_only_white_space() -> None:
    assert exact_match(["a  b ", "a b", "A b", "ab"], ["a b"] * 4) == 50.0
    assert exact_match(["a  b ", "a b", "A b", "ab"], ["a b"] * 4, lowercase=True) == 75.0


def test_perfect_answers_are_perfect_however_short() -> None:
    """Five pairs of three words: sacrebleu's default finds no 4-gram and says 0."""
    short = ["a b c", "d e f", "g h i", "j k l", "m n o"]
    assert sacrebleu.corpus_bleu(short, [short]).score == 0.0
    assert corpus_scores(short, short, ["bleu"])["bleu"] == pytest.approx(100.0)
    assert corpus_scores(["a c"], ["a b"], ["bleu"])["bleu"] < 100.0
    assert "eff:yes" in signatures(["bleu"])["bleu"]


words = st.sampled_from(["a", "b", "c", "d"])
sentences = st.lists(words, max_size=7).map(" ".join)


@given(st.lists(st.tuples(sentences, sentences), min_size=1, max_size=6))
def test_bleu_is_the_default_one_as_soon_as_an_answer_has_four_words(pairs: list[tuple[str, str]]) -> None:
    """So figures of corpora that were counted by the default stay comparable, to the last digit."""
    pairs = [("a b c a", "a b c d"), *pairs]
    ours, theirs = [list(side) for side in zip(*pairs, strict=True)]
    assert corpus_scores(ours, theirs, ["bleu"])["bleu"] == sacrebleu.corpus_bleu(ours, [theirs]).score


@given(st.lists(st.tuples(sentences, sentences), min_size=1, max_size=6), st.data())
def test_a_test_set_drawn_anew_has_the_scores_of_one_written_out(
    pairs: list[tuple[str, str]], data: st.DataObject
) -> None:
    times = data.draw(st.lists(st.integers(0, 3), min_size=len(pairs), max_size=len(pairs)).filter(any))
    ours, theirs = [list(side) for side in zip(*pairs, strict=True)]
    drawn = [pair for pair, count in zip(pairs, times, strict=True) for _ in range(count)]
    written = [list(side) for side in zip(*drawn, strict=True)]
    for name, score in corpus_scores(*written, TEXT_METRICS, lowercase=True).items():
        again = rescored(name, ours, theirs, lowercase=True)
        assert again(np.array(times, np.float64)) == pytest.approx(score), name


def test_unknown_metric_is_the_users_error() -> None:
    with pytest.raises(UserError, match=r"metric must be one of .*got 'blue' \(did you mean 'bleu'\?\)"):
        corpus_scores(["a"], ["a"], ["blue"])


@pytest.mark.parametrize(
    ("hypotheses", "references", "message"),
    [([], [], "empty"), (["a"], ["a", "b"], "1 hypotheses, 2 references"), ("ab", ["a", "b"], "got one text")],
)
def test_our_own_mistakes_fail_at_once(hypotheses: list[str], references: list[str], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        corpus_scores(hypotheses, references)


def test_every_metric_of_texts_is_known_and_computed() -> None:
    assert set(USUAL) < set(TEXT_METRICS) <= set(METRICS)
    for lowercase in (False, True):
        scores = corpus_scores(HYPOTHESES, REFERENCES, TEXT_METRICS, lowercase=lowercase)
        assert tuple(scores) == TEXT_METRICS
        for name, rate in {
            "word_error_rate": word_error_rate,
            "character_error_rate": character_error_rate,
            "phone_error_rate": phone_error_rate,
            "sequence_error_rate": sequence_error_rate,
        }.items():
            assert scores[name] == rate(HYPOTHESES, REFERENCES, lowercase=lowercase)
        assert scores["sequence_error_rate"] == pytest.approx(100 - scores["exact_match"])


def test_better_is_what_perfect_answers_have_more_or_less_of() -> None:
    perfect, wrong = (corpus_scores(some, REFERENCES, TEXT_METRICS) for some in (REFERENCES, HYPOTHESES))
    for name in TEXT_METRICS:
        assert METRICS[name].improves(perfect[name], wrong[name])
        assert not METRICS[name].improves(wrong[name], perfect[name])
        assert not METRICS[name].improves(wrong[name], wrong[name])
        assert METRICS[name].improves(wrong[name], None)


def test_tokenised_text_is_recognised_by_its_full_stops(capsys: pytest.CaptureFixture[str]) -> None:
    tokenised, natural = ["a cat .", "two dogs .", "a bird"], ["A cat.", "Two dogs.", "a bird ."]
    assert looks_tokenized(tokenised)
    assert not looks_tokenized(natural)
    assert not looks_tokenized([])
    corpus_scores(["a cat ."] * 200, ["a cat ."] * 200, ["bleu"])
    assert not capsys.readouterr().err, "sacrebleu's own advice would tear our progress lines apart"
