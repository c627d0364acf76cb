"""fairseq's SequenceGenerator, with the weights of a trained seqloom Transformer."""

from __future__ import annotations

from torch import Tensor

from bench.peers.converted import load_into, output_layer, positions, read_model
from bench.peers.fairseq import build_transformer, dictionary_of, make_importable
from bench.peers.generation import decode
from bench.peers.job import read_job
from bench.spec import BOS_ID, EOS_ID


def main() -> None:
    make_importable()
    from fairseq.sequence_generator import SequenceGenerator

    job = read_job()
    spec, weights = read_model(job.model)
    dictionary = dictionary_of(spec.symbols)
    model = build_transformer(spec, dictionary).eval()
    load_into(model, weights, spec)
    model.decoder.output_projection = output_layer(weights)
    for side in (model.encoder, model.decoder):
        side.embed_positions.weights = positions(side.embed_positions.weights)
    generator = SequenceGenerator([model], dictionary, beam_size=job.beam, max_len_a=3, max_len_b=10)

    def search(source: Tensor, lengths: Tensor, most: int) -> list[list[int]]:
        sample = {"net_input": {"src_tokens": source, "src_lengths": lengths}}
        found = generator.generate([model], sample, bos_token=BOS_ID)
        return [[symbol for symbol in one[0]["tokens"].tolist() if symbol != EOS_ID] for one in found]

    decode(job, search)


if __name__ == "__main__":
    main()
