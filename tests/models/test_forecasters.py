"""Every forecaster: shapes, gradients, what it must be able to learn, and how it goes on from its own forecast."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from seqloom.models import FORECASTERS
from seqloom.models.forecaster import forecast
from seqloom.settings import validated

HISTORY, HORIZON, CHANNELS, OUTPUTS = 13, 5, 3, 2
RECURRENT = {"kind": "recurrent", "cell": "gru", "embedding_size": 6, "hidden_size": 8, "dropout": 0.0}
TRANSFORMER = {"kind": "transformer", "size": 8, "num_heads": 2, "feed_forward_size": 12, "num_layers": 1}
KINDS: dict[str, dict[str, Any]] = {
    "linear": {"kind": "linear_forecaster"},
    "linear, each": {"kind": "linear_forecaster", "each_channel": True, "normalisation": "last"},
    "dlinear": {"kind": "dlinear", "moving_average": 5},
    "dlinear, reversible": {
        "kind": "dlinear",
        "moving_average": 5,
        "each_channel": True,
        "normalisation": "reversible",
    },
    "recurrent": {"kind": "encoder_forecaster", "encoder": RECURRENT, "pooling": "last"},
    "recursive": {"kind": "encoder_forecaster", "encoder": RECURRENT, "steps": "recursive"},
    "patches": {
        "kind": "encoder_forecaster",
        "encoder": TRANSFORMER,
        "patch": 4,
        "patch_stride": 2,
        "pooling": "all",
        "channels": "apart",
    },
    "convolution": {
        "kind": "encoder_forecaster",
        "encoder": {"kind": "convolution", "size": 6},
        "normalisation": "none",
    },
}


def build(kind: str, outputs: int = OUTPUTS, horizon: int = HORIZON) -> Any:
    torch.manual_seed(4)
    settings, model = FORECASTERS[KINDS[kind]["kind"]]
    sizes = dict(history=HISTORY, horizon=horizon, num_channels=CHANNELS, num_outputs=outputs)
    return model(validated(settings, KINDS[kind]), **sizes).eval()


@pytest.mark.parametrize("kind", KINDS)
def test_shapes_and_gradients(kind: str) -> None:
    model, values = build(kind), torch.randn(4, HISTORY, CHANNELS)
    made = model(values)
    assert made.shape == (4, model.block, CHANNELS, OUTPUTS)
    assert forecast(model, values).shape == (4, HORIZON, CHANNELS, OUTPUTS)
    made.square().sum().backward()
    without = [name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()]
    assert without == []
    alone = torch.cat([model(row[None]) for row in values])
    torch.testing.assert_close(made, alone, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if KINDS[kind].get("channels") == "apart" or "linear" in kind])
def test_channels_that_are_apart_do_not_see_each_other(kind: str) -> None:
    model, values = build(kind), torch.randn(2, HISTORY, CHANNELS)
    changed = values.clone()
    changed[..., 1] += torch.randn(HISTORY)
    differs = (model(values) != model(changed)).any(0).any(0).any(1)
    assert differs.tolist() == [False, True, False]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "reversible" in kind or "last" in str(KINDS[kind])])
def test_a_higher_level_is_forecast_as_much_higher(kind: str) -> None:
    model, values = build(kind), torch.randn(2, HISTORY, CHANNELS)
    torch.testing.assert_close(model(values + 50), model(values) + 50, atol=2e-3, rtol=1e-4)


def test_a_recursive_model_reads_what_it_said() -> None:
    model, values = build("recursive", outputs=1), torch.randn(2, HISTORY, CHANNELS)
    made, by_hand = forecast(model, values), list[torch.Tensor]()
    for _ in range(HORIZON):
        by_hand.append(model(values)[:, :, :, 0])
        values = torch.cat([values[:, 1:], by_hand[-1]], 1)
    torch.testing.assert_close(made[..., 0], torch.cat(by_hand, 1))


def test_dlinear_is_two_maps_of_trend_and_rest() -> None:
    model, values = build("dlinear", outputs=1), torch.randn(2, HISTORY, CHANNELS)
    padded = torch.cat([values[:, :1].expand(-1, 2, -1), values, values[:, -1:].expand(-1, 2, -1)], 1).numpy()
    trend = np.stack([padded[:, step : step + 5].mean(1) for step in range(HISTORY)], 1)
    rest = values.numpy() - trend
    expected = sum(
        np.einsum("bhc,ho->boc", part, one.weight[0].detach().numpy()) + one.bias[0].detach().numpy()[None, :, None]
        for part, one in ((trend, model.trend), (rest, model.rest))
    )
    np.testing.assert_allclose(model(values)[..., 0].detach(), expected, atol=1e-5)
