"""Every view, and how a model is asked for one. A new view is a file and a line here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from seqloom.errors import UserError, one_of
from seqloom.inspection.attention import AttentionView
from seqloom.inspection.beam import BeamView
from seqloom.inspection.contexts import ContextsView
from seqloom.inspection.forcing import ForcingView
from seqloom.inspection.forecast import ForecastView
from seqloom.inspection.gates import GatesView
from seqloom.inspection.gradients import GradientsView
from seqloom.inspection.heads import HeadsView
from seqloom.inspection.hierarchy import HierarchyView
from seqloom.inspection.lengths import LengthsView
from seqloom.inspection.neighbours import NeighboursView
from seqloom.inspection.next_symbols import NextView
from seqloom.inspection.offsets import OffsetsView
from seqloom.inspection.onehot import OneHotView
from seqloom.inspection.positions import PositionsView
from seqloom.inspection.projection import ProjectionView
from seqloom.inspection.reliability import ConfusionView, ReliabilityView
from seqloom.inspection.saliency import SaliencyView
from seqloom.inspection.softmax import SoftmaxView
from seqloom.inspection.states import StatesView
from seqloom.inspection.tags import TagsView, TransitionsView
from seqloom.inspection.tokens import TokensView
from seqloom.inspection.view import Picture, Progress, View
from seqloom.inspection.windows import WindowsView
from seqloom.inspection.words import WordsView
from seqloom.settings import check

VIEWS: dict[str, View] = {
    view.name: view
    for view in (
        AttentionView(),
        BeamView(),
        ConfusionView(),
        ContextsView(),
        ForcingView(),
        ForecastView(),
        GatesView(),
        GradientsView(),
        HeadsView(),
        HierarchyView(),
        LengthsView(),
        NeighboursView(),
        NextView(),
        OneHotView(),
        OffsetsView(),
        PositionsView(),
        ProjectionView(),
        ReliabilityView(),
        SaliencyView(),
        SoftmaxView(),
        StatesView(),
        TagsView(),
        TokensView(),
        TransitionsView(),
        WindowsView(),
        WordsView(),
    )
}


def find_view(name: str) -> View:
    """The view of that name."""
    if name not in VIEWS:
        raise UserError(one_of("view", name, VIEWS))
    return VIEWS[name]


def views_of(model: Any) -> list[str]:
    """The names of the views that a model has."""
    return [name for name, view in VIEWS.items() if view.missing(model) is None]


def options_of(view: View, values: Mapping[str, Any]) -> Any:
    """Plain values as the options of a view."""
    options, problems = check(view.Options, values)
    if problems:
        raise UserError("\n".join(f"look {view.name}: {problem}" for problem in problems))
    return options


def check_inputs(view: View, inputs: Sequence[str]) -> None:
    """Whether a view can do with so many inputs."""
    if inputs and view.inputs is None:
        raise UserError(f"look {view.name} takes options, and no text; got {len(inputs)}")
    if len(inputs) < view.least or (view.most is not None and len(inputs) > view.most):
        raise UserError(f"look {view.name} takes {view.inputs}, such as {view.example}; got {len(inputs)}")


def show(
    model: Any,
    name: str,
    inputs: Sequence[str] = (),
    values: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Picture:
    """Look at a model.

    Args:
        model: The model.
        name: Of the view.
        inputs: What the view's `inputs` says.
        values: Fields of the view's `Options`.
        progress: Hears the share that is done, and a few words.

    Raises:
        UserError: The model has no such view, or there is nothing to see for these inputs and options.
    """
    view = find_view(name)
    options = options_of(view, values or {})
    check_inputs(view, inputs)
    reason = view.missing(model)
    if reason is not None:
        raise UserError(
            f"{model.folder}: {reason}; its views: {', '.join(views_of(model)) or 'none'}; a model that has {name}: "
            f"seqloom train {view.recipe}"
        )
    picture = view.show(model, inputs, options, progress or (lambda share, figures: None))
    picture.theme = options.theme
    return picture
