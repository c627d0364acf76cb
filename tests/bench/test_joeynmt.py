from __future__ import annotations

import json
import os
import subprocess
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from bench.decode import arguments, decode_table, mean_steps
from bench.decoders import never_ending
from bench.peers.job import DecodingJob
from bench.peers.joeynmt_generate import lstm_weights, read_model, table_of
from bench.spec import EOS_ID
from bench.venvs import ROOT
from safetensors.torch import save_model
from torch import nn

from seqloom.batches.collate import collate_sources
from seqloom.decoding.search import answer_sources
from seqloom.decoding.settings import DecodingSettings
from seqloom.folders import cache_folder
from seqloom.models.encoder_decoder import EncoderDecoder, RecurrentTranslatorSettings
from seqloom.nn.recurrent import RecurrentStack

SYMBOLS = 40
ENDING = 3.0  # bias of the end symbol: with this seed answers end by themselves, each at its own time
SENTENCES = [[5, 9, 30, 12], [7, 8], [33, 5, 5, 21, 4, 18, 39], [6]]
ENVIRONMENT = cache_folder() / "bench" / "joeynmt"  # read before the tests get a cache of their own


def saved_model(folder: Path, **settings: Any) -> EncoderDecoder:
    """A model with random weights that speak up, in a folder as far as a peer reads it."""
    torch.manual_seed(1496)
    chosen = RecurrentTranslatorSettings(embedding_size=6, hidden_size=8, **settings)
    model = EncoderDecoder(chosen, source_symbols=SYMBOLS, target_symbols=SYMBOLS).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn_like(weight))
        model.output.bias[EOS_ID] = ENDING
    save_model(model, str(folder / "model.safetensors"))
    config = {"model": chosen.model_dump(), "symbols": {"source": SYMBOLS, "target": SYMBOLS}}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return model


def greedy_answers(model: EncoderDecoder, **settings: Any) -> list[list[int]]:
    chosen = DecodingSettings(method="greedy", unknown="keep", **settings)
    return [found[0].tokens for found in answer_sources(model, collate_sources(SENTENCES), chosen)]


def test_cells_become_an_lstm_of_torch() -> None:
    ours = RecurrentStack(cell="lstm", input_size=5, hidden_size=8, num_layers=1, bidirectional=True).eval()
    theirs = nn.LSTM(5, 4, bidirectional=True, batch_first=True)
    theirs.load_state_dict(lstm_weights(ours.state_dict(), "layers.0"))
    inputs = torch.randn(3, 7, 5)
    with torch.inference_mode():
        torch.testing.assert_close(ours(inputs)[0], theirs(inputs)[0])


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("tie", [False, True])
def test_every_table_is_found_where_it_is_tied(share: bool, tie: bool, tmp_path: Path) -> None:
    model = saved_model(tmp_path, share_embeddings=share, tie_output=tie)
    given = read_model(tmp_path)
    for name, table in (*model.embeddings.items(), ("output", model.output)):
        assert torch.equal(table_of(given, name), table.weight), name
    assert given.features == (6 if tie else 8)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"cell": "gru"}, "cell: gru"),
        ({"attention": "dot"}, "attention: dot"),
        ({"order": "bahdanau"}, "order: bahdanau"),
        ({"input_feeding": True, "tie_output": True}, "the decoder's size, 8; this model has 6"),
    ],
)
def test_what_joeynmt_has_no_equal_for_is_refused(settings: dict[str, Any], reason: str, tmp_path: Path) -> None:
    saved_model(tmp_path, **settings)
    with pytest.raises(SystemExit, match=reason):
        read_model(tmp_path)


def test_a_model_that_cannot_end_takes_all_steps(tmp_path: Path) -> None:
    model = saved_model(tmp_path)
    settings = never_ending(SimpleNamespace(network=model), 14)  # type: ignore[arg-type]
    assert {len(answer) for answer in greedy_answers(model, **settings)} == {13}  # and the end in the last step
    beam = answer_sources(model, collate_sources(SENTENCES), DecodingSettings(beam_size=5, **settings))
    assert all(len(one[0].tokens) == 13 and not one[0].finished for one in beam)


def test_steps_are_the_mean_of_our_answers() -> None:
    assert mean_steps([[5] * 9, [5] * 13, [5] * 17]) == 14
    assert mean_steps([[]]) == 2


def test_the_table_says_how_long_answers_are() -> None:
    found = {"sentences": 100, "decoders": {}, "missing": {}}
    assert "fixed length" not in decode_table(found)
    assert "every sentence takes 14 steps" in decode_table({**found, "fixed_length": 14})


def test_joeynmt_needs_a_recurrent_model(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        arguments(["--model", "run", "--peers", "joeynmt"])
    assert "give --rnn RUN" in capsys.readouterr().err
    assert arguments(["--rnn", "run", "--peers", "joeynmt"]).peers == ["joeynmt"]


@pytest.mark.skipif(
    not (ENVIRONMENT / "installed").is_file(), reason="JoeyNMT has no environment; bench.decode makes it"
)
@pytest.mark.parametrize("steps", [0, 9])
@pytest.mark.parametrize(
    "settings",
    [
        {"attention": "additive", "share_embeddings": True, "tie_output": True},
        {"attention": "multiplicative"},
        {"attention": "multiplicative", "input_feeding": True},
    ],
)
def test_joeynmt_gives_our_greedy_answers(settings: dict[str, Any], steps: int, tmp_path: Path) -> None:
    model = saved_model(tmp_path, **settings)
    room = [DecodingSettings().limit(len(sentence) + 1) for sentence in SENTENCES]
    assert all(len(answer) + 1 < most for answer, most in zip(greedy_answers(model), room, strict=True))
    limits = never_ending(SimpleNamespace(network=model), steps) if steps else {}  # type: ignore[arg-type]
    job = DecodingJob(
        model=str(tmp_path),
        texts="",
        ids=SENTENCES,
        pieces="",
        answers="",
        beam=1,
        workers=1,
        compute="float32",
        result=str(tmp_path / "result.json"),
        expected=greedy_answers(model, **limits),
        longest=max(room),
        steps=steps,
    )
    for beam in (1, 5):
        (tmp_path / "job.json").write_text(json.dumps(asdict(job) | {"beam": beam}), encoding="utf-8")
        python = str(ENVIRONMENT / "bin" / "python")
        command = [python, "-m", "bench.peers.joeynmt_generate", str(tmp_path / "job.json")]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        subprocess.run(command, cwd=ROOT, env=environment, check=True)
        result = json.loads((tmp_path / "result.json").read_text())
        assert result["agreement"] == (1.0 if beam == 1 else None)
        assert result["seconds"] > 0
