"""From a folder to answers: what travels with a model, and what a damaged folder says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import seqloom
from seqloom.corpus.examples import Pair
from seqloom.errors import RecipeError, UserError
from seqloom.predictor import Predictor, find_model

SENTENCES = ["the green witch arrived", "the dogs did not sleep", "a cat", ""]


@pytest.fixture(scope="module")
def model(tiny_run: Path) -> Predictor:
    return Predictor.load(tiny_run)


@pytest.fixture
def folder(tiny_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_run / "model", tmp_path / "model"))


def test_python_api_as_documented(tiny_run: Path, tmp_path: Path) -> None:
    answer = seqloom.load(tiny_run)("the green witch arrived")
    assert isinstance(answer.text, str)
    assert answer.score < 0
    assert len(answer.tokens) == len(answer.token_log_probabilities) - 1  # and the end symbol
    assert sum(answer.token_log_probabilities) == pytest.approx(answer.log_probability, abs=1e-4)
    answer.trace["decoder.attention"].plot(tmp_path / "alignment.svg")
    assert "witch" in (tmp_path / "alignment.svg").read_text()


def test_many_answers_equal_single_answers(model: Predictor) -> None:
    for method in ("greedy", "beam", "sample"):
        together = model.predict(SENTENCES, method=method)
        assert together[0].text == model(SENTENCES[0], method=method).text
        assert [a.source for a in together] == SENTENCES


def test_nothing_is_answered_by_nothing(model: Predictor) -> None:
    assert [a.text for a in model.predict(["", "   "])] == ["", ""]


def test_n_best_is_ranked_and_widens_the_beam(model: Predictor) -> None:
    answer = model("the dog slept", n_best=7)
    scores = [answer.score, *(a.score for a in answer.alternatives)]
    assert len(scores) == 7
    assert scores == sorted(scores, reverse=True)
    assert len({tuple(a.tokens) for a in (answer, *answer.alternatives)}) == 7


def test_sampling_follows_its_seed(model: Predictor) -> None:
    draw = lambda seed: model("the dogs did not sleep", method="sample", seed=seed, temperature=1.5).text  # noqa: E731
    assert draw(1) == draw(1)
    assert len({draw(seed) for seed in range(5)}) > 1


def test_trace_labels_and_rows(model: Predictor) -> None:
    view = model.trace("the green witch arrived", "llegó la bruja verde")["decoder.attention"]
    assert view.columns == ["the", "green", "witch", "arrived", "<eos>"]
    assert view.rows == ["llegó", "la", "bruja", "verde", "<eos>"]
    assert np.allclose(view.values.sum(1), 1, atol=1e-5)


def test_trace_equals_what_decoding_saw(model: Predictor) -> None:
    from seqloom.batches.collate import collate_sources
    from seqloom.decoding.search import decode
    from seqloom.decoding.settings import DecodingSettings

    source = "the dogs did not sleep"
    batch = collate_sources([model.task.source.encode(source)])
    found = decode(model.model, batch, DecodingSettings(method="greedy"), keep_attention=True)[0][0]
    assert found.attention is not None
    traced = model.task.trace(model.model, source, found.tokens)["decoder.attention"].values
    assert np.allclose(traced, found.attention.numpy(), atol=1e-5)


def test_gates_are_traced_for_every_layer(model: Predictor) -> None:
    names = model.trace("the dog slept").names()
    for direction in ("forward", "backward"):
        assert f"encoder.0.{direction}.update_gate" in names
    assert "decoder.0.forward.reset_gate" in names


def test_unknown_words_are_replaced_by_what_was_looked_at(model: Predictor) -> None:
    """An answer that is all UNK must come out as source words, and never as <unk>."""
    import numpy as np

    from seqloom.text.sides import natural_text
    from seqloom.text.special import UNK_ID

    attention = np.array([[0.1, 0.7, 0.1, 0.1], [0.6, 0.1, 0.1, 0.2], [0.0, 0.0, 0.1, 0.9]])
    shown = natural_text("the zyx quux", [UNK_ID] * 3, attention, model.task.source, model.task.target)
    assert shown == "zyx the quux"  # the third looks at the end symbol most, and then at the last word


def test_looking_again_sees_what_the_search_saw(model: Predictor) -> None:
    """Attention for unknown words comes from leading the model along its answer: the search looked there too."""
    import torch

    from seqloom.batches.collate import collate_pairs, collate_sources
    from seqloom.decoding.search import decode
    from seqloom.decoding.settings import DecodingSettings
    from seqloom.text.sides import natural_text
    from seqloom.text.special import UNK_ID

    task, text, settings = model.task, "the zyx quux slept", DecodingSettings(method="greedy", max_length=6)
    model.model.output.bias.data[UNK_ID] += (bias := 20.0)
    try:
        ((found,),) = decode(model.model, collate_sources([task.source.encode(text)]), settings, keep_attention=True)
        with torch.inference_mode():
            again = model.model.align(collate_pairs([task.source.encode(text)], [found.tokens]))[0]
        shown = task._show(model.model, text, found, settings)
    finally:
        model.model.output.bias.data[UNK_ID] -= bias
    assert UNK_ID in found.tokens
    torch.testing.assert_close(again, found.attention, atol=1e-5, rtol=1e-5)
    assert shown == natural_text(text, found.tokens, found.attention.numpy(), task.source, task.target)


def test_evaluation_has_every_number(model: Predictor) -> None:
    pairs = [Pair("the dog slept", "el perro durmió", ((0, 0), (1, 1), (2, 2)), ("agreement",))] * 3
    report, answers = model.evaluate(pairs, name="mine")
    found = report.to_dict()
    assert {"bleu", "chrf", "ter", "exact_match", "aer", "by_length", "by_phenomenon", "signatures"} <= found.keys()
    assert len(answers) == found["count"] == 3
    assert "aer" not in model.evaluate([pair._replace(alignment=None) for pair in pairs])[0].to_dict()


def test_loading_says_what_is_wrong(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such model or run folder"):
        find_model(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="not a model folder"):
        find_model(tmp_path / "empty")
    config = json.loads((folder / "config.json").read_text())

    def broken(**changes: object) -> None:
        (folder / "config.json").write_text(json.dumps({**config, **changes}))
        Predictor.load(folder)

    with pytest.raises(UserError, match="reads model format 1; the folder has 99"):
        broken(format=99)
    with pytest.raises(
        UserError, match=r"model\.kind must be one of recurrent_translator, transformer_translator; got"
    ):
        broken(model={"kind": "recurent_translator"})
    with pytest.raises(RecipeError, match="cell must be one of"):
        broken(model={**config["model"], "cell": "gruu"})
    with pytest.raises(UserError, match=r"does not fit its settings: .*expected"):
        broken(model={**config["model"], "hidden_size": 14})
    with pytest.raises(UserError, match="does not fit its settings"):  # and no memory is taken for such sizes
        broken(model={**config["model"], "hidden_size": 2_000_000})
    for nonsense in ([], {"kind": []}, None):
        with pytest.raises(UserError, match=r"config\.json"):
            broken(model=nonsense)
    (folder / "config.json").write_text("{")
    with pytest.raises(UserError, match="not valid JSON"):
        Predictor.load(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.source.json", "tokenizer.target.json"])
def test_a_damaged_or_missing_file_is_named(name: str, folder: Path) -> None:
    (folder / name).write_bytes((folder / name).read_bytes()[:100])
    with pytest.raises(UserError, match=name):
        Predictor.load(folder)
    (folder / name).unlink()
    with pytest.raises(UserError, match=name):
        Predictor.load(folder)


def test_an_unfinished_run_says_how_to_finish(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("x: 1")
    with pytest.raises(UserError, match="--resume"):
        Predictor.load(tmp_path)


def test_loading_never_unpickles(folder: Path) -> None:
    """A pickle in the place of the weights is refused, not executed."""
    import pickle

    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (pytest.fail, ("code of a stranger ran",))

    (folder / "model.safetensors").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(UserError, match="not a safetensors file"):
        Predictor.load(folder)
