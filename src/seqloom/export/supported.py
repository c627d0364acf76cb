"""What has a counterpart in CTranslate2. No torch: a task says so of its models, and the exporter refuses the rest."""

from __future__ import annotations

from typing import Any


def problem_with(settings: Any) -> str | None:
    """What CTranslate2 cannot do of an encoder-decoder with these settings, or None: it runs two plain Transformers."""
    parts = settings.expanded()
    short = parts is not settings  # one name for both sides
    for side, part in (("encoder", parts.encoder), ("decoder", parts.decoder)):
        name = "model" if short else f"model.{side}"
        if part.kind != "transformer":
            return (
                f"{name}.kind: {settings.kind if short else part.kind} has no counterpart in CTranslate2, which runs "
                f"Transformers; {'transformer_translator' if short else 'transformer'} has"
            )
        if part.connections != "residual":
            return f"{name}.connections: {part.connections} has no counterpart in CTranslate2; residual has"
    if parts.contextual is not None:
        return (
            "model.contextual: a language model that reads the source too has no counterpart in CTranslate2; leave "
            "contextual out"
        )
    if parts.encoder.size != parts.decoder.size:
        return (
            f"model.decoder.size: {parts.decoder.size} after an encoder of {parts.encoder.size} has no counterpart in "
            "CTranslate2; two equal sizes have"
        )
    return None
