"""Saliency finds a planted bump, and in a model that learned nothing it does not; in a linear model it is exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from seqloom.batches.collate import Batch
from seqloom.batches.steps import Steps
from seqloom.inspection.saliency import strongest
from seqloom.models.classifier import Classifier, ClassifierSettings
from seqloom.models.saliency import above_mean, gradient_times_input, occlusion
from seqloom.settings import validated

STEPS, WIDTH = 40, 4


def planted(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
    """Noise; in every other series a bump of four steps somewhere in the second channel: its label is 1."""
    random = np.random.default_rng(seed)
    values = 0.3 * random.normal(size=(count, STEPS, 2))
    labels, places = np.arange(count) % 2, random.integers(2, STEPS - WIDTH - 2, count)
    for row in np.flatnonzero(labels):
        values[row, places[row] : places[row] + WIDTH, 1] += 3.0
    return torch.tensor(values, dtype=torch.float32), torch.tensor(labels), places


def source_of(values: torch.Tensor) -> Steps:
    return Steps(values, torch.full((len(values),), values.shape[1]))


def classifier(**model: Any) -> Classifier:
    torch.manual_seed(6)
    settings = validated(ClassifierSettings, {"encoder": {"kind": "convolution", "size": 8, "num_layers": 2}, **model})
    return Classifier(settings, num_channels=2, num_labels=2)


@pytest.fixture(scope="module")
def trained() -> Classifier:
    model, (values, labels, _) = classifier(pooling="max"), planted(128, 1)
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(60):
        optimiser.zero_grad()
        F.cross_entropy(model(Batch(source_of(values), None)), labels).backward()
        optimiser.step()
    return model.eval()


def share_on_bumps(model: Classifier, method: str) -> float:
    """How much of all that speaks for the label lies on the bump and within two steps around it."""
    values, _, places = planted(12, 2)
    shares = []
    for row in range(1, 12, 2):
        source = source_of(values[row : row + 1])
        if method == "gradient":
            found = gradient_times_input(model, source, 1).sum(1)
        else:
            found = occlusion(model, source, 1, WIDTH)
        support = found.clamp(min=0).numpy()
        around = support[max(0, places[row] - 2) : places[row] + WIDTH + 2]
        shares.append(around.sum() / max(1e-9, support.sum()))
    return float(np.mean(shares))


@pytest.mark.parametrize("method", ["gradient", "occlusion"])
def test_a_planted_bump_is_found_and_without_learning_it_is_not(trained: Classifier, method: str) -> None:
    assert share_on_bumps(trained, method) > 0.8
    assert share_on_bumps(classifier(pooling="mean").eval(), method) < 0.6


def test_of_a_linear_model_both_are_what_each_step_adds() -> None:
    model = classifier(encoder={"kind": "embeddings", "size": 5}, pooling="sum").eval()
    model.encoder.reader.projection.bias.data.zero_()
    values = torch.randn(1, 7, 2)
    source = source_of(values)
    weight = model.output.weight @ model.encoder.reader.projection.weight  # (labels, channels)
    by_hand = values[0] * (weight[1] - weight.mean(0))
    found = gradient_times_input(model, source, 1)
    torch.testing.assert_close(found, by_hand.detach())
    torch.testing.assert_close(occlusion(model, source, 1, 1), by_hand.sum(1).detach(), atol=1e-5, rtol=1e-4)
    total = above_mean(model(Batch(source, None)) - model.output.bias, 1)
    torch.testing.assert_close(found.sum(), total[0].detach(), atol=1e-5, rtol=1e-4)


def test_the_strongest_stretch_by_hand() -> None:
    assert strongest(np.array([0, 1, 0, 5, 4, -9, 0.0])) == (3, 3)
    assert strongest(np.array([1, 1, 1, 1.0])) == (0, 1)
