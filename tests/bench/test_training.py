from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from bench.peers import PEERS
from bench.peers.common import Profile, is_product
from bench.peers.seqloom import paced
from bench.train import arguments, bench_recipe, spec_of, summary


def test_the_pace_is_of_the_updates_after_the_warm_up() -> None:
    lines = [
        {"step": 2, "time": 10.0, "tokens_per_second": 0.0},
        {"step": 4, "time": 20.0, "tokens_per_second": 1.0},
        {"step": 6, "time": 22.0, "tokens_per_second": 100.0},
        {"step": 8, "time": 26.0, "tokens_per_second": 50.0},
    ]
    assert paced(lines, warmup=4) == (400.0, 6.0)


def test_summary_over_rounds() -> None:
    found = [
        {"tokens_per_second": pace, "peak_mb": mb, "tokens": 1000} for pace, mb in ((50, 10), (200, 30), (100, 20))
    ]
    found[0]["in_products"] = 0.4
    one = summary(found, tokens=1000, products_seconds=4.0)
    assert (one["median"], one["peak_mb"], one["in_products"]) == (100, 20, 0.4)
    assert one["of_limit"] == pytest.approx(0.4)  # the products need 4 of the 10 seconds it took
    assert one["same_batches"]
    assert not summary(found, tokens=900, products_seconds=4.0)["same_batches"]


def test_sizes_of_the_two_models() -> None:
    transformer, rnn = (spec_of(bench_recipe(model, 4096), 10_000) for model in ("transformer", "rnn"))
    assert (transformer.size, transformer.heads, transformer.feed_forward, transformer.dropout) == (128, 4, 256, 0.3)
    assert (rnn.embedding, rnn.hidden, rnn.dropout) == (256, 512, 0.2)


def test_overrides_reach_the_recipe() -> None:
    options = arguments(["--seqloom-set", "training.workers=1", "--seqloom-set", "model.dropout=0.1"])
    recipe = bench_recipe("transformer", 512, options.seqloom_set)
    assert (recipe.training.workers, recipe.model.dropout, recipe.training.batch_tokens) == (1, 0.1, 512)


def test_an_unknown_peer_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        arguments(["--peers", "torch,nobody"])
    assert "nobody" in capsys.readouterr().err


def test_every_version_is_pinned() -> None:
    for name, peer in PEERS.items():
        for step in peer.steps or ():
            own = [package for package in step if package.split("==")[0] in (name, "transformers")]
            assert all("==" in package for package in own), name


def test_what_counts_as_a_product() -> None:
    products = (
        "aten::mm",
        "aten::addmm",
        "aten::addmm_",
        "aten::bmm",
        "aten::_scaled_dot_product_flash_attention_for_cpu",
    )
    assert all(map(is_product, products))
    assert not any(map(is_product, ("aten::add", "aten::_log_softmax", "aten::mul", "MmBackward0")))


def test_a_profile_of_nothing_but_a_product_is_mostly_products() -> None:
    left = torch.randn(600, 600)
    with Profile() as profile:
        for _ in range(5):
            left @ left
    assert profile.share is not None
    assert 0.3 < profile.share <= 1.0


@pytest.mark.parametrize(("model", "options"), [("transformer", {}), ("rnn", {}), ("rnn", {"decoder": "whole"})])
def test_the_torch_peer_learns(model: str, options: dict[str, str], tmp_path: Path) -> None:
    """Validation loss falls over a few updates of a tiny model, and all figures are there."""
    import subprocess
    import sys
    from dataclasses import asdict

    import numpy as np
    from bench.peers.common import Job
    from bench.venvs import ROOT

    small = {
        "transformer": {"encoder_layers": 1, "decoder_layers": 1, "size": 16, "heads": 2, "feed_forward": 16},
        "rnn": {"embedding": 8, "hidden": 16},
    }
    ids, offsets = np.array([5, 6, 7, 8, 9], np.int32), np.array([0, 2, 5])
    arrays = {
        f"{part}_{side}_{what}": values
        for part in ("train", "valid")
        for side in ("source", "target")
        for what, values in (("ids", ids), ("offsets", offsets))
    }
    np.savez(tmp_path / "b.npz", train_batches=np.array([0, 2]), valid_batches=np.array([0, 2]), **arrays)
    job = Job(
        model=model,
        spec={"symbols": 12, "dropout": 0.0, **small[model]},
        data=str(tmp_path / "b.npz"),
        result=str(tmp_path / "r.json"),
        warmup=2,
        updates=60,
        rates=[0.02],
        betas=[0.9, 0.98],
        smoothing=0.0,
        clip_norm=1.0,
        profile=1,
        validate=True,
        options=options,
    )
    (tmp_path / "job.json").write_text(json.dumps(asdict(job)))
    subprocess.run([sys.executable, "-m", "bench.peers.torch", str(tmp_path / "job.json")], cwd=ROOT, check=True)
    result = json.loads((tmp_path / "r.json").read_text())
    assert result["tokens"] == 60 * 7
    assert result["validation_loss"] < 0.2
    assert result["peak_mb"] > 50
    assert 0 < result["in_products"] < 1
