"""Texts whose every word is unknown: a model answers them too, with something that has nothing to do with them."""

from __future__ import annotations

from collections.abc import Sequence

from seqloom.text.special import UNK_ID
from seqloom.text.tokenizers import SPACE, Tokenizer
from seqloom.text.words import split_words

MOST_NAMED = 8


def warnings_about(text: str, tokenizer: Tokenizer) -> list[str]:
    """What somebody should know before believing an answer to this text: that no word of it is known."""
    if UNK_ID not in tokenizer.encode(text):
        return []
    words, unknown = _words(text, tokenizer)
    if len(unknown) < len(words):
        return []
    return all_unknown(unknown, _words(text.lower(), tokenizer)[1])


def all_unknown(unknown: Sequence[str], still: Sequence[str]) -> list[str]:
    """The warning about words of which none is known; `still` are those that are not known in lower case either."""
    if not unknown:
        return []
    several = len(unknown) > 1
    named = ", ".join(map(repr, unknown[:MOST_NAMED])) + (" …" if len(unknown) > MOST_NAMED else "")
    said = f"the model knows none of the words {named}" if several else f"the model does not know the word {named}"
    if len(still) < len(unknown):
        known = "all of them" if not still else f"{len(unknown) - len(still)} of them"
        said += f"; in lower case it knows {known if several else 'it'}"
    return [said]


def _words(text: str, tokenizer: Tokenizer) -> tuple[Sequence[str], Sequence[str]]:
    """The words of a text, without marks where there is anything else, and those without any symbol that is known."""
    words, found = split_words(text), tokenizer.encode_detailed(text)
    known = {
        word
        for word, index, piece in zip(found.words, found.ids, found.pieces, strict=True)
        if index != UNK_ID and piece.strip(SPACE)
    }
    counted = [number for number, word in enumerate(words) if any(map(str.isalnum, word))] or range(len(words))
    return [words[n] for n in counted], [words[n] for n in counted if n not in known]
