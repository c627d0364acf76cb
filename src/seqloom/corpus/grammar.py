"""The embedded parallel corpus: a synchronous grammar that writes a sentence and its translation together.

A synchronous grammar has rules for two languages at once. `lexicon` holds its words, `phrases` the pieces of a sentence
with their links and their spelling, `rules` what can be said. This file makes a corpus of it: `generate` gives the
pairs of a split, always the same ones, and no pair belongs to two splits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator

from seqloom.corpus.examples import Pair
from seqloom.corpus.phrases import PHENOMENA, Phrase, finish
from seqloom.corpus.rules import Grammar
from seqloom.errors import UserError, one_of

DIRECTIONS = ("en-es", "en-fr")
SPLITS = ("train", "valid", "test", "long", "phenomena")

MAX_WORDS = 40
LONG_WORDS = 20
SIZES = {"train": 20_000, "valid": 500, "test": 1_000, "long": 300, "phenomena": 100 * len(PHENOMENA)}
SHARES = (("train", 70), ("valid", 7), ("test", 8), ("long", 8), ("phenomena", 7))  # of all sentences, in percent
FAMOUS = {"en-es": "the green witch arrived", "en-fr": "he hit me with a pie"}  # kept for the test split


def digest(text: str) -> int:
    """Eight bytes of a hash that is the same everywhere and forever."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def split_of(pair: Pair, direction: str) -> str:
    """The one split a pair may belong to. The target decides: two sources may share it, one source has only one."""
    if pair.source == FAMOUS[direction]:
        return "test"
    share = digest(pair.target) % 100
    for split, percent in SHARES:
        share -= percent
        if share < 0:
            return split
    raise AssertionError("the shares add up to 100")


def candidates(direction: str, seed: int, long: bool = False) -> Iterator[Pair]:
    """What the grammar says, endlessly, with repetitions and for all splits."""
    grammar = Grammar(direction, seed)
    rule: Callable[[], Phrase] = grammar.long_sentence if long else grammar.sentence
    while True:
        phrase = rule()
        if len(phrase.source) <= MAX_WORDS and len(phrase.target) <= MAX_WORDS:
            yield finish(phrase, grammar.language)


def generate(direction: str, split: str, size: int | None = None) -> Iterator[Pair]:
    """Pairs of a split, lazily: always the same ones in the same order, none twice, none in two splits.

    Args:
        direction: one of DIRECTIONS.
        split: "train", "valid" and "test" come from the same mixture; "long" holds coordinated sentences of 20 to 40
            words; "phenomena" holds equally many pairs for each tag of PHENOMENA (a pair may carry further tags).
        size: how many pairs; as many as you like of "train", by default SIZES.
    """
    if direction not in DIRECTIONS:
        raise UserError(one_of("data grammar", direction, DIRECTIONS))
    if split not in SPLITS:
        raise UserError(one_of("data split", split, SPLITS))
    return _generate(direction, split, SIZES[split] if size is None else size)


def _generate(direction: str, split: str, size: int) -> Iterator[Pair]:
    seed = digest(f"{direction} {split}")
    seen: set[int] = set()
    wanted = {tag: (size + rank) // len(PHENOMENA) for rank, tag in enumerate(PHENOMENA)}
    if split == "test" and size > 0:
        pair = finish(Grammar(direction, seed).famous(), direction.removeprefix("en-"))
        seen.add(digest(pair.source))
        yield pair
    for pair in candidates(direction, seed, long=split == "long"):
        if len(seen) >= size:
            return
        key = digest(pair.source)
        if split_of(pair, direction) != split or key in seen:
            continue
        if split == "long" and len(pair.source.split()) < LONG_WORDS:
            continue
        if split == "phenomena":
            tag = max(pair.tags, key=lambda tag: wanted[tag], default=None)
            if tag is None or not wanted[tag]:
                continue
            wanted[tag] -= 1
        seen.add(key)
        yield pair
