"""seqloom: train, evaluate and look inside sequence models.

>>> import seqloom
>>> model = seqloom.train("recipes/demo.yaml")     # or seqloom.load("runs/demo")
>>> answer = model("the green witch arrived")      # a list of texts gives a list of answers
>>> answer.text, answer.score, answer.tokens
>>> answer.trace["decoder.attention"].plot("alignment.svg")
>>> model.evaluate("test")                         # or a file, or inputs and targets

`train` and `load` give a `Model`: help(seqloom.Model) shows what it can do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Model", "load", "train", "__version__"]

if TYPE_CHECKING:
    from seqloom.experiment import train
    from seqloom.model import Model, load


def __getattr__(name: str) -> Any:
    """What is offered here is imported when first used, so that `import seqloom` stays instant."""
    if name == "train":
        from seqloom.experiment import train

        return train
    if name in ("Model", "load"):
        from seqloom import model

        return getattr(model, name)
    raise AttributeError(f"module 'seqloom' has no attribute {name!r}")


def __dir__() -> list[str]:
    """What there is, also before it is first used: for `dir`, `help` and completion."""
    return sorted({*globals(), *__all__})
