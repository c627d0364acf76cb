"""fairseq 0.12: its Transformer or LSTM, and its label-smoothed criterion, on our batches."""

from __future__ import annotations

import dataclasses
from argparse import Namespace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bench.peers.common import TorchBatch, read_job, train
from bench.spec import BOS_ID, EOS_ID, PAD_ID, UNK_ID, RNNSpec, TransformerSpec


def make_importable() -> None:
    """fairseq was written for Python 3.10 and numpy 1.20: give back what later ones took away.

    Python 3.11 refuses a default that cannot be hashed, which fairseq's and hydra's nested settings are.
    """
    original = dataclasses.dataclass

    def dataclass(cls: Any = None, **options: Any) -> Any:
        def decorate(kind: Any) -> Any:
            old = kind.__module__.split(".")[0] in ("fairseq", "hydra", "omegaconf")
            return original(kind, **({"unsafe_hash": True, **options} if old else options))

        return decorate if cls is None else decorate(cls)

    dataclasses.dataclass = dataclass  # type: ignore[assignment]
    for name, kind in (("float", float), ("int", int), ("bool", bool), ("object", object)):
        if name not in vars(np):
            setattr(np, name, kind)


def dictionary_of(symbols: int) -> Any:
    """A dictionary whose special symbols are where ours are."""
    from fairseq.data import Dictionary

    found = Dictionary(bos="<bos>", pad="<pad>", eos="<eos>", unk="<unk>")
    found.symbols = ["<pad>", "<unk>", "<bos>", "<eos>", *(f"s{number}" for number in range(4, symbols))]
    found.indices = {symbol: number for number, symbol in enumerate(found.symbols)}
    found.count = [1] * symbols
    found.pad_index, found.unk_index, found.bos_index, found.eos_index = PAD_ID, UNK_ID, BOS_ID, EOS_ID
    return found


def build_transformer(spec: TransformerSpec, dictionary: Any) -> nn.Module:
    from fairseq.models.transformer import TransformerModel, base_architecture

    args = Namespace(
        encoder_embed_dim=spec.size,
        decoder_embed_dim=spec.size,
        encoder_ffn_embed_dim=spec.feed_forward,
        decoder_ffn_embed_dim=spec.feed_forward,
        encoder_layers=spec.encoder_layers,
        decoder_layers=spec.decoder_layers,
        encoder_attention_heads=spec.heads,
        decoder_attention_heads=spec.heads,
        encoder_normalize_before=True,
        decoder_normalize_before=True,
        share_all_embeddings=True,
        dropout=spec.dropout,
        attention_dropout=0.0,
        activation_dropout=0.0,
        max_source_positions=512,
        max_target_positions=512,
    )
    base_architecture(args)
    return TransformerModel.build_model(args, task_of(dictionary))


def build_rnn(spec: RNNSpec, dictionary: Any) -> nn.Module:
    from fairseq.models.lstm import LSTMModel, base_architecture

    args = Namespace(
        encoder_embed_dim=spec.embedding,
        decoder_embed_dim=spec.embedding,
        encoder_hidden_size=spec.hidden // 2,
        encoder_bidirectional=True,
        decoder_hidden_size=spec.hidden,
        decoder_out_embed_dim=spec.hidden,
        dropout=spec.dropout,
        criterion="label_smoothed_cross_entropy",
    )
    base_architecture(args)
    args.adaptive_softmax_cutoff = None
    model = LSTMModel.build_model(args, task_of(dictionary))
    model.encoder.left_pad = False
    return model


def task_of(dictionary: Any) -> Any:
    return SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)


def main() -> None:
    make_importable()
    from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion

    job = read_job()
    torch.manual_seed(job.seed)
    dictionary = dictionary_of(job.spec["symbols"])
    build = build_transformer if job.model == "transformer" else build_rnn
    model = build(job.sizes, dictionary)
    criterion = LabelSmoothedCrossEntropyCriterion(task_of(dictionary), False, job.smoothing)

    def loss(batch: TorchBatch, smoothing: float) -> Tensor:
        criterion.eps = smoothing
        lengths, order = batch.source_lengths.sort(descending=True)  # its encoder wants the longest first
        sample = {
            "net_input": {
                "src_tokens": batch.source[order],
                "src_lengths": lengths,
                "prev_output_tokens": batch.target_in[order],
            },
            "target": batch.target_out[order],
            "ntokens": batch.num_tokens,
        }
        return criterion(model, sample)[0]

    train(job, model, loss)


if __name__ == "__main__":
    main()
