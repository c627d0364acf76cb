"""Decoding settings with some changed: checked first, then widened, so that nothing wrong is put right in silence."""

from __future__ import annotations

import pytest

from seqloom.decoding.settings import DecodingSettings
from seqloom.errors import UserError


@pytest.mark.parametrize("beam_size", [0, -3, "wide", None, 2.5])
def test_a_beam_that_is_none_is_refused(beam_size: object) -> None:
    with pytest.raises(UserError, match="beam_size"):
        DecodingSettings().overridden({"beam_size": beam_size})


def test_a_beam_is_as_wide_as_the_number_of_answers() -> None:
    assert DecodingSettings().overridden({"n_best": 7}).beam_size == 7
    assert DecodingSettings().overridden({"n_best": 3}).beam_size == 5
    assert DecodingSettings().overridden({"n_best": 7, "method": "sample"}).beam_size == 5
