"""One contract for every encoder with every decoder: forcing equals stepping, padding is nothing, gradients arrive."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from encoder_decoders import (
    ENCODER_PARTS,
    HIDDEN,
    KINDS,
    PARTS,
    SOURCE_SYMBOLS,
    SOURCES,
    TABLES,
    TARGET_SYMBOLS,
    TARGETS,
    assert_near,
    build,
    build_settings,
    every_kind,
    loss_of,
    model_of,
    pairs,
    real_steps,
    stepped,
    stretched,
    with_symbols,
    without_dropout,
)
from torch import Tensor, nn

from seqloom.batches.collate import Batch, collate_context, collate_pairs, collate_sources
from seqloom.decoding.search import answer_sources
from seqloom.decoding.settings import DecodingSettings
from seqloom.errors import RecipeError, UserError
from seqloom.inspection.trace import Trace
from seqloom.models import TRANSLATORS
from seqloom.models.bidirectional_lm import BidirectionalLanguageModel, BidirectionalLanguageModelSettings
from seqloom.models.encoder_decoder import (
    DECODERS,
    EncoderDecoder,
    EncoderDecoderSettings,
    RecurrentTranslatorSettings,
    TransformerTranslatorSettings,
)
from seqloom.models.encoders import ENCODERS
from seqloom.models.memory import Memory, MemoryShape, mean_of_real
from seqloom.nn.attention import SCORES, Dot
from seqloom.nn.cells import CELLS, HiddenState, _HiddenCell
from seqloom.nn.masks import length_mask
from seqloom.nn.plain import use_plain_paths
from seqloom.nn.positions import POSITIONS, NoPositions
from seqloom.settings import validated
from seqloom.text.special import BOS_ID
from seqloom.training.checkpoints import check_fits, load_tensors, model_tensors, put_weights, save_tensors


def attends(kind: str) -> bool:
    return build_settings(kind).expanded().decoder.attends


# -- the contract ----------------------------------------------------------------------------------------------------


def test_the_kinds_hold_every_model_and_every_part() -> None:
    assert {given["kind"] for given in KINDS.values()} == TRANSLATORS.keys()
    assert {given["encoder"]["kind"] for given in PARTS.values()} == ENCODERS.keys()
    assert {given["decoder"]["kind"] for given in PARTS.values()} == DECODERS.keys()
    assert {
        "encoder_decoder": (EncoderDecoderSettings, EncoderDecoder),
        "recurrent_translator": (RecurrentTranslatorSettings, EncoderDecoder),
        "transformer_translator": (TransformerTranslatorSettings, EncoderDecoder),
    } == TRANSLATORS


@every_kind
def test_forcing_equals_stepping(kind: str) -> None:
    model, batch = build(kind), pairs()
    real = real_steps(batch)
    with torch.no_grad():
        features, weights = stepped(model, batch)
        assert_near(model(batch)[real], features[real])
        assert features.shape == (*batch.target.inputs.shape, model.output.in_features)
        aligned = model.align(batch)
        if weights is None:
            assert aligned is None
        else:
            assert_near(aligned[real], weights[real])


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
    longer, real = stretched(batch, 3, 5), real_steps(batch)
    garbage = [
        torch.where(length_mask(lengths, rows.shape[1]), rows, 4)  # even where padding holds a symbol
        for rows, lengths in [(longer.source.ids, longer.source.lengths), (longer.target.inputs, longer.target.lengths)]
    ]
    steps, width = batch.target.inputs.shape[1], batch.source.ids.shape[1]
    with torch.no_grad():
        expected, looked = model(batch)[real], model.align(batch)
        for other in (longer, with_symbols(longer, source=garbage[0], target=garbage[1])):
            assert_near(model(other)[:, :steps][real], expected)
            if looked is not None:
                assert_near(model.align(other)[:, :steps, :width][real], looked[real])


@every_kind
def test_batched_equals_single(kind: str) -> None:
    model, batch = build(kind), pairs()
    with torch.no_grad():
        together, weights = model(batch), model.align(batch)
        for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
            alone, steps = collate_pairs([source], [target]), len(target) + 1
            assert_near(model(alone)[0], together[row, :steps])
            if weights is not None:
                assert_near(model.align(alone)[0], weights[row, :steps, : len(source) + 1])


@every_kind
def test_later_targets_change_nothing_before_them_and_the_source_changes_all(kind: str) -> None:
    model, batch, place = build(kind), pairs(), 2
    later, other_source = batch.target.inputs.clone(), batch.source.ids.clone()
    later[:, place:] = 15
    other_source[:, 0] = 15
    real = real_steps(batch)
    with torch.no_grad():
        expected = model(batch)
        changed = (model(with_symbols(batch, target=later)) - expected).abs().amax(-1)
        assert changed[:, :place].max() < 1e-5
        if kind != "transformer: plain":  # without a way around, attention soon makes all positions alike
            assert (changed > 1e-5)[:, place:][real[:, place:]].all()
        changed = (model(with_symbols(batch, source=other_source)) - expected).abs().amax(-1)
        assert (changed > 1e-6)[real].all()


@every_kind
def test_a_state_can_be_reordered(kind: str) -> None:
    model, batch = build(kind), pairs()
    rows, tokens = torch.tensor([2, 0, 0, 1]), torch.tensor([4, 5, 6])
    with torch.no_grad():
        start = model.start(batch.source)
        _, state, _ = model.advance(torch.full((3,), BOS_ID), start)
        for now in (start, state):
            straight, _, looked = model.advance(tokens, now)
            assert_near(model.advance(tokens[rows], now.follow(rows, rows))[0], straight[rows])
            wide = now.follow(torch.arange(3).repeat_interleave(2))  # two hypotheses of each sentence, one source
            features, after, weights = model.advance(tokens.repeat_interleave(2), wide)
            assert_near(features, straight.repeat_interleave(2, 0))
            assert (weights is None) == (looked is None) == (not attends(kind))
            if weights is not None:
                assert_near(weights, looked.repeat_interleave(2, 0))
            assert after.source is now.source


@every_kind
def test_two_may_go_on_from_one_state(kind: str) -> None:
    model, batch = build(kind), pairs()
    first, second, third = (torch.full((3,), token) for token in (4, 5, 6))
    with torch.no_grad():
        _, state, _ = model.advance(torch.full((3,), BOS_ID), model.start(batch.source))
        _, after, _ = model.advance(first, state)
        expected = model.advance(third, after)[0].clone()
        model.advance(second, state)  # must not change what the other saw
        assert_near(model.advance(third, after)[0], expected)


@every_kind
def test_the_plain_paths_agree_in_values_and_gradients(kind: str) -> None:
    """What `training.plain` chooses: without dropout it is the same model."""
    model, batch = build(kind), pairs()
    real, found = real_steps(batch), []
    for plain in (False, True):
        use_plain_paths(model, plain)
        model.zero_grad()
        loss_of(model, batch).backward()
        looked = model.align(batch)
        values = [model(batch)[real], *([] if looked is None else [looked[real]])]
        found.append((values, {name: weight.grad.clone() for name, weight in model.named_parameters()}))
    torch.testing.assert_close(found[0], found[1], atol=3e-5, rtol=1e-4)


@every_kind
def test_alignment_is_a_distribution_over_real_source_positions(kind: str) -> None:
    model, batch = build(kind), stretched(pairs(), 2, 0)
    weights = model.align(batch)
    assert (weights is not None) == model.attends == attends(kind)
    if weights is not None:
        assert weights.shape == (len(batch), batch.target.inputs.shape[1], batch.source.ids.shape[1])
        sums = weights.sum(-1)[real_steps(batch)]
        assert_near(sums, torch.ones_like(sums))
        hidden = ~length_mask(batch.source.lengths, batch.source.ids.shape[1])
        assert not weights.transpose(1, 2)[hidden].any()
        assert (weights >= 0).all()


@every_kind
def test_a_trace_changes_nothing_and_its_weights_sum_to_one(kind: str) -> None:
    model, batch, trace = build(kind), pairs(), Trace()
    real, length = real_steps(batch), int(batch.source.lengths[0])
    with torch.no_grad():
        assert_near(model(batch, trace)[real], model(batch)[real])
        looked = model.align(batch)
    assert ("decoder.attention" in trace.names()) == attends(kind)
    if looked is not None:
        steps = int(batch.target.lengths[0])
        assert_near(torch.from_numpy(trace["decoder.attention"].values)[:steps], looked[0, :steps])
    for name in trace.names():
        shown = torch.from_numpy(trace[name].values)
        assert shown.isfinite().all(), name
        if trace[name].axes[-1] in ("source", "target_in"):
            assert_near(shown.sum(-1), torch.ones(shown.shape[:-1]))
        if trace[name].axes[-1] == "source":
            assert not shown[..., length:].any()


@every_kind
def test_saving_and_loading_agree(kind: str, tmp_path: Path) -> None:
    model, batch = build(kind), pairs()
    save_tensors(tmp_path / "model.safetensors", model_tensors(model))
    loaded, other = load_tensors(tmp_path / "model.safetensors"), build(kind)
    for weight in other.parameters():
        weight.data.normal_()
    check_fits(lambda: build(kind), loaded, "model.safetensors")
    put_weights(other, loaded)
    with torch.no_grad():
        assert torch.equal(other.output(other(batch)), model.output(model(batch)))


@every_kind
def test_dropout_is_for_training_only(kind: str) -> None:
    model, batch = build(kind), pairs()
    real = real_steps(batch)
    assert torch.equal(model(batch)[real], model(batch)[real])
    model.train()
    assert not torch.equal(model(batch)[real], model(batch)[real])
    without_dropout(model)
    trained = model(batch)[real]
    assert torch.equal(trained, model(batch)[real])
    assert_near(trained, model.eval()(batch)[real])


@every_kind
def test_words_that_are_not_seen_are_those_that_are_read_on_either_side(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all words missed, the output depends on no symbol, only on lengths; what is to come stays as it is."""
    model, batch = build(kind, word_dropout=0.5), pairs()
    without_dropout(model)
    other = with_symbols(batch, source=batch.source.ids + 1, target=batch.target.inputs + 1)
    real = real_steps(batch)
    assert not torch.allclose(model(batch)[real], model(other)[real])
    model.train()
    assert not torch.equal(model(batch)[real], model(batch)[real])
    for part in (model.encoder.reader, model.decoder):
        monkeypatch.setattr(part.word_dropout, "forward", torch.zeros_like)
    assert torch.equal(model(batch)[real], model(other)[real])
    state = model.start(batch.source)
    assert torch.equal(*(model.advance(torch.full((len(batch),), word), state)[0] for word in (5, 6)))


@pytest.mark.parametrize("kind", sorted(PARTS))
@pytest.mark.parametrize("method", ["greedy", "beam", "sample"])
def test_an_answer_does_not_depend_on_its_batch(kind: str, method: str) -> None:
    model = model_of(build_settings(kind), noise=0.6)
    how = DecodingSettings(method=method, beam_size=3, n_best=1 if method == "greedy" else 2, max_length=7)
    together = answer_sources(model, collate_sources(SOURCES), how, keep_attention=True)
    for number, (source, answers) in enumerate(zip(SOURCES, together, strict=True)):
        (alone,) = answer_sources(model, collate_sources([source]), how, keep_attention=True, numbers=[number])
        assert [one.tokens for one in alone] == [one.tokens for one in answers]
        for one, two in zip(alone, answers, strict=True):
            assert one.score == pytest.approx(two.score, abs=1e-4, rel=5e-5)
            torch.testing.assert_close(one.attention, two.attention, atol=1e-4, rtol=1e-3)  # products of other sizes


@pytest.mark.parametrize("kind", sorted(PARTS))
def test_no_gradient_and_no_past_is_shared_between_calls(kind: str) -> None:
    """Stepping with gradients is how scheduled sampling trains; it gives what stepping without them gives."""
    model, batch = build(kind), pairs()
    learned, _ = stepped(model, batch)
    learned.square().sum().backward()
    assert all(weight.grad is not None for name, weight in model.named_parameters() if "output" not in name)
    with torch.no_grad():
        assert_near(learned.detach(), stepped(model, batch)[0])


# -- short forms -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", sorted(kind for kind in KINDS if kind not in PARTS))
def test_a_short_form_is_its_parts(kind: str) -> None:
    """The same weights under the same names from the same seed, and the same answers."""
    short, batch = build(kind), pairs()
    parts = short.settings.expanded()
    assert parts.kind == "encoder_decoder"
    assert parts.expanded() is parts
    long = model_of(validated(EncoderDecoderSettings, parts.model_dump(mode="json")))
    assert torch.equal(short(batch), long(batch))
    assert model_tensors(short).keys() == model_tensors(long).keys()


# -- tables that are one ---------------------------------------------------------------------------------------------

TIES = [(), *itertools.permutations(TABLES, 2), *itertools.permutations(TABLES, 3)]
NAMES = {
    "source": "encoder.reader.embedding.weight",
    "target": "decoder.embedding.weight",
    "output": "decoder.output.weight",
}
EVEN: dict[str, dict[str, Any]] = {  # in which every table is equally wide
    "recurrent": dict(
        kind="encoder_decoder",
        encoder=dict(ENCODER_PARTS["recurrent"], embedding_size=HIDDEN),
        decoder=dict(kind="recurrent", embedding_size=HIDDEN, hidden_size=HIDDEN, dropout=0.3),
    ),
    "transformer": dict(
        kind="transformer_translator", size=HIDDEN, num_heads=2, feed_forward_size=11, encoder_layers=1,
        decoder_layers=1, dropout=0.3,
    ),
    "mixed": dict(
        kind="encoder_decoder",
        encoder=ENCODER_PARTS["transformer"],
        decoder=dict(kind="recurrent", embedding_size=HIDDEN, hidden_size=13, readout_size=HIDDEN, dropout=0.3),
    ),
}  # fmt: skip
every_tie = pytest.mark.parametrize("tie", TIES, ids=str)
every_even = pytest.mark.parametrize("even", sorted(EVEN))


def tied_settings(even: str, tie: tuple[str, ...]) -> Any:
    given = EVEN[even] | dict(tie=tie)
    return TRANSLATORS[given["kind"]][0](**given)


def tables_of(model: EncoderDecoder) -> dict[str, nn.Parameter]:
    return {**{side: table.weight for side, table in model.embeddings.items()}, "output": model.output.weight}


@every_tie
@every_even
def test_tied_tables_are_one_tensor_saved_once(even: str, tie: tuple[str, ...], tmp_path: Path) -> None:
    settings = tied_settings(even, tie)
    model, batch = model_of(settings), pairs()
    for one, two in itertools.combinations(TABLES, 2):
        assert (tables_of(model)[one] is tables_of(model)[two]) == (one in tie and two in tie)
    assert settings.expanded().one_vocabulary == ("source" in tie)

    saved = model_tensors(model)
    kept = [name for name in TABLES if NAMES[name] in saved]
    first = [name for name in TABLES if name in tie][:1]  # whichever order the names were written in
    assert kept == [name for name in TABLES if name not in tie or name in first]

    save_tensors(tmp_path / "model.safetensors", saved)
    other = model_of(settings)
    for weight in other.parameters():
        weight.data.normal_()
    put_weights(other, load_tensors(tmp_path / "model.safetensors"))
    with torch.no_grad():
        assert torch.equal(other.output(other(batch)), model.output(model(batch)))
    for name, table in tables_of(other).items():
        assert torch.equal(table, tables_of(model)[name])


@pytest.mark.parametrize("tie", [tie for tie in TIES if tie], ids=str)
@every_even
def test_a_tied_table_gathers_every_gradient(even: str, tie: tuple[str, ...]) -> None:
    """The sum of what its tables would learn apart."""
    tied, apart, batch = model_of(tied_settings(even, tie)), model_of(tied_settings(even, ())), pairs()
    if "source" in tie:
        apart.encoder.reader.embedding.weight = nn.Parameter(tied.encoder.reader.embedding.weight.detach().clone())
    assert not apart.load_state_dict(tied.state_dict()).missing_keys
    for model in (tied, apart):
        loss_of(model, batch).backward()
    mine = tables_of(apart)
    assert_near(tables_of(tied)[tie[0]].grad, sum(mine[name].grad for name in tie))


def fresh(even: str, tie: tuple[str, ...]) -> EncoderDecoder:
    torch.manual_seed(61)
    return EncoderDecoder(tied_settings(even, tie), source_symbols=TARGET_SYMBOLS, target_symbols=TARGET_SYMBOLS)


@every_tie
@every_even
def test_the_order_of_the_names_does_not_matter(even: str, tie: tuple[str, ...]) -> None:
    """One seed, one start; and padding is zero in every table that is read, also where the output layer shares it."""
    model = fresh(even, tie)
    expected = model_tensors(fresh(even, tuple(name for name in TABLES if name in tie)))
    assert expected.keys() == model_tensors(model).keys()
    assert all(torch.equal(weight, expected[name]) for name, weight in model_tensors(model).items())
    for table in model.embeddings.values():
        assert not table.weight[0].any()
        assert table.weight[1:].any(-1).all()


@every_even
def test_tied_tables_are_counted_once(even: str) -> None:
    counts = {tie: sum(weight.numel() for weight in fresh(even, tie).parameters()) for tie in TIES}
    for tie in TIES:
        assert counts[()] - counts[tie] == max(0, len(tie) - 1) * TARGET_SYMBOLS * HIDDEN


def test_one_table_needs_one_vocabulary() -> None:
    """A recipe is checked before; the files of a model may have been put together from two."""
    with pytest.raises(UserError, match=r"needs one vocabulary .* 17 source and 19 target symbols"):
        EncoderDecoder(tied_settings("mixed", ("source", "output")), source_symbols=17, target_symbols=19)


# -- a language model beside -----------------------------------------------------------------------------------------

SEEN = [[5, 6, 7, 3], [8, 3], [9, 10, 3]]  # what the language model reads of the three sources
PLACES = [  # from where to where each symbol of ours, the end too, finds its word there
    [0, 1, 0, 1, 1, 2, 2, 3, 2, 3, 3, 4],
    [0, 0, 0, 1, 1, 2],
    [0, 1, 1, 1, 1, 2, 1, 2, 2, 3],
]
BESIDE = ["recurrent: deep", "transformer: rotary", "embeddings -> additive-bahdanau-fed", "recurrent -> transformer"]
with_context = pytest.mark.parametrize("kind", BESIDE)


def beside(kind: str, freeze: bool) -> EncoderDecoder:
    torch.manual_seed(67)
    reader = BidirectionalLanguageModel(
        BidirectionalLanguageModelSettings(size=4, num_layers=1, dropout=0.4), num_symbols=13
    )
    del reader.output
    settings = build_settings(kind, contextual=dict(source="somewhere", freeze=freeze))
    source_symbols = TARGET_SYMBOLS if settings.expanded().one_vocabulary else SOURCE_SYMBOLS
    model = EncoderDecoder(settings, source_symbols=source_symbols, target_symbols=TARGET_SYMBOLS, reader=reader)
    for weight in model.parameters():
        weight.data += 0.3 * torch.randn_like(weight)
    return model.eval()


def read_beside() -> Batch:
    return collate_pairs(SOURCES, TARGETS, collate_context(SEEN, PLACES))


@with_context
def test_what_is_read_beside_changes_what_comes(kind: str) -> None:
    model, batch = beside(kind, freeze=True), read_beside()
    other = collate_pairs(SOURCES, TARGETS, collate_context([*SEEN[:2], [12, 12, 3]], PLACES))
    real = real_steps(batch)
    with torch.no_grad():
        changed = (model(batch) - model(other)).abs().amax(-1)
    assert (changed > 1e-5)[2][real[2]].all()


@with_context
@pytest.mark.parametrize("freeze", [False, True])
def test_gradients_reach_the_language_model_unless_it_is_frozen(kind: str, freeze: bool) -> None:
    model, batch = beside(kind, freeze).train(), read_beside()
    assert model.encoder.reader.contextual.language.training != freeze
    loss_of(model, batch).backward()
    learning = {name for name, weight in model.named_parameters() if weight.grad is not None and weight.grad.any()}
    language = {name for name, _ in model.named_parameters() if ".contextual.language." in name}
    assert language
    assert learning == {name for name, _ in model.named_parameters()} - (language if freeze else set())


@with_context
def test_parts_of_a_batch_equal_the_whole_beside_a_language_model(kind: str) -> None:
    model, batch = beside(kind, freeze=False), read_beside()
    real = real_steps(batch)
    with torch.no_grad():
        whole = model(batch)
        for number in range(2):
            part = batch.part(number, 2)
            steps = part.target.inputs.shape[1]
            assert_near(model(part)[real_steps(part)], whole[number::2, :steps][real[number::2, :steps]])
        features, _ = stepped(model, batch)
        assert_near(features[real], whole[real])


def test_settings_and_language_model_belong_together() -> None:
    with pytest.raises(AssertionError, match="the language model that settings name"):
        EncoderDecoder(
            build_settings("recurrent: deep", contextual=dict(source="somewhere")), source_symbols=5, target_symbols=5
        )


# -- looking inside --------------------------------------------------------------------------------------------------


def test_heads_are_those_of_the_parts_that_have_them() -> None:
    both = [("decoder", 0), ("cross", 0), ("decoder", 1), ("cross", 1)]
    assert build("recurrent -> transformer").heads() == [
        (site, layer, head) for site, layer in both for head in range(3)
    ]
    assert build("transformer -> state").heads() == [
        ("encoder", layer, head) for layer in range(2) for head in range(2)
    ]
    assert build("embeddings -> lstm").heads() == build("recurrent: deep").heads() == []


@pytest.mark.parametrize("kind", ["transformer -> additive-luong", "recurrent -> transformer"])
def test_a_head_is_silenced_for_a_while(kind: str) -> None:
    model, batch = build(kind), pairs()
    weights, real = model_tensors(model), real_steps(batch)
    with torch.no_grad():
        whole = model(batch)[real]
        for head in model.heads():
            with model.without_head(*head):
                assert not torch.allclose(model(batch)[real], whole, atol=1e-4)
        assert torch.equal(model(batch)[real], whole)
    assert all(torch.equal(weight, weights[name]) for name, weight in model_tensors(model).items())


def test_the_tables_are_named_by_side() -> None:
    model = build("recurrent: deep")
    assert {side: table.weight.shape[0] for side, table in model.embeddings.items()} == {"source": 17, "target": 19}
    shared = build("recurrent: shared")
    assert shared.embeddings["source"] is shared.embeddings["target"]


# -- the memory ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoder", sorted(ENCODER_PARTS))
def test_an_encoder_gives_the_memory_that_its_settings_promise(encoder: str) -> None:
    model, batch = build(f"{encoder} -> transformer"), pairs()
    shape: MemoryShape = model.settings.encoder.memory
    assert model.encoder.memory == shape
    with torch.no_grad():
        memory = model.encoder.encode(batch.source)
        full = model.encoder.encode(batch.part(0, 3).source)
    assert memory.values.shape == (*batch.source.ids.shape, shape.size)
    assert torch.equal(memory.mask, length_mask(batch.source.lengths, batch.source.ids.shape[1]))
    assert full.mask is None
    assert memory.summarise().shape == (len(batch), shape.size)
    assert (memory.states is None) == (shape.cell is None)
    if memory.states is not None:
        assert [state.hidden.shape for state in memory.states] == [(len(batch), shape.state_size)]
        assert torch.equal(memory.summary, memory.states[-1].hidden)
    else:
        for row, length in enumerate(batch.source.lengths.tolist()):
            assert_near(memory.summarise()[row], memory.values[row, :length].mean(0))


def test_the_mean_leaves_padding_out() -> None:
    values = torch.tensor([[[1.0, 4.0], [3.0, 0.0], [99.0, 99.0]], [[5.0, 6.0], [7.0, 8.0], [9.0, 1.0]]])
    mask = torch.tensor([[True, True, False], [True, True, True]])
    assert mean_of_real(values, mask).tolist() == [[2.0, 2.0], [7.0, 5.0]]
    assert torch.equal(mean_of_real(values[1:], None), mean_of_real(values, mask)[1:])
    assert torch.equal(Memory(values, mask, summary=values[:, 0]).summarise(), values[:, 0])


# -- what is new runs without a fast twin ----------------------------------------------------------------------------

NEW = "new"


class MinimalGated(_HiddenCell):
    """Zhou et al. 2016: one gate both forgets and lets through."""

    num_blocks = 2

    def step(self, projected: Tensor, state: HiddenState, weight_hidden: Tensor | None = None) -> Any:
        weight_gate, weight_candidate = self._hidden(weight_hidden).chunk(2)
        x_gate, x_candidate = projected.chunk(2, -1)
        gate = (x_gate + state.hidden @ weight_gate.T).sigmoid()
        candidate = (x_candidate + (gate * state.hidden) @ weight_candidate.T).tanh()
        return HiddenState((1 - gate) * state.hidden + gate * candidate), {"gate": gate}


class Nearness(nn.Module):
    def __init__(self, *, query_size: int, memory_size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(query_size, memory_size))

    def prepare(self, memory: Tensor) -> Tensor:
        return memory @ self.weight.T

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return -torch.cdist(query, keys)


class Cosine(Dot):
    """Made from a score that the fused decoder knows."""

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        unit = torch.nn.functional.normalize
        return 3 * unit(query, dim=-1) @ unit(keys, dim=-1).transpose(-1, -2)


class Ramp(NoPositions):
    def __init__(self, *, size: int, num_heads: int, max_length: int, distance: int) -> None:
        super().__init__(size=size, num_heads=num_heads, max_length=max_length, distance=distance)
        self.slope = nn.Parameter(torch.randn(size))

    def embed(self, inputs: Tensor, offset: int = 0) -> Tensor:
        return inputs + torch.arange(offset, offset + inputs.shape[1]).to(inputs)[:, None] * self.slope


def renewed(kind: str, **choices: str) -> EncoderDecoder:
    """A model whose parts name mechanisms that settings could not know when they were imported."""
    settings = build_settings(kind)
    parts = {
        side: getattr(settings, side).model_copy(
            update={name: new for name, new in choices.items() if name in type(getattr(settings, side)).model_fields}
        )
        for side in ("encoder", "decoder")
    }
    return model_of(settings.model_copy(update=parts))


@pytest.mark.parametrize(
    ("kind", "table", "new", "choice"),
    [
        *(
            (f"recurrent -> dot-{order}{fed}", table, new, choice)
            for order in ("luong", "bahdanau")
            for fed in ("", "-fed")
            for table, new, choice in [
                (CELLS, MinimalGated, "cell"),
                (SCORES, Nearness, "attention"),
                (SCORES, Cosine, "attention"),
            ]
        ),
        ("transformer -> transformer", POSITIONS, Ramp, "positions"),
        ("transformer -> deep", CELLS, MinimalGated, "cell"),
    ],
)
def test_a_new_mechanism_needs_its_class_and_a_line(
    kind: str, table: dict[str, Any], new: type, choice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(table, NEW, new)
    model, batch = renewed(kind, **{choice: NEW}), pairs()
    assert any(type(part) is new for part in model.modules())
    real = real_steps(batch)
    with torch.no_grad():
        expected = model(batch)[real]
        assert_near(stepped(model, batch)[0][real], expected)
        assert_near(model(stretched(batch, 2, 0))[real], expected)
    loss_of(model.train(), batch).backward()
    assert all(weight.grad.any() for weight in model.parameters())
    answers = answer_sources(model.eval(), batch.source, DecodingSettings(beam_size=2, max_length=5))
    assert len(answers) == len(batch)


# -- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            dict(encoder=dict(kind="recurent")),
            "encoder.kind must be one of convolution, embeddings, recurrent, text_convolution, transformer",
        ),
        (
            dict(encoder=dict(size=3)),
            "encoder.kind is missing; it is one of convolution, embeddings, recurrent, text_convolution, transformer",
        ),
        (dict(encoder=dict(kind="embeddings", sise=3)), "encoder.sise is not a setting (did you mean 'size'?)"),
        (dict(decoder=dict(kind="recurrent", cell="gruu")), "decoder.cell must be one of"),
        (
            dict(encoder=dict(kind="embeddings", size=7), decoder=dict(kind="recurrent", attention="dot")),
            "attention: dot compares vectors of one size; the encoder gives 7, the decoder's hidden_size is 512: make "
            "them equal, or choose multiplicative or additive",
        ),
        (
            dict(decoder=dict(kind="recurrent", looks="state", input_feeding=True)),
            "decoder: input_feeding needs attention; this decoder looks at: state",
        ),
        (dict(tie=["target"]), "tie names two or three different tables, or none; got ['target']"),
        (
            dict(tie=["target", "output"], decoder=dict(kind="recurrent", embedding_size=5, hidden_size=7)),
            "tied tables must be equally wide (output: readout_size or hidden_size); got target 5, output 7",
        ),
        (
            dict(
                tie=["target", "source"],
                encoder=dict(kind="embeddings", size=256),
                pretrained=dict(source="a.txt", target="b.txt"),
            ),
            "pretrained: both sides are one table here; name vectors for source or for target, not both",
        ),
    ],
)
def test_parts_that_do_not_fit(given: dict[str, Any], message: str) -> None:
    basic = dict(encoder=dict(kind="embeddings"), decoder=dict(kind="recurrent"))
    with pytest.raises(RecipeError) as caught:
        validated(EncoderDecoderSettings, basic | given)
    (problem,) = caught.value.problems
    assert problem.startswith(message), problem


def test_vectors_for_two_tables_of_which_one_is_tied_to_the_output() -> None:
    """Source and target still are two tables, and may start from two sets of vectors."""
    settings = validated(
        EncoderDecoderSettings,
        dict(
            encoder=dict(kind="embeddings", size=512),
            decoder=dict(kind="recurrent"),
            tie=["source", "output"],
            pretrained=dict(source="a.txt", target="b.txt"),
        ),
    )
    assert settings.one_vocabulary
    assert settings.pretrained.paths() == {"source": "a.txt", "target": "b.txt"}
