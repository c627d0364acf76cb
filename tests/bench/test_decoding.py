from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from bench.decode import (
    COMPUTES,
    SEARCHES,
    arguments,
    command_title,
    decode_table,
    direct_title,
    engine_title,
    exported_table,
    num_sentences,
    predict_title,
    shortened,
    summary,
)
from bench.growth import crossing, growth_table, measure
from bench.peers.converted import converted, output_layer, positions, read_tensors
from bench.peers.generation import limit
from bench.peers.job import DecodingJob
from bench.spec import TransformerSpec
from bench.venvs import ROOT
from safetensors.torch import save_file

from seqloom.decoding.settings import DecodingSettings
from seqloom.models.encoder_decoder import EncoderDecoder, TransformerTranslatorSettings
from seqloom.nn.positions import sinusoids


def test_peers_have_our_length_limit() -> None:
    settings = DecodingSettings()
    assert [limit(size) for size in (1, 20, 63, 64, 500)] == [settings.limit(size) for size in (1, 20, 63, 64, 500)]


def test_converted_positions_start_after_padding() -> None:
    table = positions(torch.empty(12, 8))
    assert torch.equal(table[1:], sinusoids(11, 8))
    assert not table[0].any()


def test_every_weight_has_a_place_in_the_words_of_fairseq() -> None:
    """But the output layer, which is ours, and the table, which stands on both sides."""
    spec = TransformerSpec(11, encoder_layers=2, decoder_layers=3, size=8, heads=2, feed_forward=12)
    sizes = {"size": 8, "num_heads": 2, "feed_forward_size": 12, "encoder_layers": 2, "decoder_layers": 3}
    chosen = TransformerTranslatorSettings(**sizes, tie=("source", "target", "output"))
    model = EncoderDecoder(chosen, source_symbols=11, target_symbols=11)
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    found = converted(weights, spec)
    table, bias = model.output.weight.numel(), 11
    expected = sum(weight.numel() for weight in weights.values()) - bias + table
    assert sum(weight.numel() for weight in found.values()) == expected
    assert found["decoder.layers.2.encoder_attn.k_proj.weight"].shape == (8, 8)
    assert torch.equal(output_layer(weights).weight, model.output.weight)


def test_weights_are_read_without_the_package(tmp_path: Path) -> None:
    weights = {"a": torch.randn(3, 5), "b.bias": torch.randn(7)}
    save_file(weights, tmp_path / "model.safetensors", metadata={"made": "here"})
    found = read_tensors(tmp_path / "model.safetensors")
    assert found.keys() == weights.keys()
    assert all(torch.equal(found[name], weights[name]) for name in weights)


def test_sentences_a_second_are_medians() -> None:
    rounds = [{"whole": 10.0, "search": s, "agreement": a} for s, a in ((4.0, None), (2.0, 0.9), (5.0, None))]
    command = [{"whole": 20.0, "search": None, "agreement": None}]
    found = summary({"greedy": rounds, "beam 5": command}, {"greedy": 100, "beam 5": 100})
    assert (found["greedy"]["search"], found["greedy"]["whole"], found["greedy"]["agreement"]) == (25.0, 10.0, 0.9)
    assert (found["beam 5"]["search"], found["beam 5"]["whole"]) == (None, 5.0)
    table = decode_table({"sentences": 100, "decoders": {"one": found}, "missing": {"two": "not installed: why"}})
    assert "| one | 25 | 10 | – | 5 | 90.0% |" in table
    assert "| two | not installed: why |" in table


def test_ours_on_ctranslate2_is_held_against_itself_commands_with_commands() -> None:
    titles = (predict_title, engine_title, direct_title, command_title)
    paces = {title(c): [k * n for n in (90, 100, 800)] for k, title in enumerate(titles, 1) for c in COMPUTES}
    decoders = {title: {name: {"rounds": rounds} for name in SEARCHES} for title, rounds in paces.items()}
    lines = exported_table({"asked": {"greedy": 7, "beam 5": 3}, "decoders": decoders}).splitlines()
    assert len(lines[2:10]) == len({line for line in lines if line.startswith(("| greedy", "| beam 5"))}) == 8
    assert "| greedy | int8 | commands | 90 100 800 (**100**) | 360 400 3,200 (**400**) | 0.250 |" in lines
    assert "| beam 5 | float32 | warm | 180 200 1,600 (**200**) | 270 300 2,400 (**300**) | 0.667 |" in lines


@pytest.mark.parametrize("more", [["--rnn", "runs/r"], ["--peers", "fairseq"]])
def test_what_runs_on_ctranslate2_is_measured_without_others(
    more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    alone = ["--model", "runs/t", "--exported"]
    assert arguments(alone).exported
    with pytest.raises(SystemExit):
        arguments([*alone, *more])
    assert "--exported goes with --model RUN" in capsys.readouterr().err


def test_a_shorter_job_has_the_first_sentences_of_the_whole_one(tmp_path: Path) -> None:
    for name in ("texts", "pieces"):
        (tmp_path / name).write_text("".join(f"{name} {n}\n" for n in range(7)), encoding="utf-8")
    ids = [[n] for n in range(7)]
    paths = {name: str(tmp_path / name) for name in ("texts", "pieces")}
    job = DecodingJob(
        model="", ids=ids, beam=1, workers=1, compute="", answers="", result="", expected=[], longest=9, **paths
    )
    assert shortened(job, 7, tmp_path) is job
    short = shortened(job, 3, tmp_path)
    assert short.ids == [[0], [1], [2]]
    assert Path(short.pieces).read_text(encoding="utf-8").splitlines() == ["pieces 0", "pieces 1", "pieces 2"]
    assert Path(short.texts).read_text(encoding="utf-8").splitlines() == ["texts 0", "texts 1", "texts 2"]


def test_a_beam_gets_fewer_sentences_of_large_files() -> None:
    for sentences, of_a_beam in ((10, 10), (1000, 1000), (3000, 1000), (20_000, 5000), (20_001, 5001)):
        options = arguments(["--model", "runs/t", "--exported", "--sentences", str(sentences)])
        assert [num_sentences(options, beam) for beam in SEARCHES.values()] == [sentences, of_a_beam]


def test_a_program_that_is_timed_whole_loads_neither_torch_nor_seqloom() -> None:
    """What it is compared with starts up without them, too."""
    code = "import sys, bench.decoders; print([m for m in ('torch', 'numpy', 'seqloom') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"


def test_a_model_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        arguments([])
    assert "--model RUN" in capsys.readouterr().err


def test_crossing_lies_where_the_curves_meet() -> None:
    lengths = (16, 32, 64, 128)
    assert crossing({n: n * n for n in lengths}, {n: 45.254834 * n for n in lengths}) == pytest.approx(45.25, abs=0.01)
    assert crossing(dict.fromkeys(lengths, 1.0), dict.fromkeys(lengths, 2.0)) is None
    assert crossing(dict.fromkeys(lengths, 2.0), dict.fromkeys(lengths, 1.0)) == 16


def test_growth_is_measured_for_both_layers() -> None:
    found = measure((8,), (4, 8), tokens=16, rounds=1)
    assert all(found["seconds"][kind][8][n] > 0 for kind in ("self-attention", "LSTM") for n in (4, 8))
    assert "self-attention, d = 8" in growth_table(found)
