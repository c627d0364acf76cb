"""What people who know other Python libraries try first, and what they are told where it is different here."""

from __future__ import annotations

import copy
import pydoc
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import seqloom
from seqloom.corpus.examples import Pair
from seqloom.errors import UserError
from seqloom.folders import read_config
from seqloom.model import Model


@pytest.fixture(scope="module")
def model(tiny_run: Path) -> Model:
    return Model.load(tiny_run)


# -- the door ---------------------------------------------------------------------------------------------------------


def test_the_door_shows_what_is_behind_it_and_stays_light() -> None:
    code = (
        "import seqloom, sys; names = dir(seqloom); heavy = {'torch', 'numpy', 'pydantic'} & sys.modules.keys();"
        "print({'Model', 'load', 'train', '__version__'} - set(names), heavy)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split("\n")[0] == "set() set()"
    shown = pydoc.render_doc(seqloom, renderer=pydoc.plaintext)
    assert "train(recipe" in shown
    assert "load(path" in shown
    assert seqloom.Model is Model
    with pytest.raises(AttributeError, match="no attribute 'laod'"):
        _ = seqloom.laod


# -- one input, or many -----------------------------------------------------------------------------------------------


def test_a_text_is_one_input_and_a_list_is_many(model: Model) -> None:
    one = model.predict("the green witch arrived")
    assert one.source == "the green witch arrived"
    assert model("the green witch arrived").text == one.text
    for many in (["the dog slept", "a cat"], ("the dog slept", "a cat"), iter(["the dog slept", "a cat"])):
        assert [answer.source for answer in model.predict(many)] == ["the dog slept", "a cat"]
    assert [answer.source for answer in model(["a cat"])] == ["a cat"]
    assert model.predict([]) == []
    assert model.predict("").text == ""


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (5, r"got 5 \(int\)"),
        (None, r"got None \(NoneType\)"),
        (b"the cat", r"got b'the cat' \(bytes\)"),
        ({"a": "cat"}, r"\(dict\)"),
        ({"cat"}, r"\(set\)"),
        (2.5, r"\(float\)"),
    ],
)
def test_what_is_no_input_gets_one_sentence(model: Model, wrong: Any, said: str) -> None:
    for ask in (model, model.predict):
        with pytest.raises(UserError, match="predict takes a text, or a list with several; .*" + said) as caught:
            ask(wrong)
        assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match=r"predict: input 2 of 3 must be a text; .*" + said):
        model.predict(["a cat", wrong, "a dog"])


def test_a_task_says_what_one_input_is(model: Model) -> None:
    """Turns of a dialogue, say: then a list of texts is one input, and a list of lists several."""

    class Turns(type(model.task)):  # type: ignore[misc]
        one_input = "a list of turns"

        @classmethod
        def is_input(cls, value: Any) -> bool:
            return isinstance(value, list) and all(isinstance(turn, str) for turn in value)

        def predict(self, network: Any, inputs: Any, options: Any, progress: Any = None) -> Any:
            joined = [" ".join(turns) for turns in inputs]
            yield from super().predict(network, joined, options, progress)

    talking = Model(model.folder, Turns(model.task.source, model.task.target), model.network, model.options)
    assert talking(["the dog slept", "a cat"]).source == "the dog slept a cat"
    assert [answer.source for answer in talking([["the dog"], ["a", "cat"]])] == ["the dog", "a cat"]
    with pytest.raises(UserError, match="predict takes a list of turns, or a list with several; got 'a cat'"):
        talking("a cat")


# -- options by the names of other libraries --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "here"),
    [
        ({"num_beams": 4}, "num_beams is called beam_size here"),
        ({"max_new_tokens": 20}, "max_new_tokens is called max_length here"),
        ({"num_return_sequences": 2}, "num_return_sequences is called n_best here"),
        ({"top_n": 2}, "top_n is called n_best here"),
        ({"do_sample": True}, "do_sample is called method='sample' here"),
        ({"beam_sise": 2}, r"beam_sise is not a setting \(did you mean 'beam_size'\?\)"),
    ],
)
def test_options_of_other_libraries_are_answered_with_ours(model: Model, given: dict[str, Any], here: str) -> None:
    for ask in (lambda: model("a cat", **given), lambda: model.evaluate([("a cat", "un gato")], **given)):
        with pytest.raises(UserError, match=here):
            ask()


# -- evaluate ---------------------------------------------------------------------------------------------------------


def test_evaluate_by_name_by_file_and_by_lists(model: Model, tmp_path: Path) -> None:
    by_corpus = model.evaluate(model.corpora()["test"]).to_dict()
    assert model.evaluate("test").to_dict() == by_corpus
    assert model.evaluate().to_dict() == by_corpus
    assert model.evaluate("valid").name == "valid"
    assert model.evaluate("grammar:en-es/test").count > 0

    sources, targets = ["the dog slept", "a cat"], ["el perro durmió", "un gato"]
    file = tmp_path / "few.tsv"
    file.write_text("".join(f"{s}\t{t}\n" for s, t in zip(sources, targets, strict=True)), encoding="utf-8")
    (tmp_path / "few.en").write_text("\n".join(sources) + "\n", encoding="utf-8")
    (tmp_path / "few.es").write_text("\n".join(targets) + "\n", encoding="utf-8")
    pairs = list(zip(sources, targets, strict=True))
    reports = [
        model.evaluate(str(file)),
        model.evaluate(file),
        model.evaluate([str(tmp_path / "few.en"), str(tmp_path / "few.es")]),
        model.evaluate(sources, targets),
        model.evaluate(pairs),
        model.evaluate([Pair(*pair) for pair in pairs]),
    ]
    assert [report.figures for report in reports] == [reports[0].figures] * len(reports)
    assert [report.name for report in reports] == ["few", "few", "few", "test", "test", "test"]
    assert model.evaluate(sources, targets, name="mine").name == "mine"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            ("tset",),
            r"'tset' is neither a corpus of the recipe \(train, valid, test\) nor a file that is there \(did you",
        ),
        (("nothing.tsv",), "nor a file that is there"),
        ((5,), r"evaluate takes the name of a corpus .* or a list of pairs; got 5 \(int\)"),
        (({"a": "b"},), r"got \{'a': 'b'\} \(dict\)"),
        ((["a", "b"], ["c"]), "as many targets as inputs; got 2 inputs, 1 targets"),
        ((["a"], "c"), "targets must be a list, with one entry for each example; got str"),
        (("a", ["c"]), "inputs must be a list"),
        (([3], ["c"]), "input 1 must be a text; got 3"),
        ((["a"], [3]), "target 1 must be a text; got 3"),
        ((["the dog", "a cat"],), "'the dog' is no file that is there; inputs need their targets beside"),
        (([1, 2],), r"got \[1, 2\] \(list\)"),
        (([("a", "b"), 3],), r"each must be \(input, target\)"),
        (([("a", "b", "c")],), r"each must be \(input, target\)"),
    ],
)
def test_what_cannot_be_measured_gets_one_sentence(model: Model, given: tuple[Any, ...], said: str) -> None:
    with pytest.raises(UserError, match=said):
        model.evaluate(*given)


def test_a_model_folder_has_no_corpora_of_its_own(tiny_run: Path, tmp_path: Path) -> None:
    alone = Model.load(shutil.copytree(tiny_run / "model", tmp_path / "alone"))
    with pytest.raises(
        UserError, match=r"'test' is not a file that is there \(and a model folder by itself has no data"
    ):
        alone.evaluate("test")


# -- tokenizer, config, save ------------------------------------------------------------------------------------------


def test_tokenizer_and_config(model: Model) -> None:
    assert set(model.tokenizer) == {"source", "target"}
    source = model.tokenizer["source"]
    assert source.decode(source.encode("the green witch arrived")) == "the green witch arrived"
    assert model.config["model"]["kind"] == "recurrent_translator"


def test_saved_and_loaded_it_answers_the_same(model: Model, tmp_path: Path) -> None:
    model.save(tmp_path / "new" / "kept")
    again = seqloom.load(tmp_path / "new" / "kept")
    assert again.config == {**model.config} == read_config(tmp_path / "new" / "kept")
    texts = ["the green witch arrived", "the dogs did not sleep"]
    assert [(a.text, a.score) for a in again(texts)] == [(a.text, a.score) for a in model(texts)]
    assert (tmp_path / "new" / "kept" / "README.md").read_text() == (model.folder / "README.md").read_text()


def test_save_never_overwrites(model: Model, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match="something is there already; give another folder"):
        model.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    (tmp_path / "empty").mkdir()
    assert model.save(tmp_path / "empty").is_dir()


def test_it_is_no_collection_and_says_so(model: Model) -> None:
    assert model
    for ask, said in (
        (lambda: model["cat"], r"ask it as model\(input\)"),
        (lambda: len(model), "size"),
        (lambda: "cat" in model, "holds"),
    ):
        with pytest.raises(TypeError, match=said):
            ask()
    with pytest.raises(TypeError, match="not iterable"):
        list(model)
    with pytest.raises(AttributeError, match="a translator: a model of this kind has no 'most_similar'"):
        _ = model.most_similar  # type: ignore[attr-defined]
    assert "most_similar" not in dir(model)
    assert copy.copy(model)("a cat").text == model("a cat").text


def test_types_say_what_one_input_and_many_give(tmp_path: Path) -> None:
    """As an editor reads them."""
    import typing

    for method in (Model.__call__, Model.predict):
        one, many, other = typing.get_overloads(method)
        assert [signature.__annotations__["return"] for signature in (one, many, other)] == [
            "AnyAnswer",
            "list[AnyAnswer]",
            "Any",
        ]
