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
from seqloom.folders import FORMAT, find_model
from seqloom.model import Model

SENTENCES = ["the green witch arrived", "the dogs did not sleep", "a cat", ""]


@pytest.fixture(scope="module")
def model(tiny_run: Path) -> Model:
    return Model.load(tiny_run)


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


def test_many_answers_equal_single_answers(model: Model) -> None:
    for method in ("greedy", "beam", "sample"):
        together = model.predict(SENTENCES, method=method)
        assert together[0].text == model(SENTENCES[0], method=method).text
        assert [a.source for a in together] == SENTENCES


def test_nothing_is_answered_by_nothing(model: Model) -> None:
    assert [a.text for a in model.predict(["", "   "])] == ["", ""]


def test_n_best_is_ranked_and_widens_the_beam(model: Model) -> None:
    answer = model("the dog slept", n_best=7)
    scores = [answer.score, *(a.score for a in answer.alternatives)]
    assert len(scores) == 7
    assert scores == sorted(scores, reverse=True)
    assert len({tuple(a.tokens) for a in (answer, *answer.alternatives)}) == 7


def test_sampling_follows_its_seed(model: Model) -> None:
    draw = lambda seed: model("the dogs did not sleep", method="sample", seed=seed, temperature=1.5).text  # noqa: E731
    assert draw(1) == draw(1)
    assert len({draw(seed) for seed in range(5)}) > 1


def test_trace_labels_and_rows(model: Model) -> None:
    view = model.trace("the green witch arrived", "llegó la bruja verde")["decoder.attention"]
    assert view.columns == ["the", "green", "witch", "arrived", "<eos>"]
    assert view.rows == ["llegó", "la", "bruja", "verde", "<eos>"]
    assert np.allclose(view.values.sum(1), 1, atol=1e-5)


def test_trace_equals_what_decoding_saw(model: Model) -> None:
    from seqloom.decoding.search import answer_sources
    from seqloom.decoding.settings import DecodingSettings

    source = "the dogs did not sleep"
    read = model.task.source.batch([source])
    found = answer_sources(model.network, read, DecodingSettings(method="greedy"), keep_attention=True)[0][0]
    assert found.attention is not None
    traced = model.trace(source, found.tokens)["decoder.attention"].values
    assert np.allclose(traced, found.attention.numpy(), atol=1e-5)


def test_gates_are_traced_for_every_layer(model: Model) -> None:
    names = model.trace("the dog slept").names()
    for direction in ("forward", "backward"):
        assert f"encoder.0.{direction}.update_gate" in names
    assert "decoder.0.forward.reset_gate" in names


def test_unknown_words_are_replaced_by_what_was_looked_at(model: Model) -> None:
    """An answer that is all UNK must come out as source words, and never as <unk>."""
    from seqloom.text.sides import natural_text
    from seqloom.text.special import UNK_ID

    attention = np.array([[0.1, 0.7, 0.1, 0.1], [0.6, 0.1, 0.1, 0.2], [0.0, 0.0, 0.1, 0.9]])
    tokenizers = model.task.tokenizers()
    shown = natural_text("the zyx quux", [UNK_ID] * 3, attention, tokenizers["source"], tokenizers["target"])
    assert shown == "zyx the quux"  # the third looks at the end symbol most, and then at the last word


def test_looking_again_sees_what_the_search_saw(model: Model) -> None:
    """Attention for unknown words comes from leading the model along its answer: the search looked there too."""
    import torch

    from seqloom.decoding.search import answer_sources
    from seqloom.decoding.settings import DecodingSettings
    from seqloom.text.sides import natural_text
    from seqloom.text.special import UNK_ID

    task, text, settings = model.task, "the zyx quux slept", DecodingSettings(method="greedy", max_length=6)
    model.network.output.bias.data[UNK_ID] += (bias := 20.0)
    try:
        ((found,),) = answer_sources(model.network, task.source.batch([text]), settings, keep_attention=True)
        with torch.inference_mode():
            again = model.network.align(task.pair(text, found.tokens))[0]
        shown = task.shown(model.network, text, found, settings)
    finally:
        model.network.output.bias.data[UNK_ID] -= bias
    assert UNK_ID in found.tokens
    torch.testing.assert_close(again, found.attention, atol=1e-5, rtol=1e-5)
    tokenizers = task.tokenizers()
    expected = natural_text(text, found.tokens, found.attention.numpy(), tokenizers["source"], tokenizers["target"])
    assert shown == expected


def test_evaluation_has_every_number(model: Model) -> None:
    pairs = [Pair("the dog slept", "el perro durmió", ((0, 0), (1, 1), (2, 2)), ("agreement",))] * 3
    report = model.evaluate(pairs, name="mine")
    found = report.to_dict()
    assert {"bleu", "chrf", "ter", "exact_match", "aer", "by_length", "by_phenomenon", "signatures"} <= found.keys()
    assert len(report.answers) == found["count"] == 3
    assert "aer" not in model.evaluate([pair._replace(alignment=None) for pair in pairs]).to_dict()


def test_loading_says_what_is_wrong(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such model or run folder"):
        find_model(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="not a model folder"):
        find_model(tmp_path / "empty")
    config = json.loads((folder / "config.json").read_text())

    def broken(**changes: object) -> None:
        (folder / "config.json").write_text(json.dumps({**config, **changes}))
        Model.load(folder)

    for number in (1, 99):
        message = f"reads model format {FORMAT}; the folder has {number}: train the model again with this version"
        with pytest.raises(UserError, match=message) as caught:
            broken(format=number)
        assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match=r"model\.kind must be one of .*; got 'recurent_translator' \(did you mean"):
        broken(model={"kind": "recurent_translator"})
    with pytest.raises(UserError, match=r"config\.json: task must be one of .*; got 'transalte' \(did you mean"):
        broken(task="transalte")
    with pytest.raises(UserError, match=r"config\.json: task must be one of .*; got None"):
        broken(task=None)
    with pytest.raises(UserError, match=r"metrics must be of bleu, .*; got \['blue'\]"):
        broken(metrics=["blue"])
    with pytest.raises(RecipeError, match=r"config\.json: 1 problem\n.*beam_size"):
        broken(options={"beam_size": 0})
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
        Model.load(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.source.json", "tokenizer.target.json"])
def test_a_damaged_or_missing_file_is_named(name: str, folder: Path) -> None:
    (folder / name).write_bytes((folder / name).read_bytes()[:100])
    with pytest.raises(UserError, match=name):
        Model.load(folder)
    (folder / name).unlink()
    with pytest.raises(UserError, match=name):
        Model.load(folder)


def test_what_it_is_measured_on(model: Model, folder: Path, tmp_path: Path) -> None:
    """What is named, else the recipe's; a model folder by itself has no data."""
    assert list(model.corpora()) == ["test"]
    assert list(model.corpora(test="all")) == ["test"]
    assert model.corpora()["test"].split == "test"
    assert model.corpora(default="valid")["valid"].split == "valid"
    [named] = model.corpora(["grammar:en-es/long"]).values()
    assert named.split == "long"
    with pytest.raises(UserError, match="--test names a corpus of the recipe; it does not go together with --data"):
        model.corpora(["pairs.tsv"], "test")
    with pytest.raises(UserError, match=r"--test must be .*; got 'tset'"):
        model.corpora(test="tset")
    with pytest.raises(UserError, match="a model folder has no data of its own; give --data FILE"):
        Model.load(folder).corpora()
    with pytest.raises(UserError, match="give its run folder"):
        Model.load(folder).fresh()


def test_it_says_what_it_is(model: Model, folder: Path) -> None:
    assert model.name == "tiny"
    assert Model.load(folder).name == folder.parent.name
    assert repr(model) == f"<a translator tiny: {model.size()}>"
    assert model.size() == f"{sum(weight.numel() for weight in model.network.parameters()):,} parameters"
    assert model.can("predict")
    assert not model.can("generate")
    with pytest.raises(UserError, match="a translator, which cannot generate"):
        model.generate("the")
    with pytest.raises(UserError, match=r"view must be one of .*; got 'atention' \(did you mean 'attention'\?\)"):
        model.look("atention", "the dog")


def test_an_unfinished_run_says_how_to_finish(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("x: 1")
    with pytest.raises(UserError, match="--resume"):
        Model.load(tmp_path)


def test_loading_never_unpickles(folder: Path) -> None:
    """A pickle in the place of the weights is refused, not executed."""
    import pickle

    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (pytest.fail, ("code of a stranger ran",))

    (folder / "model.safetensors").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(UserError, match="not a safetensors file"):
        Model.load(folder)
