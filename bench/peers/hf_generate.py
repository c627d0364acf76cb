"""`generate` of Hugging Face transformers, with the weights of a trained seqloom Transformer."""

from __future__ import annotations

from torch import Tensor

from bench.peers.converted import load_into, output_layer, positions, read_model
from bench.peers.generation import decode
from bench.peers.hf import build
from bench.peers.job import read_job
from bench.spec import BOS_ID, EOS_ID, PAD_ID


def main() -> None:
    job = read_job()
    spec, weights = read_model(job.model)
    model = build(spec).eval()
    load_into(model.model, weights, spec)
    model.lm_head = output_layer(weights)
    for side in (model.model.encoder, model.model.decoder):
        side.embed_positions.weights.copy_(positions(side.embed_positions.weights))

    def search(source: Tensor, lengths: Tensor, most: int) -> list[list[int]]:
        found = model.generate(
            input_ids=source,
            attention_mask=(source != PAD_ID).long(),
            num_beams=job.beam,
            do_sample=False,
            early_stopping=job.beam > 1,
            max_new_tokens=most,
            decoder_start_token_id=BOS_ID,
        )
        return [_cut(row) for row in found[:, 1:].tolist()]

    decode(job, search)


def _cut(row: list[int]) -> list[int]:
    return row[: row.index(EOS_ID)] if EOS_ID in row else [symbol for symbol in row if symbol != PAD_ID]


if __name__ == "__main__":
    main()
