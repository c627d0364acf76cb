from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bench.characters import (
    CLONE,
    NANOGPT,
    NEEDED,
    RECIPE,
    arguments,
    characters_table,
    differences,
    nanogpt_arguments,
    prepare_nanogpt,
    seqloom_overrides,
    summary,
    version_of,
)
from bench.characters_job import CharactersJob
from bench.peers.nanogpt import DATA, OUT, estimate_of, loss_once, parameters_of, seconds_of
from bench.sides import run_side
from bench.venvs import ROOT, NotInstalled

from seqloom.errors import UserError
from seqloom.recipe import find_recipe, load_recipe

LOG = """tokens per iteration will be: 768
number of parameters: 0.80M
num decayed parameter tensors: 18, with 804,096 parameters
num non-decayed parameter tensors: 9, with 1,152 parameters
step 0: train loss 4.2000, val loss 4.1990
iter 0: loss 4.2000, time 900.00ms, mfu -100.00%
iter 1: loss 4.1000, time 60.00ms, mfu -100.00%
iter 2: loss 4.0000, time 20.50ms, mfu -100.00%
iter 3: loss nan, time 30.25ms, mfu 0.01%
step 4: train loss 3.9000, val loss 3.8123
saving checkpoint to out
iter 4: loss 3.9000, time 700.00ms, mfu 0.01%
"""


def test_the_iterations_that_follow_a_validation_are_not_timed() -> None:
    assert seconds_of(LOG, warmup=2, iterations=4) == pytest.approx(0.05075)
    assert seconds_of(LOG, warmup=1, iterations=4) == pytest.approx(0.11075)
    with pytest.raises(SystemExit, match="the times of 3 iterations where 4 were expected"):
        seconds_of(LOG, warmup=2, iterations=6)


def test_what_nanogpt_prints_of_itself() -> None:
    assert estimate_of(LOG, 4) == 3.8123
    with pytest.raises(SystemExit, match="no validation loss at step 5"):
        estimate_of(LOG, 5)
    assert parameters_of(LOG) == 805_248
    assert parameters_of("") is None


FIXED_PROBABILITIES = """
import torch
class GPTConfig:
    def __init__(self, block_size, vocab_size):
        self.block_size, self.vocab_size = block_size, vocab_size
class GPT(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.logits = torch.nn.Parameter(torch.zeros(config.vocab_size))
    def forward(self, read, targets):
        assert read.shape == targets.shape and read.shape[1] <= self.config.block_size
        assert torch.equal(read[:, 1:], targets[:, :-1])
        return None, -self.logits.log_softmax(0)[targets].mean()
"""


@pytest.mark.parametrize("count", [2, 4, 5, 8, 13, 4 * 128 + 1, 4 * 300 + 3])
def test_each_character_counts_once(count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that gives every symbol a fixed probability: its mean loss follows from how often each is there."""
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.delitem(sys.modules, "model", raising=False)
    (tmp_path / "model.py").write_text(FIXED_PROBABILITIES)
    (tmp_path / DATA).mkdir(parents=True)
    (tmp_path / OUT).mkdir()
    tokens = np.arange(count, dtype=np.uint16) * 7 % 5
    tokens.tofile(tmp_path / DATA / "val.bin")
    probabilities = torch.tensor([0.1, 0.15, 0.2, 0.25, 0.3])
    kept = {"model_args": {"block_size": 4, "vocab_size": 5}, "model": {"logits": probabilities.log()}}
    torch.save(kept, tmp_path / OUT / "ckpt.pt")
    expected = -sum(math.log(probabilities[token]) for token in tokens[1:]) / (count - 1)
    assert loss_once(tmp_path) == pytest.approx(expected, rel=1e-5)
    sys.modules.pop("model")


def test_the_recipe_in_nanogpts_words_is_the_command_of_its_readme() -> None:
    config, *rest = nanogpt_arguments(load_recipe(find_recipe(RECIPE)), 200)
    given = dict(word.removeprefix("--").split("=") for word in rest)
    readme = {
        "device": "cpu",
        "compile": "False",
        "log_interval": "1",
        "block_size": "64",
        "batch_size": "12",
        "n_layer": "4",
        "n_head": "4",
        "n_embd": "128",
        "max_iters": "2000",
        "lr_decay_iters": "2000",
        "dropout": "0.0",
    }
    assert config == "config/train_shakespeare_char.py"
    assert {name: given[name] for name in readme} == readme
    assert "learning_rate" not in given, "its configuration has its own"


def test_a_measured_run_validates_only_at_its_end() -> None:
    options = arguments(["--nanogpt", "x"])
    recipe = load_recipe(find_recipe(RECIPE), seqloom_overrides(options, 100, 2))
    training = recipe.training
    assert (training.steps, training.warmup_steps, recipe.seed) == (2000, 100, 3)
    assert min(training.validate_every, training.checkpoint_every) > training.steps
    assert options.warmup % training.log_every == training.steps % training.log_every == 0


def checkout_in(folder: Path, **files: str) -> Path:
    for name in NEEDED:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(files.get(name.stem, ""))
    return folder


def test_nanogpts_data_is_prepared_in_a_copy(tmp_path: Path) -> None:
    prepare = "import os, requests\nhere = os.path.dirname(__file__)\n"
    prepare += "open(here + '/train.bin', 'w').write(open(here + '/input.txt').read().upper())\n"
    checkout = checkout_in(tmp_path / "checkout", prepare=prepare)
    before = sorted(checkout.rglob("*"))
    text = tmp_path / "text.txt"
    text.write_text("to be")
    prepare_nanogpt(checkout, text, tmp_path / "copy")
    assert (tmp_path / "copy" / DATA / "train.bin").read_text() == "TO BE"
    assert all((tmp_path / "copy" / name).is_file() for name in NEEDED)
    assert sorted(checkout.rglob("*")) == before


def test_what_is_missing_is_named_with_its_remedy(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    with pytest.raises(UserError, match=r"there is no train\.py, model\.py, .*get nanoGPT with: git clone") as caught:
        prepare_nanogpt(tmp_path / "nowhere", text, tmp_path / "copy")
    assert f"{CLONE} {tmp_path / 'nowhere'}" in str(caught.value)
    checkout = checkout_in(tmp_path / "checkout", prepare="raise ValueError('no text')")
    with pytest.raises(UserError, match=r"text\.txt: there is no such file; SEQLOOM_DATA"):
        prepare_nanogpt(checkout, text, tmp_path / "copy")
    text.write_text("to be")
    with pytest.raises(UserError, match=r"prepare\.py failed: ValueError: no text"):
        prepare_nanogpt(checkout, text, tmp_path / "copy")


def test_a_version_is_a_commit_or_a_digest(tmp_path: Path) -> None:
    checkout = checkout_in(tmp_path, train="a")
    before = version_of(checkout)
    assert before.startswith("files without a commit")
    (checkout / "train.py").write_text("b")
    assert version_of(checkout) != before
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    for command in (["init", "-q"], ["add", "."], [*identity, "commit", "-qm", "one"]):
        subprocess.run(["git", *command], cwd=checkout, check=True)
    commit = version_of(checkout)
    assert commit.startswith("commit ")
    (checkout / "model.py").write_text("changed")
    assert version_of(checkout) == f"{commit}-dirty"


def job_in(place: Path, **more: Any) -> Any:
    return CharactersJob(result=str(place / "result.json"), iterations=40, warmup=20, threads=1, **more)


def test_nanogpts_last_line_is_the_reason(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("raise ValueError('Unknown config key: beta3')")
    with pytest.raises(NotInstalled, match="failed: ValueError: Unknown config key: beta3"):
        run_side(Path(sys.executable), NANOGPT, job_in(tmp_path, folder=str(tmp_path)), tmp_path)


def test_seqlooms_side_measures_a_whole_training(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("to be or not to be\n" * 50, encoding="utf-8")
    corpus = f"text: {tmp_path / 'text.txt'}, share:"
    (tmp_path / "tiny.yaml").write_text(
        f"task: model_language\ndata:\n  train: {{{corpus} [0, 0.9]}}\n  valid: {{{corpus} [0.9, 1]}}\n"
        "text: {tokenizer: verbatim}\n"
        "model: {kind: transformer_lm, size: 8, num_layers: 1, num_heads: 2, feed_forward_size: 8, context: 5}\n"
        "training: {steps: 40, batching: windows, rows: 3, length: 5, log_every: 20, metric: loss}\n",
        encoding="utf-8",
    )
    job = job_in(tmp_path, recipe=str(tmp_path / "tiny.yaml"), cache=str(tmp_path / "cache"))
    (tmp_path / "job.json").write_text(json.dumps(asdict(job)), encoding="utf-8")
    command = [sys.executable, "-m", "bench.peers.seqloom_characters", str(tmp_path / "job.json")]
    subprocess.run(command, cwd=ROOT, env=dict(os.environ), check=True, capture_output=True)
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["characters"] == 9 * 19 * 50 // 10
    assert result["peak_mb"] > 50
    assert 0 < result["validation_loss"] < 10
    an_iteration = result["tokens_per_second"] * result["milliseconds"] / 1000
    assert an_iteration == pytest.approx(15, rel=0.2)  # the journal's times are rounded to a thousandth of a second
    assert any((tmp_path / "cache").iterdir())


def figures(pace: float, loss: float, **more: Any) -> dict[str, Any]:
    return {
        "tokens_per_second": pace,
        "milliseconds": 768_000 / pace,
        "validation_loss": loss,
        "peak_mb": 400.0,
        "parameters": 805_248,
        "characters": 1_003_854,
        **more,
    }


def test_the_table_has_a_row_for_each_side_and_names_what_differs() -> None:
    ours = summary([figures(pace, loss) for pace, loss in ((90_000, 1.8), (30_000, 1.9), (60_000, 1.7))])
    assert (ours["median"], ours["validation_loss"], ours["milliseconds"]) == (60_000, 1.8, 12.8)
    theirs = summary([figures(40_000, 1.85, estimate=1.88)] * 3)
    other = summary([figures(50_000, 1.8, characters=1_000_000)] * 3)
    found = {
        "nanogpt": "commit abc",
        "rows": 12,
        "length": 64,
        "iterations": 2000,
        "warmup": 100,
        "evaluations": 200,
        "threads": 2,
        "rounds": 3,
        "sides": {"nanogpt": theirs, "seqloom": ours, "other": other},
        "ratios": {"nanogpt": 1.5, "other": 1.2},
    }
    written = characters_table(found)
    rows = [line.strip("| ").split(" | ") for line in written.splitlines() if line.startswith(("| nano", "| seq"))]
    assert [row[0] for row in rows] == [
        "nanoGPT",
        "seqloom",
        "seqloom",
    ]
    assert rows[0][2:] == ["**40,000**", "1.50×", "19.20", "1.8500", "1.8800", "400", "805,248"]
    assert rows[1][1:7] == ["90,000 30,000 60,000", "**60,000**", "–", "12.80", "1.8000", "–"]
    assert "nanoGPT (commit abc)" in written
    assert "(1.7000 to 1.9000)" in written
    assert "**Not the same text: nanogpt 1,003,854 characters, seqloom 1,003,854 characters, other 1,0" in written
    assert differences({"sides": {"nanogpt": theirs, "seqloom": ours}}) == []


def test_arguments_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    options = arguments(["--nanogpt", "folder", "--quick"])
    assert options.warmup < options.iterations <= 20
    for wrong, message in (
        (["--rounds", "1"], "--nanogpt"),
        (["--nanogpt", "x", "--rounds", "0"], "must be 1 or more"),
        (["--nanogpt", "x", "--iterations", "100"], "more than --warmup 100; got 100"),
    ):
        with pytest.raises(SystemExit):
            arguments(wrong)
        assert message in capsys.readouterr().err
