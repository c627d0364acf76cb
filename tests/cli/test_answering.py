"""A plain `predict` does not wait for the parser, and means what the parser would have made of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.cli import predict
from seqloom.cli.answering import Question, named_options, plain_question
from seqloom.cli.main import build_app

APP = build_app("predict")
VALUES = [
    "text",
    "json",
    "greedy",
    "sample",
    "auto",
    "torch",
    "1",
    "12",
    "012",
    "0",
    "1e3",
    "１",
    "+2",
    "1_0",
    "999999999",
]
OPTIONS = ["--input", "--output", "--format", "--method", "--beam-size", "--engine", "--n-best", "--seed", "--set"]
OTHERS = ["m", "a cat", "", " ", "-", "--", "-x", "-5", "--beam_size", "--input=in.txt", "--format=json", "--help-me"]
LINES = st.lists(st.sampled_from(VALUES + OPTIONS + OTHERS) | st.text(max_size=4), max_size=6)
OPTION_LINES = st.tuples(
    st.lists(st.sampled_from(["m", "a cat", "5", "", "torch"]), min_size=1, max_size=3),
    st.lists(st.tuples(st.sampled_from(OPTIONS), st.sampled_from(VALUES + OTHERS)), max_size=3),
).map(lambda parts: [*parts[0], *(word for pair in parts[1] for word in pair)])


def parsed(arguments: list[str]) -> Question:
    """What the parser makes of it."""
    asked: list[Question] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(predict, "answer", asked.append)
        APP(["predict", *arguments], exit_on_error=False, print_error=False, result_action="return_none")
    return asked[0]


@given(LINES | OPTION_LINES)
def test_what_is_plain_means_the_same_to_the_parser(arguments: list[str]) -> None:
    question = plain_question(arguments)
    if question is not None:
        assert question == parsed(arguments)


@pytest.mark.parametrize(
    ("line", "changes"),
    [
        ("m", {}),
        ("runs/de cat dog", {"model": Path("runs/de"), "inputs": ("cat", "dog")}),
        (
            "m --input in.txt --output out.txt --method greedy",
            {"input_file": Path("in.txt"), "output": Path("out.txt"), "options": {"method": "greedy"}},
        ),
        ("m cat --beam-size 3", {"inputs": ("cat",), "options": {"beam_size": 3, "method": "beam"}}),
        ("m cat --method sample --beam-size 3", {"inputs": ("cat",), "options": {"beam_size": 3, "method": "sample"}}),
        ("m --format json --engine ctranslate2", {"format": "json", "engine": "ctranslate2"}),
    ],
)
def test_common_lines_are_plain(line: str, changes: dict[str, Any]) -> None:
    usual = Question(Path("m"), (), None, None, "text", "auto", {})
    expected = usual._replace(**changes)
    assert plain_question(line.split()) == expected == parsed(line.split())


@pytest.mark.parametrize(
    "line",
    [
        "",
        "--help",
        "m --help",
        "--input in.txt m",
        "m --input in.txt cat",
        "m --input",
        "m --input a --input b",
        "m --input -",
        "m --format xml",
        "m --beam-size 0",
        "m --beam-size many",
        "m --n-best 2",
        "m --set n_best=2",
        "m -- -5",
    ],
)
def test_everything_else_is_left_to_the_parser(line: str) -> None:
    assert plain_question(line.split()) is None


def test_some_options_say_what_the_method_is() -> None:
    assert named_options(method=None, seed=3) == {"seed": 3, "method": "sample"}
    assert named_options(method="beam", seed=3) == {"seed": 3, "method": "beam"}
    assert named_options(beam_size=2, n_best=None) == {"beam_size": 2, "method": "beam"}
    assert named_options(n_best=2) == {"n_best": 2}
