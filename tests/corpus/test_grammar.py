"""The embedded grammar: what its sentences promise, checked from the outside."""

from __future__ import annotations

import functools
import itertools
import re
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.corpus import grammar, lexicon
from seqloom.corpus.examples import Pair
from seqloom.corpus.grammar import DIRECTIONS, PHENOMENA, SIZES, SPLITS, generate
from seqloom.corpus.phrases import Phrase, Word, finish, inverted, spell_target, straight
from seqloom.errors import UserError

UNITS = re.compile(r"(?<!\w)(?:[cdjlmnst]|qu)['’](?=\w)|(?<=\w)['’]\w+|\w+|[^\w\s]", re.IGNORECASE)
FRENCH_VOWELS = "aeiouyâàéèêîïôûœ"


@functools.cache
def split_words(text: str) -> list[str]:
    return UNITS.findall(text)


@pytest.fixture(scope="module")
def corpora() -> dict[str, dict[str, list[Pair]]]:
    return {direction: {split: list(generate(direction, split)) for split in SPLITS} for direction in DIRECTIONS}


@pytest.fixture(scope="module", params=DIRECTIONS)
def direction(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def corpus(direction: str, corpora: dict[str, dict[str, list[Pair]]]) -> dict[str, list[Pair]]:
    return corpora[direction]


@pytest.fixture(scope="module")
def pairs(corpus: dict[str, list[Pair]]) -> list[Pair]:
    return [pair for split in SPLITS for pair in corpus[split]]


def test_the_green_witch_arrives(corpora: dict[str, dict[str, list[Pair]]]) -> None:
    pair = next(pair for pair in corpora["en-es"]["test"] if pair.source == "the green witch arrived")
    assert pair.target == "llegó la bruja verde"
    assert pair.alignment == ((0, 1), (1, 3), (2, 2), (3, 0))
    assert pair.tags == ("reordering", "verb_first")


def test_he_hit_me_with_a_pie(corpora: dict[str, dict[str, list[Pair]]]) -> None:
    pair = next(pair for pair in corpora["en-fr"]["test"] if pair.source == "he hit me with a pie")
    assert pair.target == "il m'a entarté"
    # he-il, hit-a (the auxiliary), hit-entarté, me-m', and with, a, pie all in entarté
    assert pair.alignment == ((0, 0), (1, 2), (1, 3), (2, 1), (3, 3), (4, 3), (5, 3))
    assert pair.tags == ("clitic",)


def test_famous_pairs_stay_in_the_test_split(direction: str, corpus: dict[str, list[Pair]]) -> None:
    famous = corpus["test"][0]
    assert famous.source == grammar.FAMOUS[direction]
    for split in set(SPLITS) - {"test"}:
        assert grammar.split_of(famous, direction) != split
        assert all(pair.source != famous.source and pair.target != famous.target for pair in corpus[split])


def test_sizes_and_length(corpus: dict[str, list[Pair]]) -> None:
    assert {split: len(pairs) for split, pairs in corpus.items()} == SIZES
    lengths = [len(split_words(pair.source)) for pair in corpus["train"]]
    assert 8.5 < sum(lengths) / len(lengths) < 10.5
    assert sum(3 <= length <= 15 for length in lengths) > 0.8 * len(lengths)
    assert max(lengths) > 30  # the long split is beyond the usual, but not beyond the possible
    for pair in itertools.chain.from_iterable(corpus.values()):
        assert 2 <= len(split_words(pair.source)) <= 40
        assert 1 <= len(split_words(pair.target)) <= 40


def test_long_sentences_are_long_and_coordinated(corpus: dict[str, list[Pair]]) -> None:
    for pair in corpus["long"]:
        assert 20 <= len(split_words(pair.source)) <= 40
        assert "coordination" in pair.tags


def test_same_pairs_in_another_process(direction: str, corpus: dict[str, list[Pair]]) -> None:
    """A fresh interpreter with another hash seed says the same sentences in the same order."""
    code = f"from seqloom.corpus.grammar import generate\nfor p in generate({direction!r}, 'valid', 50): print(repr(p))"
    run = subprocess.run(
        [sys.executable, "-X", "utf8", "-c", code],
        capture_output=True,
        encoding="utf-8",
        check=True,
        env={"PYTHONHASHSEED": "7", "PYTHONPATH": ":".join(sys.path)},
    )
    assert run.stdout.splitlines() == [repr(pair) for pair in corpus["valid"][:50]]


def test_a_smaller_corpus_is_the_beginning_of_a_larger_one(direction: str, corpus: dict[str, list[Pair]]) -> None:
    assert list(generate(direction, "train", 300)) == corpus["train"][:300]
    assert list(generate(direction, "test", 0)) == []


def test_no_duplicates_and_no_overlap(direction: str, corpus: dict[str, list[Pair]]) -> None:
    larger = dict(corpus, train=list(generate(direction, "train", 40_000)))
    for split in SPLITS:
        assert len({pair.source for pair in larger[split]}) == len(larger[split])
    for first, second in itertools.combinations(SPLITS, 2):
        assert not {pair.source for pair in larger[first]} & {pair.source for pair in larger[second]}
        assert not {pair.target for pair in larger[first]} & {pair.target for pair in larger[second]}


def test_one_source_one_translation(direction: str) -> None:
    """Over what the grammar says before duplicates are dropped: repeated sources must repeat target and alignment."""
    seen: dict[str, Pair] = {}
    repeated = 0
    for pair in itertools.islice(grammar.candidates(direction, seed=1), 50_000):
        known = seen.setdefault(pair.source, pair)
        repeated += known is not pair
        assert (known.target, known.alignment, known.tags) == (pair.target, pair.alignment, pair.tags)
    assert repeated > 500  # otherwise this test would prove nothing


def test_vocabulary(corpus: dict[str, list[Pair]]) -> None:
    for side in ("source", "target"):
        counts = Counter(word for pair in corpus["train"] for word in split_words(getattr(pair, side)))
        assert len(counts) >= 400
        rare = {word: count for word, count in counts.items() if count < 10}
        assert not rare


def test_surface_form(pairs: list[Pair]) -> None:
    for pair in pairs:
        for text in (pair.source, pair.target):
            assert text == text.lower().strip()
            assert re.fullmatch(r"[\w ,']+", text), text
            assert "  " not in text
            assert " ," not in text
            assert " '" not in text
            assert "' " not in text
            assert not re.search(r",(?! )", text)
        assert not re.search(r"\ba [aeiou]|\ban [^aeiou]", pair.source), pair.source


def test_alignments(direction: str, pairs: list[Pair]) -> None:
    """In range, sorted, no English word left out, and no target word but the Spanish personal "a"."""
    free = {"a"} if direction == "en-es" else set()
    for pair in pairs:
        source, target = split_words(pair.source), split_words(pair.target)
        assert pair.alignment is not None
        assert list(pair.alignment) == sorted(set(pair.alignment))
        assert {i for i, _ in pair.alignment} == set(range(len(source))), pair
        linked = {j for _, j in pair.alignment}
        assert linked <= set(range(len(target)))
        assert {target[j] for j in set(range(len(target))) - linked} <= free, pair


def test_nouns_are_linked_to_their_translation(direction: str, pairs: list[Pair]) -> None:
    """An independent look at the links: a noun that the lexicon knows is linked to its own translation."""
    language = direction[3:]
    nouns = [lexicon.read_noun(cells, language) for cells in lexicon.rows(lexicon.NOUNS)]
    translation = {noun.source[n]: noun.target[n] for noun in nouns for n in (0, 1)}
    checked = 0
    for pair in pairs:
        source, target = split_words(pair.source), split_words(pair.target)
        for i, word in enumerate(source):
            if word in translation and word != "pie":
                assert translation[word] in {target[j] for k, j in pair.alignment or () if k == i}, (word, pair)
                checked += 1
    assert checked > 10_000


@functools.cache
def inflected_adjectives(direction: str) -> set[str]:
    adjectives = [lexicon.read_adjective(cells, direction[3:]) for cells in lexicon.rows(lexicon.ADJECTIVES)]
    return {form for adjective in adjectives for form in adjective.target[1:] if form != adjective.target[0]}


def surface_shows(tag: str, direction: str, pair: Pair) -> bool:
    """Whether the texts alone show the phenomenon."""
    source, target = split_words(pair.source), split_words(pair.target)
    links = pair.alignment or ()
    if tag in ("reordering", "verb_first"):
        return any(i < k and j > m for i, j in links for k, m in links)
    if tag == "agreement":
        participle = direction == "en-fr" and re.search(r"[uiét](e|s|es)\b", pair.target)
        return bool(inflected_adjectives(direction) & set(target)) or bool(participle)
    if tag == "clitic":
        pronouns = {"me", "you", "him", "her", "us", "them"} & set(source)
        forms = "me te lo la le nos los les" if direction == "en-es" else "me m' te t' le la l' lui nous les leur"
        return bool(pronouns) and bool(set(forms.split()) & set(target))
    if tag == "negation":
        negated = (
            {"no"} <= set(target) if direction == "en-es" else "pas" in target and bool({"ne", "n'"} & set(target))
        )
        return bool({"not", "cannot"} & set(source)) and negated
    if tag == "relative":
        return bool({"who", "that", "where"} & set(source)) and bool({"que", "qu'", "qui", "donde", "où"} & set(target))
    assert tag == "coordination"
    return bool({"and", "but"} & set(source)) and bool({"y", "pero", "et", "mais"} & set(target))


def test_phenomena(direction: str, corpus: dict[str, list[Pair]]) -> None:
    for tag in PHENOMENA:
        showing = [pair for pair in corpus["phenomena"] if tag in pair.tags]
        assert len(showing) >= 100
        for pair in showing:
            assert surface_shows(tag, direction, pair), (tag, pair)
    for pair in corpus["train"]:  # and nothing that shows them goes without the tag
        for tag in ("negation", "coordination"):
            assert (tag in pair.tags) == surface_shows(tag, direction, pair), (tag, pair)


def noun_genders(language: str) -> dict[str, tuple[bool, bool]]:
    nouns = [lexicon.read_noun(cells, language) for cells in lexicon.rows(lexicon.NOUNS)]
    return {
        form: (noun.feminine, plural)
        for noun in nouns
        for form, plural in zip(noun.target, (False, noun.countable), strict=True)
        if noun.target[0] != noun.target[1] or not noun.countable
    }


ARTICLES = {
    "en-es": {"el": (False, False), "la": (True, False), "los": (False, True), "las": (True, True)}
    | {"un": (False, False), "una": (True, False), "del": (False, False), "al": (False, False)}
    | {"este": (False, False), "esta": (True, False), "estos": (False, True), "estas": (True, True)}
    | {"muchos": (False, True), "muchas": (True, True), "nuestra": (True, False), "nuestros": (False, True)},
    "en-fr": {"le": (False, False), "la": (True, False), "un": (False, False), "une": (True, False)}
    | {"du": (False, False), "au": (False, False), "cette": (True, False), "ce": (False, False), "cet": (False, False)}
    | {"ma": (True, False), "ta": (True, False), "sa": (True, False)},
}


def test_articles_agree_with_their_nouns(direction: str, pairs: list[Pair]) -> None:
    genders = noun_genders(direction[3:])
    checked = 0
    for pair in pairs:
        for article, noun in itertools.pairwise(split_words(pair.target)):
            if article in ARTICLES[direction] and noun in genders:
                assert genders[noun] == ARTICLES[direction][article], pair
                checked += 1
    assert checked > 10_000


def test_adjectives_agree_with_their_nouns(direction: str, pairs: list[Pair]) -> None:
    """A noun beside an adjective: the adjective has the form for the noun's gender and number."""
    genders = noun_genders(direction[3:])
    adjectives = [lexicon.read_adjective(cells, direction[3:]) for cells in lexicon.rows(lexicon.ADJECTIVES)]
    forms: dict[str, set[tuple[bool, bool]]] = {}
    for adjective in adjectives:
        if adjective.source == "clean":
            continue  # limpia is a verb, too
        for index, form in enumerate(adjective.target):
            forms.setdefault(form, set()).add((index % 2 == 1, index > 1))
    checked = 0
    for pair in pairs:
        if "verb_first" in pair.tags or "coordination" in pair.tags:
            continue  # there a noun may stand beside another's adjective
        for noun, adjective_form in itertools.pairwise(split_words(pair.target)):
            if noun in genders and adjective_form in forms:
                assert genders[noun] in forms[adjective_form], pair
                checked += 1
    assert checked > 2_000


def test_french_spelling(corpora: dict[str, dict[str, list[Pair]]]) -> None:
    for pair in itertools.chain.from_iterable(corpora["en-fr"].values()):
        assert not re.search(rf"\b(le|la|ne|me|te|de|je|que|ce|ma|ta|sa) [{FRENCH_VOWELS}]", pair.target), pair
        assert not re.search(r"\b(le|la|de|ce|ma|sa) (homme|hôpital|horloge|histoire)\b", pair.target), pair
        assert not re.search(r"\b(nouveau|beau) (homme|hôpital|étudiant|ami|âne)\b", pair.target), pair
        assert not re.search(r"\b(de|à) les?\b", pair.target), pair
        assert not re.search(r"(l'|d'|cet )hibou", pair.target), pair
        assert not re.search(r"['](?![aeiouyhâàéèêîïôûœ])", pair.target), pair


def test_spanish_spelling(corpora: dict[str, dict[str, list[Pair]]]) -> None:
    for pair in itertools.chain.from_iterable(corpora["en-es"].values()):
        assert not re.search(r"\b(de|a) el\b", pair.target), pair
        assert not re.search(r"\by h?i", pair.target), pair


def test_french_participles_agree_with_the_subject_of_etre(corpora: dict[str, dict[str, list[Pair]]]) -> None:
    checked = 0
    for pair in itertools.chain.from_iterable(corpora["en-fr"].values()):
        for subject, participle in re.findall(r"\b(elle|il|ils) (?:est|sont) (\w+é\w*)\b", pair.target):
            if re.fullmatch(r"(arriv|entr|tomb|all)é\w*", participle):
                assert participle.endswith({"elle": "ée", "il": "é", "ils": "és"}[subject]), pair
                checked += 1
    assert checked > 50


@pytest.mark.parametrize(
    ("words", "spelled"),
    [
        ("le homme", "l' homme"),
        ("de le homme", "de l' homme"),
        ("de le roi", "du roi"),
        ("à les amis", "aux amis"),
        ("le hibou", "le hibou"),
        ("sa amie", "son amie"),
        ("je ne ai pas", "je n' ai pas"),
    ],
)
def test_spelling_keeps_links(words: str, spelled: str) -> None:
    english = [Word(str(position)) for position in range(len(words.split()))]
    result = spell_target([(text, (word,)) for text, word in zip(words.split(), english, strict=True)], "fr")
    assert [text for text, _ in result] == spelled.split()
    assert sorted(word.text for _, links in result for word in links) == [word.text for word in english]


@st.composite
def phrases(draw: st.DrawFn) -> Phrase:
    source = tuple(Word(text) for text in draw(st.lists(st.sampled_from("bcdfgkp"), max_size=4)))
    linked = st.lists(st.sampled_from(source), max_size=3, unique_by=id) if source else st.just([])
    target = draw(st.lists(st.tuples(st.sampled_from("stvwxz"), linked.map(tuple)), max_size=4))
    return Phrase(source, tuple(target))


def links_of(phrase: Phrase) -> set[tuple[int, int]]:
    return set(finish(phrase, "es").alignment or ())


@given(phrases(), phrases())
def test_combinators_shift_links(first: Phrase, second: Phrase) -> None:
    a, b = links_of(first), links_of(second)
    rows, columns, later_columns = len(first.source), len(first.target), len(second.target)
    assert links_of(straight(first, second)) == a | {(i + rows, j + columns) for i, j in b}
    assert links_of(inverted(first, second)) == {(i, j + later_columns) for i, j in a} | {(i + rows, j) for i, j in b}
    assert inverted(first, second).source == first.source + second.source
    assert inverted(first, second).target == second.target + first.target


def test_errors_name_the_choices() -> None:
    with pytest.raises(UserError, match=r"data grammar must be one of en-es, en-fr; got 'en-ed' .did you mean"):
        generate("en-ed", "train")
    with pytest.raises(UserError, match=r"data split must be one of .*; got 'tets' .did you mean 'test'"):
        generate("en-es", "tets")
