"""Hugging Face transformers: M2M100, the pre-norm Transformer with sinusoidal positions, at the bench's sizes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bench.peers.common import TorchBatch, read_job, train
from bench.spec import BOS_ID, EOS_ID, PAD_ID, TransformerSpec


def build(spec: TransformerSpec, **more: Any) -> Any:
    """A fresh model; the table is shared by source, target and output."""
    from transformers import M2M100Config, M2M100ForConditionalGeneration

    config = M2M100Config(
        vocab_size=spec.symbols,
        d_model=spec.size,
        encoder_layers=spec.encoder_layers,
        decoder_layers=spec.decoder_layers,
        encoder_attention_heads=spec.heads,
        decoder_attention_heads=spec.heads,
        encoder_ffn_dim=spec.feed_forward,
        decoder_ffn_dim=spec.feed_forward,
        dropout=spec.dropout,
        attention_dropout=0.0,
        activation_dropout=0.0,
        encoder_layerdrop=0.0,
        decoder_layerdrop=0.0,
        activation_function="relu",
        scale_embedding=True,
        max_position_embeddings=512,
        pad_token_id=PAD_ID,
        bos_token_id=BOS_ID,
        eos_token_id=EOS_ID,
        decoder_start_token_id=BOS_ID,
        tie_word_embeddings=True,
        init_std=spec.size**-0.5,
        **more,
    )
    return M2M100ForConditionalGeneration(config)


def main() -> None:
    from transformers.trainer_pt_utils import LabelSmoother

    job = read_job()
    torch.manual_seed(job.seed)
    model = build(job.sizes)

    def loss(batch: TorchBatch, smoothing: float) -> Tensor:
        labels = batch.target_out.masked_fill(batch.target_out == PAD_ID, -100)
        output = model(
            input_ids=batch.source,
            attention_mask=(batch.source != PAD_ID).long(),
            decoder_input_ids=batch.target_in,
            use_cache=False,
        )
        return LabelSmoother(epsilon=smoothing)(output, labels) * batch.num_tokens  # it gives the mean

    train(job, model, loss)


if __name__ == "__main__":
    main()
