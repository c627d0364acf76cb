"""JoeyNMT's search, with the weights of a trained recurrent translator of seqloom."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from bench.peers.converted import read_tensors
from bench.peers.generation import decode
from bench.peers.job import read_job
from bench.spec import BOS_ID, EOS_ID, NEVER, PAD_ID, UNK_ID

ATTENTION = {"multiplicative": "luong", "additive": "bahdanau"}  # our scores in its words
TABLES = {
    "source": "encoder.reader.embedding.weight",
    "target": "decoder.embedding.weight",
    "output": "decoder.output.weight",
}
EXPECTED = {
    "kind": "recurrent_translator",
    "cell": "lstm",
    "encoder_layers": 1,
    "decoder_layers": 1,
    "bidirectional": True,
    "decoder": "attention",
    "order": "luong",
    "contextual": None,
}


class RecurrentModel(NamedTuple):
    """What is read from a model folder: settings, sizes, weights, and how the run ranks answers by length."""

    settings: dict[str, Any]
    source_symbols: int
    target_symbols: int
    weights: dict[str, Tensor]
    length_penalty: float

    @property
    def features(self) -> int:
        """Width of what the output layer sees."""
        return self.weights["decoder.readout.weight"].shape[0]


def read_model(folder: str | Path) -> RecurrentModel:
    """A recurrent translator; one that JoeyNMT has no equal for is refused with the reason."""
    config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    settings = config["model"]
    other = [f"{name}: {settings.get(name)}" for name, value in EXPECTED.items() if settings.get(name) != value]
    if not other and settings["attention"] not in ATTENTION:
        other = [f"attention: {settings['attention']}"]
    if other:
        raise SystemExit(f"only an LSTM of one layer with attention is converted; this model has {', '.join(other)}")
    weights = read_tensors(Path(folder) / "model.safetensors")
    symbols = config["symbols"]
    found = RecurrentModel(
        settings, symbols["source"], symbols["target"], weights, config.get("options", {}).get("length_penalty", 1.0)
    )
    hidden = settings["hidden_size"]
    if found.features > hidden or (settings["input_feeding"] and found.features != hidden):
        raise SystemExit(f"JoeyNMT's attended vector has the decoder's size, {hidden}; this model has {found.features}")
    return found


def lstm_weights(weights: dict[str, Tensor], layer: str) -> dict[str, Tensor]:
    """The cells of one layer in the words of `nn.LSTM`, which has a second bias that is not needed."""
    found = {}
    for cell, direction in enumerate(("", "_reverse")):
        prefix = f"{layer}.cells.{cell}"
        if f"{prefix}.bias" in weights:
            found[f"weight_ih_l0{direction}"] = weights[f"{prefix}.weight_input"]
            found[f"weight_hh_l0{direction}"] = weights[f"{prefix}.weight_hidden"]
            found[f"bias_ih_l0{direction}"] = weights[f"{prefix}.bias"]
            found[f"bias_hh_l0{direction}"] = torch.zeros_like(weights[f"{prefix}.bias"])
    return found


def table_of(given: RecurrentModel, name: str) -> Tensor:
    """The weight of a table; the file holds one that is tied under one of its names."""
    tied = {"source": "share_embeddings", "output": "tie_output"}  # each with the target embedding
    group = ["target", *(one for one, setting in tied.items() if given.settings[setting])]
    names = [TABLES[one] for one in (group if name in group else [name])]
    return next(given.weights[one] for one in names if one in given.weights)


def linear(weight: Tensor, bias: Tensor) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0])
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)
    return layer


class FirstFeatures(nn.Module):
    """An output layer that sees the first columns only."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, vectors: Tensor) -> Tensor:
        return self.layer(vectors[..., : self.layer.in_features])


def vocabulary_of(symbols: int) -> Any:
    """A vocabulary whose special symbols are where ours are."""
    from joeynmt.vocabulary import Vocabulary

    special = {"unk_token": "<unk>", "pad_token": "<pad>", "bos_token": "<bos>", "eos_token": "<eos>"}
    ids = {"unk_id": 0, "pad_id": 1, "bos_id": 2, "eos_id": 3}  # where it puts them by itself
    found = Vocabulary([], SimpleNamespace(**special, **ids, sep_token=None, lang_tags=[]))
    found._itos = ["<pad>", "<unk>", "<bos>", "<eos>", *(f"s{number}" for number in range(4, symbols))]
    found._stoi = {symbol: number for number, symbol in enumerate(found._itos)}
    found.pad_index, found.unk_index, found.bos_index, found.eos_index = PAD_ID, UNK_ID, BOS_ID, EOS_ID
    return found


def build(given: RecurrentModel) -> nn.Module:
    """JoeyNMT's own recurrent model of the same sizes, without weights of ours."""
    from joeynmt.model import build_model

    settings = given.settings
    side = {
        "type": "recurrent",
        "rnn_type": "lstm",
        "num_layers": 1,
        "embeddings": {"embedding_dim": settings["embedding_size"], "scale": True},
    }
    encoder = {**side, "hidden_size": settings["hidden_size"] // 2, "bidirectional": True}
    decoder = {
        **side,
        "hidden_size": settings["hidden_size"],
        "attention": ATTENTION[settings["attention"]],
        "init_hidden": "last",
        "input_feeding": settings["input_feeding"],
    }
    vocabularies = vocabulary_of(given.source_symbols), vocabulary_of(given.target_symbols)
    return build_model({"encoder": encoder, "decoder": decoder}, *vocabularies)


def load_into(model: Any, given: RecurrentModel, never_ends: bool) -> None:
    """Weights into JoeyNMT's model; where `never_ends`, the end symbol is made impossible.

    Its attended vector must have the decoder's size and its output layer has no bias. Ours takes the output layer's
    place. A narrower readout is filled up with zeros, which the output layer leaves out.
    """
    weights, hidden = given.weights, given.settings["hidden_size"]
    tables = {"src_embed": "source", "trg_embed": "target"}
    for theirs, ours in tables.items():
        getattr(model, theirs).lut.load_state_dict({"weight": table_of(given, ours)})
    model.encoder.rnn.load_state_dict(lstm_weights(weights, "encoder.stack.layers.0"))
    model.decoder.rnn.load_state_dict(lstm_weights(weights, "decoder.stack.layers.0"))
    if given.settings["attention"] == "additive":
        score = {"key_layer": "weight_key", "query_layer": "weight_query", "energy_layer": "direction"}
    else:
        score = {"key_layer": "weight"}
    named = {f"{theirs}.weight": weights[f"decoder.score.{ours}"].view(-1, hidden) for theirs, ours in score.items()}
    model.decoder.attention.load_state_dict(named)
    bias = weights["decoder.output.bias"].clone()
    if never_ends:
        bias[EOS_ID] = NEVER
    readout = linear(weights["decoder.readout.weight"], weights["decoder.readout.bias"])
    output = linear(table_of(given, "output"), bias)
    narrow = given.features < hidden
    filled = nn.ConstantPad1d((0, hidden - given.features), 0.0)
    model.decoder.att_vector_layer = nn.Sequential(readout, filled) if narrow else readout
    model.decoder.output_layer = FirstFeatures(output) if narrow else output


def start_from_both_states(model: Any) -> None:
    """Its decoder starts with the encoder's last hidden state in the place of both; ours takes the cell's state too."""
    last: dict[str, Tensor] = {}

    def keep(_: nn.Module, __: Any, found: Any) -> None:
        _outputs, (_hidden, cell) = found  # cell (directions, batch, hidden // 2)
        last["cell"] = torch.cat(list(cell), -1)

    model.encoder.rnn.register_forward_hook(keep)
    model.decoder._init_hidden = lambda hidden: (hidden[None], last["cell"][None])


def main() -> None:
    from joeynmt.batch import Batch
    from joeynmt.search import search as joeynmt_search

    job = read_job()
    given = read_model(job.model)
    model = build(given).eval()
    load_into(model, given, never_ends=job.steps > 0)
    start_from_both_states(model)

    def search(source: Tensor, lengths: Tensor, most: int) -> list[list[int]]:
        batch = Batch(
            src=source,
            src_length=lengths,
            src_prompt_mask=None,
            trg=None,
            trg_prompt_mask=None,
            indices=torch.arange(len(source)),
            device=source.device,
            pad_index=PAD_ID,
            eos_index=EOS_ID,
            is_train=False,
        )
        found, _, _ = joeynmt_search(model, batch, most, job.beam, given.length_penalty, min_output_length=0)
        return [_cut(row) for row in found.tolist()]

    decode(job, search)


def _cut(row: list[int]) -> list[int]:
    return row[: row.index(EOS_ID)] if EOS_ID in row else [symbol for symbol in row if symbol != PAD_ID]


if __name__ == "__main__":
    main()
