"""The phrases of the embedded grammar: a piece of a sentence in two languages at once, and the spelling of both.

A `Phrase` holds English words, target words, and for every target word the English words it stands for. A target word
holds on to its English words themselves, not to their positions, so a rule may put the target words in any order, or
apart, and the gold word alignment is right by construction; positions are counted only once, when the sentence is
finished.

The rules write plain, unspelled forms ("de el castillo", "ne a pas"); the spelling of each language, contraction (del,
du, aux), elision (l', n', qu'), a/an, comes last, and merges the links of the words it merges.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from seqloom.corpus.examples import Pair

# What a phrase may be tagged with; `rules` says what each one means.
PHENOMENA = ("reordering", "verb_first", "agreement", "clitic", "negation", "relative", "coordination")


# Phrases -----------------------------------------------------------------------------------------------------------


class Word:
    """One English word. Its identity matters: target words point at it."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


Words = tuple[Word, ...]
Target = tuple[str, Words]  # a target word and the English words it stands for
NO_TAGS: frozenset[str] = frozenset()
TAGS = {tag: frozenset([tag]) for tag in PHENOMENA}


class Phrase(NamedTuple):
    """A piece of a sentence in both languages."""

    source: Words
    target: tuple[Target, ...]
    tags: frozenset[str] = NO_TAGS

    def tagged(self, tag: str) -> Phrase:
        return Phrase(self.source, self.target, self.tags | TAGS[tag])


EMPTY = Phrase((), ())


def lexical(source: str, target: str) -> Phrase:
    """A phrase taken from the lexicon: linked word by word, or as a whole when the numbers of words differ."""
    if " " not in source and " " not in target and source and target:  # the usual case, made fast
        word = (Word(source),)
        return Phrase(word, ((target, word),))
    words = tuple([Word(text) for text in source.split()])
    texts = target.split()
    if len(words) == len(texts):
        return Phrase(words, tuple([(text, (word,)) for text, word in zip(texts, words, strict=True)]))
    return Phrase(words, tuple([(text, words) for text in texts]))


def straight(*parts: Phrase) -> Phrase:
    """The parts in the same order in both languages."""
    source: Words = ()
    target: tuple[Target, ...] = ()
    tags = NO_TAGS
    for part in parts:
        source += part.source
        target += part.target
        tags |= part.tags
    return Phrase(source, target, tags)


def inverted(first: Phrase, second: Phrase) -> Phrase:
    """English says the first part first, the target language says it last."""
    return Phrase(first.source + second.source, second.target + first.target, first.tags | second.tags)


# Spelling ----------------------------------------------------------------------------------------------------------

CONTRACTIONS = {
    "es": {("de", "el"): "del", ("a", "el"): "al"},
    "fr": {("de", "le"): "du", ("de", "les"): "des", ("à", "le"): "au", ("à", "les"): "aux"},
}
ELISIONS = {word: word[:-1] + "'" for word in ("le", "la", "de", "ne", "me", "te", "je", "que")}
BEFORE_VOWEL = {"ce": "cet", "ma": "mon", "ta": "ton", "sa": "son"}
ADJECTIVE_BEFORE_VOWEL = {"vieux": "vieil", "beau": "bel", "nouveau": "nouvel"}
ASPIRATED = ("hibou",)


@cache
def starts_with_vowel(word: str) -> bool:
    """Whether a French word is heard to begin with a vowel: mute h counts, aspirated h does not."""
    return word[0] in "aeiouyhâàéèêîïôûœ" and not word.startswith(ASPIRATED)


def spell_target(words: Sequence[Target], language: str) -> list[Target]:
    """Contractions (del, al; du, des, au, aux), in French after elision, since "de l'homme" leaves none to make."""
    spelled: list[Target] = []
    following = ""
    for text, links in reversed(words):
        if language == "fr" and following and starts_with_vowel(following):
            text = ELISIONS.get(text) or BEFORE_VOWEL.get(text) or text
        contraction = CONTRACTIONS[language].get((text, following))
        if contraction:
            text, links = contraction, links + spelled.pop()[1]
        spelled.append((text, links))
        following = text
    spelled.reverse()
    return spelled


def spell_english(words: Words) -> list[str]:
    texts = [word.text for word in words]
    for position, text in enumerate(texts[:-1]):
        if text == "a" and texts[position + 1][0] in "aeiou":
            texts[position] = "an"
    return texts


def finish(phrase: Phrase, language: str) -> Pair:
    """Spell both sides and count the positions of the links."""
    source = spell_english(phrase.source)
    target = spell_target(phrase.target, language)
    position = {id(word): index for index, word in enumerate(phrase.source)}
    links = {(position[id(word)], index) for index, (_, words) in enumerate(target) for word in words}
    return Pair(
        source=" ".join(source).replace(" ,", ",").replace(" 's", "'s"),
        target=" ".join([text for text, _ in target]).replace(" ,", ",").replace("' ", "'"),
        alignment=tuple(sorted(links)),
        tags=tuple([tag for tag in PHENOMENA if tag in phrase.tags]),
    )
