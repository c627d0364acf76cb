"""Writing a Transformer for CTranslate2: whatever it can express answers the same, and nothing unproved is kept."""

from __future__ import annotations

import functools
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import seqloom
from conftest import tiny_recipe
from seqloom.cli.main import run
from seqloom.corpus.readers import CorpusSettings, read_pairs
from seqloom.errors import RunError, UserError
from seqloom.experiment import save_model
from seqloom.export import ctranslate2, verification
from seqloom.export.ctranslate2 import MAX_POSITIONS, build_spec, export, positions_of
from seqloom.export.supported import problem_with
from seqloom.model import Model, load
from seqloom.recipe import recipe_from
from seqloom.tasks.base import Fitted
from seqloom.tasks.translate import Translation
from seqloom.text.special import BOS_ID, EOS_ID, PAD_ID

DATA = CorpusSettings(grammar="en-es", split="valid", size=20)
SIDE = {"kind": "transformer", "size": 12, "num_heads": 2, "feed_forward_size": 14, "num_layers": 2}
SHORT = {
    "kind": "transformer_translator",
    "size": 12,
    "num_heads": 2,
    "feed_forward_size": 14,
    "encoder_layers": 2,
    "decoder_layers": 2,
}


def recipe_of(model: dict[str, Any]) -> Any:
    values = tiny_recipe()
    values["data"]["train"]["size"] = 100
    values["text"] = {"tokenizer": "word", "vocabulary_size": 53, "joint": "source" in model.get("tie", ())}
    values["decoding"] = {"max_length": 40}
    return recipe_from({**values, "model": model})


@functools.cache
def learned(joint: bool) -> Translation:
    return Translation.learn(recipe_of({**SHORT, "tie": ["source", "target"] if joint else []}), lambda text: None)


def random_model(folder: Path, **settings: Any) -> Path:
    """A model folder with weights far from their start, so that every part of the model matters; it talks a lot."""
    return random_weights(folder, {**SHORT, **settings})


def random_pair(folder: Path, encoder: dict[str, Any], decoder: dict[str, Any], **settings: Any) -> Path:
    """The same of an encoder and a decoder that are given part by part."""
    parts = {"encoder": {**SIDE, **encoder}, "decoder": {**SIDE, **decoder}}
    return random_weights(folder, {"kind": "encoder_decoder", **parts, **settings})


def random_weights(folder: Path, model: dict[str, Any]) -> Path:
    recipe = recipe_of(model)
    task = learned(recipe.text.joint)
    torch.manual_seed(7)
    network: Any = task.build(recipe.model)
    with torch.no_grad():
        for weight in network.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
        network.output.bias[EOS_ID] += 1.0
    save_model(folder, recipe, task, Fitted(network, task.size(network), {}, 0.0))
    return folder


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"positions": "learned", "max_positions": 7},  # sentences go beyond the table: its last row serves
        {"positions": "none"},
        {"positions": "rotary"},
        {"positions": "relative", "max_distance": 2},
        {"positions": "alibi", "num_heads": 3},
        {"feed_forward": "gelu"},
        {"feed_forward": "geglu"},
        {"feed_forward": "swiglu", "norm": "rms"},
        {"norm_first": False},
        {"norm_first": False, "norm": "rms", "positions": "rotary"},
        {"norm_first": False, "positions": "relative", "feed_forward": "geglu"},
        {"tie": []},
        {"tie": ["source", "target", "output"]},
        {"tie": ["source", "target"], "positions": "alibi"},
        {"encoder_layers": 1, "decoder_layers": 3, "alignment_layer": 0, "size": 7, "num_heads": 1},
    ],
    ids=lambda settings: "-".join(f"{value}" for value in settings.values()) or "default",
)
def test_every_setting_answers_the_same(settings: dict[str, Any], tmp_path: Path) -> None:
    check_answers(random_model(tmp_path / "model", **settings))


@pytest.mark.parametrize(
    ("encoder", "decoder"),
    [
        ({"positions": "sinusoidal"}, {"positions": "rotary", "num_heads": 3}),
        ({"positions": "rotary", "num_heads": 3, "num_layers": 1}, {"positions": "learned", "max_positions": 7}),
        ({"positions": "learned", "norm": "rms"}, {"positions": "relative", "max_distance": 2, "norm": "layer"}),
        ({"positions": "relative", "num_heads": 3}, {"positions": "alibi", "num_heads": 4, "norm_first": False}),
        ({"positions": "alibi", "norm_first": False}, {"positions": "none", "feed_forward": "swiglu"}),
        (
            {"positions": "relative", "feed_forward": "geglu", "feed_forward_size": 5},
            {"num_layers": 3, "alignment_layer": 0, "norm": "rms", "feed_forward": "gelu"},
        ),
    ],
    ids=["-".join(pair) for pair in ("sr", "rl", "lr", "ra", "an", "rs")],
)
def test_an_encoder_and_a_decoder_that_are_unlike_answer_the_same(
    encoder: dict[str, Any], decoder: dict[str, Any], tmp_path: Path
) -> None:
    original, exported = check_answers(random_pair(tmp_path / "model", encoder, decoder))
    texts = [pair.source for pair in read_pairs(DATA)]
    answers = [[answer.text for answer in model.predict(texts, method="greedy")] for model in (original, exported)]
    assert answers[0] == answers[1], "also where source words replace unknown symbols"


def test_parts_may_share_their_tables(tmp_path: Path) -> None:
    check_answers(random_pair(tmp_path / "model", {"num_heads": 3}, {}, tie=["source", "target", "output"]))


def check_answers(model: Path) -> tuple[Model, Model]:
    """The export of a model answers as the model does; gives both back."""
    original = load(model)
    folder, found = export(original, data=DATA)
    assert folder == model.with_name("model-ctranslate2")
    assert found is not None
    greedy, beam = found.searches.values()
    assert greedy.same + greedy.ties == 20
    assert greedy.same >= 18
    assert beam.same + beam.ties + beam.cut == 20
    assert beam.same >= 14, "also of those that were cut"
    assert max(greedy.drift, beam.drift) < 1e-4

    exported, task = load(folder), original.task
    pairs = list(read_pairs(DATA))
    texts = [answer.text for answer in original.predict([pair.source for pair in pairs], method="greedy")]
    assert len(set(texts)) >= 4
    sources = [task.source.tokenizer.encode(pair.source) for pair in pairs]
    targets = [task.target.tokenizer.encode(pair.target) for pair in pairs]
    found_log_probs = exported.network.log_probs(sources, targets)
    for pair, target, log_probs in zip(pairs, targets, found_log_probs, strict=True):
        forced = verification.forced_log_probs(original, pair.source, target)
        assert log_probs == pytest.approx(forced.tolist(), abs=1e-4), "also of answers that neither would give"
    return original, exported


def test_the_folder_holds_everything_and_loads_in_ctranslate2_alone(tmp_path: Path) -> None:
    original = load(random_model(tmp_path / "model"))
    folder, found = export(original, tmp_path / "out", data=DATA, decoding={"beam_size": 3})
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "README.md",
        "config.json",
        "model.bin",
        "seqloom.json",
        "source_vocabulary.json",
        "target_vocabulary.json",
        "tokenizer.source.json",
        "tokenizer.target.json",
    }
    about = json.loads((folder / "seqloom.json").read_text())
    assert about["format"] == 2
    assert about["task"] == "translate"
    assert about["metrics"] == ["bleu", "chrf", "ter", "exact_match"]
    assert about["parameters"] == original.task.amounts(original.network)["parameters"]
    assert about["compute"] == "float32"
    assert about["positions"] == MAX_POSITIONS
    assert about["symbols"] == {"source": 53, "target": 53}
    assert about["decoding"]["beam_size"] == 3
    assert found is not None
    assert about["verification"] == found.to_dict()
    card = (folder / "README.md").read_text()
    assert found.summary() in card
    assert "trained on" in card, "what the model's own card says goes along"

    import ctranslate2 as engine

    source, target = original.task.source.tokenizer, original.task.target.tokenizer
    pieces = source.pieces(source.encode("the green witch arrived"))
    settings = original.options.overridden({"method": "greedy"})
    theirs = engine.Translator(str(folder), intra_threads=1).translate_batch(
        [pieces], beam_size=1, min_decoding_length=0, max_decoding_length=settings.limit(len(pieces) + 1) - 1
    )
    ((_, best),) = original.task.translate(original.network, ["the green witch arrived"], settings)
    assert theirs[0].hypotheses[0] == target.pieces(best.hypotheses[0].tokens)


def test_padding_and_begin_symbols_never_come(tmp_path: Path) -> None:
    model = load(random_model(tmp_path / "model"))
    bias = model.network.output.bias
    with torch.no_grad():
        bias[[PAD_ID, BOS_ID]] = 50.0  # the original would choose them, were they not forbidden
    ctranslate2.write_model(model, tmp_path, "float32")
    found = build_spec(model.network).decoder.projection.bias
    assert (found[[PAD_ID, BOS_ID]] < -1e3).all()
    assert np.array_equal(np.delete(found, [PAD_ID, BOS_ID]), np.delete(bias.detach().numpy(), [PAD_ID, BOS_ID]))


@pytest.mark.parametrize(
    ("encoder", "decoder", "expected"),
    [
        ({"positions": "rotary"}, {"positions": "relative"}, None),
        ({"positions": "rotary"}, {}, MAX_POSITIONS),
        ({"positions": "learned", "max_positions": 3000}, {"positions": "rotary"}, 3000),
        ({"positions": "learned", "max_positions": 3000}, {"positions": "sinusoidal"}, MAX_POSITIONS),
        ({"positions": "alibi"}, {"positions": "learned", "max_positions": 2000}, MAX_POSITIONS),
    ],
)
def test_the_side_with_the_fewest_positions_counts(
    encoder: dict[str, Any], decoder: dict[str, Any], expected: int | None
) -> None:
    parts = {"encoder": {**SIDE, **encoder}, "decoder": {**SIDE, **decoder}}
    recipe = recipe_of({"kind": "encoder_decoder", **parts})
    network: Any = learned(False).build(recipe.model)
    assert positions_of(network) == expected


RECURRENT = {"kind": "recurrent", "cell": "gru", "embedding_size": 12, "hidden_size": 12}


@pytest.mark.parametrize(
    ("model", "message"),
    [
        *(
            (
                {**SHORT, "connections": name},
                f"model.connections: {name} has no counterpart in CTranslate2; residual has",
            )
            for name in ("plain", "highway", "dense")
        ),
        (
            {"kind": "encoder_decoder", "encoder": {**SIDE, "connections": "highway"}, "decoder": SIDE},
            "model.encoder.connections: highway has no counterpart in CTranslate2; residual has",
        ),
        (
            {"kind": "encoder_decoder", "encoder": SIDE, "decoder": {**SIDE, "connections": "dense"}},
            "model.decoder.connections: dense has no counterpart in CTranslate2; residual has",
        ),
        (
            {"kind": "encoder_decoder", "encoder": RECURRENT, "decoder": SIDE},
            "model.encoder.kind: recurrent has no counterpart in CTranslate2, which runs Transformers; transformer has",
        ),
        (
            {"kind": "encoder_decoder", "encoder": {"kind": "embeddings", "size": 12}, "decoder": SIDE},
            "model.encoder.kind: embeddings has no counterpart in CTranslate2, which runs Transformers",
        ),
        (
            {"kind": "encoder_decoder", "encoder": SIDE, "decoder": RECURRENT},
            "model.decoder.kind: recurrent has no counterpart in CTranslate2, which runs Transformers",
        ),
        (
            {"kind": "encoder_decoder", "encoder": SIDE, "decoder": {**SIDE, "size": 14}},
            "model.decoder.size: 14 after an encoder of 12 has no counterpart in CTranslate2; two equal sizes have",
        ),
    ],
    ids=lambda value: "" if isinstance(value, dict) else value.split(" has")[0],
)
def test_what_ctranslate2_has_not_is_refused(model: dict[str, Any], message: str, tmp_path: Path) -> None:
    folder = random_weights(tmp_path / "model", model)
    assert json.loads((folder / "config.json").read_text())["engines"] == []
    with pytest.raises(UserError, match=f"^{re.escape(message)}"):
        export(load(folder), data=DATA)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_each_format_is_for_some_tasks(tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.txt").write_text("the green witch arrived\nthe cat slept\n" * 20)
    recipe = {
        "task": "model_language",
        "data": {side: {"text": str(tmp_path / "text.txt")} for side in ("train", "valid")},
        "text": {"tokenizer": "word", "vocabulary_size": None},
        "model": {"kind": "ngram_lm", "order": 2},
    }
    ngrams = tmp_path / "ngrams"
    seqloom.train(recipe, ngrams)
    _, err = printed(capsys, "export", ngrams, "--to", "ctranslate2", code=2)
    assert (
        f"{ngrams / 'model'}: a language model, which cannot be exported to CTranslate2; ask 'seqloom generate" in err
    )
    _, err = printed(capsys, "export", tiny_run, "--to", "arpa", code=2)
    assert f"{tiny_run / 'model'}: a translator, which cannot be written as n-grams" in err
    _, err = printed(capsys, "export", ngrams, "--to", "arpa")
    assert err.endswith(f"wrote {ngrams / 'model.arpa'}\n")
    _, err = printed(capsys, "export", ngrams, "--to", "arpa", code=2)
    assert "there is such a file already; --overwrite replaces it" in err
    printed(capsys, "export", ngrams, "--to", "arpa", "--overwrite")
    _, err = printed(capsys, "export", ngrams, "--to", "arpa", "--no-verify", code=2)
    assert "--to arpa takes --output and --overwrite only" in err


def test_what_can_be_exported_is_offered(tmp_path: Path) -> None:
    folder = random_pair(tmp_path / "model", {"num_heads": 3}, {})
    assert json.loads((folder / "config.json").read_text())["engines"] == ["ctranslate2"]
    assert problem_with(load(folder).network.settings) is None


def test_recurrent_models_and_unfit_decoding_are_refused(tiny_run: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"model.kind: recurrent_translator has no counterpart"):
        export(load(tiny_run))
    assert not (tiny_run / "ctranslate2").exists()
    model = load(random_model(tmp_path / "model"))
    with pytest.raises(UserError, match=r"decoding.max_length: the exported model has positions for 1,024 symbols"):
        export(model, data=DATA, decoding={"max_length": 2000})
    with pytest.raises(UserError, match=r"decoding.max_length: 1 leaves room"):
        export(model, data=DATA, decoding={"max_length": 1})
    with pytest.raises(UserError, match="early_stop: false needs a beam_size of 2"):
        export(model, data=DATA, decoding={"early_stop": False, "beam_size": 1})
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


# -- what verification finds -----------------------------------------------------------------------------------------


def _swap_gates(spec: Any) -> None:
    ffn = spec.decoder.layer[0].ffn
    ffn.linear_0, ffn.linear_0_noact = ffn.linear_0_noact, ffn.linear_0


def _shift_positions(spec: Any) -> None:
    table = spec.encoder.position_encodings
    table.encodings = np.roll(table.encodings, 1, 0)


def _nudge_a_weight(spec: Any) -> None:
    spec.decoder.layer[1].attention.linear[0].weight[3] += 0.5


@pytest.mark.parametrize("harm", [_swap_gates, _shift_positions, _nudge_a_weight])
def test_a_model_that_answers_otherwise_is_not_kept(harm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load(random_model(tmp_path / "model", feed_forward="geglu"))

    def harmed(original: Any) -> Any:
        spec = build_spec(original)
        harm(spec)
        return spec

    monkeypatch.setattr(ctranslate2, "build_spec", harmed)
    with pytest.raises(RunError) as caught:
        export(model, data=DATA)
    message = str(caught.value)
    assert "the exported model was not kept: it answers differently" in message
    for word in ("of 20 in greedy search", "source  ", "original  ", "exported  "):
        assert word in message
    assert message.count("source  ") <= 6, "a few are enough"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_ties_are_counted_and_wrong_probabilities_are_not_excused(tmp_path: Path) -> None:
    """Two symbols with the same weights are equally likely everywhere: which of them is said is nobody's fault."""
    original = load(random_model(tmp_path / "model", tie=[]))
    output, embedding = original.network.output, original.network.decoder.embedding
    with torch.no_grad():
        output.bias[7] = output.bias[8] = 9.0
        output.weight[7] = output.weight[8]
        embedding.weight[7] = embedding.weight[8]
    settings = original.options.overridden({"method": "greedy", "max_length": 6})
    ((_, answered),) = original.task.translate(original.network, ["the dog slept"], settings)
    first = answered.hypotheses[0]
    assert 7 in first.tokens
    other = [8 if token == 7 else token for token in first.tokens]
    found = verification.Found(other, first.log_probability)
    assert verification._is_tie(original, "the dog slept", first, found, settings)
    assert verification._is_tie(original, "the dog slept", first, found, settings.overridden({"method": "beam"}))
    worse = verification.Found([9, *other[1:]], first.log_probability)
    for method in ("greedy", "beam"):
        chosen = settings.overridden({"method": method})
        assert not verification._is_tie(original, "the dog slept", first, worse, chosen)
        same = verification.Found(first.tokens, first.log_probability - 1)
        assert not verification._is_tie(original, "the dog slept", first, same, chosen)


def test_int8_is_smaller_and_measured(
    tiny_transformer_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = load(tiny_transformer_run)
    whole, _ = export(original, tmp_path / "whole", verify=False)
    folder, found = export(original, tmp_path / "small", compute="int8")
    assert found is not None
    assert found.sentences == 40, "all of the recipe's validation data"
    assert found.bleu is not None
    assert "BLEU" in found.summary()
    assert json.loads((folder / "seqloom.json").read_text())["verification"]["bleu"]["original"] == found.bleu[0]
    assert json.loads((whole / "seqloom.json").read_text())["verification"] is None

    def weight_bytes(path: Path) -> int:
        tables = 2 * MAX_POSITIONS * 32 * 4  # positions stay as they are, and are most of so small a model
        return (path / "model.bin").stat().st_size - tables

    assert weight_bytes(folder) < weight_bytes(whole) / 2
    assert load(folder)("the dog slept").text
    monkeypatch.setattr(verification, "MOST_LOST", -100.0)
    with pytest.raises(RunError, match=r"BLEU falls from [\d.]+ to [\d.]+ on 7 sentences of grammar en-es/valid"):
        export(original, tmp_path / "third", compute="int8", sentences=7)
    assert not (tmp_path / "third").exists()


# -- the command line ------------------------------------------------------------------------------------------------


def printed(capsys: pytest.CaptureFixture[str], *arguments: Any, code: int = 0) -> tuple[str, str]:
    capsys.readouterr()
    assert run([str(a) for a in arguments]) == code
    found = capsys.readouterr()
    assert "Traceback" not in found.err
    return found.out, found.err


def test_the_verb(tiny_transformer_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trained = Path(shutil.copytree(tiny_transformer_run, tmp_path / "run"))
    out, err = printed(capsys, "export", trained, "--to", "ctranslate2", "--sentences", 15, "--set", "beam_size=2")
    folder = trained / "ctranslate2"
    assert not out
    assert "verified: 15 sentences of grammar en-es/valid; greedy search: 15 the same; beam search: 15 the same" in err
    assert f"wrote {folder}; next: seqloom predict {folder}" in err
    text = "the green witch arrived"
    assert printed(capsys, "predict", folder, text) == printed(capsys, "predict", trained, text, "--beam-size", 2)
    scores = [json.loads(printed(capsys, "evaluate", where, "--format", "json")[0]) for where in (folder, trained)]
    assert scores[0]["bleu"] == pytest.approx(scores[1]["bleu"], abs=2.0), "the run's test data, wider beam"
    assert "aer" not in scores[0]

    _, err = printed(capsys, "export", trained, "--to", "ctranslate2", code=2)
    assert "holds an exported model; --overwrite replaces it" in err
    printed(capsys, "export", trained / "model", "--to", "ctranslate2", "--overwrite", "--no-verify")
    assert json.loads((folder / "seqloom.json").read_text())["verification"] is None
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    _, err = printed(
        capsys, "export", trained, "--to", "ctranslate2", "--overwrite", "--output", tmp_path / "mine", code=2
    )
    assert "exists and is not an exported model" in err
    assert (tmp_path / "mine" / "thesis.txt").is_file()


def test_verifying_needs_data(tiny_transformer_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = Path(shutil.copytree(tiny_transformer_run / "model", tmp_path / "alone"))
    _, err = printed(capsys, "export", model, "--to", "ctranslate2", code=2)
    assert "a model folder has no data of its own; give --data FILE" in err
    (tmp_path / "empty.tsv").write_text("  \tnada\n")
    _, err = printed(capsys, "export", model, "--to", "ctranslate2", "--data", tmp_path / "empty.tsv", code=2)
    assert "empty.tsv: there is no sentence to verify the export with" in err
    (tmp_path / "two.tsv").write_text("the dog slept\tel perro durmió\n\t\na cat\tun gato\n")
    _, err = printed(capsys, "export", model, "--to", "ctranslate2", "--data", tmp_path / "two.tsv")
    assert "verified: 2 sentences of two.tsv" in err
    assert (tmp_path / "alone-ctranslate2" / "model.bin").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--to", "onyx"], "onyx"),
        ([], "--to"),
        (["--to", "ctranslate2", "--compute", "int4"], "int4"),
        (["--to", "ctranslate2", "--sentences", "0"], "--sentences must be 1 or more"),
        (["--to", "ctranslate2", "--no-verify", "--data", "x.tsv"], "does not go together with --no-verify"),
        (["--to", "ctranslate2", "--set", "beam=3"], "beam is not a setting (did you mean 'beam_size'?)"),
        (["--to", "ctranslate2", "--data", "nothing.tsv"], "nothing.tsv"),
    ],
)
def test_mistakes(
    arguments: list[str], message: str, tiny_transformer_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, err = printed(capsys, "export", tiny_transformer_run, *arguments, code=2)
    assert message in err
    assert not (tiny_transformer_run / "ctranslate2").exists()


def test_a_missing_package_gets_one_line(
    tiny_transformer_run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ctranslate2", None)
    _, err = printed(capsys, "export", tiny_transformer_run, "--to", "ctranslate2", code=2)
    assert (
        err == "seqloom: this needs CTranslate2: pip install 'seqloom[export]' (or: pip install 'ctranslate2>=4.8.2')\n"
    )
