"""eole 0.6: its encoder-decoder of the bench's sizes, its generator and its loss, on our batches."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from bench.peers.common import TorchBatch, read_job, train
from bench.spec import PAD_ID, RNNSpec, TransformerSpec

SPECIALS = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<bos>", "eos_token": "<eos>"}


def vocabularies(symbols: int) -> dict[str, Any]:
    """Both sides, with the special symbols where ours are."""
    pieces = ["<pad>", "<unk>", "<bos>", "<eos>", *(f"s{number}" for number in range(4, symbols))]
    ids = {piece: number for number, piece in enumerate(pieces)}
    return {"src": ids, "tgt": ids, "specials": SPECIALS}


def transformer_config(spec: TransformerSpec) -> Any:
    from eole.config.models import TransformerModelConfig

    return TransformerModelConfig(
        hidden_size=spec.size,
        word_vec_size=spec.size,
        heads=spec.heads,
        transformer_ff=spec.feed_forward,
        encoder={"encoder_type": "transformer", "layers": spec.encoder_layers},
        decoder={"decoder_type": "transformer", "layers": spec.decoder_layers},
        embeddings={"position_encoding_type": "SinusoidalInterleaved", "n_positions": 512},
        position_encoding_type="SinusoidalInterleaved",
        share_embeddings=True,
        share_decoder_embeddings=True,
        add_qkvbias=True,
        add_final_linear_bias=True,
        add_ffnbias=True,
        mlp_activation_fn="relu",
    )


def rnn_config(spec: RNNSpec) -> Any:
    from eole.config.models import CustomModelConfig

    return CustomModelConfig(
        hidden_size=spec.hidden,
        word_vec_size=spec.embedding,
        encoder={"encoder_type": "brnn", "layers": 1},
        decoder={"decoder_type": "rnn", "layers": 1, "global_attention": "general"},
        embeddings={"position_encoding_type": None},
        input_feed=0,
    )


def build(model: str, spec: Any) -> tuple[nn.Module, Any]:
    """A fresh model with its generator, and its loss."""
    from eole.models.model import get_model_class
    from eole.utils.loss import LossCompute

    config = transformer_config(spec) if model == "transformer" else rnn_config(spec)
    running = SimpleNamespace(
        dropout=[spec.dropout],
        attention_dropout=[0.0],
        self_attn_backend="pytorch",
        parallel_gpu=1,
        use_ckpting=[],
        quant_type="",
        quant_layers=[],
        optim="adam",
        label_smoothing=0.0,
        lm_prior_lambda=0.0,
        lm_prior_tau=1.0,
        lm_prior_model=None,
        world_size=0,
        gpu_ranks=[],
        compute_dtype=torch.float32,
    )
    both = vocabularies(spec.symbols)
    built = get_model_class(config).build_blocks(config, both, running_config=running)
    built.generator = nn.Linear(config.decoder.hidden_size, spec.symbols)
    for name, weight in built.named_parameters():  # its layers are made without values, for a checkpoint to fill
        initialize(name, weight)
    if config.share_decoder_embeddings:
        built.generator.weight = built.tgt_emb.embeddings.weight
    criterion = nn.CrossEntropyLoss(ignore_index=PAD_ID, reduction="sum")  # as its LossCompute.from_config makes it
    return built, LossCompute(criterion, built.generator, tgt_shift_index=1, vocabs=both)


@torch.no_grad()
def initialize(name: str, weight: Tensor) -> None:
    """As elsewhere here: Glorot for matrices, unit length for rows of the table, ones for norms, zero for biases."""
    if "emb" in name:
        nn.init.normal_(weight, std=weight.shape[1] ** -0.5)
        weight[PAD_ID].zero_()
    elif weight.dim() > 1:
        nn.init.xavier_uniform_(weight)
    else:
        nn.init.constant_(weight, 1.0 if "norm" in name and name.endswith("weight") else 0.0)


def main() -> None:
    job = read_job()
    torch.manual_seed(job.seed)
    model, computes = build(job.model, job.sizes)

    def loss(batch: TorchBatch, smoothing: float) -> Tensor:
        computes.criterion.label_smoothing = smoothing
        target = torch.cat([batch.target_in[:, :1], batch.target_out], 1)  # BOS … EOS: it shifts by itself
        output = model(batch.source, target, batch.source_lengths)
        return computes._compute_ce_loss(output.dec_out, batch.target_out.flatten())[0]

    train(job, model, loss)


if __name__ == "__main__":
    main()
