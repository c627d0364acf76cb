"""A trained Transformer of seqloom in the words of fairseq, which Hugging Face's M2M100 shares. Needs torch only."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bench.spec import BOS_ID, NEVER, PAD_ID, TransformerSpec


def read_model(folder: str | Path) -> tuple[TransformerSpec, dict[str, Tensor]]:
    """Sizes and weights of a seqloom model folder."""
    config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    s = config["model"]
    expected = {
        "kind": "transformer_translator",
        "norm_first": True,
        "norm": "layer",
        "feed_forward": "relu",
        "positions": "sinusoidal",
        "connections": "residual",
        "contextual": None,
    }
    other = [f"{name}: {s.get(name)}" for name, value in expected.items() if s.get(name) != value]
    if other or set(s["tie"]) != {"source", "target", "output"}:
        raise SystemExit(
            f"only Transformer-tiny's kind is converted; this model has {', '.join(other) or 'other ties'}"
        )
    sizes = (s["encoder_layers"], s["decoder_layers"], s["size"], s["num_heads"], s["feed_forward_size"])
    spec = TransformerSpec(config["symbols"]["target"], *sizes, dropout=0.0)
    return spec, read_tensors(Path(folder) / "model.safetensors")


def read_tensors(path: Path) -> dict[str, Tensor]:
    """A safetensors file of float32: the header's size, a JSON header, the bytes. Not every peer brings the package."""
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    found = {}
    for name, entry in json.loads(content[8:start]).items():
        if name != "__metadata__":
            assert entry["dtype"] == "F32", f"{name} is {entry['dtype']}"
            begin, end = entry["data_offsets"]
            flat = torch.frombuffer(bytearray(content[start + begin : start + end]), dtype=torch.float32)
            found[name] = flat.reshape(entry["shape"])
    return found


def converted(weights: dict[str, Tensor], spec: TransformerSpec) -> dict[str, Tensor]:
    """Names and blocks as fairseq has them; the table is `embed_tokens` of either side."""
    found: dict[str, Tensor] = {}

    def put(from_ours: str, *theirs: str) -> None:
        for kind in ("weight", "bias"):
            for name, block in zip(theirs, weights[f"{from_ours}.{kind}"].chunk(len(theirs)), strict=True):
                found[f"{name}.{kind}"] = block

    for side, layers in (("encoder", spec.encoder_layers), ("decoder", spec.decoder_layers)):
        for index in range(layers):
            ours, layer = f"{side}.stack.layers.{index}", f"{side}.layers.{index}"
            own = f"{layer}.self_attn"
            put(f"{ours}.attention.project", f"{own}.q_proj", f"{own}.k_proj", f"{own}.v_proj")
            put(f"{ours}.attention.output", f"{own}.out_proj")
            put(f"{ours}.around.0.norm", f"{layer}.self_attn_layer_norm")
            if side == "decoder":
                cross = f"{layer}.encoder_attn"
                put(f"{ours}.cross.query", f"{cross}.q_proj")
                put(f"{ours}.cross.memory", f"{cross}.k_proj", f"{cross}.v_proj")
                put(f"{ours}.cross.output", f"{cross}.out_proj")
                put(f"{ours}.around.1.norm", f"{layer}.encoder_attn_layer_norm")
            put(f"{ours}.feed_forward.inner", f"{layer}.fc1")
            put(f"{ours}.feed_forward.outer", f"{layer}.fc2")
            put(f"{ours}.around.{2 if side == 'decoder' else 1}.norm", f"{layer}.final_layer_norm")
        put(f"{side}.stack.norm", f"{side}.layer_norm")
        found[f"{side}.embed_tokens.weight"] = table_of(weights)
    return found


def table_of(weights: dict[str, Tensor]) -> Tensor:
    """The one table; a file of tied weights holds it under one of its names."""
    names = ("encoder.reader.embedding.weight", "decoder.embedding.weight", "decoder.output.weight")
    return next(weights[name] for name in names if name in weights)


def output_layer(weights: dict[str, Tensor]) -> nn.Linear:
    table = table_of(weights)
    layer = nn.Linear(table.shape[1], table.shape[0])
    bias = weights["decoder.output.bias"].clone()
    bias[[PAD_ID, BOS_ID]] = NEVER
    with torch.no_grad():
        layer.weight.copy_(table)
        layer.bias.copy_(bias)
    return layer


def positions(like: Tensor) -> Tensor:
    """Our sinusoids in a table whose first position is row PAD + 1."""
    size = like.shape[1]
    rates = torch.exp(torch.arange(0, size, 2, dtype=torch.float64) * (-math.log(10_000.0) / size))
    angles = torch.arange(-1, like.shape[0] - 1, dtype=torch.float64)[:, None] * rates
    table = torch.stack([angles.sin(), angles.cos()], -1).flatten(1).to(like.dtype)
    table[PAD_ID] = 0
    return table


def load_into(model: nn.Module, weights: dict[str, Tensor], spec: TransformerSpec) -> None:
    """Weights into a model whose encoder and decoder are fairseq's or M2M100's; a missing or odd tensor is an error."""
    named: dict[str, Any] = converted(weights, spec)
    if hasattr(model, "upgrade_state_dict"):  # fairseq takes weights without a version for old ones, and drops norms
        named |= {f"{side}.version": torch.tensor([3.0]) for side in ("encoder", "decoder")}
    missing, unexpected = model.load_state_dict(named, strict=False)
    left = [name for name in missing if not name.startswith(("shared.", "decoder.output_projection"))]
    left = [name for name in left if not name.endswith(("embed_positions._float_tensor", ".version"))]
    if left or unexpected:
        raise SystemExit(f"weights do not fit: missing {left[:3]}, not expected {list(unexpected)[:3]}")
