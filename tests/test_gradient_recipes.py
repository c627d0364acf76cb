"""The recipes of gradients/: all can be read; clipping rescues what explodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqloom.experiment import train
from seqloom.recipe import load_recipe, shipped_recipes

NAMES = [name for name in shipped_recipes() if name.startswith("gradients/")]


def test_they_ask_for_the_last_symbol_of_lines_of_one_lag() -> None:
    assert {name.removeprefix("gradients/") for name in NAMES} == {
        "elman",
        "elman-large",
        "elman-large-unclipped",
        "gru",
        "lstm",
    }
    for name in NAMES:
        recipe = load_recipe(name)
        assert recipe.training.predict == "last"
        assert recipe.data.valid.text == recipe.data.train.text.replace("train", "valid")
    clipped, unclipped = load_recipe("gradients/elman-large"), load_recipe("gradients/elman-large-unclipped")
    assert clipped.training.clip_norm == 1.0
    assert unclipped.training.clip_norm is None
    assert clipped.model == unclipped.model


@pytest.mark.slow
def test_clipping_rescues_what_explodes(tmp_path: Path) -> None:
    """The same network, text and rate: with the gradient as it is nothing is learned, with a bound on it everything."""
    reached = {}
    for name in ("elman-large", "elman-large-unclipped"):
        model = train(f"gradients/{name}", tmp_path / name)
        reached[name] = model.evaluate(load_recipe(f"gradients/{name}").data.valid).figures["accuracy"]
    assert reached["elman-large"] > 95
    assert reached["elman-large-unclipped"] < 30  # chance is 12.5
