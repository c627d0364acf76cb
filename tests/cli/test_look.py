"""`seqloom look` on a Transformer: its heads on the terminal and in files, and every wrong option refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from conftest import tiny_recipe
from seqloom.cli.main import run

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


def said(capsys: pytest.CaptureFixture[str], *arguments: Any, code: int = 0) -> tuple[str, str]:
    capsys.readouterr()
    assert run(["look", *(str(a) for a in arguments)]) == code
    found = capsys.readouterr()
    assert "Traceback" not in found.err
    return found.out, found.err


def test_attention_is_the_alignment(transformer_run: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out, _ = said(capsys, transformer_run, "attention", TEXT, "--target", "llegó la bruja verde")
    assert out.splitlines()[0].split() == [*TEXT.split(), "<eos>"]
    said(capsys, transformer_run, "attention", TEXT, "--save", tmp_path / "a.svg")
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
    out, _ = said(capsys, *asked)
    assert [line.split(":")[0] for line in out.splitlines() if " look at " in line] == list(sites)
    assert "\033" not in out
    out, err = said(capsys, *asked, "--save", tmp_path / "a.svg")
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
    out, _ = said(capsys, transformer_run, "attention", TEXT, *options)
    assert out.startswith(heading)
    said(capsys, transformer_run, "attention", TEXT, *options, "--save", tmp_path / "a.svg")
    assert heading in (tmp_path / "a.svg").read_text()


def test_heads(transformer_run: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out, _ = said(capsys, transformer_run, "heads", "--sentences", 5)
    assert "Means over 5 sentences of valid." in out
    assert out.count("◀ strongest") == 1
    assert sum(line.split()[:1] == ["cross"] for line in out.splitlines()) == 4
    assert "Means over 30 sentences of test." in said(capsys, transformer_run, "heads", "--test", "test")[0]
    said(capsys, transformer_run, "heads", "--sentences", 5, "--save", tmp_path / "a.svg")
    assert "attention heads of tiny-transformer" in (tmp_path / "a.svg").read_text()


def test_heads_of_a_bare_model_folder(
    transformer_run: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    shutil.copytree(transformer_run / "model", tmp_path / "mine")
    _, err = said(capsys, tmp_path / "mine", "heads", code=2)
    assert "a model folder has no data of its own; give --data FILE" in err
    (tmp_path / "one.tsv").write_text("the dog slept\tel perro durmió\n")
    out, _ = said(capsys, tmp_path / "mine", "heads", "--data", tmp_path / "one.tsv")
    assert "Means over 1 sentence of data." in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["attention", TEXT, "--site", "cross", "--layer", "2"], "there is no layer 2: cross has layers 0 to 1"),
        (["attention", TEXT, "--site", "encoder", "--layer", "1"], "there is no layer 1: encoder has layer 0 only"),
        (["attention", TEXT, "--layer", "-1"], "there is no layer -1"),
        (["attention", TEXT, "--layer", "1", "--head", "2"], "cross, layer 1 has no head 2; it has heads 0 to 1"),
        (["attention", TEXT, "--head", "0"], "--head picks one head of one layer; say which"),
        (["attention", TEXT, "--site", "cross", "--head", "0"], "--head picks one head of one layer; say which"),
        (["attention", TEXT, "--all-heads", "--layer", "0", "--head", "0"], "--head picks one head of one layer"),
        (["attention", TEXT, "--side", "encoder"], "--side is for look gates; look attention takes --save, --target"),
        (
            ["attention", TEXT, "--test", "test"],
            "--test is for look gradients, look heads and look lengths; look attention takes",
        ),
        (["attention", TEXT, "--site", "croos"], "croos"),
        (["gates", TEXT, "--head", "0"], "--head is for look attention; look gates takes --save, --target, --side"),
        (["gates", TEXT], "no recurrent layer to show"),
        (
            ["heads", "--layer", "0"],
            "--layer is for look attention, look contexts, look gates and look gradients; look heads takes --save",
        ),
        (["contexts", "stick", "a stick"], "takes a word and at least two texts"),
        (["contexts", "cat", "the cat", "a cat"], "this needs a language model"),
        (["contexts", "cat", "the cat", "a cat", "--head", "0"], "look contexts takes --save, --layer"),
        (["heads", "--all-heads"], "--all-heads is for look attention"),
        (["heads", TEXT], "look heads takes data (--data, --test), not a text"),
        (["heads", "--sentences", "0"], "--sentences must be at least 1; got 0"),
        (["heads", "--test", "tset"], "did you mean 'test'?"),
        (["heads", "--sentences", "3", "--save", "x.gif"], ".svg"),
        (["lengths", "--sentences", "0"], "--sentences is for look heads; look lengths takes"),
        (["lengths", TEXT], "look lengths takes data (--data, --test), not a text"),
    ],
)
def test_mistakes(
    arguments: list[str], message: str, transformer_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, err = said(capsys, transformer_run, *arguments, code=2)
    assert message in err
    assert not out


@pytest.mark.parametrize(
    "options", [["attention", TEXT, "--all-heads"], ["attention", TEXT, "--layer", "0", "--head", "0"], ["heads"]]
)
def test_a_recurrent_model_has_no_heads(options: list[str], tiny_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, err = said(capsys, tiny_run, *options, code=2)
    assert "this model has no attention heads to show; a Transformer has (model.kind: transformer_translator)" in err


def test_gates_still_take_their_options(tiny_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = said(capsys, tiny_run, "gates", TEXT, "--side", "encoder", "--layer", "0", "--direction", "backward")
    assert "update gate" in out
    assert out != said(capsys, tiny_run, "gates", TEXT)[0]
    _, err = said(capsys, tiny_run, "gates", TEXT, "--layer", "5", code=2)
    assert "no gates of encoder.5" in err


def test_a_picture_that_cannot_be_written_is_refused_before_any_work(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Even the model is looked for later."""
    for view in ("heads", "lengths"):
        _, err = said(capsys, tmp_path / "no-model", view, "--save", "heads.gif", code=2)
        assert "heads.gif: a picture must end in" in err
