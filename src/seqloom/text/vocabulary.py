"""Tokens <-> ids, for data that is already cut into tokens (tags, labels, word vectors)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from seqloom.errors import UserError
from seqloom.text.special import SPECIAL, UNK_ID


class Vocabulary:
    """An immutable table whose first ids are the reserved symbols.

    Looked up by token, as text is: `vocabulary["cat"]`, `"cat" in vocabulary`. A reserved symbol that is written in a
    text is an unknown word like any other, so data can never produce padding or an end; code uses the constants of
    `special.py`. Iteration gives all tokens in the order of their ids, the reserved ones first.
    """

    __slots__ = ("_ids", "_tokens")

    def __init__(self, tokens: Iterable[str]) -> None:
        """Take the tokens after the reserved symbols, in the order of their ids."""
        self._tokens = (*SPECIAL, *tokens)
        self._ids = {token: index for index, token in enumerate(self._tokens) if index >= len(SPECIAL)}
        if len(self._ids) + len(SPECIAL) != len(self._tokens):
            twice = next(token for index, token in enumerate(self._tokens) if self._ids.get(token, index) != index)
            raise UserError(f"a vocabulary holds each token once; {twice!r} is there twice")
        if not self._ids.keys().isdisjoint(SPECIAL):
            raise UserError(f"{', '.join(SPECIAL)} are reserved and always there; leave them out of the tokens")

    @classmethod
    def build(cls, counts: Mapping[str, int], *, size: int | None = None, min_frequency: int = 1) -> Vocabulary:
        """Keep the most frequent tokens; those of one count are in the order of their characters.

        Args:
            counts: how often each token occurs; a token that reads like a reserved symbol is left out.
            size: the most tokens to have, the reserved ones included; None keeps all.
            min_frequency: leave out what is rarer than this.
        """
        if size is not None and size <= len(SPECIAL):
            raise UserError(
                f"a vocabulary of size {size} has no room: {len(SPECIAL)} ids are reserved; "
                f"make the size {len(SPECIAL) + 1} or more"
            )
        if min_frequency < 1:
            raise UserError(f"min_frequency must be 1 or more; got {min_frequency}")
        kept = [token for token, count in counts.items() if count >= min_frequency and token not in SPECIAL]
        if not kept:
            remedy = f"; none occurs {min_frequency} times, lower min_frequency" if counts else ": the data is empty"
            raise UserError(f"there is no token to build a vocabulary from{remedy}")
        kept.sort(key=lambda token: (-counts[token], token))
        return cls(kept if size is None else kept[: size - len(SPECIAL)])

    def ids(self, tokens: Iterable[str]) -> list[int]:
        """The id of each token, the unknown id for those that are not in the table."""
        return [self._ids.get(token, UNK_ID) for token in tokens]

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """The token of each id."""
        found = []
        for index in ids:
            if not 0 <= index < len(self._tokens):
                raise UserError(f"there is no token {index}; this vocabulary has ids 0 to {len(self) - 1}")
            found.append(self._tokens[index])
        return found

    def unknown_share(self, counts: Mapping[str, int]) -> float:
        """The part, from 0 to 1, of all counted occurrences that are not in the table."""
        total = sum(counts.values())
        unknown = sum(count for token, count in counts.items() if token not in self._ids)
        return unknown / total if total else 0.0

    def __getitem__(self, token: str) -> int:
        return self._ids.get(token, UNK_ID)

    def __contains__(self, token: object) -> bool:
        return token in self._ids

    def __iter__(self) -> Iterator[str]:
        return iter(self._tokens)

    def __len__(self) -> int:
        return len(self._tokens)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self._tokens == other._tokens

    def __hash__(self) -> int:
        return hash(self._tokens)

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} tokens)"
