"""`seqloom look`: options that come from the views, heads of a Transformer, and every wrong option refused."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from conftest import tiny_recipe
from seqloom.cli.look import command
from seqloom.cli.main import run
from seqloom.inspection.view import View
from seqloom.inspection.views import VIEWS
from seqloom.settings import Settings

TEXT = "the green witch arrived"


@pytest.fixture(scope="module")
def transformer_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of a Transformer with 1 encoder layer, 2 decoder layers and 2 heads; it has learned nothing."""
    from seqloom.experiment import train

    recipe = tiny_recipe(steps=2, validate_every=2)
    recipe["model"] = {
        "kind": "transformer_translator",
        "size": 12,
        "num_heads": 2,
        "encoder_layers": 1,
        "decoder_layers": 2,
        "feed_forward_size": 16,
    }
    folder = tmp_path_factory.mktemp("runs") / "tiny-transformer"
    train(recipe, folder)
    return folder


def shown(capsys: pytest.CaptureFixture[str], *arguments: Any, code: int = 0) -> tuple[str, str]:
    capsys.readouterr()
    assert run(["look", *(str(a) for a in arguments)]) == code
    found = capsys.readouterr()
    assert "Traceback" not in found.err
    return found.out, found.err


def test_attention_is_the_alignment(transformer_run: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out, _ = shown(capsys, transformer_run, "attention", TEXT, "--target", "llegó la bruja verde")
    assert out.splitlines()[0].split() == [*TEXT.split(), "<eos>"]
    shown(capsys, transformer_run, "attention", TEXT, "--save", tmp_path / "a.svg")
    assert (tmp_path / "a.svg").is_file()


@pytest.mark.parametrize(
    ("options", "sites"),
    [
        (["--all-heads"], ("encoder", "decoder", "cross")),
        (["--site", "all"], ("encoder", "decoder", "cross")),
        (["--site", "decoder"], ("decoder",)),
        (["--all-heads", "--site", "cross"], ("cross",)),
        (["--all-heads", "--layer", "1"], ("decoder", "cross")),
    ],
)
def test_all_heads(
    options: list[str],
    sites: tuple[str, ...],
    transformer_run: Path,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    asked = [transformer_run, "attention", TEXT, "--target", "llegó la bruja verde", *options]
    out, _ = shown(capsys, *asked)
    assert [line.split(":")[0] for line in out.splitlines() if " look at " in line] == list(sites)
    assert "\033" not in out
    out, err = shown(capsys, *asked, "--save", tmp_path / "a.svg")
    assert (out, err) == ("", f"drawn into {tmp_path / 'a.svg'}\n")
    drawn = (tmp_path / "a.svg").read_text()
    assert drawn.count("layer 1 · head 1") == len([site for site in sites if site != "encoder"])


@pytest.mark.parametrize(
    ("options", "heading"),
    [
        (["--site", "cross", "--layer", "1", "--head", "0"], "cross, layer 1, head 0"),
        (["--site", "encoder", "--layer", "0"], "encoder, layer 0, mean of 2 heads"),
        (["--layer", "0"], "cross, layer 0, mean of 2 heads"),
        (["--layer", "0", "--head", "1"], "cross, layer 0, head 1"),
    ],
)
def test_one_head(
    options: list[str], heading: str, transformer_run: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out, _ = shown(capsys, transformer_run, "attention", TEXT, *options)
    assert heading in out.splitlines()[0]
    shown(capsys, transformer_run, "attention", TEXT, *options, "--save", tmp_path / "a.svg")
    assert heading in (tmp_path / "a.svg").read_text()


def test_heads(transformer_run: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out, _ = shown(capsys, transformer_run, "heads", "--sentences", 5)
    assert "Means over 5 sentences of valid." in out
    assert out.count("◀ strongest") == 1
    assert sum(line.split()[:1] == ["cross"] for line in out.splitlines()) == 4
    assert "Means over 30 sentences of test." in shown(capsys, transformer_run, "heads", "--test", "test")[0]
    shown(capsys, transformer_run, "heads", "--sentences", 5, "--save", tmp_path / "a.svg")
    assert "attention heads of tiny-transformer" in (tmp_path / "a.svg").read_text()


def test_heads_of_a_bare_model_folder(
    transformer_run: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    shutil.copytree(transformer_run / "model", tmp_path / "mine")
    _, err = shown(capsys, tmp_path / "mine", "heads", code=2)
    assert "a model folder has no data of its own; give --data FILE" in err
    (tmp_path / "one.tsv").write_text("the dog slept\tel perro durmió\n")
    out, _ = shown(capsys, tmp_path / "mine", "heads", "--data", tmp_path / "one.tsv")
    assert "Means over 1 sentence of data." in out


HEAD = "head picks one head of one layer; say which"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["attention", TEXT, "--site", "cross", "--layer", "2"], "there is no layer 2: cross has layers 0 to 1"),
        (["attention", TEXT, "--site", "encoder", "--layer", "1"], "there is no layer 1: encoder has layer 0 only"),
        (["attention", TEXT, "--layer", "-1"], "layer: must be greater than or equal to 0; got -1"),
        (["attention", TEXT, "--layer", "one"], "one"),
        (["attention", TEXT, "--layer", "1", "--head", "2"], "cross, layer 1 has no head 2; it has heads 0 to 1"),
        (["attention", TEXT, "--head", "0"], HEAD),
        (["attention", TEXT, "--site", "cross", "--head", "0"], HEAD),
        (["attention", TEXT, "--all-heads", "--layer", "0", "--head", "0"], HEAD),
        (
            ["attention", TEXT, "--side", "encoder"],
            "--side is for look gates, look states and look tokens; look attention takes --save, --checkpoint",
        ),
        (
            ["attention", TEXT, "--test", "test"],
            "--test is for look confusion, look forcing, look gradients, look heads, look lengths and look reliability",
        ),
        (["attention", TEXT, "--site", "croos"], "croos"),
        (
            ["attention", TEXT, "--tagret", "x"],
            "no option --tagret (did you mean 'target'?); it takes --save",
        ),
        (["attention"], 'takes one text in quotes, such as "the green witch arrived"; got 0'),
        (["attention", "the", "green", "witch"], "takes one text in quotes"),
        (
            ["gates", TEXT, "--head", "0"],
            "--head is for look attention; look gates takes --save, --checkpoint",
        ),
        (
            ["gates", TEXT],
            "no recurrent layer to show; its views: attention, beam, forcing, heads, lengths, next, positions, tokens",
        ),
        (
            ["heads", "--layer", "0"],
            "--layer is for look attention, look contexts, look gates, look gradients and look states; look heads",
        ),
        (["contexts", "stick", "a stick"], "takes a word, and at least two texts"),
        (["contexts", "cat", "the cat", "a cat"], "by language models, not by a translator"),
        (
            ["contexts", "cat", "the cat", "a cat", "--head", "0"],
            "look contexts takes --save, --checkpoint",
        ),
        (["heads", "--all-heads"], "--all-heads is for look attention"),
        (["heads", TEXT], "look heads takes options, and no text"),
        (["heads", "--sentences", "0"], "sentences: must be greater than or equal to 1; got 0"),
        (["heads", "--test", "tset"], "did you mean 'test'?"),
        (["heads", "--sentences", "3", "--save", "x.gif"], ".svg"),
        (["lengths", "--sentences", "0"], "--sentences is for look forcing and look heads; look lengths takes"),
        (["lengths", TEXT], "look lengths takes options, and no text"),
        (["lengths", "--compare", "nowhere"], "nowhere: there is no such model"),
        (
            ["words", TEXT],
            "not for a translator; its views: attention, beam, forcing, heads, lengths, next, positions, tokens",
        ),
        (["neighbours", "king"], "this is for word vectors, not for a translator"),
        (["attenion", TEXT], "got 'attenion' (did you mean 'attention'?)"),
    ],
)
def test_mistakes(
    arguments: list[str],
    message: str,
    transformer_run: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    out, err = shown(capsys, transformer_run, *arguments, code=2)
    assert message in err
    assert not out


def test_a_recurrent_model_has_no_heads(tiny_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for options in (["attention", TEXT, "--all-heads"], ["attention", TEXT, "--layer", "0", "--head", "0"], ["heads"]):
        _, err = shown(capsys, tiny_run, *options, code=2)
        assert "this model has no attention heads to show; a Transformer has" in err


def test_gates_still_take_their_options(tiny_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = shown(capsys, tiny_run, "gates", TEXT, "--side", "encoder", "--layer", "0", "--direction", "backward")
    assert "update gate" in out
    assert out != shown(capsys, tiny_run, "gates", TEXT)[0]
    _, err = shown(capsys, tiny_run, "gates", TEXT, "--layer", "5", code=2)
    assert "no gates of encoder.5" in err


def test_a_picture_that_cannot_be_written_is_refused_before_any_work(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Even the model is looked for later."""
    for view in ("heads", "lengths"):
        _, err = shown(capsys, tmp_path / "no-model", view, "--save", "heads.gif", code=2)
        assert "heads.gif: a picture must end in .svg, .png, .pdf or .html" in err


def test_a_text_may_be_piped_in(
    tiny_run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, _ = shown(capsys, tiny_run, "attention", "--target", "el gato", "--", "- the cat")
    for arguments in (["attention", "--target", "el gato"], ["attention", "-", "--target", "el gato"]):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"- the cat\n")))
        assert shown(capsys, tiny_run, *arguments)[0] == expected


def test_options_may_stand_anywhere(tiny_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected, _ = shown(capsys, tiny_run, "gates", TEXT, "--direction", "backward", "--layer=0")
    assert shown(capsys, "--direction", "backward", tiny_run, "--layer=0", "gates", TEXT)[0] == expected


# -- help -------------------------------------------------------------------------------------------------------------


def test_help_lists_the_views(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--help"], ["-h"], ["runs/demo", "--help"], []):
        out, _ = shown(capsys, *arguments)
        assert all(f"  {name} " in out and view.about in out for name, view in VIEWS.items())


@pytest.mark.parametrize("name", VIEWS)
def test_help_of_a_view_shows_its_options(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    view = VIEWS[name]
    out, _ = shown(capsys, name, "--help")
    assert shown(capsys, "no/model", name, "--help")[0] == out
    words = " ".join(out.replace("│", " ").split())
    for field, about in view.Options.model_fields.items():
        assert f"--{field.replace('_', '-')}" in words
        assert about.description
        assert about.description in words
        for choice in get_args(about.annotation) if get_origin(about.annotation) is Literal else ():
            assert choice in words
    assert "--no-" not in words
    assert "--save" in words
    assert (view.inputs or "INPUT") in words or view.inputs is None


def test_help_is_quick_because_it_imports_nothing_heavy() -> None:
    code = (
        "import sys; from seqloom.cli.main import run; run(['look', 'attention', '--help']); "
        "print([name for name in ('torch', 'matplotlib', 'sacrebleu', 'tokenizers', 'numba') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_model_alone_names_its_views(tiny_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = shown(capsys, tiny_run)
    listed = [line.split()[0] for line in out.splitlines() if line.startswith("  ")]
    assert listed == ["attention", "beam", "forcing", "gates", "lengths", "next", "states", "tokens"]
    for forgotten in (["attention"], ["attention", TEXT]):
        _, err = shown(capsys, *forgotten, code=2)
        assert "a model before the view" in err


# -- from settings to options -----------------------------------------------------------------------------------------


def passed(view: View, tokens: list[str]) -> tuple[tuple[str, ...], Path | None, dict[str, Any]]:
    """What a view's command hands on: inputs, the file to save to, options of the view."""
    found: list[Any] = []
    made = command(view, lambda *given: found.append(given))
    made(tokens, exit_on_error=False, print_error=False, result_action="return_none")
    inputs, shared, values = found[0]
    assert {name: shared[name] for name in ("checkpoint", "format")} == {"checkpoint": None, "format": "text"}
    return inputs, shared["save"], values


def sample_of(annotation: Any) -> tuple[list[list[str]], Any]:
    """Tokens after the option's name, once for each time it is given, and the value that they mean."""
    kinds = [kind for kind in get_args(annotation) if kind is not type(None)]
    if get_origin(annotation) is Literal:
        return [[get_args(annotation)[-1]]], get_args(annotation)[-1]
    if annotation is bool:
        return [[]], True
    if annotation is int:
        return [["7"]], 7
    if annotation is str:
        return [["a value"]], "a value"
    if get_origin(annotation) is tuple:
        numbers = get_args(annotation)[0] is float
        return ([["0.5"], ["2"]], (0.5, 2.0)) if numbers else ([["one"], ["two"]], ("one", "two"))
    return sample_of(kinds[0])


FIELDS = [(name, field) for name, view in VIEWS.items() for field in view.Options.model_fields]


@pytest.mark.parametrize(("name", "field"), FIELDS)
def test_every_field_of_every_view_is_an_option(name: str, field: str) -> None:
    view = VIEWS[name]
    times, value = sample_of(view.Options.model_fields[field].annotation)
    option = "--" + field.replace("_", "-")
    inputs = ["x"] * view.least
    written = [token for one in times for token in (option, *one)]
    given, save, values = passed(view, [*inputs, *written, "--save", "a.svg"])
    assert (given, save) == (tuple(inputs), Path("a.svg"))
    defaults = {key: about.default for key, about in view.Options.model_fields.items()}
    assert {**defaults, **values} == {**defaults, field: value}


class Everything(View):
    """Every kind of field."""

    name, about, inputs, most = "everything", "all there is", "anything", None

    class Options(Settings):
        flag: bool = Field(False, description="a flag")
        many_words: tuple[str, ...] = Field((), description="repeated")
        number: int | None = Field(None, description="a number")
        share: float = Field(0.5, description="a share")
        choice: Literal["red", "green"] = Field("red", description="one of two")
        text: str | None = Field(None, description="a text")


@given(
    flag=st.booleans(),
    many_words=st.lists(st.text("ab -.", min_size=1), max_size=3).map(tuple),
    number=st.none() | st.integers(-99, 99),
    share=st.floats(0, 1),
    choice=st.sampled_from(["red", "green"]),
    text=st.none() | st.text("xyz é=", min_size=1),
    inputs=st.lists(st.text("pq \"'", min_size=1), max_size=3),
)
def test_what_is_written_is_what_arrives(inputs: list[str], **values: Any) -> None:
    tokens = [] if not values["flag"] else ["--flag"]
    tokens += [f"--many-words={word}" for word in values["many_words"]]
    tokens += [f"--{name}={values[name]}" for name in ("number", "share", "choice", "text") if values[name] is not None]
    given_inputs, save, found = passed(Everything(), [*tokens, "--", *inputs])
    assert (given_inputs, save) == (tuple(inputs), None)
    assert Everything.Options(**found) == Everything.Options(**values)


# -- numbers, checkpoints, and views that a model lacks -------------------------------------------------------------


def strict(text: str) -> Any:
    """JSON as other programs read it: no NaN."""
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


@pytest.mark.parametrize("view", ["attention", "gates", "lengths"])
def test_what_is_seen_as_json(view: str, tiny_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inputs = [] if view == "lengths" else ["the dog slept"]
    assert run(["look", str(tiny_run), view, *inputs, "--format", "json"]) == 0
    found = strict(capsys.readouterr().out)
    assert found["title"]
    for array in found.get("arrays", {}).values():
        shape = np.asarray(array["values"]).shape
        assert list(shape) == array["shape"]
        for axis, size in zip(array["axes"], shape, strict=True):
            assert axis not in found["labels"] or len(found["labels"][axis]) == size


def test_json_and_a_picture_at_once(tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.svg"
    assert run(["look", str(tiny_run), "attention", "the dog", "--format", "json", "--save", str(file)]) == 0
    out, err = capsys.readouterr()
    weights = strict(out)["arrays"]["decoder.attention"]["values"]
    assert np.allclose(np.sum(weights, axis=-1), 1.0, atol=1e-4)
    assert file.is_file()
    assert f"drawn into {file}" in err


def test_a_checkpoint_of_a_run_that_is_not_finished(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from seqloom.model import Model
    from seqloom.training.checkpoints import load_tensors

    cut = tmp_path / "cut"
    shutil.copytree(tiny_run, cut)
    shutil.rmtree(cut / "model")
    assert run(["look", str(cut), "attention", "the dog"]) == 2
    assert f"seqloom look {cut} VIEW --checkpoint best" in capsys.readouterr().err
    kept = sorted(int(path.name[5:]) for path in (cut / "checkpoints").glob("step-*"))
    for which in ("best", str(kept[-1])):
        assert run(["look", str(cut), "attention", "the dog", "--checkpoint", which]) == 0
        assert "dog" in capsys.readouterr().out
    at_end = load_tensors(cut / "checkpoints" / f"step-{kept[-1]:08d}" / "model.safetensors")
    network = Model.at_checkpoint(cut, str(kept[-1])).network
    assert all(bool((weight == at_end[name]).all()) for name, weight in network.named_parameters())
    assert run(["look", str(cut), "attention", "the dog", "--checkpoint", "7"]) == 2
    assert f"there is no checkpoint '7'; it has best, {kept[0]}" in capsys.readouterr().err
    assert run(["look", str(tiny_run / "model"), "attention", "the dog", "--checkpoint", "best"]) == 2
    assert "only a run has checkpoints" in capsys.readouterr().err


def test_a_view_that_a_model_lacks_names_a_recipe_that_has_it(
    tiny_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["look", str(tiny_run), "heads"]) == 2
    err = capsys.readouterr().err
    assert "its views: attention, beam, forcing, gates, lengths" in err
    assert err.endswith("a model that has heads: seqloom train demo-transformer\n")


def test_every_view_names_a_shipped_recipe() -> None:
    from seqloom.recipe import shipped_recipes

    assert {view.recipe for view in VIEWS.values()} <= shipped_recipes().keys()


@pytest.mark.parametrize(("name", "part"), [("demo", "attention"), ("demo", "gates"), ("demo-transformer", "heads")])
def test_the_recipe_that_a_view_names_has_it(name: str, part: str, tmp_path: Path) -> None:
    from seqloom.experiment import train
    from seqloom.inspection.views import views_of

    assert VIEWS[part].recipe == name
    small = ["training.steps=1", "training.validate_every=1", "training.validation_sentences=0", "training.samples=0"]
    sizes = ["data.train.size=50", "data.valid.size=5", "training.metric=loss", "training.average=1"]
    assert part in views_of(train(name, tmp_path / "run", overrides=[*small, *sizes]))
