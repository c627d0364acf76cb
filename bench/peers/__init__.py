"""Who is measured beside seqloom: what to install for each, version by version, and what it is called in a table.

Each peer is a module here that trains the same model on the same batches with the peer's own model classes and its own
loss: `python -m bench.peers.NAME JOB.json`, run by the Python of the peer's own environment.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Peer:
    """`steps` are pip's arguments, one installation after the other; None runs in seqloom's own environment.

    Without `torch` the environment has none.
    """

    title: str
    module: str
    steps: tuple[tuple[str, ...], ...] | None = None
    models: tuple[str, ...] = ("transformer", "rnn")
    options: tuple[tuple[str, str], ...] = ()
    note: str = ""
    torch: bool = True


PEERS: dict[str, Peer] = {
    "plain": Peer("seqloom, plain twins", "bench.peers.seqloom", options=(("plain", "true"),)),
    "candidates": Peer(
        "seqloom, 2,000 candidates",
        "bench.peers.seqloom",
        options=(("candidates", "2000"),),
        note="an update chooses among its own symbols and 2,000 drawn ones: an estimate of the loss over all",
    ),
    "float32": Peer(
        "seqloom, float32",
        "bench.peers.seqloom",
        options=(("precision", "float32"),),
        note="its matrix products multiply float32 numbers, as those of everybody not marked otherwise",
    ),
    "torch": Peer(
        "plain torch loop",
        "bench.peers.torch",
        note="nn.Transformer, or an LSTMCell stepped in Python; F.cross_entropy",
    ),
    "torch-lstm": Peer(
        "plain torch loop, nn.LSTM",
        "bench.peers.torch",
        models=("rnn",),
        options=(("decoder", "whole"),),
        note="the decoder is one nn.LSTM over the whole target, with attention after it",
    ),
    "torch-bf16": Peer(
        "plain torch loop, bfloat16",
        "bench.peers.torch",
        options=(("decoder", "whole"), ("precision", "bfloat16")),
        note="the same (recurrent: with nn.LSTM) under torch.autocast, which makes products bfloat16",
    ),
    "hf": Peer(
        "Hugging Face transformers 5.22.2",
        "bench.peers.hf",
        steps=(("transformers==5.22.2",),),
        models=("transformer",),
        note="M2M100 of the same sizes, its trainer's label smoother",
    ),
    "eole": Peer(
        "eole 0.6.4",
        "bench.peers.eole",
        steps=(("eole==0.6.4",),),
        note="its own model builder and loss",
    ),
    "fairseq": Peer(
        "fairseq 0.12.2",
        "bench.peers.fairseq",
        steps=(
            ("pip==24.0",),  # a later one refuses what omegaconf 2.0 says about itself
            ("cython", "cffi", "bitarray", "regex", "sacrebleu==2.6.0", "tqdm", "pyyaml", "setuptools<81"),
            (
                "--no-deps",
                "fairseq==0.12.2",
                "hydra-core==1.0.7",
                "omegaconf==2.0.6",
                "antlr4-python3-runtime==4.8",
            ),
        ),
        note="its own models and label-smoothed criterion; its LSTM decoder always feeds the attended vector back",
    ),
    "joeynmt": Peer(
        "JoeyNMT 2.3.0",
        "bench.peers.joeynmt_generate",
        steps=(
            # what its model and search import; this importlib_metadata needs nothing but zipp
            ("importlib_metadata==8.7.0", "matplotlib", "pyyaml", "sentencepiece", "subword-nmt", "tensorboard"),
            ("--no-deps", "joeynmt==2.3.0"),
        ),
        models=(),  # it decodes only
    ),
}
