"""Decoders, scores and orders side by side on the embedded corpus: quality, quality on long sentences, alignment error.

    python -m bench.attention [--quick] [--runs runs/attention]

Trains every recipe of `recipes/attention` (a finished run is not trained again), evaluates it on the test and the
long-sentence corpus, draws quality against length into docs/images/, and prints a table and one JSON object.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from seqloom.corpus.examples import Pair
from seqloom.corpus.readers import read_pairs
from seqloom.evaluation.report import by_length
from seqloom.experiment import train
from seqloom.inspection.lengths import draw_lengths
from seqloom.model import Model
from seqloom.recipe import load_recipe, shipped_recipes
from seqloom.training.journal import read_journal

SHOWN = ("attention/luong-additive", "attention/bahdanau-additive", "attention/context", "attention/state")


def measure(name: str, runs: Path, quick: bool) -> tuple[dict[str, Any], Any]:
    """Train (unless done) and evaluate one recipe."""
    run = runs / Path(name).name
    if not (run / "model" / "config.json").is_file():
        overrides = ["training.steps=60", "training.validate_every=60"] if quick else []
        train(name, run, overrides=overrides, resume=(run / "recipe.yaml").is_file())
    model, data = Model.load(run), load_recipe(name).data
    test = list(read_pairs(data.test["test"]))
    long = list(read_pairs(data.test["long"]))
    if quick:
        test, long = test[:100], long[:30]
    on_test, on_long = model.evaluate(test), model.evaluate(long)
    pairs = test + long
    buckets = by_length([p.source for p in pairs], on_test.answers + on_long.answers, [p.target for p in pairs])
    entropy, left = attention_habits(model, test) if model.network.attends else (None, None)
    seconds = [e["seconds"] for e in read_journal(run / "journal.jsonl") if e["event"] == "validation"][-1]
    found = {
        "test_bleu": round(on_test.figures["bleu"], 2),
        "test_exact": round(on_test.figures["exact_match"], 1),
        "long_bleu": round(on_long.figures["bleu"], 2),
        "aer": round(on_test.figures["aer"], 3) if "aer" in on_test.figures else None,
        "entropy": entropy,
        "one_left": left,
        "seconds": round(seconds, 1),
        **model.task.amounts(model.network),
    }
    return found, buckets


def attention_habits(model: Model, pairs: list[Pair]) -> tuple[float, float]:
    """Mean entropy (in nats) of the attention of a target word, and the share that look one word left of the gold."""
    entropies, one_left, linked = [], 0, 0
    for weights, pair in zip(model.task.alignment_weights(model.network, pairs), pairs, strict=True):
        entropies.extend(-(weights * np.log(weights + 1e-9)).sum(1))
        for target, row in enumerate(weights):
            gold = [source for source, linked_to in pair.alignment or () if linked_to == target]
            if gold:
                nearest = min((int(row.argmax()) - source for source in gold), key=abs)
                linked, one_left = linked + 1, one_left + (nearest == -1)
    return round(float(np.mean(entropies)), 2), round(one_left / max(1, linked), 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few steps only: checks the bench, not the models")
    parser.add_argument("--runs", type=Path, default=Path("runs/attention"))
    parser.add_argument("--image", type=Path, default=Path("docs/images/lengths-embedded.svg"))
    options = parser.parse_args()
    runs = options.runs / "quick" if options.quick else options.runs
    results, buckets = {}, {}
    for name in (n for n in shipped_recipes() if n.startswith("attention/")):
        print(f"== {name}", file=sys.stderr, flush=True)
        results[Path(name).name], buckets[name] = measure(name, runs, options.quick)
    print("| recipe | BLEU | exact | BLEU on 20–40 words | AER | entropy | one left | seconds | parameters |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, row in results.items():
        has = row["aer"] is not None
        looks = f"{row['aer']:.3f} | {row['entropy']:.2f} | {row['one_left']:.1%}" if has else "– | – | –"
        print(
            f"| {name} | {row['test_bleu']:.1f} | {row['test_exact']:.1f} % | {row['long_bleu']:.1f} | {looks} "
            f"| {row['seconds']:.0f} | {row['parameters']:,} |"
        )
    if not options.quick:
        options.image.parent.mkdir(parents=True, exist_ok=True)
        draw_lengths({Path(name).name: buckets[name] for name in SHOWN}, options.image)
    print(json.dumps({"bench": "attention", "quick": options.quick, "results": results}))


if __name__ == "__main__":
    main()
