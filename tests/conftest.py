"""What all tests share: one thread (small tensors, exact repeats), a cache of their own, and a tiny trained model."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("steady", deadline=None)  # a busy machine must not fail a test
settings.load_profile("steady")
os.environ["OMP_NUM_THREADS"] = "1"
os.environ.pop("SEQLOOM_DATA", None)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    import torch

    torch.set_num_threads(1)
    os.environ["SEQLOOM_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines are as long as they are: whoever runs tests side by side may have set a width."""
    monkeypatch.delenv("COLUMNS", raising=False)


def tiny_recipe(**training: Any) -> dict[str, Any]:
    """A recipe that trains in about a second, to the same weights whatever the processor multiplies fastest."""
    return {
        "description": "tiny",
        "data": {
            "train": {"grammar": "en-es", "split": "train", "size": 300},
            "valid": {"grammar": "en-es", "split": "valid", "size": 40},
            "test": {"grammar": "en-es", "split": "test", "size": 30},
        },
        "text": {"tokenizer": "word", "vocabulary_size": None, "joint": False},
        "model": {
            "kind": "recurrent_translator",
            "cell": "gru",
            "embedding_size": 10,
            "hidden_size": 12,
            "dropout": 0.3,
        },
        "training": {
            "steps": 24,
            "batch_tokens": 200,
            "accumulate": 2,
            "validate_every": 8,
            "checkpoint_every": 6,
            "validation_sentences": 5,
            "average": 2,
            "precision": "float32",
            **training,
        },
    }


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the tiny recipe."""
    from seqloom.experiment import train

    run = tmp_path_factory.mktemp("runs") / "tiny"
    train(tiny_recipe(), run)
    return run


@pytest.fixture(scope="session")
def tiny_transformer_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of a tiny Transformer, with rare words unknown; it has learned a little in some seconds."""
    from seqloom.experiment import train

    recipe = tiny_recipe(steps=150, accumulate=1, batch_tokens=600, validate_every=150, checkpoint_every=150)
    recipe["training"] |= {"average": 1, "learning_rate": 5e-3}
    recipe["data"]["train"]["size"] = 1500
    recipe["text"] = {"tokenizer": "word", "vocabulary_size": 90, "joint": False}
    recipe["model"] = {
        "kind": "transformer_translator",
        "size": 32,
        "num_heads": 2,
        "feed_forward_size": 48,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "dropout": 0.0,
    }
    run = tmp_path_factory.mktemp("runs") / "tiny-transformer"
    train(recipe, run)
    return run


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Some kernels are used only where torch has one thread."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
