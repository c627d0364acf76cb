"""Words and their vectors, once they exist: looking up, comparing, solving analogies, keeping in a folder."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from seqloom.errors import UserError, one_of
from seqloom.vectors.keeping import load_parts, save_parts
from seqloom.vectors.settings import SubwordSettings
from seqloom.vectors.subwords import buckets_of

Method = Literal["add", "multiply"]

METHODS = ("add", "multiply")
EPSILON = 1e-3  # keeps 3CosMul's denominator from zero (Levy and Goldberg 2014b, equation 5)
QUESTIONS_AT_ONCE, WORDS_AT_ONCE = 256, 16_384  # so many similarities are held while questions are answered


class UnknownWord(UserError, KeyError):
    """A word that has no vector: a user's mistake, and what Python raises for a key that is not there."""

    __str__ = Exception.__str__


class Neighbour(NamedTuple):
    """A word and how similar it is: a cosine, or the score of 3CosMul."""

    word: str
    similarity: float


@dataclass(frozen=True, eq=False, repr=False)
class WordVectors:
    """One row of `matrix` for each word, the most frequent first where frequencies are known.

    With subwords `matrix` holds the finished vectors (the mean of a word's own row and its pieces' rows), `own` the
    words' own rows and `buckets` the pieces'. `output` holds the vectors of words as contexts. None of the arrays may
    be changed afterwards: what is computed from them is kept.
    """

    words: list[str]
    matrix: np.ndarray
    counts: np.ndarray | None = None
    subwords: SubwordSettings | None = None
    buckets: np.ndarray | None = None
    own: np.ndarray | None = None
    output: np.ndarray | None = None

    def __post_init__(self) -> None:
        assert self.matrix.ndim == 2, f"a matrix has two axes, got {self.matrix.shape}"
        rows, size = self.matrix.shape
        assert len(self.words) == rows, f"{len(self.words)} words, {rows} vectors"
        assert len(self.index) == rows, "every word has one vector"
        assert self.counts is None or self.counts.shape == (rows,), self.counts
        for array in (self.own, self.output):
            assert array is None or array.shape == (rows, size), array
        assert (self.subwords is None) == (self.buckets is None), "pieces need both their settings and their rows"
        if self.subwords is not None and self.buckets is not None:
            assert self.buckets.shape == (self.subwords.buckets, size), self.buckets.shape

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self.index

    def __repr__(self) -> str:
        return f"<word vectors: {len(self):,} words, {self.size} numbers each>"

    def __getitem__(self, words: str | Sequence[str]) -> np.ndarray:
        """The vector of a word (size,), or of several (words, size)."""
        return self.vector(words) if isinstance(words, str) else np.stack([self.vector(word) for word in words])

    @property
    def size(self) -> int:
        """Of a vector."""
        return int(self.matrix.shape[1])

    @cached_property
    def index(self) -> dict[str, int]:
        """Word -> its row."""
        return {word: row for row, word in enumerate(self.words)}

    @property
    def index_to_key(self) -> list[str]:
        """The words in the order of their rows, by the name that gensim has for it."""
        return self.words

    @property
    def key_to_index(self) -> dict[str, int]:
        """Word -> its row, by the name that gensim has for it."""
        return self.index

    @cached_property
    def unit(self) -> np.ndarray:
        """The vectors at length 1, so that their products are cosines; a zero vector stays zero."""
        return _normalised(self.matrix)

    @cached_property
    def lowercase(self) -> bool:
        """Whether no word has a capital letter: then other text is lower-cased before its words are looked up."""
        return all(word == word.lower() for word in self.words)

    def most_frequent(self, count: int) -> WordVectors:
        """The first so many words; pieces stay."""
        first = [None if a is None else a[:count] for a in (self.counts, self.own, self.output)]
        return WordVectors(self.words[:count], self.matrix[:count], first[0], self.subwords, self.buckets, *first[1:])

    # -- looking up ---------------------------------------------------------------------------------------------------

    def spelled(self, word: str) -> str:
        """A word as these words are spelled: lower-cased where they all are, its parts joined by _ where only that is
        known."""
        word = word.lower() if self.lowercase else word
        joined = word.replace(" ", "_")
        return joined if word not in self.index and joined in self.index else word

    def knows(self, word: str) -> bool:
        """Whether there is a vector for the word: its own, or one made of its pieces."""
        return word in self.index or (self.subwords is not None and len(buckets_of(word, self.subwords)) > 0)

    def vector(self, word: str) -> np.ndarray:
        """The vector of a word; an unknown word's is the mean of its pieces where there are any.

        Raises:
            UnknownWord: similar spellings are named.
        """
        row = self.index.get(word)
        if row is not None:
            return self.matrix[row]
        if self.subwords is not None and self.buckets is not None:
            rows = buckets_of(word, self.subwords)
            if len(rows):
                return self.buckets[rows].mean(0, dtype=np.float32)
        near = self.near_spellings(word)
        hint = f" (did you mean {' or '.join(map(repr, near))}?)" if near else ""
        raise UnknownWord(f"{word!r} is not among the {len(self):,} words that have a vector{hint}")

    def near_spellings(self, word: str, most: int = 3) -> list[str]:
        """Known words that differ in case, else a few that differ by a letter or two."""
        folded = word.casefold()
        cased = [known for known in {word.lower(), word.capitalize(), word.upper(), folded} if known in self.index]
        if cased:
            return sorted(cased)
        # Comparing spellings is slow: only frequent words of about this length with the same beginning or end are.
        close = [
            known
            for known in self.words[:100_000]
            if known
            and abs(len(known) - len(word)) <= 2
            and (known[0].casefold() == folded[:1] or known[-1].casefold() == folded[-1:])
        ]
        return difflib.get_close_matches(word, close[:20_000], n=most, cutoff=0.7)

    # -- comparing ----------------------------------------------------------------------------------------------------

    def similarity(self, first: str, second: str) -> float:
        """The cosine of two words' vectors."""
        one, two = _normalised(np.stack([self.vector(first), self.vector(second)]))
        return float(one @ two)

    def neighbours(
        self, word_or_vector: str | np.ndarray, count: int = 10, exclude: Iterable[str] | None = None
    ) -> list[Neighbour]:
        """The words with the most similar vectors, best first.

        Args:
            word_or_vector: A word, or any vector of the same size.
            count: How many.
            exclude: Words to leave out; when absent, the word itself.
        """
        if isinstance(word_or_vector, str):
            vector = self.vector(word_or_vector)
            exclude = (word_or_vector,) if exclude is None else exclude
        else:
            vector = np.asarray(word_or_vector, np.float32)
            self._must_fit(vector)
        return self._best(self.unit @ _normalised(vector[None])[0], count, exclude or ())

    def most_similar(
        self,
        positive: str | np.ndarray | Sequence[str | np.ndarray] = (),
        negative: str | np.ndarray | Sequence[str | np.ndarray] = (),
        topn: int = 10,
    ) -> list[Neighbour]:
        """The words nearest to some words' vectors minus others', each of length 1, as gensim has it (3CosAdd).

        Args:
            positive: words that are added, or vectors as they are.
            negative: words or vectors that are subtracted.
            topn: how many; words that were given are no answers.
        """
        added, subtracted = ([one] if isinstance(one, str | np.ndarray) else list(one) for one in (positive, negative))
        given = [*added, *subtracted]
        if not given:
            raise UserError("most_similar takes words: positive=['king', 'woman'], negative=['man']")
        vectors = [
            _normalised(self[[one]])[0] if isinstance(one, str) else np.asarray(one, np.float32) for one in given
        ]
        for vector in vectors:
            self._must_fit(vector)
        total = np.sum(vectors[: len(added)], 0) - np.sum(vectors[len(added) :], 0)
        return self.neighbours(total, topn, [one for one in given if isinstance(one, str)])

    def doesnt_match(self, words: Sequence[str]) -> str:
        """The word farthest from the mean of all of them."""
        if isinstance(words, str) or len(words) < 2:
            raise UserError(f"doesnt_match takes a list of words, two or more; got {words!r}")
        vectors = _normalised(self[words])
        return words[int((vectors @ vectors.mean(0)).argmin())]

    def analogy(self, a: str, b: str, c: str, count: int = 10, method: Method = "add") -> list[Neighbour]:
        """`a` is to `b` as `c` is to what? The three words themselves are no answers.

        Args:
            a: The word that is related to `b`.
            b: The word that is related to `a`.
            c: The word whose counterpart is asked for.
            count: How many answers.
            method: `add`: nearest to b - a + c, all of length 1 (3CosAdd, Mikolov et al. 2013); the similarity is the
                cosine. `multiply`: 3CosMul (Levy and Goldberg 2014b), in which no single similarity can outweigh the
                others; the similarity is its score.
        """
        if method not in METHODS:
            raise UserError(one_of("method", method, METHODS))
        three = _normalised(np.stack([self.vector(word) for word in (a, b, c)]))
        if method == "add":
            scores = self.unit @ _normalised((three[1] - three[0] + three[2])[None])[0]
        else:
            scores = _scores(_score_tables(three @ self.unit.T, method), 0, 1, 2, method)
        return self._best(scores, count, (a, b, c))

    def answer_analogies(
        self, questions: np.ndarray, methods: Sequence[Method] = ("add",), most_frequent: int | None = None
    ) -> dict[str, np.ndarray]:
        """Answer many questions at once.

        Args:
            questions: (questions, 3) rows of the words a, b, c.
            methods: As for `analogy`.
            most_frequent: Only the first so many words may be answers.

        Returns:
            For each method the rows of the best words, (questions,); -1 where no word is left to answer with.
        """
        unit = self.unit[:most_frequent]
        answers: dict[str, np.ndarray] = {method: np.full(len(questions), -1, np.int64) for method in methods}
        for start in range(0, len(questions), QUESTIONS_AT_ONCE):
            chunk = questions[start : start + QUESTIONS_AT_ONCE]
            # Neighbouring questions share most of their words: each word's similarities are computed once.
            asked, places = np.unique(chunk, return_inverse=True)
            triples: Any = np.asarray(places).reshape(chunk.shape).tolist()
            best = {method: [-np.inf] * len(chunk) for method in methods}
            for first in range(0, len(unit), WORDS_AT_ONCE):
                cosines = self.unit[asked] @ unit[first : first + WORDS_AT_ONCE].T  # (words asked about, words)
                for method in methods:
                    tables = _score_tables(cosines, method)
                    for number, (a, b, c) in enumerate(triples):
                        scores = _scores(tables, a, b, c, method)
                        for row in chunk[number].tolist():
                            if 0 <= row - first < len(scores):
                                scores[row - first] = -np.inf
                        place = int(scores.argmax())
                        if scores[place] > best[method][number]:
                            best[method][number] = float(scores[place])
                            answers[method][start + number] = first + place
        return answers

    def _must_fit(self, vector: np.ndarray) -> None:
        if vector.shape != (self.size,):
            raise UserError(f"the vectors have {self.size} numbers; this one has the shape {vector.shape}")

    def _best(self, scores: np.ndarray, count: int, exclude: Iterable[str]) -> list[Neighbour]:
        if count < 1:
            raise UserError(f"count must be at least 1; got {count}")
        banned = [self.index[word] for word in exclude if word in self.index]
        scores = scores.copy()
        scores[banned] = -np.inf
        count = min(count, len(scores) - len(set(banned)))
        if count < 1:
            return []
        last = np.partition(scores, len(scores) - count)[len(scores) - count]
        rows = np.flatnonzero(scores >= last)
        rows = rows[np.argsort(-scores[rows], kind="stable")][:count]  # of equal ones the more frequent word first
        return [Neighbour(self.words[row], float(scores[row])) for row in rows]

    # -- keeping ------------------------------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> None:
        """Write `vectors.safetensors` and `words.txt` into a folder."""
        arrays = {"vectors": self.matrix, "counts": self.counts, "buckets": self.buckets}
        arrays |= {"own": self.own, "output": self.output}
        save_parts(Path(folder), self.words, {k: v for k, v in arrays.items() if v is not None}, subwords=self.subwords)

    @classmethod
    def load(cls, folder: str | Path) -> WordVectors:
        """Read what `save` wrote. A damaged file is refused; no code of the folder is executed."""
        words, arrays, subwords = load_parts(Path(folder))
        return cls(
            words,
            arrays["vectors"],
            counts=arrays.get("counts"),
            subwords=subwords,
            buckets=arrays.get("buckets"),
            own=arrays.get("own"),
            output=arrays.get("output"),
        )


def _score_tables(cosines: np.ndarray, method: Method) -> tuple[np.ndarray, np.ndarray]:
    """(words asked about, words) cosines -> what is taken of b and c, and what of a.

    For 3CosMul both are shifted to 0…1 first (Levy and Goldberg 2014b, equation 5).
    """
    if method == "add":
        return cosines, cosines
    shifted = (cosines + 1) / 2
    return shifted, shifted + EPSILON


def _scores(tables: tuple[np.ndarray, np.ndarray], a: int, b: int, c: int, method: Method) -> np.ndarray:
    """(words,) how well each answers; a, b and c are rows of the tables."""
    gained, lost = tables
    return np.asarray(gained[b] - lost[a] + gained[c] if method == "add" else gained[b] * gained[c] / lost[a])


def _normalised(vectors: np.ndarray) -> np.ndarray:
    """(…, size) rows at length 1, float32; zero rows stay zero."""
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))[:, None]
    return (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32, copy=False)
