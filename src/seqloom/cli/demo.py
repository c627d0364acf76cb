"""`seqloom demo`: the whole journey in under two minutes."""

from __future__ import annotations

from pathlib import Path

from seqloom.cli.options import Flag, Folder

RECIPE = "demo"
NUM_SHOWN, MOST_WORDS = 5, 6


def demo(*, run: Folder = Path("runs/demo"), restart: Flag = False) -> None:
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
    from seqloom.model import load
    from seqloom.recipe import load_recipe

    began = time.monotonic()
    if (run / "model" / "config.json").is_file() and not restart:
        note(f"{run} holds a finished demo: showing it (seqloom demo --restart trains again)")
        model = load(run)
    else:
        unfinished = (run / "recipe.yaml").is_file() and not restart
        note("Training an LSTM with attention on sentences that seqloom's own grammar makes (English to Spanish).")
        model = run_to_the_end(lambda: train(RECIPE, run, resume=unfinished, restart=restart), run)
        note(f"trained in {time.monotonic() - began:.0f} s\n")

    pairs = list(read_pairs(load_recipe(RECIPE).data.test["test"]))
    report = model.evaluate(pairs)
    print(strong(f"{NUM_SHOWN} short sentences it has never seen"))
    short = [(p, a) for p, a in zip(pairs, report.answers, strict=True) if len(p.source.split()) <= MOST_WORDS]
    for pair, answer in short[:NUM_SHOWN]:
        print(f"  {pair.source}\n    {'✓' if answer == pair.target else '✗'} {answer}")
        if answer != pair.target:
            print(f"      expected: {pair.target}")
    figures = report.figures
    print(f"\nBLEU {figures['bleu']:.1f}, {figures['exact_match']:.1f} % of all {len(pairs):,} exactly right", end="")
    print(f", alignment error rate {figures['aer']:.2f}\n" if "aer" in figures else "\n")

    sentence = pairs[0].source
    attention = model.look("attention", sentence)
    print(strong("Where it looked") + f" while it translated “{sentence}”\n")
    print(attention.to_text(colour=use_colour()))
    if draws():
        attention.save(run / "alignment.svg")
        note(f"\nThe same as a picture: {run / 'alignment.svg'}")
    else:
        note("\nA picture needs matplotlib: pip install 'seqloom[plots]'")
    note(f"({time.monotonic() - began:.0f} s in all)\n\nWhat to try next:")
    saved = (" --save look.svg", " --save gates.svg") if draws() else ("", "")
    note(f'  seqloom predict {run} "the old teacher bought a red house" --n-best 3')
    note(f'  seqloom look {run} attention "the cat that slept did not see the dog"{saved[0]}')
    note(f'  seqloom look {run} gates "the green witch arrived"{saved[1]}')
    note(f"  seqloom evaluate {run} --test phenomena")
    note("  seqloom train demo --run runs/no-attention --set model.decoder=state   # what attention is for")
    note("  seqloom list recipes")


def draws() -> bool:
    """Whether pictures can be drawn here."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True
