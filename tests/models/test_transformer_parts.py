"""What is the Transformer's own: pasts, searches that equal slow ones, heads and their silence, its settings."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from encoder_decoders import (
    HEAD,
    HEADS,
    INNER,
    KINDS,
    SIZE,
    SOURCE_SYMBOLS,
    SOURCES,
    TABLES,
    assert_near,
    build_settings,
    loss_of,
    model_of,
    pairs,
)
from torch import Tensor, nn

from seqloom.batches.collate import Batch, Target, Tokens, collate_sources
from seqloom.corpus.readers import CorpusSettings
from seqloom.decoding.search import answer_sources
from seqloom.decoding.settings import DecodingSettings
from seqloom.decoding.steps import Hypothesis
from seqloom.errors import RecipeError
from seqloom.experiment import train
from seqloom.inspection.trace import Trace
from seqloom.models.encoder_decoder import EncoderDecoder, TransformerTranslatorSettings
from seqloom.models.settings import ConnectionName, FeedForwardName, NormName, PositionName
from seqloom.models.transformer_decoder import TransformerDecoder, TransformerDecoderSettings
from seqloom.models.transformer_encoder import TransformerEncoderSettings
from seqloom.nn.connections import CONNECTIONS
from seqloom.nn.multihead import Past
from seqloom.nn.positions import POSITIONS
from seqloom.nn.transformer import FEED_FORWARDS, NORMS
from seqloom.settings import validated
from seqloom.training.checkpoints import model_tensors

every_position = pytest.mark.parametrize("positions", sorted(POSITIONS))
both_orders = pytest.mark.parametrize("norm_first", [True, False], ids=["pre-norm", "post-norm"])
TIES = [(), *itertools.permutations(TABLES, 2), *itertools.permutations(TABLES, 3)]


def build(kind: str = "sinusoidal", **more: Any) -> EncoderDecoder:
    return model_of(build_settings(f"transformer: {kind}", **more), seed=59)


# -- pasts -----------------------------------------------------------------------------------------------------------

DECODERS = sorted(kind for kind in KINDS if isinstance(model_of(build_settings(kind)).decoder, TransformerDecoder))


@pytest.mark.parametrize("kind", DECODERS)
def test_the_past_in_one_block_equals_tensors_that_are_joined(kind: str) -> None:
    """Without gradients what was read is kept in a block that grows; 37 steps are more than it first has room for."""
    model, batch = model_of(build_settings(kind)), pairs()
    torch.manual_seed(5)
    read, order = torch.randint(4, 9, (37, 3)), torch.tensor([1, 0, 2])
    joined = model.start(batch.source)
    with torch.no_grad():
        block = model.start(batch.source)
    assert joined.past is None
    assert isinstance(block.past, Past)
    for time, tokens in enumerate(read):
        expected, joined, weights = model.advance(tokens, joined)
        with torch.no_grad():
            found, block, seen = model.advance(tokens, block)
            quiet = model.advance(tokens, block, attention=False)
        assert quiet[2] is None
        assert_near(found, expected)
        assert_near(seen, weights)
        if time % 5 == 2:
            joined, block = joined.follow(order, order), block.follow(order, order)


@pytest.mark.parametrize("where", ["dropout", "attention_dropout", "activation_dropout", "word_dropout"])
def test_every_dropout_is_for_training_only(where: str) -> None:
    rates = dict(dropout=0.0, attention_dropout=0.0, activation_dropout=0.0)
    model, batch = build(**(rates | {where: 0.5})), pairs()
    assert torch.equal(model(batch), model(batch))
    model.train()
    assert not torch.equal(model(batch), model(batch))
    assert torch.equal(build(**rates).train()(batch), build(**rates)(batch))


# -- search ----------------------------------------------------------------------------------------------------------


class Read(NamedTuple):
    """What `Slow` has read of the source, a row a sentence, and of the target, a row a hypothesis."""

    source: Tensor
    lengths: Tensor
    target: Tensor

    def follow(self, rows: Tensor, sentences: Tensor | None = None) -> Read:
        kept = slice(None) if sentences is None else sentences
        return Read(self.source[kept], self.lengths[kept], self.target[rows])


class Slow:
    """The same model without a cache: it keeps the words and reads everything again at every step."""

    attends = True

    def __init__(self, model: EncoderDecoder) -> None:
        self.model, self.output = model, model.output

    def start(self, source: Tokens) -> Read:
        return Read(source.ids, source.lengths, torch.empty(len(source), 0, dtype=torch.long))

    def advance(self, tokens: Tensor, state: Read, *, attention: bool = True) -> tuple[Tensor, Read, Tensor]:
        width = len(tokens) // len(state.source)
        target = torch.cat([state.target, tokens[:, None]], 1)
        source, lengths = state.source.repeat_interleave(width, 0), state.lengths.repeat_interleave(width)
        made = Target(target, target, torch.full((len(target),), target.shape[1]))
        batch = Batch(Tokens(source, lengths), made)
        return self.model(batch)[:, -1], state._replace(target=target), self.model.align(batch)[:, -1]


def talkative(seed: int, **given: Any) -> EncoderDecoder:
    """A random translator whose next word depends on what it read: large maps, small biases, no tables that are one."""
    torch.manual_seed(seed)
    basic = dict(size=SIZE, num_heads=HEADS, feed_forward_size=INNER, encoder_layers=2, decoder_layers=2, tie=())
    settings = TransformerTranslatorSettings(**(basic | given))
    model = EncoderDecoder(settings, source_symbols=SOURCE_SYMBOLS, target_symbols=11)
    for weight in model.parameters():
        weight.data = 2 * weight.data if weight.ndim > 1 else weight.data + 0.1 * torch.randn_like(weight)
    return model.eval()


METHODS = {
    "greedy": DecodingSettings(method="greedy", max_length=13),
    "beam": DecodingSettings(
        method="beam", beam_size=5, n_best=3, max_length=11, coverage_penalty=0.2, early_stop=False
    ),
    "sample": DecodingSettings(method="sample", n_best=2, max_length=13, temperature=1.3, top_k=5, top_p=0.95, seed=7),
}


def assert_same(found: list[Hypothesis], expected: list[Hypothesis]) -> None:
    assert [h.tokens for h in found] == [h.tokens for h in expected]
    for one, two in zip(found, expected, strict=True):
        assert one.finished == two.finished
        assert one.score == pytest.approx(two.score, abs=1e-4)
        assert one.log_probability == pytest.approx(two.log_probability, abs=1e-4)
        assert one.token_log_probabilities == pytest.approx(two.token_log_probabilities, abs=1e-4)
        assert_near(one.attention, two.attention)


@every_position
@both_orders
@pytest.mark.parametrize("method", sorted(METHODS))
def test_search_equals_a_search_that_reads_everything_again(positions: str, norm_first: bool, method: str) -> None:
    few = dict(max_positions=5) if positions == "learned" else {}  # answers go beyond the table
    batch = collate_sources([*SOURCES, [4], [15, 16, 4, 5, 6, 7, 8]])
    found = set()
    for seed in (59, 61, 67) if method == "greedy" else (59,):
        model = talkative(seed, positions=positions, norm_first=norm_first, **few)
        fast, slow = (answer_sources(m, batch, METHODS[method], keep_attention=True) for m in (model, Slow(model)))
        for mine, other in zip(fast, slow, strict=True):
            assert_same(mine, other)
            found |= {tuple(h.tokens) for h in mine}
    assert len(found) > 3  # or the comparison would be about little


@pytest.mark.parametrize("method", sorted(METHODS))
def test_an_answer_does_not_depend_on_its_batch(method: str) -> None:
    model = talkative(71)
    together = answer_sources(model, collate_sources(SOURCES), METHODS[method], keep_attention=True)
    for number, (source, answers) in enumerate(zip(SOURCES, together, strict=True)):
        (alone,) = answer_sources(
            model, collate_sources([source]), METHODS[method], keep_attention=True, numbers=[number]
        )
        assert_same(alone, answers)


# -- looking inside --------------------------------------------------------------------------------------------------


@every_position
def test_a_trace_gets_every_head_and_changes_nothing(positions: str) -> None:
    model, batch, trace = build(positions, encoder_layers=1, decoder_layers=3), pairs(), Trace()
    with torch.no_grad():
        assert_near(model(batch, trace), model(batch))
    source, target = batch.source.ids.shape[1], batch.target.inputs.shape[1]
    expected = {"encoder.0.self": (("head", "source", "source"), (HEADS, source, source))}
    for layer in range(3):
        expected[f"decoder.{layer}.self"] = (("head", "target", "target_in"), (HEADS, target, target))
        expected[f"decoder.{layer}.cross"] = (("head", "target", "source"), (HEADS, target, source))
    expected["decoder.attention"] = (("target", "source"), (target, source))
    assert {name: (trace[name].axes, trace[name].values.shape) for name in trace.names()} == expected
    length = int(batch.source.lengths[0])
    for name in trace.names():
        weights = torch.from_numpy(trace[name].values)
        assert_near(weights.sum(-1), torch.ones(weights.shape[:-1]))
        if trace[name].axes[-1] == "source":
            assert not weights[..., length:].any()
        else:
            assert not weights.triu(1).any()


@pytest.mark.parametrize(
    ("decoder_layers", "chosen", "used"), [(1, None, 0), (2, None, 0), (3, None, 1), (3, 0, 0), (3, 2, 2)]
)
def test_the_alignment_is_the_mean_over_heads_of_its_layer(decoder_layers: int, chosen: int | None, used: int) -> None:
    model, batch, trace = build(decoder_layers=decoder_layers, alignment_layer=chosen), pairs(), Trace()
    assert model.decoder.alignment_layer == used
    with torch.no_grad():
        aligned = model.align(batch)
        model(batch, trace)
        stepped = model.advance(batch.target.inputs[:, 0], model.start(batch.source))[2]
    expected = torch.from_numpy(trace[f"decoder.{used}.cross"].values).mean(0)
    assert_near(aligned[0], expected)
    assert_near(torch.from_numpy(trace["decoder.attention"].values), expected)
    assert_near(stepped, aligned[:, 0])


def test_heads_are_listed_from_the_source_to_the_answer() -> None:
    model = build(encoder_layers=1, decoder_layers=2)
    sites = [("encoder", 0), ("decoder", 0), ("cross", 0), ("decoder", 1), ("cross", 1)]
    assert model.heads() == [(site, layer, head) for site, layer in sites for head in range(HEADS)]


def attention_of(model: EncoderDecoder, site: str, layer: int) -> Any:
    block: Any = (model.encoder if site == "encoder" else model.decoder).stack.layers[layer]
    return block.cross if site == "cross" else block.attention


def name_of(model: nn.Module, wanted: nn.Module) -> str:
    return next(name for name, module in model.named_modules() if module is wanted)


@pytest.mark.parametrize(("site", "layer", "head"), build().heads())
def test_without_a_head_nothing_it_computes_is_used(site: str, layer: int, head: int) -> None:
    model, batch = build(), pairs()
    weights = model_tensors(model)
    attention = attention_of(model, site, layer)
    values = attention.memory if site == "cross" else attention.project  # its last rows give the values
    mine = slice(values.out_features - SIZE + head * HEAD, values.out_features - SIZE + (head + 1) * HEAD)
    with torch.no_grad():
        whole = model(batch)
        with model.without_head(site, layer, head):
            silenced = model(batch)
            values.weight[mine] += 1.0  # what it computes no longer matters
            assert_near(model(batch), silenced)
        assert not torch.allclose(model(batch), whole, atol=1e-4)  # but now it would
        values.weight[mine] = weights[f"{name_of(model, values)}.weight"][mine]
        assert not torch.allclose(silenced, whole, atol=1e-4)
        assert torch.equal(model(batch), whole)
    assert all(torch.equal(weight, weights[name]) for name, weight in model_tensors(model).items())


def test_a_head_comes_back_after_an_error_and_in_inference_mode() -> None:
    model = build()
    weights = model_tensors(model)
    for site, layer, head in model.heads():
        with pytest.raises(KeyError, match="inside"), model.without_head(site, layer, head):
            raise KeyError("inside")
        with torch.inference_mode(), model.without_head(site, layer, head):
            output = attention_of(model, site, layer).output
            assert not torch.equal(output.weight, weights[f"{name_of(model, output)}.weight"])
        assert all(torch.equal(weight, weights[name]) for name, weight in model_tensors(model).items())
    loss_of(model, pairs()).backward()  # and the weights can still learn


def test_heads_can_be_taken_away_together() -> None:
    """Without all heads of every self-attention of the encoder, no source word knows of another."""
    model = build("none", encoder_layers=1)

    def first_word(source: list[int]) -> Tensor:
        return model.start(collate_sources([source])).source[0].values[:, :, 0]

    with torch.no_grad(), model.without_head("encoder", 0, 0), model.without_head("encoder", 0, 1):
        assert not torch.equal(first_word([4, 5, 6]), first_word([4, 7, 8]))  # one head is left
        with model.without_head("encoder", 0, 2):
            assert torch.equal(first_word([4, 5, 6]), first_word([4, 7, 8]))
        assert not torch.equal(first_word([4, 5, 6]), first_word([4, 7, 8]))


# -- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (dict(size=50, num_heads=7), "size must be a multiple of num_heads; got 50 and 7"),
        (
            dict(size=30, num_heads=6, positions="rotary"),
            "rotary positions need an even size of each head; got 5",
        ),
        (
            dict(max_positions=13, positions="rotary"),
            "max_positions is for learned positions; got positions: rotary",
        ),
        (dict(max_distance=13), "max_distance is for relative positions; got positions: sinusoidal"),
        (dict(tie=["target"]), "tie names two or three different tables, or none; got ['target']"),
        (
            dict(tie=["target", "target"]),
            "tie names two or three different tables, or none; got ['target', 'target']",
        ),
        (
            dict(tie=["target", "outpt"]),
            "tie.1 must be one of output, source, target; got 'outpt' (did you mean 'output'?)",
        ),
        (
            dict(alignment_layer=3, decoder_layers=3),
            "alignment_layer counts from 0 and there are 3 decoder layers; got 3",
        ),
        (
            dict(positions="rotery"),
            "positions must be one of alibi, learned, none, relative, rotary, sinusoidal; got 'rotery' "
            "(did you mean 'rotary'?)",
        ),
        (dict(num_head=4), "num_head is not a setting (did you mean 'num_heads'?)"),
        (dict(attention_dropout=1.0), "attention_dropout: must be less than 1; got 1.0"),
        (dict(num_heads=0), "num_heads: must be greater than or equal to 1; got 0"),
    ],
)
def test_settings_that_do_not_fit(given: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        validated(TransformerTranslatorSettings, given)
    assert caught.value.problems == [message]


def test_settings_that_fit() -> None:
    validated(TransformerTranslatorSettings, dict(size=30, num_heads=6, positions="alibi"))
    validated(TransformerTranslatorSettings, dict(positions="learned", max_positions=13))
    validated(TransformerTranslatorSettings, dict(positions="relative", max_distance=13))
    validated(TransformerTranslatorSettings, dict(alignment_layer=2, decoder_layers=3))
    for tie in TIES:
        assert validated(TransformerTranslatorSettings, dict(tie=list(tie))).tie == tie


def test_the_settings_reach_the_layers() -> None:
    model = build("few-positions", tie=())
    assert model.decoder.stack.positions.table.shape == (3, SIZE)
    assert build("few-distances").encoder.stack.layers[1].attention.positions.table.shape == (5, HEAD)
    assert len(build("deeper-decoder").encoder.stack.layers) == 1
    assert len(build("deeper-decoder").decoder.stack.layers) == 3
    assert all(layer.attention.causal for layer in model.decoder.stack.layers)
    assert not any(layer.attention.causal or layer.cross for layer in model.encoder.stack.layers)
    assert (
        model.decoder.stack.layers[0].attention.dropout
        == model.decoder.stack.layers[0].feed_forward.dropout.rate
        == 0.2
    )
    assert model.encoder.stack.dropout.rate == model.encoder.stack.layers[0].around[0].dropout.rate == 0.3


def test_the_settings_name_every_choice() -> None:
    assert set(PositionName.__args__) == set(POSITIONS)
    assert set(ConnectionName.__args__) == set(CONNECTIONS)
    assert set(FeedForwardName.__args__) == set(FEED_FORWARDS)
    assert set(NormName.__args__) == set(NORMS)
    for settings in (TransformerTranslatorSettings, TransformerEncoderSettings, TransformerDecoderSettings):
        fields = settings.model_fields
        assert fields["positions"].annotation == PositionName
        assert fields["connections"].annotation == ConnectionName
        assert fields["feed_forward"].annotation == FeedForwardName
        assert fields["norm"].annotation == NormName


# -- learning --------------------------------------------------------------------------------------------------------


def reversals(path: Path, seed: int, size: int) -> dict[str, str]:
    """A corpus of letters and the same letters backwards."""
    draw = random.Random(seed)
    with path.open("w") as file:
        for _ in range(size):
            letters = [draw.choice("abcdefgh") for _ in range(draw.randint(2, 5))]
            file.write(f"{' '.join(letters)}\t{' '.join(reversed(letters))}\n")
    return {"file": str(path)}


@pytest.mark.slow
@pytest.mark.parametrize(
    "given",
    [
        dict(),
        dict(norm_first=False, positions="learned"),
        dict(positions="rotary", norm="rms", feed_forward="swiglu", dropout=0.02),
    ],
    ids=["pre-norm", "post-norm", "modern"],
)
def test_reversal_is_learned(given: dict[str, Any], tmp_path: Path) -> None:
    """Unseen strings come out backwards, at least 9 in 10 exactly."""
    recipe = {
        "data": {
            "train": reversals(tmp_path / "train.tsv", 1, 3000),
            "valid": reversals(tmp_path / "valid.tsv", 2, 60),
        },
        "text": {"tokenizer": "word", "vocabulary_size": None, "joint": False},
        "model": {
            "kind": "transformer_translator", "size": 32, "num_heads": 4, "feed_forward_size": 64,
            "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.0, **given,
        },
        "training": {
            "steps": 300, "batch_tokens": 630, "learning_rate": 1e-2, "betas": [0.9, 0.98], "schedule": "cosine",
            "warmup_steps": 30, "validate_every": 300, "samples": 0, "log_every": 1000,
        },
    }  # fmt: skip
    report = train(recipe, tmp_path / "run").evaluate(CorpusSettings(**recipe["data"]["valid"]), method="greedy")
    assert report.figures["exact_match"] >= 90
