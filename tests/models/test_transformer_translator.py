"""One contract for every Transformer translator: forcing equals stepping, and search equals a slow search."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.batches.collate import PairBatch, SourceBatch, collate_pairs, collate_sources
from seqloom.corpus.readers import CorpusSettings
from seqloom.decoding.search import decode
from seqloom.decoding.settings import DecodingSettings
from seqloom.decoding.steps import Hypothesis
from seqloom.errors import RecipeError
from seqloom.inspection.trace import Trace
from seqloom.models import MODELS
from seqloom.models.transformer_translator import (
    PositionName,
    TransformerTranslator,
    TransformerTranslatorSettings,
)
from seqloom.nn.connections import CONNECTIONS
from seqloom.nn.masks import length_mask
from seqloom.nn.multihead import Past
from seqloom.nn.plain import use_plain_paths
from seqloom.nn.positions import POSITIONS
from seqloom.nn.transformer import FEED_FORWARDS, NORMS
from seqloom.settings import validated
from seqloom.tasks.translate import Translation, TranslationWork
from seqloom.text.settings import TextSettings
from seqloom.text.special import BOS_ID
from seqloom.training.checkpoints import load_tensors, model_tensors, put_weights, save_tensors
from seqloom.training.loop import fit
from seqloom.training.settings import TrainingSettings

SOURCE_SYMBOLS, TARGET_SYMBOLS, HEADS, HEAD, INNER = 17, 19, 3, 4, 11
SIZE = HEADS * HEAD
SOURCES = [[4, 5, 6, 7, 8], [9, 10], [11, 12, 13, 14]]
TARGETS = [[5, 4], [6, 7, 8, 9, 10, 11], [12, 13, 14]]
TABLES = ("source", "target", "output")

KINDS: dict[str, dict[str, Any]] = {
    **{name: dict(positions=name) for name in POSITIONS},
    **{f"{name}-post-norm": dict(positions=name, norm_first=False) for name in POSITIONS},
    **{name: dict(connections=name) for name in sorted(CONNECTIONS)},
    **{name: dict(feed_forward=name) for name in FEED_FORWARDS},
    "rms": dict(norm="rms"),
    "few-positions": dict(positions="learned", max_positions=3),
    "few-distances": dict(positions="relative", max_distance=2),
    "one-layer": dict(encoder_layers=1, decoder_layers=1),
    "one-head": dict(num_heads=1),
    "deeper-decoder": dict(encoder_layers=1, decoder_layers=3),
    "untied": dict(tie=()),
    "all-tied": dict(tie=TABLES),
}
every_kind = pytest.mark.parametrize("kind", sorted(KINDS))
every_position = pytest.mark.parametrize("positions", sorted(POSITIONS))
both_orders = pytest.mark.parametrize("norm_first", [True, False], ids=["pre-norm", "post-norm"])


def build(kind: str = "sinusoidal", **more: Any) -> TransformerTranslator:
    """A random translator with opinions strong enough that its answers differ."""
    torch.manual_seed(59)
    basic = dict(
        size=SIZE, num_heads=HEADS, feed_forward_size=INNER, encoder_layers=2, decoder_layers=2, dropout=0.3,
        attention_dropout=0.2, activation_dropout=0.2,
    )  # fmt: skip
    settings = TransformerTranslatorSettings(**(basic | KINDS[kind] | more))
    source_symbols = TARGET_SYMBOLS if settings.share_embeddings else SOURCE_SYMBOLS
    model = TransformerTranslator(settings, source_symbols=source_symbols, target_symbols=TARGET_SYMBOLS)
    for weight in model.parameters():  # at their start, biases are zero and would hide mistakes
        weight.data += 0.3 * torch.randn_like(weight)
    return model.eval()


def pairs() -> PairBatch:
    return collate_pairs(SOURCES, TARGETS)


def stretched(batch: PairBatch, source: int, target: int) -> PairBatch:
    """The same batch with more padding on both sides."""
    return replace(
        batch,
        source=F.pad(batch.source, (0, source)),
        target_in=F.pad(batch.target_in, (0, target)),
        target_out=F.pad(batch.target_out, (0, target)),
    )


def assert_near(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def real_targets(batch: PairBatch) -> Tensor:
    return length_mask(batch.target_lengths, batch.target_in.shape[1])


def loss_of(model: TransformerTranslator, batch: PairBatch) -> Tensor:
    real = real_targets(batch)
    return F.cross_entropy(model.output(model(batch)[real]), batch.target_out[real])


# -- the contract ----------------------------------------------------------------------------------------------------


@every_kind
def test_forcing_equals_stepping(kind: str) -> None:
    model, batch = build(kind), pairs()
    features, looked = [], []
    with torch.no_grad():
        state = model.start(SourceBatch(batch.source, batch.source_lengths))
        for time in range(batch.target_in.shape[1]):
            step, state, weights = model.advance(batch.target_in[:, time], state)
            features.append(step)
            looked.append(weights)
        assert_near(torch.stack(features, 1), model(batch))
        assert_near(torch.stack(looked, 1), model.align(batch))
    assert model(batch).shape == (*batch.target_in.shape, SIZE)


@every_kind
def test_gradients_reach_every_weight(kind: str) -> None:
    model, batch = build(kind).train(), pairs()
    loss_of(model, batch).backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.isfinite().all(), name
        assert weight.grad.abs().sum() > 0, name


@every_kind
def test_padding_changes_nothing(kind: str) -> None:
    model, batch = build(kind), pairs()
    longer, real = stretched(batch, 3, 5), real_targets(batch)
    garbage = [
        torch.where(length_mask(lengths, rows.shape[1]), rows, 4)  # even where padding holds a symbol
        for rows, lengths in [(longer.source, longer.source_lengths), (longer.target_in, longer.target_lengths)]
    ]
    with torch.no_grad():
        expected, looked = model(batch)[real], model.align(batch)[real]
        for other in (longer, replace(longer, source=garbage[0], target_in=garbage[1])):
            assert_near(model(other)[:, : batch.target_in.shape[1]][real], expected)
            found = model.align(other)[:, : batch.target_in.shape[1]][real]
            assert_near(found[:, : batch.source.shape[1]], looked)


@every_kind
def test_batched_equals_single(kind: str) -> None:
    model, batch = build(kind), pairs()
    with torch.no_grad():
        together, weights = model(batch), model.align(batch)
        for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
            alone, steps = collate_pairs([source], [target]), len(target) + 1
            assert_near(model(alone)[0], together[row, :steps])
            assert_near(model.align(alone)[0], weights[row, :steps, : len(source) + 1])


@every_kind
def test_later_targets_change_nothing_before_them_and_the_source_changes_all(kind: str) -> None:
    model, batch, place = build(kind), pairs(), 2
    later, other_source = batch.target_in.clone(), batch.source.clone()
    later[:, place:] = 15
    other_source[:, 0] = 15
    with torch.no_grad():
        expected = model(batch)
        assert_near(model(replace(batch, target_in=later))[:, :place], expected[:, :place])
        if kind != "plain":  # without a way around, attention soon makes all positions alike (Dong et al. 2021)
            assert ((model(replace(batch, target_in=later)) - expected).abs().amax(-1) > 1e-5)[:, place:].all()
        assert ((model(replace(batch, source=other_source)) - expected).abs().amax(-1) > 1e-5).all()


@every_kind
def test_a_state_can_be_reordered(kind: str) -> None:
    model, batch = build(kind), pairs()
    rows, tokens = torch.tensor([2, 0, 0, 1]), torch.tensor([4, 5, 6])
    with torch.no_grad():
        start = model.start(batch)
        _, state, _ = model.advance(torch.full((3,), BOS_ID), start)
        for now in (start, state):
            straight = model.advance(tokens, now)[0]
            assert_near(model.advance(tokens[rows], now.follow(rows, rows))[0], straight[rows])
            wide = now.follow(torch.arange(3).repeat_interleave(2))  # two hypotheses of each sentence, one memory
            features, after, weights = model.advance(tokens.repeat_interleave(2), wide)
            assert_near(features, straight.repeat_interleave(2, 0))
            assert_near(weights, model.advance(tokens, now)[2].repeat_interleave(2, 0))
            assert after.memory is now.memory


@every_kind
def test_the_past_in_one_block_equals_tensors_that_are_joined(kind: str) -> None:
    """Without gradients what was said is kept in a block that grows; 37 steps are more than it first has room for."""
    model, batch = build(kind), pairs()
    torch.manual_seed(5)
    said, order = torch.randint(4, 9, (37, 3)), torch.tensor([1, 0, 2])
    joined = model.start(batch)
    with torch.no_grad():
        block = model.start(batch)
    assert joined.past is None
    assert isinstance(block.past, Past)
    for time, tokens in enumerate(said):
        expected, joined, weights = model.advance(tokens, joined)
        with torch.no_grad():
            found, block, seen = model.advance(tokens, block)
            quiet = model.advance(tokens, block, attention=False)
        assert quiet[2] is None
        assert_near(found, expected)
        assert_near(seen, weights)
        if time % 5 == 2:
            joined, block = joined.follow(order, order), block.follow(order, order)


@every_kind
def test_two_may_go_on_from_one_state(kind: str) -> None:
    model, batch = build(kind), pairs()
    first, second, third = (torch.full((3,), token) for token in (4, 5, 6))
    with torch.no_grad():
        _, state, _ = model.advance(torch.full((3,), BOS_ID), model.start(batch))
        _, after, _ = model.advance(first, state)
        expected = model.advance(third, after)[0].clone()
        model.advance(second, state)  # must not change what the other saw
        assert_near(model.advance(third, after)[0], expected)


@every_kind
def test_the_plain_paths_agree_in_values_and_gradients(kind: str) -> None:
    """What `training.plain` chooses: without dropout it is the same model."""
    model, batch = build(kind), pairs()
    found = []
    for plain in (False, True):
        use_plain_paths(model, plain)
        model.zero_grad()
        loss_of(model, batch).backward()
        found.append((model(batch), model.align(batch), {n: w.grad.clone() for n, w in model.named_parameters()}))
    assert_near(found[0], found[1])


@every_kind
def test_alignment_is_a_distribution_over_real_source_positions(kind: str) -> None:
    model, batch = build(kind), stretched(pairs(), 2, 0)
    weights = model.align(batch)
    assert model.attends
    assert weights.shape == (len(batch), batch.target_in.shape[1], batch.source.shape[1])
    assert_near(weights.sum(-1), torch.ones(weights.shape[:2]))
    assert not weights.transpose(1, 2)[~length_mask(batch.source_lengths, batch.source.shape[1])].any()
    assert (weights >= 0).all()


@pytest.mark.parametrize("where", ["dropout", "attention_dropout", "activation_dropout", "word_dropout"])
def test_dropout_is_for_training_only(where: str) -> None:
    rates = dict(dropout=0.0, attention_dropout=0.0, activation_dropout=0.0)
    model, batch = build(**(rates | {where: 0.5})), pairs()
    assert torch.equal(model(batch), model(batch))
    model.train()
    assert not torch.equal(model(batch), model(batch))
    assert torch.equal(build(**rates).train()(batch), build(**rates)(batch))


def test_words_that_are_not_seen_are_those_that_are_read_on_either_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """With all words missed, the output depends on no symbol, only on lengths; what is to be said stays as it is."""
    model, batch = build(dropout=0.0, attention_dropout=0.0, activation_dropout=0.0, word_dropout=0.5), pairs()
    other = replace(batch, source=batch.source + 1, target_in=batch.target_in + 1)
    assert not torch.allclose(model(batch), model(other))
    model.train()
    monkeypatch.setattr(model.word_dropout, "forward", torch.zeros_like)
    assert torch.equal(model(batch), model(other))
    state = model.start(batch)
    assert torch.equal(*(model.advance(torch.full((len(batch),), word), state)[0] for word in (5, 6)))


# -- search ----------------------------------------------------------------------------------------------------------


class Read(NamedTuple):
    """What `Slow` has read, a row a sentence, and said, a row a hypothesis."""

    source: Tensor
    lengths: Tensor
    said: Tensor

    def follow(self, rows: Tensor, sentences: Tensor | None = None) -> Read:
        kept = slice(None) if sentences is None else sentences
        return Read(self.source[kept], self.lengths[kept], self.said[rows])


class Slow:
    """The same model without a cache: it keeps the words and reads everything again at every step."""

    attends = True

    def __init__(self, model: TransformerTranslator) -> None:
        self.model, self.output = model, model.output

    def start(self, batch: SourceBatch) -> Read:
        return Read(batch.source, batch.source_lengths, torch.empty(len(batch), 0, dtype=torch.long))

    def advance(self, tokens: Tensor, state: Read, *, attention: bool = True) -> tuple[Tensor, Read, Tensor]:
        width = len(tokens) // len(state.source)
        said = torch.cat([state.said, tokens[:, None]], 1)
        source, lengths = state.source.repeat_interleave(width, 0), state.lengths.repeat_interleave(width)
        batch = PairBatch(source, lengths, said, said, torch.full((len(said),), said.shape[1]))
        return self.model(batch)[:, -1], state._replace(said=said), self.model.align(batch)[:, -1]


def talkative(seed: int, **given: Any) -> TransformerTranslator:
    """A random translator whose next word depends on what it read: large maps, small biases, no tables that are one."""
    torch.manual_seed(seed)
    basic = dict(size=SIZE, num_heads=HEADS, feed_forward_size=INNER, encoder_layers=2, decoder_layers=2, tie=())
    settings = TransformerTranslatorSettings(**(basic | given))
    model = TransformerTranslator(settings, source_symbols=SOURCE_SYMBOLS, target_symbols=11)
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
        fast, slow = (decode(m, batch, METHODS[method], keep_attention=True) for m in (model, Slow(model)))
        for mine, other in zip(fast, slow, strict=True):
            assert_same(mine, other)
            found |= {tuple(h.tokens) for h in mine}
    assert len(found) > 3  # or the comparison would be about little


@pytest.mark.parametrize("method", sorted(METHODS))
def test_an_answer_does_not_depend_on_its_batch(method: str) -> None:
    model = talkative(71)
    together = decode(model, collate_sources(SOURCES), METHODS[method], keep_attention=True)
    for number, (source, answers) in enumerate(zip(SOURCES, together, strict=True)):
        (alone,) = decode(model, collate_sources([source]), METHODS[method], keep_attention=True, numbers=[number])
        assert_same(alone, answers)


# -- tables that are one ---------------------------------------------------------------------------------------------

TIES = [(), *itertools.permutations(TABLES, 2), *itertools.permutations(TABLES, 3)]


@pytest.mark.parametrize("tie", TIES, ids=str)
def test_tied_tables_are_one_tensor_saved_once(tie: tuple[str, ...], tmp_path: Path) -> None:
    model, batch = build(tie=tie), pairs()
    tables = {"source": model.source_embedding, "target": model.target_embedding, "output": model.output}
    for one, two in itertools.combinations(TABLES, 2):
        assert (tables[one].weight is tables[two].weight) == (one in tie and two in tie)
    assert model.settings.share_embeddings == ("source" in tie)

    saved = model_tensors(model)
    names = {f"{name}_embedding.weight" if name != "output" else "output.weight": name for name in TABLES}
    kept = [names[name] for name in saved if name in names]
    first = [name for name in TABLES if name in tie][:1]  # whichever order the names were written in
    assert kept == [name for name in TABLES if name not in tie or name in first]

    save_tensors(tmp_path / "model.safetensors", saved)
    other = build(tie=tie)
    for weight in other.parameters():
        weight.data.normal_()
    put_weights(other, load_tensors(tmp_path / "model.safetensors"))
    with torch.no_grad():
        assert torch.equal(other.output(other(batch)), model.output(model(batch)))
    other_tables = {"source": other.source_embedding, "target": other.target_embedding, "output": other.output}
    for name in TABLES:
        assert torch.equal(other_tables[name].weight, tables[name].weight)


@pytest.mark.parametrize("tie", [tie for tie in TIES if tie], ids=str)
def test_a_tied_table_gathers_every_gradient(tie: tuple[str, ...]) -> None:
    """The sum of what its tables would learn apart."""
    tied, apart, batch = build(tie=tie), build(tie=()), pairs()
    if "source" in tie:
        apart.source_embedding.weight = nn.Parameter(tied.source_embedding.weight.detach().clone())
    missing = apart.load_state_dict(tied.state_dict())
    assert not missing.missing_keys
    for model in (tied, apart):
        loss_of(model, batch).backward()
    mine = {"source": apart.source_embedding, "target": apart.target_embedding, "output": apart.output}
    table = {"source": tied.source_embedding, "target": tied.target_embedding, "output": tied.output}[tie[0]]
    assert_near(table.weight.grad, sum(mine[name].weight.grad for name in tie))


def fresh(tie: tuple[str, ...]) -> TransformerTranslator:
    torch.manual_seed(61)
    settings = TransformerTranslatorSettings(
        size=SIZE, num_heads=HEADS, feed_forward_size=INNER, encoder_layers=1, decoder_layers=1, tie=tie
    )
    return TransformerTranslator(settings, source_symbols=TARGET_SYMBOLS, target_symbols=TARGET_SYMBOLS)


@pytest.mark.parametrize("tie", TIES, ids=str)
def test_the_order_of_the_names_does_not_matter(tie: tuple[str, ...]) -> None:
    """One seed, one start; and padding is zero in every table that is read, also where the output layer shares it."""
    model = fresh(tie)
    expected = model_tensors(fresh(tuple(name for name in TABLES if name in tie)))
    assert expected.keys() == model_tensors(model).keys()
    assert all(torch.equal(weight, expected[name]) for name, weight in model_tensors(model).items())
    for table in (model.source_embedding, model.target_embedding):
        assert not table.weight[0].any()
        assert table.weight[1:].any(-1).all()


def test_tied_tables_are_counted_once() -> None:
    counts = {tie: sum(weight.numel() for weight in fresh(tie).parameters()) for tie in TIES}
    for tie in TIES:
        assert counts[()] - counts[tie] == max(0, len(tie) - 1) * TARGET_SYMBOLS * SIZE


# -- looking inside --------------------------------------------------------------------------------------------------


@every_position
def test_a_trace_gets_every_head_and_changes_nothing(positions: str) -> None:
    model, batch, trace = build(positions, encoder_layers=1, decoder_layers=3), pairs(), Trace()
    with torch.no_grad():
        assert_near(model(batch, trace), model(batch))
    source, target = batch.source.shape[1], batch.target_in.shape[1]
    expected = {"encoder.0.self": (("head", "source", "source"), (HEADS, source, source))}
    for layer in range(3):
        expected[f"decoder.{layer}.self"] = (("head", "target", "target_in"), (HEADS, target, target))
        expected[f"decoder.{layer}.cross"] = (("head", "target", "source"), (HEADS, target, source))
    expected["decoder.attention"] = (("target", "source"), (target, source))
    assert {name: (trace[name].axes, trace[name].values.shape) for name in trace.names()} == expected
    length = int(batch.source_lengths[0])
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
    assert model.alignment_layer == used
    with torch.no_grad():
        aligned = model.align(batch)
        model(batch, trace)
        stepped = model.advance(batch.target_in[:, 0], model.start(batch))[2]
    expected = torch.from_numpy(trace[f"decoder.{used}.cross"].values).mean(0)
    assert_near(aligned[0], expected)
    assert_near(torch.from_numpy(trace["decoder.attention"].values), expected)
    assert_near(stepped, aligned[:, 0])


def test_heads_are_listed_from_the_source_to_the_answer() -> None:
    model = build(encoder_layers=1, decoder_layers=2)
    sites = [("encoder", 0), ("decoder", 0), ("cross", 0), ("decoder", 1), ("cross", 1)]
    assert model.heads() == [(site, layer, head) for site, layer in sites for head in range(HEADS)]


def attention_of(model: TransformerTranslator, site: str, layer: int) -> Any:
    block: Any = (model.encoder if site == "encoder" else model.decoder).layers[layer]
    return block.cross if site == "cross" else block.attention


def name_of(model: nn.Module, wanted: nn.Module) -> str:
    return next(name for name, module in model.named_modules() if module is wanted)


@pytest.mark.parametrize(("site", "layer", "head"), build().heads())
def test_without_a_head_nothing_it_says_is_heard(site: str, layer: int, head: int) -> None:
    model, batch = build(), pairs()
    weights = model_tensors(model)
    attention = attention_of(model, site, layer)
    values = attention.memory if site == "cross" else attention.project  # its last rows give the values
    mine = slice(values.out_features - SIZE + head * HEAD, values.out_features - SIZE + (head + 1) * HEAD)
    with torch.no_grad():
        whole = model(batch)
        with model.without_head(site, layer, head):
            silenced = model(batch)
            values.weight[mine] += 1.0  # what it would say no longer matters
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
        return model.start(collate_sources([source])).memory[0].values[:, :, 0]

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
    assert model.decoder.positions.table.shape == (3, SIZE)
    assert build("few-distances").encoder.layers[1].attention.positions.table.shape == (5, HEAD)
    assert len(build("deeper-decoder").encoder.layers) == 1
    assert len(build("deeper-decoder").decoder.layers) == 3
    assert all(layer.attention.causal for layer in model.decoder.layers)
    assert not any(layer.attention.causal or layer.cross for layer in model.encoder.layers)
    assert model.decoder.layers[0].attention.dropout == model.decoder.layers[0].feed_forward.dropout.rate == 0.2
    assert model.encoder.dropout.rate == model.encoder.layers[0].around[0].dropout.rate == 0.3


def test_the_settings_name_every_choice() -> None:
    fields = TransformerTranslatorSettings.model_fields
    assert set(PositionName.__args__) == set(POSITIONS)
    assert set(fields["connections"].annotation.__args__) == set(CONNECTIONS)
    assert set(fields["feed_forward"].annotation.__args__) == set(FEED_FORWARDS)
    assert set(fields["norm"].annotation.__args__) == set(NORMS)
    assert MODELS["transformer_translator"] == (TransformerTranslatorSettings, TransformerTranslator)


# -- learning --------------------------------------------------------------------------------------------------------


def reversals(path: Path, seed: int, size: int) -> CorpusSettings:
    """A corpus of letters and the same letters backwards."""
    draw = random.Random(seed)
    with path.open("w") as file:
        for _ in range(size):
            letters = [draw.choice("abcdefgh") for _ in range(draw.randint(2, 5))]
            file.write(f"{' '.join(letters)}\t{' '.join(reversed(letters))}\n")
    return CorpusSettings(file=str(path))


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
    train, valid = reversals(tmp_path / "train.tsv", 1, 3000), reversals(tmp_path / "valid.tsv", 2, 60)
    task = Translation.learn(train, TextSettings(tokenizer="word", vocabulary_size=None, joint=False))
    settings = TrainingSettings(
        steps=300, batch_tokens=630, learning_rate=1e-2, betas=(0.9, 0.98), schedule="cosine", warmup_steps=30,
        validate_every=300, validation_sentences=60, samples=0, log_every=1000,
    )  # fmt: skip
    torch.manual_seed(3)
    basic = dict(size=32, num_heads=4, feed_forward_size=64, encoder_layers=1, decoder_layers=1, dropout=0.0)
    model = task.build(TransformerTranslatorSettings(**(basic | given)))
    work = TranslationWork(task, train, valid, settings, seed=1)
    fit(model, work, settings, tmp_path)
    answers = task.translate(model, [pair.source for pair in work.pairs], DecodingSettings(method="greedy"))
    right = sum(answer.texts[0] == pair.target for answer, pair in zip(answers, work.pairs, strict=True))
    assert right >= 0.9 * len(work.pairs)
