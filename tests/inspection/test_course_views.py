"""What the views of the course show is right: worked by hand, or compared with the model itself."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.errors import UserError
from seqloom.evaluation.metrics import bleu_interval, corpus_scores
from seqloom.inspection.beam import Candidate, Search, draw_beam, tree_of
from seqloom.inspection.forcing import Forcing, agreement
from seqloom.inspection.gates import by_likeness, which_units
from seqloom.inspection.links import draw_links
from seqloom.inspection.next_symbols import NextSymbols
from seqloom.inspection.onehot import two_sentences
from seqloom.inspection.positions import encoding_of
from seqloom.inspection.scatter import place_every_label
from seqloom.inspection.softmax import foresee, softmax
from seqloom.inspection.states import States
from seqloom.inspection.theme import COUNTERPARTS, darkened, lightness, on_page, themed
from seqloom.inspection.tokens import bpe_steps, cut
from seqloom.inspection.windows import draw_windows, pairs, windows
from seqloom.nn.positions import POSITIONS
from seqloom.text.settings import TextSettings
from seqloom.text.tokenizers import Tokenizer
from seqloom.vectors.table import WordVectors

TEXT = "the green witch arrived"


@pytest.fixture(scope="module")
def model(tiny_run: Path) -> Any:
    import seqloom

    return seqloom.load(tiny_run)


# -- tokens -----------------------------------------------------------------------------------------------------------

LINES = ["low lower lowest", "new newer newest", "wide wider widest", "slow slower slowest"] * 5
BPE = Tokenizer.train(LINES, TextSettings(tokenizer="bpe", vocabulary_size=40))


def test_merges_by_hand() -> None:
    ranks = {("e", "r"): 0, ("l", "o"): 1, ("lo", "w"): 2, ("low", "er"): 3}
    steps = bpe_steps("lower", ranks)
    assert [" ".join(step.pieces) for step in steps] == ["l o w e r", "l o w er", "lo w er", "low er", "lower"]
    assert [step.number for step in steps] == [None, 1, 2, 3, 4]
    assert steps[1].fresh == {3}
    assert bpe_steps("aaa", {("a", "a"): 0})[-1].pieces == ("aa", "a")


@given(st.text("lowernstid ", min_size=1, max_size=30))
def test_the_last_step_is_what_the_tokenizer_does(text: str) -> None:
    found = cut(BPE, text)
    pieces = [piece for _, steps in found.words for piece in steps[-1].pieces]
    assert BPE.ids(pieces) == BPE.encode(text) == [number for number, _ in found.ids]


def test_an_unknown_symbol_shows_its_word() -> None:
    words = Tokenizer.train(LINES, TextSettings(tokenizer="word", vocabulary_size=None))
    assert words.labels_of("low Xerxes, wide") == ["low", "<unk: Xerxes>", "<unk: ,>", "wide"]
    assert words.labels_of("low wide") == words.labels(words.encode("low wide"))


# -- words as vectors -------------------------------------------------------------------------------------------------


@given(st.integers(1, 12), st.integers(1, 5))
def test_windows_are_those_of_a_plain_loop(length: int, size: int) -> None:
    words = [f"w{i}" for i in range(length)]
    expected = [
        (words[i], words[j]) for i, j in itertools.product(range(length), repeat=2) if i != j and abs(i - j) <= size
    ]
    assert pairs(words, windows(length, size)) == expected


def test_windows_on_the_terminal() -> None:
    drawn = draw_windows(["a", "green", "bird"], 1, colour=False)
    assert "[a] green ····" in drawn
    assert "a, bird -> green" in drawn
    assert "green -> a  green -> bird" in drawn


def test_one_hot_vectors_know_only_equality() -> None:
    vectors = WordVectors(["a", "b", "c"], np.array([[1, 0], [0.6, 0.8], [0, 2]], np.float32))
    found = two_sentences(vectors, ["a", "b", "zebra"], ["b", "c"])
    assert found.between(found.one_hot).tolist() == [[0, 0], [1, 0]]
    assert found.between(found.dense) == pytest.approx(np.array([[0.6, 0.0], [1.0, 0.8]]), abs=1e-6)
    assert found.of_sentences(found.one_hot) == pytest.approx(0.5)
    with pytest.raises(UserError, match="got 0 in: zebra"):
        two_sentences(vectors, ["zebra"], ["a"])


def test_the_worked_softmax() -> None:
    """The example of docs/word-vectors.md."""
    context = np.array([-2.3, 0.9, 5.4])
    output = np.array([[0.0, 0.8, 0.2], [0.4, -0.2, -2.0], [0.3, 0.1, 2.5], [0.7, -0.3, -1.3]])
    assert output @ context == pytest.approx([1.8, -11.9, 12.9, -8.9], abs=1e-9)
    assert softmax(output @ context) == pytest.approx([0.00002, 0, 0.99998, 0], abs=0.00001)
    assert softmax(np.array([1.8, -1.9, 2.9, -0.9])) == pytest.approx([0.24, 0.006, 0.73, 0.016], abs=0.006)


def test_a_context_foresees_by_its_mean() -> None:
    matrix, output = np.array([[2, 0], [0, 4], [9, 9]], np.float32), np.array([[1, 0], [0, 1], [1, 1]], np.float32)
    found = foresee(WordVectors(["a", "b", "c"], matrix, output=output), ["a", "b"])
    assert found.mean.tolist() == [1.0, 2.0]
    assert list(found.words) == ["c", "b", "a"]
    assert found.scores.tolist() == [3.0, 2.0, 1.0]
    assert found.shares == pytest.approx(np.exp([3, 2, 1]) / np.exp([3, 2, 1]).sum())


# -- decoding ---------------------------------------------------------------------------------------------------------


def test_a_tree_by_hand() -> None:
    steps = [
        [Candidate(0, "a", -1.0, "kept"), Candidate(0, "b", -2.0, "kept"), Candidate(0, "c", -3.0, "pruned")],
        [Candidate(1, "x", -2.5, "kept"), Candidate(0, "</s>", -2.6, "ended"), Candidate(0, "y", -4.0, "pruned")],
        [Candidate(0, "</s>", -2.7, "ended")],
    ]
    columns = tree_of(Search(steps, ["b", "x", "</s>"], -0.9, 2), pruned=1)
    assert [[node.candidate.label for node in column] for column in columns] == [
        ["a", "b", "c"],
        ["x", "</s>", "y"],
        ["</s>"],
    ]
    assert columns[2][0].path == ["b", "x", "</s>"]
    assert [node.candidate.label for column in columns for node in column if node.best] == ["b", "x", "</s>"]
    assert len(tree_of(Search(steps, [], 0.0, 2), pruned=0)[0]) == 2
    drawn = draw_beam(Search(steps, ["b", "x", "</s>"], -0.9, 2), colour=False)
    assert "└─ x −2.50  *" in drawn
    assert "c −3.00  pruned" in drawn


@pytest.mark.parametrize("width", [1, 3])
def test_a_watched_search_is_the_search(model: Any, width: int) -> None:
    options = model.options.overridden({"method": "beam", "beam_size": width, "max_length": 9})
    found = model.task.beam(model.network, TEXT, options)
    answer = model(TEXT, method="beam", beam_size=width, max_length=9)
    assert list(found.answer) == [*answer.tokens, "<eos>"]
    assert found.score == pytest.approx(answer.score)
    for step in found.steps:
        totals = [one.total for one in step]
        assert totals == sorted(totals, reverse=True)
        assert sum(one.fate == "kept" for one in step) <= width
    columns = tree_of(found, pruned=2 * width)
    assert [node.candidate.label for column in columns for node in column if node.best] == list(found.answer)


def test_what_comes_next_is_what_a_greedy_search_says(model: Any) -> None:
    answer = model(TEXT, method="greedy", unknown="keep")
    labels, log_probs = model.task.next_log_probs(model.network, TEXT)
    found = NextSymbols.of(labels, log_probs)
    assert float(found.log_probs[0]) == pytest.approx(answer.token_log_probabilities[0], abs=1e-4)
    assert found.at(1.0) == pytest.approx(np.exp(found.log_probs))
    assert found.at(0.5)[0] >= found.at(1.0)[0] >= found.at(2.0)[0]
    assert found.at(2.0).sum() == pytest.approx(1.0)
    with pytest.raises(UserError, match=r"from 0\.01 to 100; got 0"):
        model.look("next", TEXT, temperatures=(0.0,))


def forced(reference: str, forced: str, free: str) -> Forcing:
    return Forcing(reference.split(), forced.split(), np.ones(len(reference.split())), free.split())


def test_where_free_running_parts() -> None:
    assert forced("a b c", "a b c", "a b c").parted is None
    assert forced("a b c", "a x c", "a x c").parted == 1
    assert forced("a b c", "a b c", "a b").parted == 2
    assert forced("a b", "a b", "a b c").parted == 2
    right, free, counts = agreement([forced("a b c", "a b c", "x b"), forced("a b", "a x", "a x")])
    assert right.tolist() == [1.0, 0.5, 1.0]
    assert free.tolist() == [0.5, 0.5, 0.0]
    assert counts.tolist() == [2, 2, 1]


def test_a_models_own_answer_is_never_left(model: Any) -> None:
    answer = model(TEXT, method="greedy", unknown="forbid")
    (found,) = model.task.forcing(model.network, [(TEXT, answer.text)])
    if answer.finished:
        assert found.parted is None
    expected = np.exp(answer.token_log_probabilities)[: len(found.reference) - 1]
    assert found.probabilities[: len(expected)] == pytest.approx(expected, abs=1e-3)
    with pytest.raises(UserError, match="a text needs its reference"):
        model.look("forcing", TEXT)


def test_forcing_on_data(model: Any) -> None:
    picture = model.look("forcing", sentences=4)
    values = picture.to_dict()
    assert values["sentences"][0] == 4
    assert len(values["forced"]) == len(values["free"]) == len(values["sentences"])
    assert "4 sentences of valid" in picture.to_text(colour=False)


# -- states, positions ------------------------------------------------------------------------------------------------


def test_how_far_a_state_moves() -> None:
    found = States(["a", "b", "c"], np.array([[3.0, 4.0, 0.0], [3.0, 4.0, 0.0], [0.0, 4.0, 0.0]]))
    assert found.moved.tolist() == [5.0, 0.0, 3.0]
    assert found.liveliest(1).tolist() == [0]


def test_the_way_of_a_backward_layer_begins_at_the_end(model: Any) -> None:
    forward, backward = (model.look("states", TEXT, direction=way).to_dict() for way in ("forward", "backward"))
    assert backward["tokens"] == forward["tokens"][::-1]


@pytest.mark.parametrize("name", POSITIONS)
def test_every_position_encoding_is_shown_as_it_acts(name: str) -> None:
    import torch

    part = POSITIONS[name](size=8, num_heads=2, max_length=16, distance=3)
    found = encoding_of(part, 6)
    if name == "none":
        assert found is None
        return
    assert found is not None
    assert found.kind == name
    zeros = torch.zeros(1, 6, 8)
    if name in ("sinusoidal", "learned"):
        assert found.matrix == pytest.approx(part.embed(zeros)[0].detach().numpy(), abs=1e-6)
    elif name == "alibi":
        bias = part.bias(torch.zeros(1, 2, 6, 4), 6)
        assert bias is not None
        assert found.matrix == pytest.approx(bias[:, 0].numpy())
        assert found.alike == pytest.approx(bias[0].numpy())
    elif name == "rotary":
        first = torch.zeros(1, 1, 6, 4)
        first[..., :2] = 1.0
        assert found.matrix == pytest.approx(part.rotate(first)[0, 0, :, :2].numpy(), abs=1e-6)
    else:
        assert found.matrix.shape == (7, 4)
        assert found.rows == ["−3", "−2", "−1", "0", "+1", "+2", "+3"]


def test_which_units_are_shown() -> None:
    hidden = np.array([[0, 0, 0, 0], [1, 5, 0, 3]], float)
    assert which_units(hidden, "2") == [1, 3]
    assert which_units(hidden, "3,0") == [3, 0]
    with pytest.raises(UserError, match="units count from 0 to 3; got 4"):
        which_units(hidden, "1,4")
    with pytest.raises(UserError, match="got 'many'"):
        which_units(hidden, "many")


def test_units_that_do_alike_stand_together() -> None:
    random = np.random.default_rng(2)
    kinds = random.normal(size=(3, 12))
    rows = np.concatenate([kinds + 0.01 * random.normal(size=kinds.shape) for _ in range(4)])
    order = [unit % 3 for unit in by_likeness(rows)]
    changes = sum(one != two for one, two in itertools.pairwise(order))
    assert changes <= 3
    assert sorted(by_likeness(rows)) == list(range(12))


# -- figures and pages ------------------------------------------------------------------------------------------------


def test_an_interval_holds_the_score_and_is_always_the_same() -> None:
    answers = ["the cat sat on the mat", "a dog runs in a park", "it rains a lot today", "we sing all day long"] * 5
    golds = [*answers[:10], *(text.replace("a", "the") for text in answers[10:])]
    low, high = bleu_interval(answers, golds)
    assert low < corpus_scores(answers, golds)["bleu"] < high
    assert (low, high) == bleu_interval(answers, golds)
    assert bleu_interval(answers, answers) == pytest.approx((100.0, 100.0))


@given(st.lists(st.tuples(st.floats(0.5, 3.5), st.floats(0.5, 3.5)), min_size=2, max_size=6, unique=True))
@settings(max_examples=60)
def test_no_leader_crosses_a_name(points: list[tuple[float, float]]) -> None:
    anchors, sizes = np.array(points), np.tile([0.7, 0.145], (len(points), 1))
    labels = place_every_label(anchors, sizes, 4.0, 4.0, np.empty((0, 2)))
    for label in labels:
        if not label.line:
            continue
        start, box = anchors[label.point], np.array(label.box)
        end = np.clip(start, box[:2], box[2:])
        for other in labels:
            if other.point != label.point:
                inner = np.array(other.box) + [0.02, 0.02, -0.02, -0.02]
                for share in np.linspace(0, 1, 100):
                    x, y = start + share * (end - start)
                    assert not (inner[0] < x < inner[2] and inner[1] < y < inner[3])


@given(st.integers(0, 0xFFFFFF), st.integers(0, 0xFFFFFF))
def test_what_is_lighter_on_a_light_page_is_darker_on_a_dark_one(one: int, two: int) -> None:
    """Greys alone: colours are cut off where a screen has none so light."""
    greys = [f"#{value & 0xFF:02x}" + 2 * f"{value & 0xFF:02x}" for value in (one, two)]
    first, second = (lightness([int(g[i : i + 2], 16) / 255 for i in (1, 3, 5)]) for g in greys)
    if min(first, second) + 0.02 < max(first, second) and not set(greys) & set(COUNTERPARTS):
        dark = [lightness([int(darkened(g)[i : i + 2], 16) / 255 for i in (1, 3, 5)]) for g in greys]
        assert (first < second) == (dark[0] > dark[1])


def test_a_theme_lasts_as_long_as_its_block() -> None:
    assert on_page("#ffffff") == "#ffffff"
    with themed("dark"):
        assert on_page("#FFFFFF") == COUNTERPARTS["#ffffff"]
    assert on_page("#ffffff") == "#ffffff"


def test_lines_can_be_pointed_at(tmp_path: Path) -> None:
    weights = [[0.9, 0.1], [0.01, 0.99]]
    drawn = Path(draw_links(weights, ["x", "y"], ["a", "b"], tmp_path / "a.svg", title="t")).read_text(encoding="utf-8")
    assert 'class="link from0 to1"' in drawn
    assert 'class="link from1 to0"' not in drawn, "what is below the least is left out"
    assert ".links:has(.from1 text:hover) .link:not(.from1)" in drawn
    text = draw_links(weights, ["x", "y"], ["a", "b"])
    assert next(line.split()[:4] for line in text.splitlines()) == ["x", "──", "a", "0.90"]
