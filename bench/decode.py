"""Decoding pace side by side: the same model, the same sentences, greedy and with a beam of 5, in turns.

    python -m bench.decode --model RUN [--rnn RUN] [--peers ctranslate2,hf,fairseq,joeynmt] [--rounds N] [--write]
    python -m bench.decode --model RUN --exported [--rounds N] [--sentences N] [--write]

Each measurement is a process of its own. `seqloom predict` counts whole, from the start of the command to its end, text
in, text out; the others are also timed around their search alone. One JSON object on the last line; docs/speed.md says
how each number is defined.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.machine import describe_machine, num_cores
from bench.peers import PEERS
from bench.peers.job import DecodingJob
from bench.report import number, section, table, write_section
from bench.sides import say, user_errors
from bench.venvs import ROOT, NotInstalled, environment_of
from seqloom.decoding.settings import DecodingSettings
from seqloom.errors import UserError
from seqloom.model import Model

if TYPE_CHECKING:
    from seqloom.decoding.steps import Hypothesis

SEARCHES = {"greedy": 1, "beam 5": 5}
COMPUTES = ("float32", "int8")
PEERS_OF = {"--model": ("ctranslate2", "hf", "fairseq"), "--rnn": ("joeynmt",)}
TEST_SET = 1000  # sentences: what people have in a file
SENTENCES_ASKED = "validation sentences to which the model finds an end (repeated where there are fewer)"
COMPARED = 200  # greedy answers of a converted model that are held against ours


@dataclass(frozen=True)
class Decoder:
    """A row of the table: a command line of ours, or a module with a job."""

    title: str
    model: Path
    module: tuple[str, ...] | None = None  # None: `seqloom predict`
    python: Path = Path(sys.executable)
    own: bool = True  # runs in seqloom's environment
    compute: str = "float32"
    fixed: bool = False  # every answer takes the same number of steps
    whole: bool = False  # a command that reads and writes files: timed from its start to its end


def run_decoder(decoder: Decoder, job: DecodingJob, folder: Path) -> dict[str, Any]:
    """One measurement: seconds of the search (None for a command line), of the whole process, and agreement."""
    for path in (job.result, job.answers):
        Path(path).unlink(missing_ok=True)
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])] if decoder.own else [str(ROOT)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    if decoder.module is None:
        how = ["--method", "greedy"] if job.beam == 1 else ["--method", "beam", "--beam-size", str(job.beam)]
        files = ["--input", job.texts, "--output", job.answers]
        command = [str(decoder.python), "-m", "seqloom", "predict", str(decoder.model), *files, *how]
    else:
        job_file = folder / "job.json"
        job_file.write_text(json.dumps(asdict(job)), encoding="utf-8")
        command = [str(decoder.python), "-m", *decoder.module, str(job_file)]
    log = folder / "log.txt"
    with log.open("wb") as out:
        began = time.perf_counter()
        done = subprocess.run(command, cwd=ROOT, env=environment, stdout=out, stderr=subprocess.STDOUT)
        whole = time.perf_counter() - began
    if done.returncode:
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        raise NotInstalled(f"failed: {lines[-1] if lines else f'exit code {done.returncode}'}")
    if decoder.whole:
        answers, asked = (Path(path).read_text(encoding="utf-8").splitlines() for path in (job.answers, job.texts))
        if len(answers) != len(asked):
            raise NotInstalled(f"failed: {len(answers):,} answers to {len(asked):,} sentences")
        return {"whole": whole, "search": None, "agreement": None}
    found = json.loads(Path(job.result).read_text(encoding="utf-8"))
    return {"whole": whole, "search": found["seconds"], "agreement": found["agreement"]}


def exported_decoders(run: Path, folder: Path, directly: bool) -> list[Decoder]:
    """What runs on CTranslate2: ours, and itself. The exports are made here, without verification."""
    from seqloom.export.ctranslate2 import export

    decoders, model = [], Model.load(run)
    for compute in COMPUTES:
        place, _ = export(model, folder / compute, compute=compute, verify=False)  # type: ignore[arg-type]
        names = (predict_title(compute), engine_title(compute), direct_title(compute), command_title(compute))
        modules = (None, *(("bench.decoders", name) for name in ("seqloom", "ctranslate2", "ctranslate2-command")))
        decoders += [
            Decoder(title, place, module, compute=compute, whole=title in (names[0], names[3]))
            for title, module in list(zip(names, modules, strict=True))[: 4 if directly else 2]
        ]
    return decoders


def predict_title(compute: str) -> str:
    return f"`seqloom predict` EXPORTED, {compute}"


def engine_title(compute: str) -> str:
    return f"seqloom, CTranslate2 engine {compute}"


def direct_title(compute: str) -> str:
    return f"CTranslate2 directly, {compute}"


def command_title(compute: str) -> str:
    return f"CTranslate2 directly, {compute}, a command"


def transformer_decoders(run: Path, peers: Sequence[str], folder: Path) -> tuple[list[Decoder], dict[str, str]]:
    """All rows for a Transformer, and who is missing."""
    from seqloom.folders import find_model

    model = find_model(run)
    decoders = [
        Decoder("`seqloom predict` RUN", run, whole=True),
        Decoder("seqloom, torch engine", model, ("bench.decoders", "seqloom")),
        *exported_decoders(run, folder, "ctranslate2" in peers),
    ]
    missing = {}
    for name in peers:
        if name == "ctranslate2":
            continue
        try:
            python = environment_of(name, PEERS[name])
        except NotInstalled as error:
            missing[PEERS[name].title] = f"not installed: {error}"
            continue
        decoders.append(Decoder(PEERS[name].title, model, (f"bench.peers.{name}_generate",), python, own=False))
    return decoders, missing


def rnn_decoders(run: Path, peers: Sequence[str]) -> tuple[list[Decoder], dict[str, str]]:
    """All rows for a recurrent translator, and who is missing. Beside a peer there are rows of a fixed length."""
    from seqloom.folders import find_model

    model, title = find_model(run), "seqloom RNN, torch engine"
    decoders = [
        Decoder("`seqloom predict` RNN RUN", run, whole=True),
        Decoder(title, model, ("bench.decoders", "seqloom")),
        Decoder(f"{title} int8", model, ("bench.decoders", "seqloom"), compute="int8"),
    ]
    missing = {}
    for name in peers:
        try:
            python = environment_of(name, PEERS[name])
        except NotInstalled as error:
            missing[PEERS[name].title] = f"not installed: {error}"
            continue
        theirs = Decoder(PEERS[name].title, model, (f"bench.peers.{name}_generate",), python, own=False)
        decoders.append(theirs)
        ours = Decoder(f"{title}, fixed length", model, ("bench.decoders", "fixed"), fixed=True)
        rounded = replace(ours, title=f"{title} int8, fixed length", compute="int8")
        decoders += [ours, rounded, replace(theirs, title=f"{theirs.title}, fixed length", fixed=True)]
    return decoders, missing


def sentences_of(model: Model, most: int) -> list[str]:
    """The validation sentences of a run to which its model finds an end, repeated until there are as many as wanted.

    Where it finds none, each side stops at a length of its own, and the clock would measure those lengths.
    """
    from seqloom.corpus.readers import read_pairs

    (valid,) = model.corpora(default="valid").values()
    texts = [pair.source for pair in read_pairs(valid) if pair.source.strip()]
    ending = [text for text, answer in zip(texts, greedy(model, texts), strict=True) if answer.finished]
    if not ending:
        raise UserError(f"{model.name}: this model finds no end to any answer; train it longer")
    return [ending[index % len(ending)] for index in range(most)]


def greedy(model: Model, texts: Sequence[str], **more: Any) -> list[Hypothesis]:
    """Our own answers, as symbols."""
    settings = DecodingSettings(method="greedy", unknown="keep", **more)
    found = dict(model.task.translate(model.network, texts, settings))
    return [found[index].hypotheses[0] for index in range(len(texts))]


def prepared_job(model: Model, most: int, folder: Path) -> DecodingJob:
    """Sentences as text, symbols and pieces, and our own greedy answers to the first of them."""
    texts, tokenizer = sentences_of(model, most), model.task.source.tokenizer
    path = folder / f"{model.name}.txt"
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    ids = tokenizer.encode_many(texts)
    pieces = folder / f"{model.name}.pieces"
    pieces.write_text("".join(" ".join(tokenizer.pieces(one)) + "\n" for one in ids), encoding="utf-8")
    return DecodingJob(
        model="",
        texts=str(path),
        ids=ids,
        pieces=str(pieces),
        beam=1,
        workers=num_cores(),
        compute="float32",
        answers=str(folder / "answers.txt"),
        result=str(folder / "result.json"),
        expected=[list(answer.tokens) for answer in greedy(model, texts[: min(COMPARED, most)])],
        longest=max(model.options.limit(len(one) + 1) for one in ids),
    )


def fixed_job(job: DecodingJob, model: Model) -> DecodingJob:
    """The same sentences for as many steps as our greedy answers take on average, and our answers of that length.

    The model cannot end an answer any more afterwards.
    """
    from bench.decoders import never_ending

    steps = mean_steps(job.expected)
    texts = Path(job.texts).read_text(encoding="utf-8").splitlines()[: len(job.expected)]
    answers = greedy(model, texts, **never_ending(model, steps))
    return replace(job, steps=steps, expected=[list(answer.tokens) for answer in answers])


def mean_steps(answers: Sequence[Sequence[int]]) -> int:
    """How many symbols answers have on average, end symbols included; at least two."""
    return max(2, round(statistics.mean(len(answer) + 1 for answer in answers)))


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All rounds of all decoders and searches."""
    runs = [(options.model, True)] if options.model else []
    runs += [(options.rnn, False)] if options.rnn else []
    jobs: list[tuple[Decoder, DecodingJob]] = []
    missing: dict[str, str] = {}
    steps = None
    for run, is_transformer in runs:
        say(f"preparing {run}")
        model = Model.load(run)
        job = prepared_job(model, options.sentences, folder)
        peers = [name for name in options.peers if name in PEERS_OF["--model" if is_transformer else "--rnn"]]
        if options.exported:
            decoders, absent = exported_decoders(run, folder, directly=True), {}
        else:
            decoders, absent = transformer_decoders(run, peers, folder) if is_transformer else rnn_decoders(run, peers)
        missing |= absent
        fixed = fixed_job(job, model) if any(one.fixed for one in decoders) else job
        steps = fixed.steps or steps
        jobs += [
            (one, replace(fixed if one.fixed else job, model=str(one.model), compute=one.compute)) for one in decoders
        ]
    found: dict[str, dict[str, list[dict[str, Any]]]] = {one.title: {s: [] for s in SEARCHES} for one, _ in jobs}
    asked = {name: num_sentences(options, beam) for name, beam in SEARCHES.items()}
    for turn in range(options.rounds):
        for name, beam in SEARCHES.items():
            for decoder, job in jobs[:: -1 if turn % 2 else 1]:  # whoever comes first does not always come first
                if decoder.title in missing:
                    continue
                try:
                    one = run_decoder(decoder, shortened(replace(job, beam=beam), asked[name], folder), folder)
                except NotInstalled as error:
                    missing[decoder.title] = str(error)
                    say(f"round {turn + 1}  {decoder.title}: {error}")
                    continue
                found[decoder.title][name].append(one)
                pace = asked[name] / (one["search"] or one["whole"])
                say(f"round {turn + 1}  {name:7} {decoder.title}: {pace:,.0f} sentences/s")
    rows = {title: summary(searches, asked) for title, searches in found.items() if title not in missing}
    return {"sentences": options.sentences, "asked": asked, "fixed_length": steps, "decoders": rows, "missing": missing}


def num_sentences(options: argparse.Namespace, beam: int) -> int:
    """Where whole programs are compared, a beam gets fewer: so that either takes about as long."""
    fewer = max(TEST_SET, -(-options.sentences // 4))
    return min(fewer, options.sentences) if options.exported and beam > 1 else options.sentences


def shortened(job: DecodingJob, most: int, folder: Path) -> DecodingJob:
    """The same job for the first so many sentences."""
    if most >= len(job.ids):
        return job
    files = {}
    for name in ("texts", "pieces"):
        whole = Path(getattr(job, name))
        part = folder / f"{whole.name}.{most}"
        part.write_text("".join(whole.read_text(encoding="utf-8").splitlines(True)[:most]), encoding="utf-8")
        files[name] = str(part)
    return replace(job, ids=job.ids[:most], **files)


def summary(searches: dict[str, list[dict[str, Any]]], asked: dict[str, int]) -> dict[str, Any]:
    """Medians of sentences a second: around the search, and of the whole process."""
    values: dict[str, Any] = {}
    for name, rounds in searches.items():
        sentences = asked[name]
        inside = [sentences / one["search"] for one in rounds if one["search"]]
        values[name] = {
            "search": statistics.median(inside) if inside else None,
            "whole": statistics.median(sentences / one["whole"] for one in rounds),
            "rounds": [sentences / (one["search"] or one["whole"]) for one in rounds],
            "agreement": next((one["agreement"] for one in rounds if one["agreement"] is not None), None),
        }
    return values


def decode_table(found: dict[str, Any]) -> str:
    rows = []
    for title, one in found["decoders"].items():
        same = one["greedy"]["agreement"]
        if same is not None and same < 0.9:  # other answers have other lengths: their pace says nothing
            title = f"{title} (**not comparable: its answers differ**)"
        cells = [number(one[name][kind]) for name in SEARCHES for kind in ("search", "whole")]
        rows.append([title, *cells, "–" if same is None else f"{same:.1%}"])
    rows += [[title, reason, "–", "–", "–", "–"] for title, reason in found["missing"].items()]
    header = ["decoder"]
    for name in SEARCHES:
        header += [f"{name}: sentences/s of the search", f"{name}: of the whole process"]
    header.append("greedy answers equal to seqloom's")
    fixed = ""
    if found.get("fixed_length"):
        fixed = (
            " JoeyNMT runs the same weights, converted, on symbols, in batches of 64. In the rows of a fixed length "
            f"the end symbol is impossible: every sentence takes {found['fixed_length']} steps, on either side."
        )
    return (
        f"{table(header, rows)}\n\n{found['sentences']:,} {SENTENCES_ASKED}, "
        "medians over the rounds. CTranslate2 gets and gives symbols, with one worker of one thread a core and batches "
        "of 64; Hugging Face and fairseq run the same weights, converted, on symbols; seqloom reads and writes text."
        f"{fixed}"
    )


def exported_table(found: dict[str, Any]) -> str:
    """Ours on CTranslate2 beside CTranslate2 itself: commands as a whole, and what goes on in a warm process."""
    rows = []
    pairs = {"commands": (predict_title, command_title), "warm": (engine_title, direct_title)}
    for name in SEARCHES:
        for compute in COMPUTES:
            for timed, titles in pairs.items():
                sides = [found["decoders"][title(compute)][name] for title in titles]
                medians = [statistics.median(side["rounds"]) for side in sides]
                each = [" ".join(number(pace) for pace in side["rounds"]) for side in sides]
                shown = [f"{rounds} (**{number(median)}**)" for rounds, median in zip(each, medians, strict=True)]
                rows.append([name, compute, timed, *shown, f"{medians[0] / medians[1]:.3f}"])
    header = ["search", "weights", "timed", "seqloom, sentences/s of each round (median)"]
    header += ["CTranslate2 directly, sentences/s of each round (median)", "ratio of medians"]
    return (
        f"{table(header, rows)}\n\n{found['asked']['greedy']:,} {SENTENCES_ASKED}, "
        f"{found['asked']['beam 5']:,} with a beam. Commands: whole programs, start-up included. `seqloom predict` "
        "reads a file of text and writes one; the other reads a file of pieces that were cut before, and writes one "
        "of pieces. Warm: the same in a process that has answered something before, files not included. CTranslate2 "
        "has one worker of one thread a core and batches of 64."
    )


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    known = [name for names in PEERS_OF.values() for name in names]
    parser.add_argument("--model", type=Path, help="run of a Transformer")
    parser.add_argument("--rnn", type=Path, help="run of a recurrent model")
    parser.add_argument("--peers", default="ctranslate2", help=f"of {', '.join(known)}; separated by commas")
    parser.add_argument("--exported", action="store_true", help="only what runs on CTranslate2, beside itself")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sentences", type=int, default=5000)
    parser.add_argument("--quick", action="store_true", help="one round of 200 sentences: checks the bench")
    parser.add_argument("--write", action="store_true", help="put the table into docs/results.md")
    options = parser.parse_args(given)
    options.peers = [name for name in options.peers.split(",") if name]
    unknown = [name for name in options.peers if name not in known]
    if unknown:
        parser.error(f"--peers takes {', '.join(known)}; got {', '.join(unknown)}")
    if options.model is None and options.rnn is None:
        parser.error("give --model RUN, --rnn RUN or both")
    if options.rnn is None and any(name in PEERS_OF["--rnn"] for name in options.peers):
        parser.error(f"{', '.join(PEERS_OF['--rnn'])} decodes with a recurrent model: give --rnn RUN")
    if options.exported and (options.model is None or options.rnn is not None or options.peers != ["ctranslate2"]):
        parser.error("--exported goes with --model RUN and with no other peers")
    if options.quick:
        options.rounds, options.sentences = 1, 200
    return options


def main(given: Sequence[str] | None = None) -> dict[str, Any]:
    options = arguments(given)
    with tempfile.TemporaryDirectory(prefix="seqloom-bench-") as temporary, user_errors():
        found = measure(options, Path(temporary))
    body = exported_table(found) if options.exported else decode_table(found)
    print(body)
    if options.write:
        name, title = "bench.decode", "Decoding pace"
        if options.exported:
            name += f" exported {options.sentences}"
            title += f" on CTranslate2, {options.sentences:,} sentences"
        write_section(name, section(title, describe_machine(), body))
    result = {"bench": "decode", "machine": describe_machine(), **found}
    print(json.dumps(result))
    return result


if __name__ == "__main__":
    main()
