"""The graph of a program, drawn from the program itself: which symbol depends on which, with its plates.

`numpyro.infer.inspect.get_model_relations` runs the program abstractly and says which site depends on which.
Where the program ``dot`` and the package ``graphviz`` are installed, NumPyro draws the graph; elsewhere it is
drawn here, in the layers of Sugiyama, Tagawa and Toda (1981): symbols are put into rows so that arrows point
down and are short, rows are ordered by barycentres, and an arrow that skips rows passes between their
symbols. Frames of plates hold their members and nothing else. The same graph always gives the same picture.
"""

import io
import shutil
from collections.abc import Hashable, Mapping, Sequence
from importlib.util import find_spec
from itertools import combinations, pairwise
from typing import NamedTuple

import jax
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.path import Path
from matplotlib.transforms import Affine2D, Bbox
from numpyro.infer.inspect import generate_graph_specification, get_model_relations, render_graph
from scipy.optimize import linprog, minimize

from inference.precision import double_precision
from inference.results.files import model_of
from inference.results.groups import restored_data
from zoo.model import Model, in_current_precision
from zoo.sparse import SparseMatrix

__all__ = ["Graph", "Layout", "arrange", "draw_graph", "graph_of", "in_words", "plot_model_graph"]

_INCHES = 2.15  # that one unit of length takes in the picture
_BOX = (0.86, 0.30)  # width and height of a symbol
_ROW = 0.62  # from one row to the next
_GAP = 0.12  # between neighbours in a row
_MARGIN = 0.045  # between the frame of a plate and its members
_LABEL = 0.11  # between the members of a plate and its lower edge, where its name is
_WIDEST = 5  # symbols of one row
_LETTERS = 200.0  # font size times letters that fit into a symbol
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


class Layout(NamedTuple):
    """Where the parts of a drawn graph are.

    Attributes:
        places: symbol to the middle (x, row) of its box; the top row is 0.
        routes: arrow (from, to) to the places (x, row) in the rows that it skips, downwards.
        frames: plate to (left, right, top row, bottom row).
    """

    places: Mapping[str, tuple[float, int]]
    routes: Mapping[tuple[str, str], Sequence[tuple[float, int]]]
    frames: Mapping[str, tuple[float, float, int, int]]


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
        The figure. Round boxes are random, dashed ones computed from others, square ones factors that the
        prior is multiplied with. In NumPyro's picture, where ``dot`` is installed, symbols are ellipses, and
        distributions are listed beside them.

    Raises:
        ValueError: the fit does not hold its data, without which the program cannot be run.
    """
    return draw_graph(graph_of(tree))


def draw_graph(graph: Graph) -> Figure:
    """The figure of `plot_model_graph` of a graph that is known already.

    Args:
        graph: what `graph_of` gave.

    Returns:
        The figure.
    """
    with_dot = shutil.which("dot") is not None and find_spec("graphviz") is not None
    return _drawn_by_numpyro(graph) if with_dot else _drawn_in_layers(graph)


def _drawn_by_numpyro(graph: Graph) -> Figure:
    """The picture of `numpyro.render_model`, of the dependencies that `graph_of` corrected."""
    relations = {
        "sample_sample": graph.parents,
        "plate_sample": graph.plates,
        "observed": graph.observed,
        "sample_dist": {
            name: "Deterministic" if kind == "computed" else kind
            for name, kind in graph.distributions.items()
        },
    }
    drawing = render_graph(generate_graph_specification(relations), render_distributions=True)
    drawing.attr(dpi="200")
    pixels = imread(io.BytesIO(drawing.pipe(format="png")))
    figure = Figure(figsize=(pixels.shape[1] / 200, pixels.shape[0] / 200), layout="constrained")
    axis = figure.subplots()
    axis.imshow(pixels)
    axis.set_axis_off()
    return figure


def _drawn_in_layers(graph: Graph) -> Figure:
    layout = arrange(graph.parents, graph.plates)
    at = {name: (x, -_ROW * row) for name, (x, row) in layout.places.items()}
    left, right = _sides(layout)
    lowest = min(y for _, y in at.values()) - _BOX[1] / 2 - _LABEL
    left, right, low, high = left - 0.03, right + 0.03, lowest - 0.03, _BOX[1] / 2 + _LABEL + 0.03
    figure = Figure(figsize=(_INCHES * (right - left), _INCHES * (high - low)), layout="constrained")
    axis = figure.subplots()
    arrows = _arrows(layout)
    for plate, frame in layout.frames.items():
        _draw_plate(axis, plate, frame, arrows)
    for name in graph.parents:
        _draw_symbol(axis, name, at[name], graph)
    for path in arrows:
        style = {"arrowstyle": "-|>", "mutation_scale": 11, "color": "0.25", "linewidth": 0.9}
        axis.add_patch(FancyArrowPatch(path=path, zorder=2, **style))
    axis.set_xlim(left, right)
    axis.set_ylim(low, high)
    axis.set_aspect("equal")
    axis.set_axis_off()
    return figure


def arrange(parents: Mapping[str, Sequence[str]], plates: Mapping[str, Sequence[str]]) -> Layout:
    """Places of the symbols of a graph, so that arrows point down and no box lies on another.

    Args:
        parents: symbol to those that it depends on.
        plates: plate to the symbols in it; plates are disjoint or nested.

    Returns:
        The layout with symbols beside the plates that they lead to, or above them where that is too wide.
    """
    beside = _arranged(_rows(parents, plates, above=False), parents, plates)
    left, right = _sides(beside)
    if right - left <= _WIDEST + 0.5:
        return beside
    over = _arranged(_rows(parents, plates, above=True), parents, plates)
    return over if _sides(over)[1] - _sides(over)[0] < right - left else beside


def _sides(layout: Layout) -> tuple[float, float]:
    """The leftmost and the rightmost x."""
    sides = [side for left, right, _, _ in layout.frames.values() for side in (left, right)]
    sides += [x + side * _BOX[0] / 2 for x, _ in layout.places.values() for side in (-1, 1)]
    sides += [x for route in layout.routes.values() for x, _ in route]
    return min(sides), max(sides)


def _arranged(
    rows: Sequence[Sequence[str]], parents: Mapping[str, Sequence[str]], plates: Mapping[str, Sequence[str]]
) -> Layout:
    """The layout of symbols whose rows are known."""
    by_size = sorted(plates, key=lambda plate: -len(plates[plate]))
    inside: dict[Hashable, tuple[str, ...]] = {
        name: tuple(plate for plate in by_size if name in plates[plate]) for name in parents
    }
    row_of = {name: row for row, members in enumerate(rows) for name in members}
    spans = {
        plate: (min(row_of[name] for name in members), max(row_of[name] for name in members))
        for plate, members in plates.items()
    }
    slots: list[list[Hashable]] = [list(members) for members in rows]
    segments, chains = [], {}
    for child, sources in parents.items():
        for source in sources:
            chain = [(source, child, row) for row in range(row_of[source] + 1, row_of[child])]
            for slot in chain:
                slots[slot[2]].append(slot)
                inside[slot] = tuple(plate for plate in inside[child] if spans[plate][0] <= slot[2])
            chains[source, child] = chain
            segments += list(pairwise([source, *chain, child]))
    for plate, (top, bottom) in spans.items():  # a row without members is kept free of strangers
        for row in range(top, bottom + 1):
            if not any(plate in inside[slot] for slot in slots[row]):
                slots[row].append((plate, row))
                inside[plate, row] = tuple(p for p in by_size if set(plates[p]) >= set(plates[plate]))
    ordered = _ordered(slots, segments, inside)
    x, frames, _ = _coordinates(ordered, segments, inside)
    return Layout(
        {name: (x[name], row_of[name]) for name in parents},
        {arrow: [(x[slot], slot[2]) for slot in chain] for arrow, chain in chains.items()},
        {plate: (*frames[plate], *spans[plate]) for plate in plates},
    )


def _rows(
    parents: Mapping[str, Sequence[str]], plates: Mapping[str, Sequence[str]], *, above: bool
) -> list[list[str]]:
    """Symbols by row, each below its parents and arrows as short as they can be together.

    With ``above``, symbols outside of plates that depend on nothing are above the plates that they lead to.
    """
    index = {name: i for i, name in enumerate(parents)}
    arrows = [(index[source], index[child]) for child in parents for source in parents[child]]
    framed = {name: members for members in plates.values() for name in members}
    lifted = {
        (index[source], index[member])
        for child in parents
        for source in parents[child]
        if above and child in framed and source not in framed and not parents[source]
        for member in framed[child]
    }

    def falls(pairs: Sequence[tuple[int, int]]) -> np.ndarray:
        matrix = np.zeros((len(pairs), len(index)))
        for i, (upper, lower) in enumerate(pairs):
            matrix[i, upper], matrix[i, lower] = -1.0, 1.0
        return matrix

    walls = falls([*arrows, *sorted(lifted)])
    solution = linprog(falls(arrows).sum(axis=0) + 1e-6, A_ub=-walls, b_ub=-np.ones(len(walls)))
    depth = np.rint(solution.x).astype(int)
    rows = [[name for name in parents if depth[index[name]] == row] for row in range(depth.max() + 1)]
    found = []
    for row in rows:  # a wide row becomes two, every second symbol that is free to move in the upper one
        free = [name for name in row if name not in framed] if len(row) > _WIDEST else []
        upper = free[::2]
        found += [part for part in (upper, [name for name in row if name not in upper]) if part]
    return found


def _ordered(
    slots: Sequence[Sequence[Hashable]], segments: Sequence[tuple], inside: Mapping[Hashable, tuple[str, ...]]
) -> list[list[Hashable]]:
    """The rows from left to right: barycentre sweeps down and up, then moves while they shorten the arrows.

    Members of a plate stay together, and the plates in one order in all rows.
    """
    rows = [list(row) for row in slots]
    row_of = {slot: i for i, row in enumerate(rows) for slot in row}

    def cost(most: float = np.inf) -> tuple[float, float]:
        place = {slot: i for row in rows for i, slot in enumerate(row)}
        pairs = combinations(segments, 2)
        together = [(p, q) for p, q in pairs if row_of[p[0]] == row_of[q[0]]]
        crossings = sum((place[a] - place[c]) * (place[b] - place[d]) < 0 for (a, b), (c, d) in together)
        return crossings, _coordinates(rows, segments, inside)[2] if crossings <= most else np.inf

    best, lowest = [list(row) for row in rows], cost()
    for sweep in range(12):
        at = {slot: i - (len(row) - 1) / 2 for row in rows for i, slot in enumerate(row)}
        members = {
            plate: [slot for slot in at if plate in inside[slot]] for p in inside.values() for plate in p
        }
        centre = {plate: float(np.mean([at[slot] for slot in held])) for plate, held in members.items()}
        ends = [(a, b) if sweep % 2 else (b, a) for a, b in segments]
        for row in reversed(rows) if sweep % 2 else rows:
            key = {}
            for slot in row:
                near = [at[other] for one, other in ends if one == slot]
                mean = float(np.mean(near)) if near else at[slot]
                key[slot] = (*((centre[plate], plate) for plate in inside[slot]), (mean, ""))
            row.sort(key=key.get)
            at |= {slot: i - (len(row) - 1) / 2 for i, slot in enumerate(row)}
        if (found := cost(lowest[0])) < lowest:
            best, lowest = [list(row) for row in rows], found
    rows[:] = best
    improved = True
    while improved:
        improved = False
        for row in rows:
            for slot in list(row):
                for i in range(len(row)):
                    before = list(row)
                    row.remove(slot)
                    row.insert(i, slot)
                    if row != before and _in_order(rows, inside) and (found := cost(lowest[0])) < lowest:
                        lowest, improved = found, True
                    else:
                        row[:] = before
    return rows


def _in_order(rows: Sequence[Sequence[Hashable]], inside: Mapping[Hashable, tuple[str, ...]]) -> bool:
    """Whether the slots of a plate are neighbours in every row, and plates come in one order in all."""
    left_of = set()
    for row in rows:
        for one, other in combinations(row, 2):
            left_of |= {
                (p, q)
                for p in inside[one]
                for q in inside[other]
                if p not in inside[other] and q not in inside[one]
            }
        for plate in {plate for slot in row for plate in inside[slot]}:
            held = [plate in inside[slot] for slot in row]
            if sum(a != b for a, b in pairwise([False, *held, False])) > 2:
                return False
    return not any((q, p) in left_of for p, q in left_of)


def _coordinates(
    rows: Sequence[Sequence[Hashable]],
    segments: Sequence[tuple],
    inside: Mapping[Hashable, tuple[str, ...]],
) -> tuple[dict[Hashable, float], dict[str, tuple[float, float]], float]:
    """Middles of slots and (left, right) of plates by least squares of the arrows, and that sum of squares.

    No two symbols, and no symbol and frame of a plate that does not hold it, overlap.
    """
    plates = sorted({plate for held in inside.values() for plate in held})
    slots = [slot for row in rows for slot in row]
    index = {slot: i for i, slot in enumerate(slots)}
    for plate in plates:
        index["left", plate], index["right", plate] = len(index), len(index) + 1
    half = {slot: _BOX[0] / 2 if isinstance(slot, str) else 0.0 for slot in slots}
    apart: list[tuple[Hashable, Hashable, float]] = []  # the second is at least so far right of the first
    for slot in slots:
        for plate in inside[slot]:
            apart.append((("left", plate), slot, half[slot] + _MARGIN))
            apart.append((slot, ("right", plate), half[slot] + _MARGIN))
        for outer, inner in pairwise(inside[slot]):
            apart.append((("left", outer), ("left", inner), _MARGIN))
            apart.append((("right", inner), ("right", outer), _MARGIN))
    for row in rows:
        for a, b in pairwise(row):
            apart.append((a, b, half[a] + half[b] + _GAP))
            before = [("right", plate) for plate in inside[a] if plate not in inside[b]]
            after = [("left", plate) for plate in inside[b] if plate not in inside[a]]
            apart += [(edge, b, half[b] + _GAP) for edge in before]
            apart += [(a, edge, half[a] + _GAP) for edge in after]
            apart += [(one, other, _GAP) for one in before for other in after]

    def differences(pairs: Sequence[tuple]) -> np.ndarray:
        matrix = np.zeros((len(pairs), len(index)))
        for i, (a, b, *_) in enumerate(pairs):
            matrix[i, index[a]], matrix[i, index[b]] = -1.0, 1.0
        return matrix

    stiff = [3.0 if not isinstance(a, str) and not isinstance(b, str) else 1.0 for a, b in segments]
    pulls = np.concatenate(
        [
            differences(segments) * np.sqrt(stiff)[:, None],
            0.3 * differences([(("left", plate), ("right", plate)) for plate in plates]),
            0.03 * np.eye(len(index)),
        ]
    )
    hessian, limits = pulls.T @ pulls, np.array([distance for *_, distance in apart])
    walls = differences(apart)
    start = np.zeros(len(index))
    for row in rows:
        for i, slot in enumerate(row):
            start[index[slot]] = i - (len(row) - 1) / 2
    solution = minimize(
        lambda x: (0.5 * x @ hessian @ x, hessian @ x),
        start,
        jac=True,
        method="SLSQP",
        constraints={"type": "ineq", "fun": lambda x: walls @ x - limits, "jac": lambda x: walls},
        options={"maxiter": 1000, "ftol": 1e-10},
    )
    x = [round(float(value), 4) for value in solution.x]
    frames = {plate: (x[index["left", plate]], x[index["right", plate]]) for plate in plates}
    return {slot: x[index[slot]] for slot in slots}, frames, round(float(solution.fun), 6)


def _draw_plate(axis: Axes, plate: str, frame: tuple[float, float, int, int], arrows: Sequence[Path]) -> None:
    """The frame of a plate with its name in the corner that the fewest arrows run through."""
    left, right, top, bottom = frame
    label = plate.removesuffix("__CLONE")
    above, below, long = _BOX[1] / 2 - _ROW * top, -_BOX[1] / 2 - _ROW * bottom, 0.033 * len(label) + 0.03
    corners = [
        Bbox.from_bounds(x, y, long, _LABEL) for y in (below - _LABEL, above) for x in (right - long, left)
    ]
    points = Affine2D().scale(72 * _INCHES)  # matplotlib follows curves to a fraction of a unit

    def crossed(corner: Bbox) -> int:
        box = corner.transformed(points)
        return sum(path.transformed(points).intersects_bbox(box, filled=False) for path in arrows)

    corner = min(corners, key=crossed)
    at_right, at_foot = corner.x1 == right, corner.y0 < below
    low = below - (_LABEL if at_foot else _MARGIN)
    high = above + (_MARGIN if at_foot else _LABEL)
    axis.add_patch(
        FancyBboxPatch(
            (left, low),
            right - left,
            high - low,
            boxstyle="round,pad=0,rounding_size=0.03",
            facecolor="0.97",
            edgecolor="0.45",
            linewidth=0.9,
            zorder=0,
        )
    )
    axis.text(
        right - 0.03 if at_right else left + 0.03,
        low + 0.015 if at_foot else high - 0.015,
        label,
        fontsize=8,
        color="0.3",
        ha="right" if at_right else "left",
        va="bottom" if at_foot else "top",
        zorder=2.5,  # above an arrow that runs there all the same
        bbox={"facecolor": "0.97", "edgecolor": "none", "pad": 0.4},
    )


def _arrows(layout: Layout) -> list[Path]:
    """Arrows from lower to upper edges of boxes, upright where they pass between the symbols of a row."""
    half, at = _BOX[1] / 2, {name: (x, -_ROW * row) for name, (x, row) in layout.places.items()}
    stops = {
        (source, child): [at[source], *((x, -_ROW * row) for x, row in route), at[child]]
        for (source, child), route in layout.routes.items()
    }
    leaving, arriving = _ports(stops, 0), _ports(stops, -1)
    paths = []
    for arrow, (_, *passed, last) in stops.items():
        corners = [(leaving[arrow], stops[arrow][0][1] - half)]
        for x, y in passed:
            corners += [(x, y + half), (x, y - half)]
        corners.append((arriving[arrow], last[1] + half))
        points, codes = corners[:1], [Path.MOVETO]
        for i in range(0, len(corners), 2):
            (x0, y0), (x1, y1) = corners[i : i + 2]
            bend = (y0 - y1) / 2
            leave = (x0, y0 - bend) if i else (x0 + (x1 - x0) / 3, y0 - 2 * bend / 3)
            arrive = (x1, y1 + bend) if i + 2 < len(corners) else (x1 + (x0 - x1) / 3, y1 + 2 * bend / 3)
            points += [leave, arrive, (x1, y1)]
            codes += [Path.CURVE4] * 3
            if i + 2 < len(corners):
                points.append(corners[i + 2])
                codes.append(Path.LINETO)
        paths.append(Path(points, codes))
    return paths


def _ports(stops: Mapping[tuple[str, str], Sequence[tuple[float, float]]], end: int) -> dict[tuple, float]:
    """Where arrows touch the boxes at their beginning (``end`` 0) or end (-1): towards the other, apart."""
    found, room, apart = {}, 0.4 * _BOX[0], 0.08
    for name in {arrow[end]: None for arrow in stops}:
        mine = sorted((stops[arrow][1 if end == 0 else -2], arrow) for arrow in stops if arrow[end] == name)
        x, y = stops[mine[0][1]][end]
        step = min(apart, 2 * room / max(len(mine) - 1, 1))
        shifts = [float(np.clip((p - x) * _BOX[1] / 2 / abs(q - y), -room, room)) for (p, q), _ in mine]
        for i in range(1, len(shifts)):
            shifts[i] = max(shifts[i], shifts[i - 1] + step)
        shifts[-1] = min(shifts[-1], room)
        for i in range(len(shifts) - 2, -1, -1):
            shifts[i] = min(shifts[i], shifts[i + 1] - step)
        found |= {arrow: x + shift for (_, arrow), shift in zip(mine, shifts, strict=True)}
    return found


def _draw_symbol(axis: Axes, name: str, place: tuple[float, float], graph: Graph) -> None:
    kind = graph.distributions[name]
    style = "square,pad=0" if kind == "factor" else "round,pad=0,rounding_size=0.1"
    axis.add_patch(
        FancyBboxPatch(
            (place[0] - _BOX[0] / 2, place[1] - _BOX[1] / 2),
            *_BOX,
            boxstyle=style,
            facecolor="0.85" if name in graph.observed else "white",
            edgecolor="0.1",
            linestyle="--" if kind == "computed" else "-",
            linewidth=1.1,
            zorder=3,
        )
    )
    dims = " × ".join(dim.removesuffix("_2") if i else dim for i, dim in enumerate(graph.dims.get(name, ())))
    lines = [(name, 9.0, "black"), (kind, 8.0, "0.15")] + ([(dims, 7.0, "0.35")] if dims else [])
    step = 0.088
    for i, (words, size, colour) in enumerate(lines):
        level = place[1] + step * ((len(lines) - 1) / 2 - i)
        size *= min(1.0, _LETTERS / (size * max(len(words), 1)))
        axis.text(place[0], level, words, fontsize=size, color=colour, ha="center", va="center", zorder=4)


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
