"""Language models that are counted, not fitted: from running text to a folder of n-grams. Nothing here needs torch."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import seqloom
from seqloom.batches.shards import TokenSequences
from seqloom.corpus.plain import describe
from seqloom.files import folder_written_aside
from seqloom.folders import FORMAT
from seqloom.ngrams.building import build_ngrams
from seqloom.ngrams.model import NGramModel
from seqloom.text.special import EOS_ID
from seqloom.training.journal import Journal
from seqloom.training.progress import Progress, duration, say

BLOCK = 1 << 20


def train_ngrams(recipe: Any, run: Path, task: Any) -> None:
    """Count, smooth, save."""
    lines, valid = task.encode(recipe.data.train), task.encode(recipe.data.valid)
    say(f"{len(lines.tokens):,} symbols in {len(lines):,} lines, vocabulary {len(task.tokenizer):,}")
    journal = Journal(run / "journal.jsonl", 0)
    journal.write("start", symbols=len(lines.tokens), vocabulary=len(task.tokenizer))
    began = time.monotonic()
    with Progress("counting") as bar:
        model = build_ngrams(blocks_of(lines, task.verbatim), recipe.model, len(task.tokenizer), bar.update)
    seconds = time.monotonic() - began
    report = task.report(
        "valid",
        -float(sum(model.score(block).sum() for block in blocks_of(valid, False))),
        valid,
        task.size(recipe.data.valid),
        "sentences",
    )
    metrics = {name: round(value, 5) for name, value in report.metrics().items()}
    journal.write("validation", **metrics, seconds=round(seconds, 2), best=True, samples=[])
    journal.write("end", seconds=round(seconds, 2), ngrams=model.num_ngrams())
    journal.close()
    _save(run / "model", recipe, task, model, report.perplexity)
    counts = ", ".join(f"{count:,}" for count in model.num_ngrams())
    say(f"counted in {duration(seconds)}: {counts} n-grams of order 1 to {model.order}")
    for order in model.degenerate_orders:
        say(f"order {order}: the text is too small to tell how much to discount; a fixed discount was used")
    say(f"valid perplexity {report.perplexity:.2f}, {report.bits_per_character:.3f} bits a character")


def blocks_of(lines: TokenSequences, whole: bool) -> Iterator[np.ndarray]:
    """The text a million symbols at a time, each block a few whole lines; `whole`: all in one, and an end after it."""
    if whole:
        yield np.append(lines.tokens[0 : len(lines.tokens)].astype(np.int64), EOS_ID)
        return
    first = 0
    while first < len(lines):
        offsets = lines.offsets[first : first + BLOCK + 1]
        count = max(1, int(np.searchsorted(offsets, offsets[0] + BLOCK, "right")) - 1)
        yield lines.tokens[int(offsets[0]) : int(offsets[count])]
        first += count


def _save(folder: Path, recipe: Any, task: Any, model: NGramModel, perplexity: float) -> None:
    config = {
        "format": FORMAT,
        "seqloom": seqloom.__version__,
        "task": recipe.task,
        "model": recipe.model.model_dump(mode="json"),
        "decoding": recipe.decoding.model_dump(mode="json"),
        "symbols": task.symbols(),
        "batching": "sentences",
    }
    with folder_written_aside(folder) as aside:
        task.save(aside)
        model.save(aside)
        (aside / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
        (aside / "README.md").write_text(_card(recipe, task, model, perplexity), encoding="utf-8")


def _card(recipe: Any, task: Any, model: NGramModel, perplexity: float) -> str:
    return f"""# {recipe.description or "A seqloom model"}

| | |
|---|---|
| task | {recipe.task} |
| model | {recipe.model.kind}, order {model.order}, {recipe.model.smoothing}, {sum(model.num_ngrams()):,} n-grams |
| counted on | {describe(recipe.data.train)} |
| validation | perplexity {perplexity:.4g} on {describe(recipe.data.valid)} |
| vocabulary | {task.describe_vocabulary()} ({recipe.text.tokenizer}) |
| made with | seqloom {seqloom.__version__}, {time.strftime("%Y-%m-%d")} |

It knows the text above and nothing else: expect it to fail on other kinds of text.

```
seqloom generate . --prompt "some text"
```
"""
