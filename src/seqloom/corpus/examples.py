"""What a corpus is made of, before any text is turned into numbers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from seqloom.errors import UserError
from seqloom.files import write_atomically


class TagsAndLabel(NamedTuple):
    """What one text is tagged with: a tag for each word, and a label of all of it."""

    tags: tuple[str, ...]
    label: str


class Pair(NamedTuple):
    """A source and its target: texts, or tuples of texts where an example is a sequence of words or of turns.

    `alignment` holds gold links (source word, target word), counted from 0 over `split_words`; `tags` names the
    phenomena the pair shows. Both are known only for corpora that carry them (the embedded grammar does).
    """

    source: Any
    target: Any
    alignment: tuple[tuple[int, int], ...] | None = None
    tags: tuple[str, ...] = ()


def paired(
    inputs: Any,
    targets: Any,
    is_input: Callable[[Any], bool],
    one_input: str = "a text",
    target_type: type = str,
    one_target: str = "a text",
) -> list[Pair]:
    """Inputs and targets that somebody holds in two lists."""
    for name, values in (("inputs", inputs), ("targets", targets)):
        if isinstance(values, str | bytes) or (not isinstance(values, Sequence) and not hasattr(values, "__array__")):
            raise UserError(f"{name} must be a list, with one entry for each example; got {type(values).__name__}")
    if len(inputs) != len(targets):
        raise UserError(
            f"there must be as many targets as inputs; got {len(inputs):,} inputs, {len(targets):,} targets"
        )
    for number, (given, target) in enumerate(zip(inputs, targets, strict=True), 1):
        if not is_input(given):
            raise UserError(f"input {number} must be {one_input}; got {given!r}")
        if not isinstance(target, target_type):
            raise UserError(f"target {number} must be {one_target}; got {target!r}")
    return [Pair(given, target) for given, target in zip(inputs, targets, strict=True)]


def write_pairs(folder: Path, pairs: Sequence[Pair]) -> Path:
    """Pairs as a JSONL file, named after what it holds, so that other pairs never take its place."""
    lines = (json.dumps({"source": one.source, "target": one.target}, ensure_ascii=False) for one in pairs)
    content = "".join(line + "\n" for line in lines).encode()
    path = folder.resolve() / f"pairs-{blake2b(content, digest_size=6).hexdigest()}.jsonl"
    write_atomically(path, content)
    return path
