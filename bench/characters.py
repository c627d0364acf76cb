"""The character Transformer side by side with nanoGPT: the same sizes and text, each in a process of its own, in turns.

    python -m bench.characters --nanogpt FOLDER [--quick] [--rounds N] [--write]

FOLDER is a checkout of nanoGPT (git clone https://github.com/karpathy/nanoGPT). Nothing in it is changed: what is
needed is copied to where its data is prepared, and runs with the same Python, torch and number of threads as seqloom.
Prints characters a second and milliseconds an iteration without preparation, warm-up and validation, medians and their
ratio, validation losses after equal iterations, and the most memory; one JSON object on the last line. With --write the
table goes into docs/results.md.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from math import gcd
from pathlib import Path
from typing import Any

from bench.characters_job import CharactersJob
from bench.embeddings import data_folder
from bench.machine import describe_machine
from bench.peers import Peer
from bench.peers.nanogpt import DATA, OUT
from bench.report import number, ratios, section, table, write_section
from bench.sides import run_side, say, user_errors
from bench.venvs import NotInstalled

RECIPE = "shakespeare-char"
CONFIG = Path("config", "train_shakespeare_char.py")
NEEDED = (Path("train.py"), Path("model.py"), Path("configurator.py"), CONFIG, DATA / "prepare.py")
CLONE = "git clone https://github.com/karpathy/nanoGPT"
OURS = Peer("seqloom", "bench.peers.seqloom_characters")
NANOGPT = Peer("nanoGPT", "bench.peers.nanogpt")
NEVER = 10**9


def prepare_nanogpt(checkout: Path, text: Path, folder: Path) -> None:
    """What train.py needs, copied, and the text made into its binary files by its own prepare.py."""
    from seqloom.errors import UserError

    missing = [str(name) for name in NEEDED if not (checkout / name).is_file()]
    if missing:
        raise UserError(
            f"--nanogpt {checkout}: there is no {', '.join(missing)} in it; get nanoGPT with: {CLONE} {checkout}"
        )
    if not text.is_file():
        raise UserError(f"{text}: there is no such file; SEQLOOM_DATA must name the folder of tiny_shakespeare")
    for name in NEEDED:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(checkout / name, folder / name)
    shutil.copyfile(text, folder / DATA / "input.txt")
    if importlib.util.find_spec("requests") is None:  # for a download that is not needed: the text is there
        (folder / DATA / "requests.py").touch()
    done = subprocess.run([sys.executable, folder / DATA / "prepare.py"], capture_output=True, text=True)
    if done.returncode:
        raise UserError(f"{checkout / DATA / 'prepare.py'} failed: {(done.stderr.splitlines() or ['silently'])[-1]}")


def version_of(checkout: Path) -> str:
    """The commit; of files without one, a digest of those that decide the pace."""
    if (checkout / ".git").exists():
        asked = ["git", "-C", str(checkout), "describe", "--always", "--dirty"]
        done = subprocess.run(asked, capture_output=True, text=True)
        if done.returncode == 0:
            return f"commit {done.stdout.strip()}"
    read = b"".join((checkout / name).read_bytes() for name in NEEDED[:2])
    return f"files without a commit, digest {hashlib.blake2b(read, digest_size=4).hexdigest()}"


def nanogpt_arguments(recipe: Any, evaluations: int) -> tuple[str, ...]:
    """The recipe's sizes in nanoGPT's words: the command of its README for a CPU. Rates and decay are its own."""
    model, training = recipe.model, recipe.training
    values = {
        "device": "cpu",
        "compile": False,
        "eval_iters": evaluations,
        "eval_interval": training.steps,  # before the first iteration and after the last
        "log_interval": 1,
        "block_size": training.length,
        "batch_size": training.rows,
        "n_layer": model.num_layers,
        "n_head": model.num_heads,
        "n_embd": model.size,
        "max_iters": training.steps,
        "lr_decay_iters": training.decay_steps or training.steps,
        "dropout": model.dropout,
        "always_save_checkpoint": True,  # the weights of the last iteration are read again
        "out_dir": OUT,
    }
    return (str(CONFIG), *(f"--{name}={value}" for name, value in values.items()))


def seqloom_overrides(options: argparse.Namespace, warmup_steps: int, turn: int) -> list[str]:
    """What makes a run a measurement: no validation and no checkpoint before its last step."""
    return [
        f"training.steps={options.iterations}",
        f"training.warmup_steps={warmup_steps}",
        f"training.log_every={gcd(options.warmup, options.iterations - options.warmup)}",
        f"training.validate_every={NEVER}",
        f"training.checkpoint_every={NEVER}",
        f"seed={turn + 1}",
    ]


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All rounds; the figures of each side."""
    from seqloom.recipe import find_recipe, load_recipe

    checkout, copy = Path(options.nanogpt), folder / "nanogpt"
    say("preparing nanoGPT's data")
    prepare_nanogpt(checkout, data_folder() / "tiny_shakespeare" / "input.txt", copy)
    path = find_recipe(RECIPE)
    rising = min(load_recipe(path).training.warmup_steps, options.iterations // 2)
    recipe = load_recipe(path, seqloom_overrides(options, rising, 0))
    sides = {"nanogpt": NANOGPT, "seqloom": OURS}
    rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in sides}
    for turn in range(options.rounds):
        for name, peer in sides.items():
            job: Any = CharactersJob(
                result=str(folder / "result.json"),
                iterations=options.iterations,
                warmup=options.warmup,
                threads=options.threads,
                recipe=RECIPE,
                cache=str(folder / "cache"),
                overrides=tuple(seqloom_overrides(options, rising, turn)),
                folder=str(copy),
                arguments=nanogpt_arguments(recipe, options.evaluations),
            )
            try:
                one = run_side(Path(sys.executable), peer, job, folder)
            except NotInstalled as error:
                raise SystemExit(f"{peer.title} {error}") from None
            rounds[name].append(one)
            say(f"round {turn + 1}  {peer.title}: {one['tokens_per_second']:,.0f} characters/s")
    pace = {name: [one["tokens_per_second"] for one in found] for name, found in rounds.items()}
    settings = ("iterations", "warmup", "evaluations", "threads", "rounds")
    return {
        "nanogpt": version_of(checkout),
        "rows": recipe.training.rows,
        "length": recipe.training.length,
        **{name: getattr(options, name) for name in settings},
        "sides": {name: summary(found) for name, found in rounds.items()},
        "ratios": ratios(pace, "seqloom"),
    }


def summary(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One side's figures over all rounds."""
    pace, losses = ([one[name] for one in found] for name in ("tokens_per_second", "validation_loss"))
    return {
        "tokens_per_second": pace,
        "median": statistics.median(pace),
        "milliseconds": statistics.median(one["milliseconds"] for one in found),
        "peak_mb": statistics.median(one["peak_mb"] for one in found),
        "parameters": found[0]["parameters"],
        "characters": found[0]["characters"],
        "validation_losses": losses,
        "validation_loss": statistics.median(losses),
        "estimate": found[0].get("estimate"),
    }


def sides_title(name: str) -> str:
    return NANOGPT.title if name == "nanogpt" else OURS.title


def characters_table(found: Mapping[str, Any]) -> str:
    rows = [
        [
            sides_title(name),
            " ".join(f"{pace:,.0f}" for pace in one["tokens_per_second"]),
            f"**{one['median']:,.0f}**",
            number(found["ratios"].get(name), 2, "×"),
            number(one["milliseconds"], 2),
            number(one["validation_loss"], 4),
            number(one["estimate"], 4),
            number(one["peak_mb"]),
            number(one["parameters"]),
        ]
        for name, one in found["sides"].items()
    ]
    header = ["trainer", "characters/s, each round", "median", "seqloom / this"]
    header += ["ms an iteration", "validation loss", "`estimate_loss`", "peak memory, MB", "parameters"]
    losses = found["sides"]["seqloom"]["validation_losses"]
    spread = f" ({min(losses):.4f} to {max(losses):.4f})" if len(losses) > 1 else ""
    notes = [
        f"{found['iterations']:,} iterations a round, each of {found['rows']} rows of {found['length']} characters; "
        f"{found['threads']} threads in all, the same Python and torch on both sides. The first {found['warmup']} "
        f"iterations, preparation and validation are not timed. nanoGPT ({found['nanogpt']}) runs its own train.py "
        "with the command that its README gives for a CPU, except that it validates only before the first iteration "
        "and after the last; its pace is that of the times it prints.",
        "Validation loss: nats a character over the last tenth of the text, after the same number of iterations. Each "
        f"character counts once, in pieces of {found['length']} that do not overlap, so that those early in a piece "
        "have little before them; nanoGPT's weights are read in the same way. What nanoGPT prints is its "
        f"`estimate_loss`, the mean over {found['evaluations']} batches of pieces that begin anywhere: the same value "
        "is expected, with the noise of a sample. In training too its pieces begin anywhere, while seqloom goes "
        "through all pieces of the text before one comes again. nanoGPT's seed is fixed; seqloom's is another one each "
        f"round, and the median is shown{spread}.",
    ]
    notes += [f"**{note}**" for note in differences(found)]
    return f"{table(header, rows)}\n\n" + "\n\n".join(notes) + "\n"


def differences(found: Mapping[str, Any]) -> list[str]:
    """Where the sides did not train on the same text, which would make the comparison void."""
    seen = {name: one["characters"] for name, one in found["sides"].items()}
    if len(set(seen.values())) == 1:
        return []
    return [f"Not the same text: {', '.join(f'{name} {count:,} characters' for name, count in seen.items())}."]


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nanogpt", required=True, metavar="FOLDER", help=f"a checkout of nanoGPT: {CLONE}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=2000, help="of a training")
    parser.add_argument("--warmup", type=int, default=100, help="of them, not timed")
    parser.add_argument("--evaluations", type=int, default=200, help="batches of nanoGPT's own estimate of the loss")
    parser.add_argument("--threads", type=int, default=2, help="of each side in all")
    parser.add_argument("--quick", action="store_true", help="2 rounds of 8 iterations: checks the bench, not the pace")
    parser.add_argument("--write", action="store_true", help="put the table into docs/results.md")
    options = parser.parse_args(given)
    if options.quick:
        options.rounds, options.iterations, options.warmup, options.evaluations = 2, 8, 2, 2
    if min(options.rounds, options.warmup, options.evaluations, options.threads) < 1:
        parser.error("--rounds, --warmup, --evaluations and --threads must be 1 or more")
    if options.iterations <= options.warmup:
        parser.error(f"--iterations must be more than --warmup {options.warmup}; got {options.iterations}")
    return options


def main(given: Sequence[str] | None = None) -> dict[str, Any]:
    options = arguments(given)
    with tempfile.TemporaryDirectory(prefix="seqloom-bench-") as temporary, user_errors():
        found = measure(options, Path(temporary))
    body = characters_table(found)
    print(body)
    if options.write:
        command = [{options.nanogpt: "FOLDER"}.get(word, word) for word in sys.orig_argv[1:]]  # it is nobody else's
        written = section("Character Transformer beside nanoGPT", describe_machine(), body, command)
        write_section("bench.characters", written)
    result = {"bench": "characters", "machine": describe_machine(), **found}
    print(json.dumps(result))
    return result


if __name__ == "__main__":
    main()
