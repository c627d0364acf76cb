"""The bench of equal bits: what counts as equal, and that a killed run is really continued."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.bits import RECIPES, bits_table, equal, killed, trained, ways

from seqloom.recipe import recipe_from


def test_one_other_hash_is_told() -> None:
    same = {"one thread": "a", "two threads": "a", "killed and continued": "b", "not killed": "b"}
    assert equal(same)
    assert not equal(same | {"two threads": "c"})
    assert not equal(same | {"not killed": "c"})
    found = {"hashes": {"LSTM": same | {"two threads": "c"}}, "kills": 3, "equal": False}
    written = bits_table(found)
    assert "| LSTM | `a` | `c` | `b` | `b` |" in written
    assert "**They differ.**" in written


@pytest.mark.parametrize("name", RECIPES)
def test_its_recipes_are_recipes(name: str) -> None:
    assert recipe_from(RECIPES[name]).training.num_shards == 4


@pytest.mark.slow
def test_a_killed_run_is_continued(tmp_path: Path) -> None:
    recipe = RECIPES["LSTM language model, stream"]
    short = {**recipe, "training": {**recipe["training"], "steps": 40, "checkpoint_every": 2}}
    alone = next(iter(ways(two_hosts=False)))
    found, kills = killed([alone], short, tmp_path / "killed", kills=1, seed=1)
    assert kills == 1
    assert found == trained(alone, short, tmp_path / "whole")
