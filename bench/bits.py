"""The same numbers, whoever computes: one recipe trained in every way that this machine offers, and the hash of each.

    python -m bench.bits [--quick] [--kills N] [--write]

Ways: one thread; two threads; two and four processes under torchrun; two hosts with two processes each (two network
namespaces joined by a virtual cable; only where `ip netns` is allowed); a run that is killed at random moments and goes
on under another way each time, N times. Prints a table and, on the last line, one JSON object. With --write the table
goes into docs/results.md. Each recipe trains for seconds: what is measured is equality, not quality.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from bench.machine import describe_machine
from bench.report import section, table, write_section
from bench.sides import say

PAIRS = {
    "train": {"grammar": "en-es", "split": "train", "size": 2000},
    "valid": {"grammar": "en-es", "split": "valid", "size": 100},
}
TEXT = {name: {"text": f"grammar:en/{name}", "limit": limit} for name, limit in (("train", 2000), ("valid", 100))}
WORDS = {"tokenizer": "word", "vocabulary_size": None}
COMMON = {"steps": 60, "validate_every": 20, "checkpoint_every": 5, "samples": 0, "shards": 4}
ON_PAIRS = {**COMMON, "batch_tokens": 600, "validation_sentences": 40, "accumulate": 2}
TRANSFORMER = {"size": 32, "num_heads": 4, "feed_forward_size": 64, "dropout": 0.2, "attention_dropout": 0.1}
RECIPES: dict[str, dict[str, Any]] = {
    "attention RNN, scheduled sampling, moving average": {
        "data": PAIRS,
        "text": WORDS,
        "model": {"kind": "recurrent_translator", "embedding_size": 24, "hidden_size": 32, "dropout": 0.3},
        "training": {**ON_PAIRS, "scheduled_sampling": 0.2, "moving_average": 0.9},
    },
    "Transformer, R-Drop, word dropout, bfloat16": {
        "data": PAIRS,
        "text": WORDS,
        "model": {"kind": "transformer_translator", **TRANSFORMER, "word_dropout": 0.1},
        "training": {**ON_PAIRS, "consistency": 1.0, "precision": "bfloat16"},
    },
    "LSTM language model, stream": {
        "task": "model_language",
        "data": TEXT,
        "text": WORDS,
        "model": {"kind": "recurrent_lm", "cell": "lstm", "size": 24, "hidden_size": 32, "dropout": 0.3},
        "training": {**COMMON, "rows": 8, "length": 20, "candidates": 100},
    },
}
FIRST_HOST, SECOND_HOST = "10.201.7.1", "10.201.7.2"
NAMESPACES = ("seqloom-bits-a", "seqloom-bits-b")


@dataclass(frozen=True)
class Way:
    """How a training is computed: the words before `-m seqloom`, for each host, and settings that change no weight."""

    name: str
    hosts: tuple[tuple[str, ...], ...] = ((sys.executable,),)
    workers: int = 1
    environment: dict[str, str] = field(default_factory=dict)

    def start(self, folder: Path, arguments: Sequence[str]) -> list[subprocess.Popen[bytes]]:
        environment = {**os.environ, "OMP_NUM_THREADS": str(self.workers), **self.environment}
        log = (folder / "log.txt").open("ab")
        return [
            subprocess.Popen(
                [*words, "-m", "seqloom", *arguments],
                cwd=folder,
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            for words in self.hosts
        ]


def torchrun(processes: int, *more: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={processes}", *more)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def ways(two_hosts: bool) -> Iterator[Way]:
    yield Way("one thread")
    yield Way("two threads", workers=2)
    for processes in (2, 4):
        yield Way(f"torchrun, {processes} processes", (torchrun(processes, f"--master-port={free_port()}"),))
    if two_hosts:
        where = ["--nnodes=2", f"--master-addr={FIRST_HOST}", "--master-port=29611"]
        yield Way(
            "two hosts of two processes",
            tuple(
                ("ip", "netns", "exec", name, "env", f"GLOO_SOCKET_IFNAME=veth-bits-{name[-1]}")
                + torchrun(2, *where, f"--node-rank={rank}")
                for rank, name in enumerate(NAMESPACES)
            ),
        )


@contextmanager
def cable() -> Iterator[bool]:
    """Two network namespaces joined by a virtual cable, where this is allowed; nothing of them is left behind."""

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)

    def remove() -> None:
        for name in NAMESPACES:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    if shutil.which("ip") is None or os.geteuid() != 0:
        yield False
        return
    remove()
    try:
        for name in NAMESPACES:
            ip("netns", "add", name)
        ip(
            "link",
            "add",
            "veth-bits-a",
            "netns",
            NAMESPACES[0],
            "type",
            "veth",
            "peer",
            "veth-bits-b",
            "netns",
            NAMESPACES[1],
        )
        for name, address in zip(NAMESPACES, (FIRST_HOST, SECOND_HOST), strict=True):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", f"veth-bits-{name[-1]}")
            ip("-n", name, "link", "set", f"veth-bits-{name[-1]}", "up")
            ip("-n", name, "link", "set", "lo", "up")
    except subprocess.CalledProcessError as error:
        remove()
        say(f"no network namespaces here: {error.stderr.decode(errors='replace').strip()}")
        yield False
        return
    try:
        yield True
    finally:
        remove()


def sha256(run: Path) -> str:
    return hashlib.sha256((run / "model" / "model.safetensors").read_bytes()).hexdigest()


def trained(way: Way, recipe: dict[str, Any], folder: Path) -> str:
    """The hash of the weights of a whole run."""
    folder.mkdir()
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    codes = [one.wait() for one in way.start(folder, ["train", "recipe.yaml", "--run-dir", "run"])]
    if any(codes):
        raise SystemExit(f"{way.name} failed:\n{(folder / 'log.txt').read_text()[-2000:]}")
    return sha256(folder / "run")


def end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Kill them and all that they started."""
    for process in processes:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def steps_of(run: Path) -> int:
    return max(
        (int(path.name[5:]) for path in (run / "checkpoints").glob("step-*") if path.name[5:].isdigit()), default=0
    )


def killed(found: Sequence[Way], recipe: dict[str, Any], folder: Path, kills: int, seed: int) -> tuple[str, int]:
    """The same after so many kills at random moments, each time continued in another way; and how many hit."""
    folder.mkdir()
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    run, chance, hit = folder / "run", random.Random(seed), 0
    while True:
        begun = steps_of(run) > 0
        go_on = ["train", "run", "--resume"] if begun else ["train", "recipe.yaml", "--run-dir", "run", "--restart"]
        before, processes = steps_of(run), chance.choice(found).start(folder, go_on)
        if hit < kills:
            limit = time.monotonic() + 60
            while steps_of(run) <= before and time.monotonic() < limit and processes[0].poll() is None:
                time.sleep(0.01)
            time.sleep(chance.random() * 0.2)
            hit += processes[0].poll() is None
            end(processes)
        elif any(process.wait() for process in processes):
            raise SystemExit(f"a resumed run failed:\n{(folder / 'log.txt').read_text()[-2000:]}")
        if (run / "model" / "config.json").is_file():
            return sha256(run), hit


def measure(quick: bool, kills: int) -> dict[str, Any]:
    found: dict[str, dict[str, str]] = {}
    hits = 0
    with tempfile.TemporaryDirectory(prefix="seqloom-bits-") as place, cable() as two_hosts:
        all_ways = list(ways(two_hosts))
        recipes = dict(list(RECIPES.items())[-1:]) if quick else RECIPES
        for number, (name, recipe) in enumerate(recipes.items()):
            found[name] = {}
            for place_of, way in enumerate(all_ways):
                found[name][way.name] = trained(way, recipe, Path(place, f"{number}-{place_of}"))
                say(f"{name}, {way.name}: {found[name][way.name][:16]}")
            each = -(-kills // len(recipes))
            longer = {**recipe, "training": {**recipe["training"], "steps": 60 + 6 * each}}
            whole = trained(all_ways[0], longer, Path(place, f"{number}-whole"))
            found[name]["killed and continued"], hit = killed(
                all_ways[:4], longer, Path(place, f"{number}-killed"), each, number
            )
            hits += hit
            found[name]["not killed"] = whole
            say(f"{name}, killed {hit} times: {found[name]['killed and continued'][:16]}, not killed: {whole[:16]}")
    return {"hashes": found, "kills": hits, "equal": all(equal(hashes) for hashes in found.values())}


def equal(hashes: dict[str, str]) -> bool:
    """Whether all ways gave one hash, and the run that was killed that of the one that was not."""
    disturbed = ("killed and continued", "not killed")
    others = {value for name, value in hashes.items() if name not in disturbed}
    return len(others) == 1 and len({hashes[name] for name in disturbed}) == 1


def bits_table(found: dict[str, Any]) -> str:
    names = list(next(iter(found["hashes"].values())))
    rows = [[name, *(f"`{hashes[way][:12]}`" for way in names)] for name, hashes in found["hashes"].items()]
    verdict = "All agree." if found["equal"] else "**They differ.**"
    return (
        f"{table(['recipe', *names], rows)}\n\nThe first digits of the sha256 of `model.safetensors`. The last two "
        f"columns are of longer trainings; {found['kills']} kills in all. {verdict}"
    )


def main(given: Sequence[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one recipe, three kills")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--write", action="store_true", help="put the table into docs/results.md")
    options = parser.parse_args(given)
    found = measure(options.quick, 3 if options.quick else options.kills)
    body = bits_table(found)
    print(body)
    if options.write:
        write_section("bench.bits", section("The same numbers, whoever computes", describe_machine(), body))
    result = {"bench": "bits", "machine": describe_machine(), **found}
    print(json.dumps(result))
    return result


if __name__ == "__main__":
    main()
