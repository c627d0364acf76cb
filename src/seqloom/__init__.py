"""seqloom: train, evaluate and look inside sequence models.

>>> import seqloom
>>> model = seqloom.train("recipes/demo.yaml")     # or seqloom.load("runs/demo")
>>> answer = model("the green witch arrived")
>>> answer.text, answer.score, answer.tokens
>>> answer.trace["decoder.attention"].plot("alignment.svg")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["load", "train", "__version__"]

if TYPE_CHECKING:
    from seqloom.experiment import train
    from seqloom.model import load


def __getattr__(name: str) -> Any:
    """`train` and `load` are imported when first used, so that `import seqloom` stays instant."""
    if name == "train":
        from seqloom.experiment import train

        return train
    if name == "load":
        from seqloom.model import load

        return load
    raise AttributeError(f"module 'seqloom' has no attribute {name!r}")
