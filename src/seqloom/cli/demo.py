"""`seqloom demo`: the whole journey in under two minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

NUM_SHOWN, MOST_WORDS = 5, 6


def demo(
    *, run: Path = Path("runs/demo"), restart: Annotated[bool, Parameter(negative="", show_default=False)] = False
) -> None:
    """Train a small attention model on the embedded corpus, translate unseen sentences, show where it looked.

    Parameters
    ----------
    run
        Folder of the run. A finished demo there is shown again without training.
    restart
        Train again.
    """
    import time

    from seqloom.cli.output import note, strong, use_colour
    from seqloom.cli.stopping import run_to_the_end
    from seqloom.corpus.readers import read_pairs
    from seqloom.experiment import train
    from seqloom.inspection.attention import draw_attention
    from seqloom.predictor import Predictor
    from seqloom.recipe import load_recipe

    began = time.monotonic()
    recipe = load_recipe("demo")
    if (run / "model" / "config.json").is_file() and not restart:
        note(f"{run} holds a finished demo: showing it (seqloom demo --restart trains again)")
        model = Predictor.load(run)
    else:
        unfinished = (run / "recipe.yaml").is_file() and not restart
        note("Training an LSTM with attention on sentences that seqloom's own grammar makes (English to Spanish).")
        run_to_the_end(lambda: train("demo", run, resume=unfinished, restart=restart), run)
        model = Predictor.load(run)
        note(f"trained in {time.monotonic() - began:.0f} s\n")

    pairs = list(read_pairs(recipe.data.test["test"]))
    report, answers = model.evaluate(pairs)
    print(strong(f"{NUM_SHOWN} short sentences it has never seen"))
    short = [(p, a) for p, a in zip(pairs, answers, strict=True) if len(p.source.split()) <= MOST_WORDS]
    for pair, answer in short[:NUM_SHOWN]:
        print(f"  {pair.source}\n    {'✓' if answer == pair.target else '✗'} {answer}")
        if answer != pair.target:
            print(f"      expected: {pair.target}")
    scores = report.scores
    print(f"\nBLEU {scores['bleu']:.1f}, {scores['exact_match']:.1f} % of all {len(pairs):,} exactly right", end="")
    print(f", alignment error rate {scores['aer']:.2f}\n" if "aer" in scores else "\n")

    sentence = pairs[0].source
    trace = model.trace(sentence)
    print(strong("Where it looked") + f" while it translated “{sentence}”\n")
    print(draw_attention(trace, colour=use_colour()))
    picture = run / "alignment.svg"
    draw_attention(trace, picture)
    note(f"\nThe same as a picture: {picture}   ({time.monotonic() - began:.0f} s in all)\n\nWhat to try next:")
    note(f'  seqloom predict {run} "the old teacher bought a red house" --n-best 3')
    note(f'  seqloom look {run} attention "the cat that slept did not see the dog" --save look.svg')
    note(f'  seqloom look {run} gates "the green witch arrived" --save gates.svg')
    note(f"  seqloom evaluate {run} --test phenomena")
    note("  seqloom train demo --run runs/no-attention --set model.decoder=state   # what attention is for")
    note("  seqloom list recipes")
