"""Word vectors side by side with gensim: the same words, sizes and epochs, each side in a process of its own, in turns.

    python -m bench.embeddings [--quick] [--models skipgram,cbow,skipgram-hs,fasttext,glove] [--seeds 3] [--words N]

Prints words a second (words of the text times epochs, over the seconds of training), the seconds before that in which
words are counted, the ratio of medians, the most memory, and what both sides' vectors score on word similarity and
analogies, scored by the same code from the same kind of file. gensim has no GloVe: seqloom's is measured in
co-occurrences a second. One JSON object on the last line. With --write the table goes into docs/results.md.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.machine import describe_machine
from bench.peers import Peer
from bench.report import number, ratios, section, table, write_section
from bench.sides import run_side, say, user_errors
from bench.vectors_job import VectorJob
from bench.venvs import ROOT, NotInstalled, environment_of

OURS = Peer("seqloom", "bench.peers.seqloom_vectors", models=("skipgram", "cbow", "skipgram-hs", "fasttext", "glove"))
GENSIM = Peer(
    "gensim 4.4.0",
    "bench.peers.gensim",
    steps=(("numpy", "scipy", "gensim==4.4.0"),),
    models=("skipgram", "cbow", "skipgram-hs", "fasttext"),
    torch=False,
)
SIDES = {"seqloom": OURS, "gensim": GENSIM}
LEARNING_RATES = {"skipgram": 0.025, "cbow": 0.05, "skipgram-hs": 0.025, "fasttext": 0.025, "glove": 0.05}
TITLES = {
    "skipgram": "skip-gram, negative sampling",
    "cbow": "CBOW, negative sampling",
    "skipgram-hs": "skip-gram, hierarchical softmax",
    "fasttext": "fastText (skip-gram with subwords)",
    "glove": "GloVe",
}
SIMILARITY = {"WordSim-353": "gensim_wordsim353.tsv", "SimLex-999": "gensim_simlex999.txt", "MEN": "men.csv"}
ANALOGIES = "questions-words.txt"
GOOGLE = "Google analogies"


def data_folder() -> Path:
    return Path(os.environ.get("SEQLOOM_DATA") or ROOT.parent / "shared" / "data")


def write_text(path: Path, lines: Iterable[list[str]], most: int | None) -> int:
    """One sentence a line, words apart by blanks, until there are `most` words; gives back how many there are."""
    written = 0
    with path.open("w", encoding="utf-8") as file:
        for words in lines:
            if not words:
                continue
            words = words if most is None else words[: most - written]
            file.write(" ".join(words) + "\n")
            written += len(words)
            if most is not None and written >= most:
                break
    return written


def tokenised(path: Path) -> Iterator[list[str]]:
    """The sentences of a text as seqloom takes them apart, lower-cased and without punctuation."""
    from seqloom.corpus.plain import PlainTextSettings, read_lines
    from seqloom.text.counts import words_of

    yield from map(words_of, read_lines(PlainTextSettings(text=str(path))))


def scores_of(path: Path) -> tuple[dict[str, float | None], dict[str, float]]:
    """What a file of vectors scores, and on which share of each set.

    Spearman's rank correlations, and the share of analogies solved by 3CosAdd.
    """
    from seqloom.evaluation.word_files import read_judgements, read_questions
    from seqloom.evaluation.words import compare_pairs, solve_analogies
    from seqloom.vectors.formats import read_vectors

    vectors, folder = read_vectors(path, "word2vec-binary"), data_folder()
    scores, coverage = dict[str, float | None](), dict[str, float]()
    for name, file in SIMILARITY.items():
        compared = compare_pairs(vectors, read_judgements(folder / "word_similarity" / file))
        scores[name], coverage[name] = compared.spearman, compared.compared / compared.count
    solved = solve_analogies(vectors, read_questions(folder / "analogies" / ANALOGIES), methods=("add",)).all
    scores[GOOGLE] = solved.right["add"] / solved.asked if solved.asked else None
    coverage[GOOGLE] = solved.asked / solved.count
    return scores, coverage


def sides_of(model: str) -> tuple[dict[str, tuple[Path, Peer]], dict[str, str]]:
    """Who runs a model, with which Python; and who does not, and why."""
    running, missing = dict[str, tuple[Path, Peer]](), dict[str, str]()
    for name, peer in SIDES.items():
        if model not in peer.models:
            missing[name] = "has none"
            continue
        try:
            running[name] = (environment_of(name, peer), peer)
        except NotInstalled as error:
            missing[name] = f"not installed: {error}"
    return running, missing


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All models and seeds, the sides in turns."""
    text, small = folder / "text.txt", folder / "small.txt"
    say("writing the words down")
    words = write_text(text, tokenised(Path(options.text)), options.words)
    small.write_text("".join(text.open(encoding="utf-8").readlines(200_000)), encoding="utf-8")
    rounds: dict[str, dict[str, list[dict[str, Any]]]] = {}
    missing: dict[str, dict[str, str]] = {}
    for model in options.models:
        running, missing[model] = sides_of(model)
        rounds[model] = {name: [] for name in running}
        for seed in range(1, options.seeds + 1):
            for name, (python, peer) in list(running.items()):
                job = VectorJob(
                    model=model,
                    text=str(text),
                    vectors=str(folder / "vectors.bin"),
                    result=str(folder / "result.json"),
                    size=options.size,
                    window=options.window,
                    negatives=options.negatives,
                    epochs=options.epochs,
                    min_count=options.min_count,
                    subsample=options.subsample,
                    learning_rate=LEARNING_RATES[model],
                    threads=options.threads,
                    seed=seed,
                    buckets=options.buckets,
                )
                Path(job.vectors).unlink(missing_ok=True)
                try:
                    if seed == 1 and name == "seqloom":  # what is compiled once a machine is not timed
                        run_side(python, peer, replace(job, text=str(small), epochs=1), folder, job.threads)
                    figures = run_side(python, peer, job, folder, job.threads)
                except NotInstalled as error:
                    if name == "seqloom":
                        raise SystemExit(f"seqloom itself {error}") from None
                    missing[model][name] = str(error)
                    del running[name], rounds[model][name]
                    say(f"{model}  {name}: {error}")
                    continue
                figures["words_per_second"] = words * options.epochs / figures["seconds"]
                figures["scores"], figures["coverage"] = scores_of(Path(job.vectors))
                rounds[model][name].append(figures)
                say(f"{model}  seed {seed}  {name}: {figures['words_per_second']:,.0f} words/s")
    settings = ("size", "window", "negatives", "epochs", "min_count", "subsample", "threads", "seeds", "buckets")
    return {
        "text": Path(options.text).name,
        "words": words,
        **{name: getattr(options, name) for name in settings},
        "models": {
            model: {
                "sides": {name: summary(found) for name, found in sides.items()},
                "missing": missing[model],
                "ratios": ratios(
                    {name: [one["words_per_second"] for one in found] for name, found in sides.items()}, "seqloom"
                ),
            }
            for model, sides in rounds.items()
        },
    }


def summary(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One side's figures over all seeds."""
    pace = [one["words_per_second"] for one in found]
    scores = {
        name: mean_and_spread([one["scores"][name] for one in found if one["scores"][name] is not None])
        for name in found[0]["scores"]
    }
    updates = [one["updates_per_second"] for one in found if one.get("updates_per_second") is not None]
    return {
        "words_per_second": pace,
        "median": statistics.median(pace),
        "updates_per_second": statistics.median(updates) if updates else None,
        "processor_seconds": statistics.median(one["processor_seconds"] for one in found),
        "vocabulary_seconds": statistics.median(one["vocabulary_seconds"] for one in found),
        "vocabulary": sorted({one["vocabulary"] for one in found}),
        "kept_words": sorted({one["kept_words"] for one in found}),
        "peak_mb": statistics.median(one["peak_mb"] for one in found),
        "scores": scores,
        "coverage": found[0]["coverage"],
    }


def mean_and_spread(values: Sequence[float]) -> dict[str, float | None] | None:
    """The mean over seeds, and the standard deviation where there are several."""
    if not values:
        return None
    return {"mean": statistics.fmean(values), "deviation": statistics.stdev(values) if len(values) > 1 else None}


def embeddings_table(found: Mapping[str, Any]) -> str:
    names = [*SIMILARITY, GOOGLE]
    rows = []
    for model, result in found["models"].items():
        for name, one in result["sides"].items():
            updates = one["updates_per_second"]
            rows.append(
                [
                    TITLES[model],
                    SIDES[name].title,
                    " ".join(f"{pace:,.0f}" for pace in one["words_per_second"]),
                    f"**{one['median']:,.0f}**" + (f" ({updates:,.0f} updates/s)" if updates else ""),
                    number(result["ratios"].get(name), 2, "×"),
                    number(one["processor_seconds"], 1),
                    number(one["vocabulary_seconds"], 1),
                    number(one["peak_mb"]),
                    *(score_text(one["scores"][score]) for score in names),
                ]
            )
        rows += [
            [TITLES[model], SIDES[name].title, reason, *["–"] * (5 + len(names))]
            for name, reason in result["missing"].items()
        ]
    header = ["model", "trainer", "words/s, each seed", "median", "seqloom / this", "processor s of training"]
    header += ["counting words, s", "peak memory, MB"]
    coverage = next(iter(next(iter(found["models"].values()))["sides"].values()))["coverage"]
    known = ", ".join(f"{share:.0%} of {name}" for name, share in coverage.items())
    notes = [
        f"{found['words']:,} words of {found['text']}, epochs: {found['epochs']}, {found['size']} dimensions, window "
        f"{found['window']}, {found['negatives']} negatives, minimum count {found['min_count']}, subsampling "
        f"{found['subsample']:g}, {found['threads']} threads. Scores: Spearman's ρ × 100 over the pairs whose words "
        f"are known, and the percentage of analogies solved by 3CosAdd; means ± standard deviations over seeds "
        f"({found['seeds']}). Known: {known}."
    ]
    notes += [f"**{note}**" for note in differences(found)]
    return f"{table([*header, *names], rows)}\n\n" + "\n\n".join(notes) + "\n"


def differences(found: Mapping[str, Any]) -> list[str]:
    """Where the sides did not train on the same words, which would make the comparison void."""
    notes = []
    for model, result in found["models"].items():
        for what in ("vocabulary", "kept_words"):
            seen = {name: one[what] for name, one in result["sides"].items()}
            if len({tuple(values) for values in seen.values()}) > 1:
                counts = ", ".join(f"{name} {' '.join(map(str, values))}" for name, values in seen.items())
                notes.append(f"Not the same {what.replace('_', ' ')} in {model}: {counts}.")
    return notes


def score_text(score: Mapping[str, Any] | None) -> str:
    if score is None:
        return "–"
    spread = "" if score["deviation"] is None else f" ± {100 * score['deviation']:.1f}"
    return f"{100 * score['mean']:.1f}{spread}".replace("-", "−")


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", default=",".join(TITLES), help=f"of {', '.join(TITLES)}; separated by commas")
    parser.add_argument("--seeds", type=int, default=3, help="trainings of each side")
    parser.add_argument("--text", help="a file of sentences; default: wikipedia/articles.txt.xz of SEQLOOM_DATA")
    parser.add_argument("--words", type=int, help="only the first so many words of the text")
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--window", type=int, default=5)
    parser.add_argument("--negatives", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--min-count", type=int, default=5)
    parser.add_argument("--subsample", type=float, default=1e-3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--buckets", type=int, default=2_000_000, help="fasttext: rows for pieces of words")
    parser.add_argument("--quick", action="store_true", help="200,000 words, 1 seed, 1 epoch: checks the bench only")
    parser.add_argument("--write", action="store_true", help="put the table into docs/results.md")
    options = parser.parse_args(given)
    options.models = [name for name in options.models.split(",") if name]
    unknown = [name for name in options.models if name not in TITLES]
    if unknown or not options.models:
        parser.error(f"--models takes {', '.join(TITLES)}; got {', '.join(unknown) or 'none'}")
    if options.quick:
        options.words, options.seeds, options.epochs = options.words or 200_000, 1, 1
        options.buckets = min(options.buckets, 50_000)
    if min(options.seeds, options.epochs, options.threads, options.words or 1) < 1:
        parser.error("--seeds, --epochs, --threads and --words must be 1 or more")
    options.text = options.text or str(data_folder() / "wikipedia" / "articles.txt.xz")
    return options


def main(given: Sequence[str] | None = None) -> dict[str, Any]:
    options = arguments(given)
    with tempfile.TemporaryDirectory(prefix="seqloom-bench-") as temporary, user_errors():
        found = measure(options, Path(temporary))
    body = embeddings_table(found)
    print(body)
    if options.write:
        title = f"Word vectors beside gensim: {', '.join(TITLES[name] for name in options.models)}"
        write_section(f"bench.embeddings {','.join(options.models)}", section(title, describe_machine(), body))
    result = {"bench": "embeddings", "machine": describe_machine(), **found}
    print(json.dumps(result))
    return result


if __name__ == "__main__":
    main()
