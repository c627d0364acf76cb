"""Training pace side by side: the same model on the same batches, each trainer in a process of its own, in turns.

    python -m bench.train --model transformer|rnn --peers eole,fairseq,hf,torch [--rounds N] [--updates N] [--write]

Prints target symbols a second (padding not counted), medians, the ratio of medians, the most memory, the share of time
in matrix products and how near seqloom comes to the machine's own rate; one JSON object on the last line. docs/speed.md
says how each number is defined. With --quality UPDATES it compares validation losses after equal updates instead.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.data import BatchFile, padding_share, write_batches
from bench.flops import flop_of, products_of
from bench.machine import describe_machine, measured_rate
from bench.peers import PEERS, Peer
from bench.peers.common import Job
from bench.report import number, percent, ratios, section, table, write_section
from bench.sides import run_side, say, user_errors
from bench.spec import RNNSpec, TransformerSpec, spec_values
from bench.venvs import NotInstalled, environment_of

BASE = "multi30k-en-de-transformer-tiny"
RNN_MODEL = {
    "kind": "recurrent_translator",
    "cell": "lstm",
    "embedding_size": 256,
    "hidden_size": 512,
    "decoder": "attention",
    "attention": "multiplicative",
    "order": "luong",
    "share_embeddings": False,
    "tie_output": False,
    "dropout": 0.2,
}
AS_PEERS = {  # what the recipe leaves open to its own taste, and every trainer here has alike
    "transformer": [
        "model.norm_first=true",
        "model.positions=sinusoidal",
        "model.word_dropout=0",
        "training.learning_rate=3e-3",
    ],
    "rnn": [],
}
COMMON = ["training.schedule=cosine", "training.piece_tokens=null", "training.workers=null"]
OURS = Peer("seqloom", "bench.peers.seqloom")
QUALITY = ("float32", "candidates", "plain", "torch")


def bench_recipe(model: str, batch_tokens: int, overrides: Sequence[str] = ()) -> Any:
    """The Transformer-tiny recipe, or the same with the recurrent model in it."""
    from seqloom.recipe import find_recipe, load_recipe, read_extended

    values = read_extended(find_recipe(BASE))
    if model == "rnn":
        values = {**values, "model": RNN_MODEL, "training": {**values["training"], "learning_rate": 1e-3}}
    steps = values["training"]["steps"]
    fixed = [f"training.batch_tokens={batch_tokens}", f"training.decay_steps={steps}", *COMMON, *AS_PEERS[model]]
    return load_recipe(values, [*fixed, *overrides])


def spec_of(recipe: Any, symbols: int) -> TransformerSpec | RNNSpec:
    """The sizes that peers build their models with."""
    s = recipe.model
    if s.kind == "transformer_translator":
        sizes = (s.encoder_layers, s.decoder_layers, s.size, s.num_heads, s.feed_forward_size)
        return TransformerSpec(symbols, *sizes, dropout=s.dropout)
    return RNNSpec(symbols, s.embedding_size, s.hidden_size, s.dropout)


def prepare(recipe: Any, path: Path, num_batches: int) -> int:
    """Tokenise once and write the batches down; gives back how many symbols there are."""
    from seqloom.tasks import find_task

    task: Any = find_task(recipe.task).learn(recipe, say)
    write_batches(path, task.work(recipe), num_batches)
    return len(task.target.tokenizer)


def rates_of(recipe: Any, steps: int) -> list[float]:
    from seqloom.training.schedules import scheduled_rate

    return [scheduled_rate(step, recipe.training) for step in range(1, steps + 1)]


def contestants(names: Sequence[str], model: str) -> tuple[dict[str, tuple[Path, Peer]], dict[str, str]]:
    """Who runs, with which Python, seqloom first; and who does not, and why."""
    running, missing = {"seqloom": (Path(sys.executable), OURS)}, {}
    for name in names:
        peer = PEERS[name]
        if model not in peer.models:
            missing[name] = f"has no {model} of this kind" if peer.steps else "not for this model"
            continue
        try:
            running[name] = (environment_of(name, peer), peer)
        except NotInstalled as error:
            missing[name] = f"not installed: {error}"
    return running, missing


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All rounds; the figures of each trainer, and of the machine."""
    recipe = bench_recipe(options.model, options.batch_tokens, options.seqloom_set)
    total = options.warmup + options.updates
    data = folder / "batches.npz"
    say("preparing batches")
    symbols = prepare(recipe, data, total + options.profile)
    spec, batches = spec_of(recipe, symbols), BatchFile(data)
    timed = range(options.warmup, total)
    running, missing = contestants(options.peers, options.model)
    recipe_file = write_recipe(recipe, folder)
    rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in running}
    machine: list[dict[str, float]] = []
    narrow: list[dict[str, float]] = []
    typical = sorted(timed, key=lambda index: batches.lengths(index)[1].sum())[len(timed) // 2]
    products = products_of(spec, *batches.lengths(typical))
    for turn in range(options.rounds):
        for name, (python, peer) in list(running.items()):
            job = job_of(options, recipe, recipe_file, spec, data, folder, peer, options.profile if turn == 0 else 0)
            try:
                rounds[name].append(run_side(python, peer, job, folder))
            except NotInstalled as error:
                missing[name] = str(error)
                del running[name], rounds[name]
                say(f"round {turn + 1}  {name}: {error}")
                if name == "seqloom":
                    raise SystemExit(f"seqloom itself {error}") from None
                continue
            say(f"round {turn + 1}  {name}: {rounds[name][-1]['tokens_per_second']:,.0f} tokens/s")
        machine.append(measured_rate(products, folder))
        narrow.append(measured_rate(products, folder, "bfloat16"))
        rates = f"{machine[-1]['best']:.0f} GFLOP/s, in bfloat16 {narrow[-1]['best']:.0f}"
        say(f"round {turn + 1}  matrix products: {rates}")
    needed = sum(flop_of(products_of(spec, *batches.lengths(index))) for index in timed)
    tokens = sum(int(batches.lengths(index)[1].sum()) for index in timed)
    rate = statistics.median(one["best"] for one in machine)
    pace = {name: [one["tokens_per_second"] for one in found] for name, found in rounds.items()}
    return {
        "model": options.model,
        "parameters": {name: found[0]["parameters"] for name, found in rounds.items()},
        "batch_tokens": options.batch_tokens,
        "updates": options.updates,
        "target_tokens": tokens,
        "padding": padding_share(batches, list(timed)),
        "flop_per_token": needed / tokens,
        "machine_gflops": machine,
        "machine_gflops_bfloat16": narrow,
        "limit_tokens_per_second": tokens / (needed / (rate * 1e9)),
        "trainers": {name: summary(found, tokens, needed / (rate * 1e9)) for name, found in rounds.items()},
        "missing": missing,
        "ratios": ratios(pace, "seqloom"),
    }


def summary(found: Sequence[dict[str, Any]], tokens: int, products_seconds: float) -> dict[str, Any]:
    """One trainer's figures over all rounds."""
    pace = [one["tokens_per_second"] for one in found]
    median = statistics.median(pace)
    return {
        "tokens_per_second": pace,
        "median": median,
        "peak_mb": statistics.median(one["peak_mb"] for one in found),
        "in_products": next((one["in_products"] for one in found if one.get("in_products") is not None), None),
        "of_limit": products_seconds / (tokens / median),
        "precision": found[0].get("precision", "float32"),
        "same_batches": all(abs(one["tokens"] / tokens - 1) < 0.02 for one in found),
    }


def job_of(
    options: argparse.Namespace,
    recipe: Any,
    recipe_file: Path,
    spec: Any,
    data: Path,
    folder: Path,
    peer: Peer,
    profile: int,
    validate: bool = False,
) -> Job:
    training = recipe.training
    ours = peer.module == OURS.module
    if ours:
        clear_run(folder)
    return Job(
        model=options.model,
        spec=spec_values(spec),
        data=str(data),
        result=str(folder / "result.json"),
        warmup=options.warmup,
        updates=options.updates,
        rates=rates_of(recipe, options.warmup + options.updates),
        betas=list(training.betas),
        smoothing=training.label_smoothing,
        clip_norm=training.clip_norm,
        seed=recipe.seed,
        profile=profile,
        validate=validate,
        recipe=str(recipe_file),
        options=dict(peer.options),
    )


def write_recipe(recipe: Any, folder: Path) -> Path:
    from seqloom.recipe import recipe_text

    path = folder / "recipe.yaml"
    path.write_text(recipe_text(recipe), encoding="utf-8")
    return path


def clear_run(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder / "result.run", ignore_errors=True)


def quality(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Validation loss after the same updates over the same batches, without any measure of speed."""
    updates = options.quality
    warmup = min(500, max(1, updates // 4))
    limits = [f"training.decay_steps={updates}", f"training.warmup_steps={warmup}"]
    recipe = bench_recipe(options.model, options.batch_tokens, [*limits, *options.seqloom_set])
    data = folder / "batches.npz"
    symbols = prepare(recipe, data, updates)
    spec, recipe_file = spec_of(recipe, symbols), write_recipe(recipe, folder)
    options.warmup, options.updates = 1, updates - 1
    running, missing = contestants(options.peers, options.model)
    losses: dict[str, list[float]] = {}
    for seed in range(recipe.seed, recipe.seed + options.seeds):
        for name, (python, peer) in running.items():
            if name in missing:
                continue
            job = job_of(options, recipe, recipe_file, spec, data, folder, peer, 0, validate=True)
            job = replace(job, seed=seed, overrides=[*job.overrides, f"seed={seed}"])
            try:
                loss = run_side(python, peer, job, folder)["validation_loss"]
            except NotInstalled as error:
                missing[name] = str(error)
                continue
            losses.setdefault(name, []).append(loss)
            say(f"{name}: validation loss {loss:.4f} after {updates:,} updates from seed {seed}")
    return {"model": options.model, "updates": updates, "validation_loss": losses, "missing": missing}


def train_table(found: dict[str, Any]) -> str:
    ours = found["trainers"]["seqloom"]
    rows = []
    for name, one in found["trainers"].items():
        ratio = found["ratios"].get(name)
        rows.append(
            [
                OURS.title if name == "seqloom" else PEERS[name].title,
                " ".join(f"{pace:,.0f}" for pace in one["tokens_per_second"]),
                f"**{one['median']:,.0f}**",
                number(ratio, 2, "×"),
                number(one["peak_mb"]),
                "–" if name == "seqloom" else f"{ours['peak_mb'] / one['peak_mb']:.2f}×",
                percent(one["in_products"]),
                percent(one["of_limit"]),
                f"{found['parameters'][name]:,}",
            ]
        )
    rows += [[PEERS[name].title, reason, *["–"] * 7] for name, reason in found["missing"].items()]
    header = [
        "trainer",
        "target tokens/s, each round",
        "median",
        "seqloom / this",
        "peak memory, MB",
        "seqloom's memory / this",
        "time in products",
        "of the machine's rate",
        "parameters",
    ]
    rates = [one["best"] for one in found["machine_gflops"]]
    notes = [f"{PEERS[n].title}: {PEERS[n].note}." for n in found["trainers"] if n != "seqloom" and PEERS[n].note]
    other = [name for name, one in found["trainers"].items() if not one["same_batches"]]
    if ours["precision"] == "bfloat16":
        narrow = statistics.median(one["best"] for one in found["machine_gflops_bfloat16"])
        limit = found["limit_tokens_per_second"] * narrow / statistics.median(rates)
        notes.append(
            "seqloom, unless its row names another precision, multiplies bfloat16 numbers. Such products run at "
            f"{narrow:.0f} GFLOP/s here, which would allow {limit:,.0f} tokens/s: it trains at "
            f"{ours['median'] / limit:.0%} of that."
        )
    if other:
        notes.append(f"**Not the same batches: {', '.join(other)}.**")
    return (
        f"{table(header, rows)}\n\n{found['updates']} updates a round of batches of {found['batch_tokens']:,} tokens, "
        f"{found['padding']:.1%} of target positions are padding. The products of a step run at "
        f"{statistics.median(rates):.0f} GFLOP/s here ({min(rates):.0f}–{max(rates):.0f}); at "
        f"{found['flop_per_token'] / 1e6:.1f} MFLOP a target token they alone would allow "
        f"{found['limit_tokens_per_second']:,.0f} tokens/s.\n" + "".join(f"\n{note}" for note in notes)
    )


def quality_table(found: dict[str, Any]) -> str:
    titles = {"seqloom": OURS.title} | {name: PEERS[name].title for name in PEERS}
    rows = [
        [titles[name], " ".join(f"{loss:.4f}" for loss in losses), f"**{statistics.mean(losses):.4f}**"]
        for name, losses in found["validation_loss"].items()
    ]
    rows += [[titles[name], reason, "–"] for name, reason in found["missing"].items()]
    return table(["trainer", f"validation loss after {found['updates']:,} updates, from each seed", "mean"], rows)


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", choices=("transformer", "rnn"), default="transformer")
    parser.add_argument(
        "--peers",
        help=f"of {', '.join(PEERS)}; separated by commas (default: torch; with --quality: {', '.join(QUALITY)})",
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--updates", type=int, default=25, help="timed updates a round")
    parser.add_argument("--warmup", type=int, default=5, help="updates before them")
    parser.add_argument("--profile", type=int, default=3, help="updates profiled after the first round; 0: none")
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--seqloom-set", action="append", default=[], metavar="NAME=VALUE", help="as seqloom's --set")
    parser.add_argument("--quality", type=int, metavar="UPDATES", help="compare validation losses instead")
    parser.add_argument("--seeds", type=int, default=1, help="starts that validation losses are compared from")
    parser.add_argument("--quick", action="store_true", help="2 rounds of 4 updates: checks the bench, not the pace")
    parser.add_argument("--write", action="store_true", help="put the table into docs/results.md")
    options = parser.parse_args(given)
    given_peers = options.peers or (",".join(QUALITY) if options.quality else "torch")
    options.peers = [name for name in given_peers.split(",") if name]
    unknown = [name for name in options.peers if name not in PEERS]
    if unknown:
        parser.error(f"--peers takes {', '.join(PEERS)}; got {', '.join(unknown)}")
    if options.quick:
        options.rounds, options.updates, options.warmup, options.profile = 2, 4, 2, 2
    if min(options.rounds, options.updates, options.warmup, options.seeds) < 1 or (options.quality or 2) < 2:
        parser.error("--rounds, --updates, --warmup and --seeds must be 1 or more, --quality 2 or more")
    return options


def main(given: Sequence[str] | None = None) -> dict[str, Any]:
    options = arguments(given)
    with tempfile.TemporaryDirectory(prefix="seqloom-bench-") as temporary, user_errors():
        measures = quality if options.quality else measure
        found = measures(options, Path(temporary))
    body = quality_table(found) if options.quality else train_table(found)
    print(body)
    if options.write:
        what = "Validation loss" if options.quality else "Training pace"
        name = f"bench.{'quality' if options.quality else 'train'} {options.model}"
        write_section(name, section(f"{what}, {options.model}", describe_machine(), body))
    result = {"bench": "train", "machine": describe_machine(), **found}
    print(json.dumps(result))
    return result


if __name__ == "__main__":
    main()
