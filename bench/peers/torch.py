"""What one writes with torch alone: nn.Transformer, or LSTMs with attention, and F.cross_entropy over all positions."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from bench.peers.common import TorchBatch, read_job, train
from bench.spec import PAD_ID, RNNSpec, TransformerSpec


class TorchTransformer(nn.Module):
    """nn.Transformer between a shared table and itself."""

    def __init__(self, spec: TransformerSpec, longest: int = 512) -> None:
        super().__init__()
        self.scale = math.sqrt(spec.size)
        self.embedding = nn.Embedding(spec.symbols, spec.size, padding_idx=PAD_ID)
        nn.init.normal_(self.embedding.weight, std=spec.size**-0.5)
        with torch.no_grad():
            self.embedding.weight[PAD_ID].zero_()
        self.transformer = nn.Transformer(
            spec.size,
            spec.heads,
            spec.encoder_layers,
            spec.decoder_layers,
            spec.feed_forward,
            spec.dropout,
            batch_first=True,
            norm_first=True,
        )
        for name, module in self.transformer.named_modules():  # only what sublayers add, as everywhere here
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0
            elif isinstance(module, nn.Dropout) and name.endswith(".dropout"):  # inside the feed-forward layer
                module.p = 0.0
        self.output = nn.Linear(spec.size, spec.symbols)
        nn.init.zeros_(self.output.bias)
        self.output.weight = self.embedding.weight
        self.dropout = nn.Dropout(spec.dropout)
        rates = torch.exp(torch.arange(0, spec.size, 2) * (-math.log(10_000.0) / spec.size))
        angles = torch.arange(longest)[:, None] * rates
        self.register_buffer("positions", torch.stack([angles.sin(), angles.cos()], -1).flatten(1))

    def embed(self, symbols: Tensor) -> Tensor:
        return self.dropout(self.embedding(symbols) * self.scale + self.positions[: symbols.shape[1]])

    def forward(self, batch: TorchBatch) -> Tensor:
        padding = batch.source == PAD_ID
        size = batch.target_in.shape[1]
        causal = torch.ones(size, size, dtype=torch.bool).triu(1)
        hidden = self.transformer(
            self.embed(batch.source),
            self.embed(batch.target_in),
            tgt_mask=causal,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        return self.output(hidden)


class TorchRNN(nn.Module):
    """Bidirectional LSTM and a decoder with multiplicative attention, stepped in Python or over the whole target."""

    def __init__(self, spec: RNNSpec, stepped: bool) -> None:
        super().__init__()
        self.stepped = stepped
        self.source_embedding = nn.Embedding(spec.symbols, spec.embedding, padding_idx=PAD_ID)
        self.target_embedding = nn.Embedding(spec.symbols, spec.embedding, padding_idx=PAD_ID)
        self.encoder = nn.LSTM(spec.embedding, spec.hidden // 2, bidirectional=True, batch_first=True)
        self.cell = nn.LSTMCell(spec.embedding, spec.hidden) if stepped else None
        self.decoder = None if stepped else nn.LSTM(spec.embedding, spec.hidden, batch_first=True)
        self.keys = nn.Linear(spec.hidden, spec.hidden, bias=False)
        self.readout = nn.Linear(2 * spec.hidden, spec.hidden)
        self.output = nn.Linear(spec.hidden, spec.symbols)
        self.dropout = nn.Dropout(spec.dropout)

    def forward(self, batch: TorchBatch) -> Tensor:
        packed = pack_padded_sequence(
            self.dropout(self.source_embedding(batch.source)),
            batch.source_lengths,
            batch_first=True,
            enforce_sorted=False,
        )
        packed, (hidden, cell) = self.encoder(packed)
        memory = self.dropout(pad_packed_sequence(packed, batch_first=True)[0])  # (batch, source, hidden)
        hidden, cell = (part.transpose(0, 1).flatten(1) for part in (hidden, cell))
        keys, padding = self.keys(memory), batch.source == PAD_ID
        embedded = self.dropout(self.target_embedding(batch.target_in))
        if self.decoder is not None:
            states, _ = self.decoder(embedded, (hidden[None].contiguous(), cell[None].contiguous()))
            return self.output(self.look(states, memory, keys, padding))
        steps = []
        for time in range(embedded.shape[1]):
            hidden, cell = self.cell(embedded[:, time], (hidden, cell))
            steps.append(self.look(hidden[:, None], memory, keys, padding))
        return self.output(torch.cat(steps, 1))

    def look(self, states: Tensor, memory: Tensor, keys: Tensor, padding: Tensor) -> Tensor:
        scores = torch.bmm(states, keys.transpose(1, 2)).masked_fill(padding[:, None], float("-inf"))
        context = torch.bmm(scores.softmax(-1), memory)
        return self.dropout(self.readout(torch.cat([states, context], -1)).tanh())


def main() -> None:
    job = read_job()
    torch.manual_seed(job.seed)
    if job.model == "transformer":
        model: nn.Module = TorchTransformer(job.sizes)
    else:
        model = TorchRNN(job.sizes, stepped=job.options.get("decoder") != "whole")

    narrow = job.options.get("precision") == "bfloat16"

    def loss(batch: TorchBatch, smoothing: float) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=narrow and model.training):
            logits = model(batch)
            return F.cross_entropy(
                logits.flatten(0, 1),
                batch.target_out.flatten(),
                ignore_index=PAD_ID,
                reduction="sum",
                label_smoothing=smoothing,
            )

    train(job, model, loss)


if __name__ == "__main__":
    main()
