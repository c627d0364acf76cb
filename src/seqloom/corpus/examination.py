"""What `seqloom data check` says of running text: how much there is, and how much of it a model knows. No torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from seqloom.corpus.plain import PlainTextSettings, read_lines
from seqloom.corpus.plain import describe as describe_text
from seqloom.text.counts import words_of
from seqloom.training.progress import Progress
from seqloom.vectors.settings import WordsSettings

FEWEST_WORDS = 5  # of a line that says something when it is in two texts

UnknownRate = Callable[[PlainTextSettings], tuple[int, int]]
"""A text -> unknown symbols, all symbols."""


def examine_texts(
    corpora: Mapping[str, PlainTextSettings],
    describe: Callable[[PlainTextSettings], str],
    unknown_rate: UnknownRate,
    say: Callable[[str], None] = lambda text: None,
    vocabulary: int | None = None,
) -> tuple[str, dict[str, Any]]:
    """How large each text is, what of it a vocabulary knows, and what of it is in the training text too.

    A file that cannot be read, or a line that is not UTF-8, raises an error with file and line.

    Args:
        corpora: texts by name; "train" is the one that is trained on, and comes first.
        describe: gives a text's short name for people.
        unknown_rate: counts the symbols that the vocabulary does not know.
        say: is called with what is being read.
        vocabulary: how many symbols there are, for programs.

    Returns:
        The findings for people, and for programs.
    """
    seen: set[int] = set()
    texts = []
    for name, corpus in corpora.items():
        say(f"reading {name} …")
        found = {"lines": 0, "lines_without_words": 0, "words": 0, "characters": 0}
        repeated = 0
        for line in read_lines(corpus):
            words = line.split()
            found["lines"] += 1
            found["lines_without_words"] += not words
            found["words"] += len(words)
            found["characters"] += len(" ".join(words)) + 1  # the end of a line counts as one
            if name == "train" and len(words) >= FEWEST_WORDS:
                seen.add(hash(line))
            repeated += hash(line) in seen
        unknown, symbols = unknown_rate(corpus)
        found |= {"symbols": symbols, "unknown_symbols": unknown}
        if name != "train":
            found["lines_also_in_train"] = repeated
        texts.append({"text": f"{name}: {describe(corpus)}", **found})
    return "\n\n".join(map(_rendered, texts)), {"vocabulary": vocabulary, "texts": texts}


def examine_words(corpus: PlainTextSettings, settings: WordsSettings) -> tuple[str, dict[str, Any]]:
    """How many lines, words and different words a text has, and how many words would get a vector.

    A file that cannot be read, or a line that is not UTF-8, raises an error with file and line.

    Returns:
        The findings for people, and for programs.
    """
    table, lines, empty = Counter[str](), 0, 0
    with Progress("reading") as bar:
        for line in read_lines(corpus):
            words = words_of(line, settings.split, settings.lowercase)
            lines, empty = lines + 1, empty + (not words)
            table.update(words)
            if lines % 10_000 == 0:
                bar.update(None, f"{lines:,} lines")
    kept = [number for number in table.values() if number >= settings.min_count]
    total = table.total()
    found = {
        "text": describe_text(corpus),
        "lines": lines,
        "lines_without_words": empty,
        "words": total,
        "different_words": len(table),
        "words_with_a_vector": min(len(kept), settings.max_words or len(kept)),
        "share_of_text_kept": round(sum(kept) / total, 4) if total else 0.0,
    }
    return _rendered(found), found


def _rendered(found: Mapping[str, Any]) -> str:
    width = max(map(len, found))
    rows = [f"{name.replace('_', ' '):<{width}}  {value:,}" for name, value in found.items() if name != "text"]
    return "\n".join([found["text"], *rows])
