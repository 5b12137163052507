"""The graph of a program, drawn from the program itself: which symbol depends on which, with its plates.

`numpyro.infer.inspect.get_model_relations` runs the program abstractly and says which site depends on which.
NumPyro's own drawing needs the program ``dot``, which few have.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from numpyro.infer.inspect import get_model_relations

from inference.graph_layout import ASPECT, BOX, arrange, hidden
from inference.observed import restored_data
from inference.precision import double_precision
from inference.results import model_of
from zoo.model import Model, in_current_precision
from zoo.sparse_matrix import SparseMatrix

__all__ = ["Graph", "draw_graph", "graph_of", "in_words", "plot_model_graph"]

_INCHES = 2.15  # width of a place on the grid
_LETTERS = 200.0  # font size times letters that fit into a symbol's frame
_BENDS = (0.25, -0.25, 0.4, -0.4, 0.6, -0.6, 0.9, -0.9)  # of an arrow that would run through a symbol
_NAMES = {
    "ImproperUniform": "flat",
    "Deterministic": "computed",
    "Unit": "factor",
    "TransformedDistribution": "Normal, zero-padded",
    "ObservedCells": "Normal, cells seen",
    "DecidedOutputs": "sign of the utility",
    "TopicCounts": "Multinomial, by topic",
    "TopicTotals": "sum over topics",
}


class Graph(NamedTuple):
    """A program's symbols.

    Attributes:
        parents: symbol to those that it depends on, in the program's order.
        distributions: symbol to the name of its distribution, ``"computed"`` or ``"factor"``.
        plates: plate to the symbols in it.
        observed: the symbols that are data.
        dims: symbol to its named axes, where they have names.
    """

    parents: Mapping[str, Sequence[str]]
    distributions: Mapping[str, str]
    plates: Mapping[str, Sequence[str]]
    observed: Sequence[str]
    dims: Mapping[str, Sequence[str]]


@double_precision
def graph_of(tree: xr.DataTree) -> Graph:
    """The graph of a fitted model's program, its local latents drawn.

    Args:
        tree: a fit that holds its data.

    Returns:
        Symbols, their distributions, plates and dependencies. Where the program stacks its views, the
        abstract run takes every view to depend on the parameters of all; those of other views are dropped by
        their names (``loadings_x`` is not of ``y``).

    Raises:
        ValueError: the fit does not hold its data, without which the program cannot be run.
    """
    if "observed_data" not in tree.children:
        raise ValueError("the program is run on the data, which this fit does not hold (left out for size)")
    model = model_of(tree)
    data = _dense(restored_data(tree["observed_data"].to_dataset(), model))
    if "num_tokens" in model.static_names() and model.num_tokens is None:
        model = model.replaced(num_tokens=1)  # only the sizes of documents that are drawn
    relations = _relations(model, in_current_precision(data))
    distributions = _families(model) | {
        name: _NAMES.get(kind, kind.removesuffix("Logits").removesuffix("Probs"))
        for name, kind in relations["sample_dist"].items()
        if kind != "FamilyCells"
    }
    parents = {
        child: [name for name in sources if not _of_another_view(name, child, model.data_names)]
        for child, sources in relations["sample_sample"].items()
    }
    order = _parents_first(parents)
    plates = {name: list(members) for name, members in relations["plate_sample"].items() if members}
    observed = [name for name in relations["observed"] if distributions[name] != "factor"]
    dims = {name: model.variable_dims[name] for name in order if name in model.variable_dims}
    return Graph({name: parents[name] for name in order}, distributions, plates, observed, dims)


def _dense(data: tuple) -> tuple:
    """The data; of rows that are sparse matrices, which programs of dense rows cannot take, the first two."""
    if not any(isinstance(part, SparseMatrix) for part in data):
        return data
    return tuple(
        part.to_scipy()[:2].toarray() if isinstance(part, SparseMatrix) else part[:2] for part in data
    )


def _relations(model: Model, data: tuple) -> dict:
    """NumPyro's account of a program, also the second time in one process.

    Works around a fault of NumPyro (0.22.0, `numpyro.ops.pytree.PytreeTrace`): the factor of
    ``numpyro.handlers.scale`` (the view weights of `zoo.Paired`) is computed in the abstract run, so a traced
    value, and is kept as metadata of the pytree that the run returns. The second run of the same program
    compares it with what JAX remembers of the first, and fails, since arrays have no plain equality. Then JAX
    is made to forget all that it compiled: the next calls compile again, which costs time and nothing else.
    """
    try:
        return get_model_relations(model.explicit, data)
    except ValueError as error:
        if "comparable" not in str(error):
            raise
        jax.clear_caches()
        return get_model_relations(model.explicit, data)


def in_words(graph: Graph) -> str:
    """The graph for a reader who cannot see it.

    Args:
        graph: what `graph_of` gave.
    """
    said = [
        f"{name} ({graph.distributions[name]}) depends on {', '.join(sources)}"
        if sources
        else f"{name} ({graph.distributions[name]})"
        for name, sources in graph.parents.items()
    ]
    framed = [f"plate {plate}: {', '.join(members)}" for plate, members in graph.plates.items()]
    return f"Graph of the program. {'; '.join(said)}. {'; '.join(framed)}. Data: {', '.join(graph.observed)}."


def plot_model_graph(tree: xr.DataTree) -> Figure:
    """The program as a graph: boxes are symbols, arrows dependencies, frames plates, grey boxes data.

    Args:
        tree: a fit that holds its data.

    Returns:
        The figure. Round boxes are drawn at random, those with dashes are computed from others, those with
        cut corners are factors that the prior is multiplied with.

    Raises:
        ValueError: the fit does not hold its data, without which the program cannot be run.
    """
    return draw_graph(graph_of(tree))


def draw_graph(graph: Graph, places: Mapping[str, tuple[int, int]] | None = None) -> Figure:
    """The figure of `plot_model_graph` of a graph that is known already.

    Args:
        graph: what `graph_of` gave.
        places: symbol to (column, row); None: found by `inference.graph_layout.arrange`.
    """
    places = arrange(graph.parents, graph.plates) if places is None else places
    at = {name: (column, -ASPECT * row) for name, (column, row) in places.items()}
    width, height = (
        max(abs(place[axis]) for place in at.values()) + side for axis, side in ((0, 1.3), (1, 0.68))
    )
    figure = Figure(figsize=(_INCHES * width, _INCHES * height), layout="constrained")
    axis = figure.subplots()
    for plate, members in graph.plates.items():
        _draw_plate(axis, plate, [at[name] for name in members])
    bends = {line: _bend(line, at) for line in hidden(places, graph.parents)}
    boxes = {name: _draw_symbol(axis, name, at[name], graph) for name in graph.parents}
    for child, sources in graph.parents.items():
        for source in sources:
            axis.add_patch(
                FancyArrowPatch(
                    at[source],
                    at[child],
                    patchA=boxes[source],
                    patchB=boxes[child],
                    arrowstyle="-|>",
                    mutation_scale=11,
                    shrinkA=0,
                    shrinkB=1,
                    connectionstyle=f"arc3,rad={bends.get((source, child), 0.0)}",
                    color="0.25",
                    linewidth=0.9,
                    zorder=2,
                )
            )
    axis.set_xlim(-0.65, width - 0.65)
    axis.set_ylim(0.35 - height, 0.35)
    axis.set_aspect("equal")
    axis.set_axis_off()
    return figure


def _draw_plate(axis: Axes, plate: str, inside: Sequence[tuple[float, float]]) -> None:
    (left, right), (low, high) = (
        (min(p[axis_] for p in inside), max(p[axis_] for p in inside)) for axis_ in (0, 1)
    )
    margin, below = BOX[0] / 2 + 0.045, BOX[1] / 2 + 0.11
    axis.add_patch(
        FancyBboxPatch(
            (left - margin, low - below),
            right - left + 2 * margin,
            high - low + below + BOX[1] / 2 + 0.045,
            boxstyle="round,pad=0,rounding_size=0.03",
            facecolor="0.97",
            edgecolor="0.45",
            linewidth=0.9,
            zorder=0,
        )
    )
    place = (right + margin - 0.03, low - below + 0.015)
    axis.text(
        *place,
        plate.removesuffix("__CLONE"),
        fontsize=8,
        color="0.3",
        ha="right",
        va="bottom",
        zorder=2.5,  # above an arrow that leaves the frame there
        bbox={"facecolor": "0.97", "edgecolor": "none", "pad": 0.4},
    )


def _draw_symbol(axis: Axes, name: str, place: tuple[float, float], graph: Graph) -> FancyBboxPatch:
    kind = graph.distributions[name]
    style = "square,pad=0" if kind == "factor" else "round,pad=0,rounding_size=0.1"
    box = FancyBboxPatch(
        (place[0] - BOX[0] / 2, place[1] - BOX[1] / 2),
        *BOX,
        boxstyle=style,
        facecolor="0.85" if name in graph.observed else "white",
        edgecolor="0.1",
        linestyle="--" if kind == "computed" else "-",
        linewidth=1.1,
        zorder=3,
    )
    axis.add_patch(box)
    dims = " × ".join(dim.removesuffix("_2") if i else dim for i, dim in enumerate(graph.dims.get(name, ())))
    lines = [(name, 9.0, "black"), (kind, 8.0, "0.15")] + ([(dims, 7.0, "0.35")] if dims else [])
    step = 0.088
    for i, (words, size, colour) in enumerate(lines):
        level = place[1] + step * ((len(lines) - 1) / 2 - i)
        size *= min(1.0, _LETTERS / (size * max(len(words), 1)))
        axis.text(place[0], level, words, fontsize=size, color=colour, ha="center", va="center", zorder=4)
    return box


def _bend(line: tuple[str, str], at: Mapping[str, tuple[float, float]]) -> float:
    """The bend of an arrow with which it runs through the fewest symbols, the gentlest of equals."""
    (x0, y0), (x1, y1) = (at[name] for name in line)
    others = [place for name, place in at.items() if name not in line]

    def touched(bend: float) -> int:
        middle = (x0 + x1) / 2 + bend * (y1 - y0), (y0 + y1) / 2 - bend * (x1 - x0)
        steps = [i / 20 for i in range(21)]
        points = [
            tuple((1 - t) ** 2 * a + 2 * t * (1 - t) * m + t**2 * b for a, m, b in zip(*ends, strict=True))
            for t in steps
            for ends in [((x0, y0), middle, (x1, y1))]
        ]
        return sum(
            any(abs(x - cx) < 0.55 * BOX[0] and abs(y - cy) < 0.6 * BOX[1] for x, y in points)
            for cx, cy in others
        )

    return min(_BENDS, key=touched)


def _families(model: Model) -> dict[str, str]:
    """Data site to the names of its cells' families."""
    pairs = zip(model.data_names, model.cell_families, strict=bool(model.cell_families))
    return {name: type(family).__name__ for name, family in pairs}


def _of_another_view(source: str, child: str, views: Sequence[str]) -> bool:
    """Whether a parameter carries the name (``loadings_x``) of another view than the data site ``child``."""
    if child not in views or len(views) < 2:
        return False
    owner = next((view for view in views if source.endswith(f"_{view.removeprefix('y_')}")), child)
    return owner != child


def _parents_first(parents: Mapping[str, Sequence[str]]) -> list[str]:
    """The symbols so that each comes after what it depends on, otherwise in the program's order."""
    order: list[str] = []
    waiting = list(parents)
    while waiting:
        ready = next(name for name in waiting if all(source in order for source in parents[name]))
        order.append(ready)
        waiting.remove(ready)
    return order
