"""Two Transformers, encoder and decoder, in CTranslate2's format, which runs them faster and without torch.

Every weight goes where CTranslate2 computes the same formula with it; what it has no formula for is refused before
anything is written. Three things are said in its words:

    positions at the bottom     a table of its rows, also for none (zeros); learned ones go on with their last row
    ALiBi                       its table of biases by distance (T5's), with as many buckets that every distance has one
    PAD and BOS never come      a bias of the output layer that nothing can make up for
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import Tensor, nn

import seqloom
from seqloom.errors import UserError
from seqloom.export.checked import checksum
from seqloom.export.engine import load_package
from seqloom.export.search import check_decoding
from seqloom.export.supported import problem_with
from seqloom.export.translator import FORMAT, open_exported
from seqloom.export.verification import Verification, chosen_pairs, compare, measure
from seqloom.files import folder_written_aside
from seqloom.folders import EXPORTED, export_beside, fingerprint, is_exported, refuse_exported
from seqloom.model import Model
from seqloom.models.encoder_decoder import EncoderDecoder
from seqloom.nn.multihead import CrossAttention, SelfAttention
from seqloom.nn.positions import Alibi, Learned, Relative, Sinusoidal, sinusoids
from seqloom.nn.transformer import FeedForward, TransformerLayer, TransformerStack
from seqloom.text.sides import sides_by_file
from seqloom.text.special import BOS, BOS_ID, EOS, PAD_ID, UNK

Compute = Literal["float32", "int8"]

MAX_POSITIONS = 1024  # rows of a table of positions, where ours could go on for ever
NEVER = -1e4  # a logit no other can be compared with, and still a number in 16 bits


def export(
    model: Model,
    output: str | Path | None = None,
    *,
    compute: Compute = "float32",
    data: Any = None,
    sentences: int = 1000,
    verify: bool = True,
    overwrite: bool = False,
    decoding: Mapping[str, Any] | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> tuple[Path, Verification | None]:
    """Write a model for CTranslate2 and prove that it answers as before; gives back where, and what was proved.

    Args:
        model: what `seqloom.load` gives for a model folder or a run folder.
        output: the folder to write (default: `ctranslate2` or `ctranslate2-int8` in the run, or beside the model).
        compute: float32 is the same model; int8 is a quarter of the size, and measured instead of compared.
        data: a corpus to verify with (default: the validation data of the run's recipe).
        sentences: at most so many of it.
        verify: false only writes.
        overwrite: replace an exported folder that is there already.
        decoding: decoding settings to change in the exported model.
        progress: is called with what is being done, and which share of it is.
    """
    package = load_package()
    refuse_unsupported(model)
    task, network = model.task, model.network
    positions = positions_of(network)
    options = model.options.overridden(decoding or {})
    check_decoding(options, positions)
    folder = model.folder if model.folder.name not in ("", "..") else model.folder.resolve()  # another goes beside it
    final = free_folder(output, folder, compute, overwrite)
    chosen = None
    if verify:
        (corpus,) = model.corpora(default="valid").values() if data is None else [data]
        chosen = chosen_pairs(corpus, model, sentences)

    source, target = task.source.tokenizer, task.target.tokenizer
    about: dict[str, Any] = {
        "format": FORMAT,
        "seqloom": seqloom.__version__,
        "engine": f"ctranslate2 {package.__version__}",
        "task": task.name,
        "made_from": fingerprint(folder),
        "compute": compute,
        "positions": positions,
        "metrics": list(task.measured),
        **task.amounts(network),
        "decoding": options.model_dump(mode="json"),
        "text": {name: side.settings.model_dump(mode="json") for name, side in sides_by_file(source, target).items()},
        "symbols": {"source": len(source), "target": len(target)},
    }
    verification = None
    with folder_written_aside(final) as aside:
        task.save(aside)
        write_model(model, aside, compute)
        about["checksum"] = checksum(aside, about["decoding"], about["text"])
        _write_description(aside, about)
        if chosen is not None:
            check = compare if compute == "float32" else measure
            verification = check(model, Model(*open_exported(aside)), chosen, options, progress)
            verification.or_refuse()
        _write_description(aside, about | {"verification": None if verification is None else verification.to_dict()})
        (aside / "README.md").write_text(_card(folder, aside, compute, verification), encoding="utf-8")
    return final, verification


# -- what can be said in CTranslate2's words ---------------------------------------------------------------------------


def refuse_unsupported(model: Model) -> None:
    """CTranslate2 knows Transformers with residual connections."""
    refuse_exported(model.folder, "this needs the model folder that it was made from")
    if "ctranslate2" not in model.task.engines(model.network):
        problem = problem_with(model.network.settings) if isinstance(model.network, EncoderDecoder) else None
        raise UserError(problem) if problem else model.task.refusal("be exported to CTranslate2", model.folder)


def positions_of(model: EncoderDecoder) -> int | None:
    """How many symbols a text or an answer of the exported model may have; None: no end."""
    parts = model.settings.expanded()
    ends = [
        max(MAX_POSITIONS, part.max_positions or 0)
        for part in (parts.encoder, parts.decoder)
        if part.positions not in ("relative", "rotary")
    ]
    return min(ends, default=None)


def free_folder(output: str | Path | None, model: Path, compute: str, overwrite: bool) -> Path:
    """Where to write; what is there already is replaced only if it is an export, and only when told to."""
    final = export_beside(model, compute) if output is None else Path(output).expanduser()
    if not final.exists() or (final.is_dir() and not any(final.iterdir())):
        return final
    if not is_exported(final):
        raise UserError(
            f"{final}: exists and is not an exported model, so it is left alone; give --output another name"
        )
    if not overwrite:
        raise UserError(f"{final}: holds an exported model; --overwrite replaces it, --output DIR uses another folder")
    return final


# -- the weights -------------------------------------------------------------------------------------------------------


def write_model(model: Model, folder: Path, compute: Compute) -> None:
    """CTranslate2's own files: model.bin, config.json, vocabularies."""
    spec = build_spec(model.network)
    for tokenizer, register in (
        (model.task.source.tokenizer, spec.register_source_vocabulary),
        (model.task.target.tokenizer, spec.register_target_vocabulary),
    ):
        register(tokenizer.pieces(range(len(tokenizer))))
    spec.validate()
    spec.optimize(quantization=None if compute == "float32" else compute)
    spec.save(str(folder))


def build_spec(model: EncoderDecoder) -> Any:
    """The model as CTranslate2 describes one."""
    from ctranslate2.specs import transformer_spec

    encoder = transformer_spec.TransformerEncoderSpec(**_layers(model.encoder.settings))
    decoder = transformer_spec.TransformerDecoderSpec(
        **_layers(model.decoder.settings),
        alignment_layer=model.decoder.alignment_layer,
        alignment_heads=model.decoder.settings.num_heads,
    )
    _set_stack(encoder, model.encoder.stack, causal=False)
    _set_stack(decoder, model.decoder.stack, causal=True)
    read, made = model.encoder.reader.embedding, model.decoder.embedding
    encoder.embeddings[0].weight, encoder.scale_embeddings = _array(read.weight), read.scale
    decoder.embeddings.weight, decoder.scale_embeddings = _array(made.weight), made.scale
    _set_linear(decoder.projection, model.output.weight, model.output.bias)
    decoder.projection.bias[[PAD_ID, BOS_ID]] = NEVER

    spec = transformer_spec.TransformerSpec(encoder, decoder)
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = UNK, BOS, EOS
    spec.config.decoder_start_token = BOS
    spec.config.add_source_eos = True
    first = model.encoder.stack.layers[0]
    assert isinstance(first, TransformerLayer)
    spec.config.layer_norm_epsilon = first.around[0].norm.eps  # type: ignore[union-attr]  # the same in all norms
    return spec


def _layers(settings: Any) -> dict[str, Any]:
    """What the layers of an encoder or a decoder are like, in CTranslate2's words."""
    from ctranslate2.specs import common_spec

    s, activations = settings, common_spec.Activation
    return {
        "num_layers": s.num_layers,
        "num_heads": s.num_heads,
        "pre_norm": s.norm_first,
        "activation": {
            "geglu": activations.GELU,  # the exact one, with the error function, as ours
            "gelu": activations.GELU,
            "relu": activations.RELU,
            "swiglu": activations.SWISH,
        }[s.feed_forward],
        "ffn_glu": s.feed_forward in ("geglu", "swiglu"),
        "rms_norm": s.norm == "rms",
        "relative_position": s.positions == "relative",
        "relative_attention_bias": s.positions == "alibi",
        "rotary_dim": 0 if s.positions == "rotary" else None,  # 0: the whole head
        "rotary_interleave": False,
    }


def _set_stack(spec: Any, stack: TransformerStack, *, causal: bool) -> None:
    if stack.norm is not None:
        _set_norm(spec.layer_norm, stack.norm)
    for layer_spec, layer in zip(spec.layer, stack.layers, strict=True):
        assert isinstance(layer, TransformerLayer)
        _set_self_attention(layer_spec.self_attention, layer.attention, causal)
        if layer.cross is not None:
            _set_cross_attention(layer_spec.attention, layer.cross)
        _set_feed_forward(layer_spec.ffn, layer.feed_forward)
        sublayers = [layer_spec.self_attention, *([layer_spec.attention] if layer.cross else []), layer_spec.ffn]
        for sublayer, around in zip(sublayers, layer.around, strict=True):
            _set_norm(sublayer.layer_norm, around.norm)  # type: ignore[arg-type]
    if not any(hasattr(spec.layer[0].self_attention, name) for name in ("rotary_dim", *_INSIDE)):
        spec.position_encodings.encodings = _position_table(stack)


_INSIDE = ("relative_position_keys", "relative_attention_bias")


def _position_table(stack: TransformerStack) -> np.ndarray:
    """(positions, size): what is added to the embeddings."""
    size = stack.layers[0].attention.output.out_features  # type: ignore[union-attr]
    match stack.positions:
        case Learned() as learned:
            table = _array(learned.table)
            return np.concatenate([table, np.repeat(table[-1:], max(0, MAX_POSITIONS - len(table)), 0)])
        case Sinusoidal():
            return _array(sinusoids(MAX_POSITIONS, size))  # type: ignore[arg-type]
    return np.zeros((MAX_POSITIONS, size), np.float32)  # type: ignore[arg-type]


def _set_self_attention(spec: Any, attention: SelfAttention, causal: bool) -> None:
    from ctranslate2.specs import model_spec

    _set_linear(spec.linear[0], attention.project.weight, attention.project.bias)
    _set_linear(spec.linear[1], attention.output.weight, attention.output.bias)
    match attention.positions:
        case Relative() as relative:
            spec.relative_position_keys = _array(relative.table)
            spec.relative_position_values = model_spec.OPTIONAL  # ours compares distances with queries only
        case Alibi() as alibi:
            # A bucket a distance: T5 has a half for keys ahead where it looks both ways, and is exact in half of that.
            away = np.arange(2 * MAX_POSITIONS) if causal else np.tile(np.arange(2 * MAX_POSITIONS), 2)
            spec.relative_attention_bias = -away[:, None].astype(np.float32) * _array(alibi.slopes)  # type: ignore
            spec.relative_attention_max_distance = np.int32(2 * MAX_POSITIONS)


def _set_cross_attention(spec: Any, attention: CrossAttention) -> None:
    for linear, ours in zip(spec.linear, (attention.query, attention.memory, attention.output), strict=True):
        _set_linear(linear, ours.weight, ours.bias)


def _set_feed_forward(spec: Any, feed_forward: FeedForward) -> None:
    inner, outer = feed_forward.inner, feed_forward.outer
    if feed_forward.gated:
        (gate, value), (gate_bias, value_bias) = inner.weight.chunk(2), inner.bias.chunk(2)
        _set_linear(spec.linear_0, gate, gate_bias)
        _set_linear(spec.linear_0_noact, value, value_bias)
    else:
        _set_linear(spec.linear_0, inner.weight, inner.bias)
    _set_linear(spec.linear_1, outer.weight, outer.bias)


def _set_norm(spec: Any, norm: nn.LayerNorm | nn.RMSNorm) -> None:
    spec.gamma = _array(norm.weight)
    if isinstance(norm, nn.LayerNorm):
        spec.beta = _array(norm.bias)


def _set_linear(spec: Any, weight: Tensor, bias: Tensor) -> None:
    spec.weight, spec.bias = _array(weight), _array(bias)


def _array(values: Tensor) -> np.ndarray:
    return values.detach().float().numpy().copy()


# -- the folder --------------------------------------------------------------------------------------------------------


def _write_description(folder: Path, about: Mapping[str, Any]) -> None:
    text = json.dumps(about, indent=2, ensure_ascii=False) + "\n"
    (folder / EXPORTED).write_text(text, encoding="utf-8")


def _card(model: Path, folder: Path, compute: str, verification: Verification | None) -> str:
    """What a stranger should know, with what the model's own card says below it."""
    original = model / "README.md"
    lines = original.read_text(encoding="utf-8", errors="replace").splitlines() if original.is_file() else []
    title = lines[0].removeprefix("# ") if lines else "A seqloom model"
    about = "\n".join(lines[1:]).partition("```")[0].strip()
    megabytes = (folder / "model.bin").stat().st_size / 1e6
    return f"""# {title} (CTranslate2, {compute})

| | |
|---|---|
| weights | {compute}, {megabytes:.1f} MB |
| verified | {"no" if verification is None else verification.summary()} |
| exported with | seqloom {seqloom.__version__}, CTranslate2 {load_package().__version__}, {time.strftime("%Y-%m-%d")} |

```
seqloom predict . "some text"
```

CTranslate2 loads the folder by itself: `ctranslate2.Translator(folder)` takes and gives the pieces of the tokenizers
beside it, which the library `tokenizers` reads.

## The model it was made from

{about or "It has no card."}
"""
