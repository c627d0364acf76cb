"""A path becomes vectors, whatever is there."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from seqloom.errors import UserError
from seqloom.folders import FORMAT
from seqloom.vectors.formats import write_vectors
from seqloom.vectors.opening import open_vectors
from seqloom.vectors.table import WordVectors

VECTORS = WordVectors(["king", "queen"], np.array([[1, 2], [3, 4]], np.float32))


def model_folder(folder: Path, **config: object) -> Path:
    VECTORS.save(folder)
    values = {"format": FORMAT, "task": "embed", "model": {"kind": "glove"}} | config
    (folder / "config.json").write_text(json.dumps(values))
    return folder


def test_folders_and_files(tmp_path: Path) -> None:
    run = tmp_path / "run"
    model = model_folder(run / "model")
    (run / "recipe.yaml").write_text("task: embed\n")
    write_vectors(VECTORS, tmp_path / "x.vec", "fasttext")
    for path in (run, model, tmp_path / "x.vec", str(tmp_path / "x.vec")):
        found = open_vectors(path)
        assert found.words == VECTORS.words
        np.testing.assert_array_equal(found.matrix, VECTORS.matrix)
    assert open_vectors(tmp_path / "x.vec", limit=1).words == ["king"]


def test_what_holds_no_vectors_is_refused(tmp_path: Path) -> None:
    translator = model_folder(tmp_path / "translator", task="translate")
    (translator / "vectors.safetensors").unlink()
    with pytest.raises(UserError, match="a model of task translate; this needs word vectors"):
        open_vectors(translator)
    with pytest.raises(UserError, match=f"reads model format {FORMAT}; the folder has {FORMAT + 1}"):
        open_vectors(model_folder(tmp_path / "newer", format=FORMAT + 1))
    with pytest.raises(UserError, match=r"no such model folder, run folder or file of vectors \(did you mean 'newer'"):
        open_vectors(tmp_path / "newest")
    (tmp_path / "list").mkdir()
    (tmp_path / "list" / "config.json").write_text("[]")
    with pytest.raises(UserError, match="not the description of a seqloom model"):
        open_vectors(tmp_path / "list")
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "unfinished" / "recipe.yaml").write_text("task: embed\n")
    with pytest.raises(UserError, match="has no model yet"):
        open_vectors(tmp_path / "unfinished")
