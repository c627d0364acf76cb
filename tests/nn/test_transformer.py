"""Transformer stacks: parity with torch's layers, parts by hand, one contract for every choice, and two that learn."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.nn.connections import CONNECTIONS
from seqloom.nn.masks import causal_mask, length_mask
from seqloom.nn.multihead import CrossAttention, SelfAttention
from seqloom.nn.plain import use_plain_paths
from seqloom.nn.positions import POSITIONS
from seqloom.nn.transformer import FEED_FORWARDS, NORMS, Around, FeedForward, TransformerStack

BATCH, TIME, SOURCE, LAYERS, HEADS, HEAD, INNER = 3, 7, 5, 2, 3, 4, 17
SIZE = HEADS * HEAD
LENGTHS, SOURCE_LENGTHS = torch.tensor([7, 2, 4]), torch.tensor([3, 5, 1])

ROLES: dict[str, dict[str, bool]] = {
    "encoder": dict(),
    "language-model": dict(causal=True),
    "decoder": dict(causal=True, cross=True),
}
KINDS: dict[str, dict[str, Any]] = {
    "default": dict(),
    "post-norm": dict(norm_first=False),
    "rms": dict(norm="rms"),
    "rms-post-norm": dict(norm="rms", norm_first=False),
    **{kind: dict(feed_forward=kind) for kind in FEED_FORWARDS},
    **{kind: dict(connections=kind) for kind in CONNECTIONS},
    **{f"{kind}-post-norm": dict(connections=kind, norm_first=False) for kind in CONNECTIONS},
    **{f"positions-{kind}": dict(positions=kind) for kind in POSITIONS},
    "short-tables": dict(positions="learned", max_positions=3),
    "short-distance": dict(positions="relative", max_distance=2),
    "modern": dict(positions="rotary", norm="rms", feed_forward="swiglu"),
    "deep-dense": dict(connections="dense", num_layers=3),
}
every_kind = pytest.mark.parametrize("kind", sorted(KINDS))
every_role = pytest.mark.parametrize("role", sorted(ROLES))


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(53)


def shake(module: nn.Module) -> None:
    """At their start biases and some maps are zero or one, which would hide mistakes."""
    for weight in module.parameters():
        weight.data += 0.3 * torch.randn_like(weight)


def build(role: str, **given: Any) -> TransformerStack:
    basic = dict(size=SIZE, num_layers=LAYERS, num_heads=HEADS, feed_forward_size=INNER, dropout=0.4)
    stack = TransformerStack(**(basic | ROLES[role] | given)).double()
    shake(stack)
    return stack.eval()


def vectors(time: int = TIME) -> Tensor:
    return torch.randn(BATCH, time, SIZE, dtype=torch.float64)


def run(
    stack: TransformerStack, role: str, inputs: Tensor, source: Tensor, *, padded: bool = True, **more: Any
) -> Tensor:
    """The stack's output, with every mask its role needs; a causal stack needs none for its own padding."""
    rows = len(inputs)
    mask = length_mask(LENGTHS[:rows], inputs.shape[1])[:, None, None] if padded and role == "encoder" else None
    if "cross" not in ROLES[role]:
        return stack(inputs, mask, **more)[0]
    memory_mask = length_mask(SOURCE_LENGTHS[:rows], source.shape[1])[:, None, None] if padded else None
    return stack(inputs, memory=stack.prepare(source), memory_mask=memory_mask, **more)[0]


# -- parity with torch -----------------------------------------------------------------------------------------------


def copy_attention(ours: SelfAttention | CrossAttention, theirs: nn.MultiheadAttention) -> None:
    if isinstance(ours, SelfAttention):
        weight, bias = ours.project.weight, ours.project.bias
    else:
        weight = torch.cat([ours.query.weight, ours.memory.weight])
        bias = torch.cat([ours.query.bias, ours.memory.bias])
    theirs.in_proj_weight.data, theirs.in_proj_bias.data = weight.detach(), bias.detach()
    theirs.out_proj.load_state_dict(ours.output.state_dict())


def torchs(ours: TransformerStack, *, cross: bool, norm_first: bool, activation: str) -> nn.Module:
    """torch's own stack with our weights."""
    kind = nn.TransformerDecoderLayer if cross else nn.TransformerEncoderLayer
    layer = kind(SIZE, HEADS, INNER, 0.0, activation, batch_first=True, norm_first=norm_first)
    last = nn.LayerNorm(SIZE) if norm_first else None
    if cross:
        theirs: Any = nn.TransformerDecoder(layer, LAYERS, last)
    else:
        theirs = nn.TransformerEncoder(layer, LAYERS, last, enable_nested_tensor=False)
    theirs.double().train()  # its rates are 0, and its fast path for inference gives zeros at padding
    for mine, other in zip(ours.layers, theirs.layers, strict=True):
        copy_attention(mine.attention, other.self_attn)
        other.linear1.load_state_dict(mine.feed_forward.inner.state_dict())
        other.linear2.load_state_dict(mine.feed_forward.outer.state_dict())
        norms = [other.norm1, other.norm2]
        if cross:
            copy_attention(mine.cross, other.multihead_attn)
            norms.append(other.norm3)
        for around, norm in zip(mine.around, norms, strict=True):
            norm.load_state_dict(around.norm.state_dict())
    if norm_first:
        theirs.norm.load_state_dict(ours.norm.state_dict())
    return theirs


both_orders = pytest.mark.parametrize("norm_first", [True, False], ids=["pre-norm", "post-norm"])
both_bends = pytest.mark.parametrize("activation", ["relu", "gelu"])
both_paths = pytest.mark.parametrize("plain", [False, True], ids=["fused", "plain"])


@both_orders
@both_bends
@both_paths
@pytest.mark.parametrize("causal", [False, True])
def test_an_encoder_equals_torchs(norm_first: bool, activation: str, plain: bool, causal: bool) -> None:
    role = "language-model" if causal else "encoder"
    ours = build(role, positions="none", norm_first=norm_first, feed_forward=activation)
    theirs = torchs(ours, cross=False, norm_first=norm_first, activation=activation)
    use_plain_paths(ours, plain)
    inputs, real = vectors(), length_mask(LENGTHS, TIME)
    for padded in (False, True):
        found, _ = ours(inputs, real[:, None, None] if padded else None)
        expected = theirs(
            inputs, mask=~causal_mask(TIME) if causal else None, src_key_padding_mask=~real if padded else None
        )
        torch.testing.assert_close(found, expected)


@both_orders
@both_bends
@both_paths
def test_a_decoder_equals_torchs(norm_first: bool, activation: str, plain: bool) -> None:
    ours = build("decoder", positions="none", norm_first=norm_first, feed_forward=activation)
    theirs = torchs(ours, cross=True, norm_first=norm_first, activation=activation)
    use_plain_paths(ours, plain)
    inputs, source, real = vectors(), vectors(SOURCE), length_mask(SOURCE_LENGTHS, SOURCE)
    found = run(ours, "decoder", inputs, source)
    expected = theirs(inputs, source, tgt_mask=~causal_mask(TIME), memory_key_padding_mask=~real)
    torch.testing.assert_close(found, expected)


@both_orders
def test_gradients_equal_torchs(norm_first: bool) -> None:
    ours = build("decoder", positions="none", norm_first=norm_first)
    theirs = torchs(ours, cross=True, norm_first=norm_first, activation="relu")
    inputs, source, factor = vectors().requires_grad_(), vectors(SOURCE).requires_grad_(), vectors()
    found = run(ours, "decoder", inputs, source, padded=False)
    expected = theirs(inputs, source, tgt_mask=~causal_mask(TIME))
    mine = [inputs, source, ours.layers[0].attention.project.weight, ours.layers[1].feed_forward.inner.weight]
    other = [inputs, source, theirs.layers[0].self_attn.in_proj_weight, theirs.layers[1].linear1.weight]
    torch.testing.assert_close(
        torch.autograd.grad((found * factor).sum(), mine), torch.autograd.grad((expected * factor).sum(), other)
    )


# -- the parts, by hand ----------------------------------------------------------------------------------------------


def test_rms_by_hand() -> None:
    """Zhang and Sennrich 2019, eq. 4: over the root of the mean square, without taking the mean away."""
    norm = NORMS["rms"](2, eps=0.0)
    norm.weight.data = torch.tensor([10.0, 1.0])
    root = math.sqrt((3**2 + 4**2) / 2)
    torch.testing.assert_close(norm(torch.tensor([3.0, 4.0])), torch.tensor([30 / root, 4 / root]))


@pytest.mark.parametrize("name", sorted(NORMS))
def test_norms_equal_their_formula(name: str) -> None:
    around = Around(size=SIZE, norm=name, norm_first=True, connection="plain", num_seen=1, dropout=0.0).double()
    shake(around)
    inputs, weight = vectors(), around.norm.weight
    if name == "rms":
        expected = inputs / (inputs.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight
    else:
        centred = inputs - inputs.mean(-1, keepdim=True)
        expected = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight + around.norm.bias
    torch.testing.assert_close(around([inputs], lambda given: given), expected)


BENDS = {
    "relu": lambda x: max(0.0, x),
    "gelu": lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2))),
    "silu": lambda x: x / (1 + math.exp(-x)),
}


@pytest.mark.parametrize(
    ("kind", "bend", "gated"),
    [("relu", "relu", False), ("gelu", "gelu", False), ("geglu", "gelu", True), ("swiglu", "silu", True)],
)
@pytest.mark.parametrize("value", [-1.5, 0.25, 2.0])
def test_feed_forward_by_hand(kind: str, bend: str, gated: bool, value: float) -> None:
    """Shazeer 2020, eq. 5 and 6: the first half of the inner layer is bent and gates the second."""
    layer = FeedForward(size=1, hidden_size=2, kind=kind)
    first, second = BENDS[bend](2 * value + 0.5), BENDS[bend](-1 * value)
    layer.inner.weight.data[:2, 0], layer.inner.bias.data[:2] = torch.tensor([2.0, -1.0]), torch.tensor([0.5, 0.0])
    layer.outer.weight.data, layer.outer.bias.data = torch.tensor([[5.0, 7.0]]), torch.tensor([0.75])
    if gated:
        layer.inner.weight.data[2:, 0], layer.inner.bias.data[2:] = torch.tensor([3.0, 4.0]), torch.tensor([0.0, 1.0])
        first, second = first * 3 * value, second * (4 * value + 1)
    assert layer(torch.tensor([value])).item() == pytest.approx(5 * first + 7 * second + 0.75, rel=1e-5)


def test_the_table_of_feed_forwards_is_complete() -> None:
    assert {name: gated for name, (_, gated) in FEED_FORWARDS.items()} == {
        "geglu": True,
        "gelu": False,
        "relu": False,
        "swiglu": True,
    }
    for name, (_, gated) in FEED_FORWARDS.items():
        layer = FeedForward(size=SIZE, hidden_size=INNER, kind=name)
        assert layer.inner.weight.shape == (2 * INNER if gated else INNER, SIZE)


@both_orders
@pytest.mark.parametrize("connection", sorted(CONNECTIONS))
def test_what_surrounds_a_sublayer(norm_first: bool, connection: str) -> None:
    """Pre-norm: connect(x, f(norm(x))); post-norm: norm(connect(x, f(x)))."""
    around = Around(
        size=SIZE, norm="layer", norm_first=norm_first, connection=connection, num_seen=2, dropout=0.0
    ).double()
    shake(around)
    seen = [vectors(), vectors()]

    def sublayer(given: Tensor) -> Tensor:
        return given.sin()

    if norm_first:
        expected = around.connection(seen, around.norm(seen[-1]).sin())
    else:
        expected = around.norm(around.connection(seen, seen[-1].sin()))
    torch.testing.assert_close(around(seen, sublayer), expected)


def test_a_last_norm_where_norms_come_first() -> None:
    for norm_first in (True, False):
        stack, inputs = build("encoder", norm_first=norm_first), vectors()
        assert (stack.norm is not None) == norm_first
        last = stack.norm if norm_first else stack.layers[-1].around[-1].norm
        last.weight.data.fill_(1.0)
        last.bias.data.zero_()
        output = stack(inputs)[0]
        torch.testing.assert_close(output.mean(-1), torch.zeros(BATCH, TIME, dtype=torch.float64))
        torch.testing.assert_close(
            output.var(-1, correction=0).sqrt(), torch.ones(BATCH, TIME).double(), atol=1e-3, rtol=0
        )


# -- the contract of every choice ------------------------------------------------------------------------------------


@every_kind
@every_role
def test_gradients_reach_every_weight(kind: str, role: str) -> None:
    stack, inputs, source = (
        build(role, **KINDS[kind]).train(),
        vectors().requires_grad_(),
        vectors(SOURCE).requires_grad_(),
    )
    (run(stack, role, inputs, source) * vectors()).sum().backward()  # a norm's sum of squares would be constant
    leaves = [*stack.named_parameters(), ("inputs", inputs)] + ([("source", source)] if role == "decoder" else [])
    for name, weight in leaves:
        assert weight.grad is not None, name
        assert weight.grad.isfinite().all(), name
        assert weight.grad.abs().sum() > 0, name


@every_kind
@every_role
def test_padding_changes_nothing(kind: str, role: str) -> None:
    stack, inputs, source = build(role, **KINDS[kind]), vectors(), vectors(SOURCE)
    longer = [torch.cat([given, torch.zeros(BATCH, 3, SIZE).double()], 1) for given in (inputs, source)]
    for given, lengths in zip(longer, (LENGTHS, SOURCE_LENGTHS), strict=True):
        given[~length_mask(lengths, given.shape[1])] = 1e3 * torch.randn(SIZE).double()
    real = length_mask(LENGTHS, TIME)
    found = run(stack, role, *longer)[:, :TIME]
    torch.testing.assert_close(found[real], run(stack, role, inputs, source)[real])


@every_kind
@every_role
def test_batched_equals_single(kind: str, role: str) -> None:
    stack, inputs, source = build(role, **KINDS[kind]), vectors(), vectors(SOURCE)
    together = run(stack, role, inputs, source)
    for row, (length, source_length) in enumerate(zip(LENGTHS.tolist(), SOURCE_LENGTHS.tolist(), strict=True)):
        one = slice(row, row + 1)
        alone = run(stack, role, inputs[one, :length], source[one, :source_length], padded=False)
        torch.testing.assert_close(alone[0], together[row, :length])


@every_kind
@every_role
def test_who_sees_what_comes_later(kind: str, role: str) -> None:
    """A changed input changes its own place and those after it; those before it only where nothing is causal."""
    stack, inputs, source, place = build(role, **KINDS[kind]), vectors(), vectors(SOURCE), 3
    other = inputs.clone()
    other[:, place] = torch.randn(BATCH, SIZE, dtype=torch.float64)
    one, two = (run(stack, role, given, source, padded=False) for given in (inputs, other))
    changed = (one - two).abs().amax((0, 2)) > 1e-6
    assert changed[place:].all()
    assert not changed[:place].any() if ROLES[role].get("causal") else changed.all()
    if ROLES[role].get("causal"):
        torch.testing.assert_close(one[:, :place], two[:, :place], atol=0, rtol=0)


@every_kind
@pytest.mark.parametrize("role", ["language-model", "decoder"])
def test_reading_in_parts_equals_reading_at_once(kind: str, role: str) -> None:
    stack, inputs, source = build(role, **KINDS[kind]), vectors(), vectors(SOURCE)
    whole = run(stack, role, inputs, source, padded=False)
    memory = stack.prepare(source) if role == "decoder" else None
    for sizes in ([1] * TIME, [3, 1, 2, 1], [6, 1]):
        past, found = None, []
        for part in inputs.split(sizes, 1):
            output, past = stack(part, past=past, memory=memory)
            found.append(output)
        torch.testing.assert_close(torch.cat(found, 1), whole)


@every_kind
@every_role
def test_both_paths_agree_and_weights_are_shown(kind: str, role: str) -> None:
    stack, inputs, source, shown = build(role, **KINDS[kind]), vectors(), vectors(SOURCE), {}
    fused = run(stack, role, inputs, source)
    watched = run(stack, role, inputs, source, watch=lambda name, weights: shown.setdefault(name, weights))
    use_plain_paths(stack)
    torch.testing.assert_close(run(stack, role, inputs, source), fused)
    torch.testing.assert_close(watched, fused)
    sites = ["self", "cross"] if role == "decoder" else ["self"]
    assert list(shown) == [f"{index}.{site}" for index in range(len(stack.layers)) for site in sites]
    for name, weights in shown.items():
        keys = SOURCE if name.endswith("cross") else TIME
        assert weights.shape == (BATCH, HEADS, TIME, keys)
        torch.testing.assert_close(weights.sum(-1), torch.ones(BATCH, HEADS, TIME, dtype=torch.float64))
        if name.endswith("cross"):
            assert not weights.transpose(1, 3)[~length_mask(SOURCE_LENGTHS, SOURCE)].any()
        elif role == "encoder":
            assert not weights.transpose(1, 3)[~length_mask(LENGTHS, TIME)].any()
        else:
            assert not weights.triu(1).any()


@every_role
@pytest.mark.parametrize("where", ["dropout", "attention_dropout", "activation_dropout"])
def test_each_dropout_acts_and_only_in_training(role: str, where: str) -> None:
    rates = dict(dropout=0.0, attention_dropout=0.0, activation_dropout=0.0)
    stack, still = build(role, **(rates | {where: 0.5})), build(role, **rates)
    still.load_state_dict(stack.state_dict())
    inputs, source = vectors(), vectors(SOURCE)
    torch.testing.assert_close(run(stack, role, inputs, source), run(still, role, inputs, source))
    stack.train()
    still.train()
    torch.testing.assert_close(run(still, role, inputs, source), run(stack.eval(), role, inputs, source))
    stack.train()
    assert not torch.allclose(run(stack, role, inputs, source), run(stack, role, inputs, source))


@both_orders
def test_dropout_falls_on_what_a_sublayer_adds_and_never_on_the_way_around(norm_first: bool) -> None:
    around = Around(
        size=SIZE, norm="layer", norm_first=norm_first, connection="residual", num_seen=1, dropout=0.5
    ).train()
    around.norm = nn.Identity()
    inputs = torch.randn(BATCH, TIME, SIZE)
    added = around([inputs], torch.ones_like) - inputs
    dropped, kept = ((added - value).abs() < 1e-5 for value in (0.0, 2.0))
    assert (dropped | kept).all()
    assert dropped.any()
    assert kept.any()


@pytest.mark.parametrize("positions", ["none", "sinusoidal"])
def test_dropout_falls_on_embeddings_with_their_positions(positions: str) -> None:
    """A stack without layers gives what its first layer would read."""
    stack, inputs = (
        build("encoder", num_layers=0, norm_first=False, positions=positions, dropout=0.5).float(),
        vectors(),
    )
    whole, dropped = stack(inputs.float())[0], stack.train()(inputs.float())[0]
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], 2 * whole[kept])
    assert 0 < kept.float().mean() < 1


@every_kind
@every_role
def test_a_state_dict_holds_every_weight_and_nothing_else(kind: str, role: str) -> None:
    stack, other = build(role, **KINDS[kind]), build(role, **KINDS[kind])
    assert set(stack.state_dict()) == {name for name, _ in stack.named_parameters()}
    other.load_state_dict(stack.state_dict())
    inputs, source = vectors(), vectors(SOURCE)
    assert torch.equal(run(stack, role, inputs, source), run(other, role, inputs, source))


# -- two halves that learn -------------------------------------------------------------------------------------------

SYMBOLS, STEPS, STRINGS = 13, 250, 64


class Half(nn.Module):
    """A stack between a table of symbols and a layer of answers."""

    def __init__(self, num_answers: int, **given: Any) -> None:
        super().__init__()
        size = 32
        self.embedding = nn.Embedding(SYMBOLS, size)
        self.stack = TransformerStack(size=size, num_heads=2, feed_forward_size=64, **given)
        self.output = nn.Linear(size, num_answers)

    def forward(self, symbols: Tensor, past: Any = None) -> tuple[Tensor, Any]:
        features, past = self.stack(self.embedding(symbols), past=past)
        return self.output(features), past


def learn(model: nn.Module, loss_of_a_batch: Any) -> None:
    """A few seconds of training on strings that are drawn anew at each step."""
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=STEPS)
    model.train()
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss_of_a_batch().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    model.eval()


@pytest.mark.parametrize(
    "given", [dict(positions="sinusoidal"), dict(positions="rotary", feed_forward="swiglu")], ids=str
)
def test_an_encoder_learns_to_tag(given: dict[str, Any]) -> None:
    """Did this symbol occur before? Only attention, and only one that knows the order, can tell."""
    length = 11

    def tagged(count: int) -> tuple[Tensor, Tensor]:
        symbols = torch.randint(SYMBOLS, (count, length))
        return symbols, (symbols[:, :, None] == symbols[:, None]).tril(-1).any(-1).long()

    model = Half(2, num_layers=1, **given)

    def loss() -> Tensor:
        symbols, tags = tagged(STRINGS)
        return F.cross_entropy(model(symbols)[0].flatten(0, 1), tags.flatten())

    learn(model, loss)
    symbols, tags = tagged(500)  # of 13^11 strings, training has seen 16,000
    share = tags.double().mean(0)
    assert torch.maximum(share, 1 - share).mean() < 0.8  # what can be known without looking around
    with torch.no_grad():
        assert (model(symbols)[0].argmax(-1) == tags).double().mean() > 0.95


@pytest.mark.parametrize("given", [dict(positions="sinusoidal"), dict(positions="relative", norm="rms")], ids=str)
def test_a_causal_stack_learns_to_continue(given: dict[str, Any]) -> None:
    """A random string is said once more, from the kept past alone, one symbol at a time."""
    length = 7
    model = Half(SYMBOLS, num_layers=2, causal=True, **given)

    def loss() -> Tensor:
        once = torch.randint(SYMBOLS, (STRINGS, length))
        logits, _ = model(torch.cat([once, once[:, :-1]], 1))
        return F.cross_entropy(logits[:, length - 1 :].flatten(0, 1), once.flatten())

    learn(model, loss)
    once, said = torch.randint(SYMBOLS, (200, length)), []  # of 13^7 strings, training has seen 16,000
    with torch.no_grad():
        logits, past = model(once)
        for _ in range(length):
            said.append(logits[:, -1].argmax(-1))
            logits, past = model(said[-1][:, None], past)
    assert (torch.stack(said, 1) == once).all(1).double().mean() > 0.9
