"""What a journal tells, who is best, and the tables that say so."""

from __future__ import annotations

import json
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.evaluation.comparison import Comparison, Entry, Training, Validated, distinct_names, training_from
from seqloom.evaluation.figures import METRICS, metrics
from seqloom.tasks import TASKS, find_task

JOURNAL = [
    {"event": "start", "time": 1.0, "parameters": 1234, "workers": 2},
    {"event": "train", "step": 50, "tokens_per_second": 100.0, "seconds": 6.0, "loss": 4.0},
    {"event": "train", "step": 100, "tokens_per_second": 300.0, "seconds": 12.0, "loss": 3.0},
    {"event": "validation", "step": 100, "seconds": 12.0, "loss": 3.5, "bleu": 10.0, "best": True, "samples": []},
    {"event": "train", "step": 150, "tokens_per_second": 0.0, "seconds": 18.0, "loss": 2.0},
    {"event": "train", "step": 200, "tokens_per_second": 120.0, "seconds": 24.0, "loss": 1.0},
    {"event": "validation", "step": 200, "seconds": 24.0, "loss": 3.0, "bleu": 8.0, "best": True, "samples": []},
]


def test_a_journal_in_one_view() -> None:
    found = training_from(JOURNAL)
    assert (found.parameters, found.workers, found.steps, found.seconds) == (1234, 2, 200, 24.0)
    assert found.tokens_per_second == 120.0  # the median of 100, 120 and 300; 0 was not measured
    assert found.curve("bleu") == [(0.2, 10.0), (0.4, 8.0)]
    assert found.best("bleu") == {"loss": 3.5, "bleu": 10.0}
    assert found.best("loss") == {"loss": 3.0, "bleu": 8.0}
    assert found.best("chrf") == {}
    assert found.curve("chrf") == []


def test_a_journal_of_word_vectors_has_no_steps() -> None:
    end = {"event": "end", "seconds": 70.0, "words_per_second": 1000, "losses": [2.0, 1.0]}
    lines = [{"event": "start", "words": 18, "vocabulary": 5}, {"event": "train", "words": 9, "loss": 2.0}, end]
    found = training_from(lines)
    assert (found.parameters, found.steps, found.seconds, found.tokens_per_second) == (None, None, 70.0, 1000)
    assert training_from([lines[0], *lines]).seconds is None  # resumed: the end only knows its own session


def test_no_journal_tells_nothing() -> None:
    assert training_from([]) == Training()


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
names = st.sampled_from(["parameters", "ngrams", "step", "seconds", "tokens_per_second", "bleu", "words_per_second"])
events = st.fixed_dictionaries(
    {"event": st.sampled_from(["start", "train", "validation", "end", "stop", None])}
) | st.dictionaries(names, anything)


@settings(max_examples=50)
@given(st.lists(anything | events | st.tuples(events, events).map(lambda two: two[0] | two[1])))
def test_whatever_a_journal_holds_it_can_be_shown(lines: list[object]) -> None:
    entry = Entry("a", "a", "k", {}, training_from(lines))
    comparison = Comparison("translate", "data", metrics("bleu", "chrf"), (entry,), drawn=("bleu", "loss"))
    comparison.followed(["bleu"])
    assert comparison.render().count("\n") == 4
    json.dumps(comparison.to_dict(), allow_nan=False)


def entry(name: str, finished: bool = True, training: Training | None = None, **figures: float) -> Entry:
    return Entry(name, f"runs/{name}", "recurrent_lm", figures, training or Training(), finished)


PERPLEXITY, BITS, BLEU = metrics("perplexity", "bits_per_character", "bleu")


def compared(*entries: Entry, notes: tuple[str, ...] = ()) -> Comparison:
    return Comparison("model_language", "measured on the text", (PERPLEXITY, BITS), entries, notes)


def test_the_best_is_the_lowest_perplexity() -> None:
    table = compared(entry("a", perplexity=90.0), entry("b", perplexity=80.0), entry("c"))
    assert table.best(PERPLEXITY) == {"b"}
    assert table.best(BITS) == set()


def test_the_best_is_the_highest_bleu() -> None:
    table = Comparison("translate", "", (BLEU,), (entry("a", bleu=9.0), entry("b", bleu=12.0), entry("c", bleu=11.0)))
    assert table.best(BLEU) == {"b"}


def test_equal_digits_share_the_mark() -> None:
    assert compared(entry("a", perplexity=80.001), entry("b", perplexity=80.004)).best(PERPLEXITY) == {"a", "b"}


def test_an_unfinished_run_takes_no_prize_and_one_alone_wins_nothing() -> None:
    one = entry("a", perplexity=90.0)
    assert compared(one, entry("b", finished=False, perplexity=80.0)).best(PERPLEXITY) == set()
    three = compared(one, entry("b", finished=False, perplexity=80.0), entry("c", perplexity=95.0))
    assert three.best(PERPLEXITY) == {"a"}


def test_no_star_where_the_difference_is_chance() -> None:
    entries = (entry("a", bleu=98.63), entry("b", bleu=98.52), entry("c", bleu=20.0))
    told = Comparison("translate", "", (BLEU,), entries, p_values={"bleu": {"b": 0.41, "c": 0.001}})
    assert told.best(BLEU) == set()
    assert "No star for BLEU: the best may be ahead by chance, of b (p = 0.41)." in told.render()
    assert "paired bootstrap resampling; a star needs p < 0.05" in told.markdown()
    assert "*" not in told.render()
    assert told.to_dict()["p_values"] == {"bleu": {"b": 0.41, "c": 0.001}}
    clear = Comparison("translate", "", (BLEU,), entries, p_values={"bleu": {"b": 0.049, "c": 0.001}})
    assert clear.best(BLEU) == {"a"}
    assert "98.63*" in clear.render()


THREE = compared(
    entry("lstm", training=Training(parameters=4_650_000, seconds=3700.4, steps=5000), perplexity=114.5),
    Entry("kn5", "runs/kn5", "ngram_lm", {"perplexity": 141.2}, Training(ngrams=2_000_000, seconds=4.26)),
    entry("gru", finished=False, training=Training(steps=10, seconds=75.0)),
    notes=("A note.",),
)


def test_the_table_as_text() -> None:
    assert THREE.render() == (
        "measured on the text\n"
        "\n"
        "name              model         perplexity          parameters  training  steps\n"
        "-------------------------------------------------------------------------------\n"
        "lstm              recurrent_lm      114.50*          4,650,000   1:01:40  5,000\n"
        "kn5               ngram_lm          141.20   2,000,000 n-grams     4.3 s      –\n"
        "gru (unfinished)  recurrent_lm           –                   –      1:15     10\n"
        "\n"
        "* the best\n"
        "A note."
    )


def test_the_table_as_markdown() -> None:
    assert THREE.markdown() == (
        "measured on the text\n"
        "\n"
        "| name | model | perplexity | parameters | training | steps |\n"
        "|---|---|---:|---:|---:|---:|\n"
        "| lstm | recurrent_lm | **114.50** | 4,650,000 | 1:01:40 | 5,000 |\n"
        "| kn5 | ngram_lm | 141.20 | 2,000,000 n-grams | 4.3 s | – |\n"
        "| gru (unfinished) | recurrent_lm | – | – | 1:15 | 10 |\n"
        "\n"
        "- A note."
    )


def test_a_bar_in_a_name_does_not_break_markdown() -> None:
    head, _, row = compared(entry("a|b", perplexity=2.0)).markdown().split("\n\n")[1].split("\n")
    assert row.replace("\\|", "").count("|") == head.count("|")


def test_the_table_as_json() -> None:
    found = json.loads(json.dumps(THREE.to_dict()))
    assert [one["name"] for one in found["runs"]] == ["lstm", "kn5", "gru"]
    assert found["metrics"] == {"perplexity": "lower is better", "bits_per_character": "lower is better"}
    lstm, kn5, gru = found["runs"]
    assert (lstm["perplexity"], lstm["best"], lstm["bits_per_character"]) == (114.5, ["perplexity"], None)
    assert (kn5["parameters"], kn5["ngrams"], kn5["steps"], kn5["best"]) == (None, 2_000_000, None, [])
    assert (gru["finished"], gru["perplexity"]) == (False, None)


def test_what_is_drawn() -> None:
    both = Training(validations=(Validated(1.0, {"loss": 1.0, "perplexity": 2.0, "bleu": 3.0, "exact_match": 1.0}),))
    bare = Training(validations=(Validated(1.0, {"loss": 1.0, "perplexity": 2.0}),))

    def followed(drawn: tuple[str, ...], wanted: list[str], *trainings: Training) -> str | None:
        entries = tuple(Entry(str(i), "", "", {}, one) for i, one in enumerate(trainings))
        return Comparison("", "", (), entries, drawn=drawn, per_symbol=frozenset({"loss"})).followed(wanted)

    texts, symbols = ("bleu", "perplexity", "loss"), ("perplexity", "loss")
    assert followed(texts, ["loss", "loss"], both, both) == "bleu"  # losses depend on how text is cut
    assert followed(texts, ["exact_match", "exact_match"], both, both) == "exact_match"
    assert followed(texts, ["exact_match", "bleu"], both, both) == "bleu"
    assert followed(texts, ["bleu", "bleu"], both, bare) == "perplexity"  # what all have
    assert followed(texts, ["bleu", "bleu"], both, Training()) == "bleu"  # who has nothing is not asked
    assert followed(symbols, ["loss"], bare) == "perplexity"
    assert followed(symbols, ["perplexity"], Training()) is None
    assert followed((), [], Training()) is None
    assert followed((), ["loss"], bare) is None


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        ([("runs", "a"), ("runs", "b")], ["a", "b"]),
        ([("one", "a"), ("two", "a"), ("two", "b")], ["one/a", "two/a", "b"]),
        ([("x", "one", "a"), ("y", "one", "a")], ["x/one/a", "y/one/a"]),
    ],
)
def test_names_tell_runs_apart(paths: list[tuple[str, ...]], expected: list[str]) -> None:
    assert distinct_names(paths) == expected


@given(st.lists(st.lists(st.sampled_from("ab"), min_size=1, max_size=4).map(tuple), unique=True, max_size=8))
def test_names_are_distinct_and_say_where(paths: list[tuple[str, ...]]) -> None:
    found = distinct_names(paths)
    assert len(set(found)) == len(paths)
    assert all("/".join(path).endswith(name) for path, name in zip(paths, found, strict=True))


@pytest.mark.parametrize("name", sorted(TASKS))
def test_what_a_task_declares_is_known(name: str) -> None:
    """`compare`, early stopping and tables look figures up by these names."""
    task = find_task(name)
    assert task.metrics
    assert all(METRICS[metric.name] is metric for metric in task.metrics)
    assert set(task.drawn) <= METRICS.keys()
    training = task.Recipe.model_fields["training"].annotation
    kinds = [kind for kind in (training, *get_args(training)) if "metric" in getattr(kind, "model_fields", {})]
    chosen = {metric for kind in kinds for metric in get_args(kind.model_fields["metric"].annotation)}
    assert chosen <= METRICS.keys()
    assert bool(chosen) == bool(task.drawn), "what is validated can be followed"
    assert set(task.drawn) <= chosen, "what can be followed can be decided by"


def test_digits_of_a_metric() -> None:
    assert METRICS["aer"].show(0.12345) == "0.123"
