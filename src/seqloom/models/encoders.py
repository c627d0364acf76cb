"""What can read a source: every encoder, for whatever comes after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from seqloom.models.convolution_encoder import ConvolutionEncoder, ConvolutionEncoderSettings
from seqloom.models.embedding_encoder import EmbeddingEncoder, EmbeddingEncoderSettings
from seqloom.models.recurrent_encoder import RecurrentEncoder, RecurrentEncoderSettings
from seqloom.models.text_convolution_encoder import TextConvolutionEncoder, TextConvolutionEncoderSettings
from seqloom.models.transformer_encoder import TransformerEncoder, TransformerEncoderSettings
from seqloom.settings import ModelSettings, one_of_kinds

ENCODERS: dict[str, tuple[type[ModelSettings], Any]] = {
    "convolution": (ConvolutionEncoderSettings, ConvolutionEncoder),
    "embeddings": (EmbeddingEncoderSettings, EmbeddingEncoder),
    "recurrent": (RecurrentEncoderSettings, RecurrentEncoder),
    "text_convolution": (TextConvolutionEncoderSettings, TextConvolutionEncoder),
    "transformer": (TransformerEncoderSettings, TransformerEncoder),
}
if TYPE_CHECKING:
    EncoderSettings = Any
else:
    EncoderSettings = one_of_kinds(ENCODERS)
