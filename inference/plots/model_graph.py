"""The graph of a program, derived from the program itself: dependencies between symbols, and plates.

`numpyro.infer.inspect.get_model_relations` runs the program abstractly and finds which site depends on which.
(`numpyro.render_model` draws a program without a fit, but needs the program ``dot``, which is no package.)
The graph is drawn in the layers of Sugiyama, Tagawa and Toda (1981): symbols are put into rows so that arrows
point down and are short, rows are ordered by barycentres, and an arrow that skips rows passes between their
symbols. Frames of plates hold their members and nothing else. The same graph always gives the same picture.
"""

from collections.abc import Hashable, Mapping, Sequence
from functools import cache
from graphlib import TopologicalSorter
from itertools import combinations, pairwise, product
from typing import NamedTuple

import jax
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.path import Path
from numpyro.infer.inspect import get_model_relations
from scipy.optimize import minimize

from inference.plots.palette import ShownFigure
from inference.precision import double_precision
from inference.results.files import check_tree, model_of
from inference.results.groups import restored_data
from zoo.coordinates.of_models import inside
from zoo.model import Model, in_current_precision
from zoo.sparse import SparseMatrix

_INCHES = 2.15  # that one unit of length takes in the picture
_BOX = (0.86, 0.30)  # width and height of a symbol
_ROW = 0.62  # from one row to the next
_GAP = 0.12  # between neighbours in a row
_MARGIN = 0.045  # between the frame of a plate and its members
_LABEL = 0.11  # between the members of a plate and its lower edge, where its name is
_PORT = (0.08, 0.8 * _BOX[0])  # between arrows that touch one box, and of all of them together at most
_WIDEST = 5  # symbols of one row
_LETTERS = 200.0  # font size times letters that fit into a symbol
_NAMES = {
    "ImproperUniform": "flat",
    "Deterministic": "computed",
    "Unit": "factor",
    "TransformedDistribution": "Normal, zero-padded",
    "CutPoints": "Normal, in order",
    "ObservedCells": "Normal, cells seen",
    "DecidedOutputs": "sign of the utility",
    "IncompleteRows": "Normal, cells seen",
    "_ProductRow": "a family a column",
    "TopicCounts": "Multinomial, by topic",
    "TopicTotals": "sum over topics",
}


class Graph(NamedTuple):
    """Symbols of a program, their dependencies and plates.

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


class Placement(NamedTuple):
    """Positions of the parts of a drawn graph.

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
    """Derive the graph of a fitted model's program, its local latents drawn.

    Raises:
        ValueError: the fit does not hold its data, without which the program cannot be run.
    """
    check_tree(tree)
    if "observed_data" not in tree.children:
        raise ValueError("the program is run on the data, which this fit does not hold (left out for size)")
    model = model_of(tree)
    return program_graph(model, restored_data(tree["observed_data"].to_dataset(), model))


@double_precision
def program_graph(model: Model, data: tuple) -> Graph:
    """Derive the graph of a program from a run on data as `fit` takes them, its local latents drawn."""
    if (own := model.own_coordinates) is not None:  # where distributions are those that the program names
        data, model = own.parts_inward(data, model.data_names, model.units), inside(model, own)
    if any(isinstance(part, SparseMatrix) for part in data):  # a program of dense rows: two are enough
        data = tuple(p.to_scipy()[:2].toarray() if isinstance(p, SparseMatrix) else p[:2] for p in data)
    if getattr(model, "num_tokens", 1) is None:
        model = model.replaced(num_tokens=1)  # only the sizes of documents that are drawn
    relations = _relations(model, in_current_precision(data))
    families = dict(zip(model.data_names, model.part_families, strict=True))
    distributions = {
        name: type(families[name]).__name__
        if kind == "FamilyCells"
        else _NAMES.get(kind, kind.removesuffix("Logits").removesuffix("Probs"))
        for name, kind in relations["sample_dist"].items()
    }
    parents = {
        child: [name for name in sources if not _of_another_view(name, child, model.data_names)]
        for child, sources in relations["sample_sample"].items()
    }
    order = list(TopologicalSorter(parents).static_order())
    plates = {name: list(members) for name, members in relations["plate_sample"].items() if members}
    observed = [name for name in relations["observed"] if distributions[name] != "factor"]
    dims = {name: model.variable_dims[name] for name in order if name in model.variable_dims}
    return Graph({name: parents[name] for name in order}, distributions, plates, observed, dims)


def _relations(model: Model, data: tuple) -> dict:
    """Run NumPyro's inspection of a program, also for the second time in one process.

    Works around a fault of NumPyro (0.22.0, `numpyro.ops.pytree.PytreeTrace`): the factor of
    ``numpyro.handlers.scale`` (the view weights of `zoo.Paired`) is computed in the abstract run, so a traced
    value, and is kept as metadata of the pytree that the run returns. The second run of the same program
    compares it with the one that JAX remembers, and fails, since arrays lack a plain equality.
    Then JAX is made to forget all that it compiled: the next calls compile again, which costs only time.
    """
    try:
        return get_model_relations(model.explicit, data)
    except ValueError as error:
        if "comparable" not in str(error):
            raise
        jax.clear_caches()
        return get_model_relations(model.explicit, data)


def in_words(graph: Graph) -> str:
    """Describe the graph for a reader who cannot see it."""
    nodes = [
        f"{name} ({graph.distributions[name]})" + (f" depends on {', '.join(sources)}" if sources else "")
        for name, sources in graph.parents.items()
    ]
    framed = [f"plate {plate}: {', '.join(members)}" for plate, members in graph.plates.items()]
    return (
        f"Graph of the program. {'; '.join(nodes)}. {'; '.join(framed)}. Data: {', '.join(graph.observed)}."
    )


def plot_model_graph(tree: xr.DataTree) -> Figure:
    """Plot the program as a graph: boxes are symbols, arrows dependencies, frames plates, grey symbols data.

    Args:
        tree: a fit that holds its data.

    Returns:
        The figure. Round boxes are random, dashed ones computed from others, square ones factors that the
        prior is multiplied with.

    Raises:
        ValueError: the fit does not hold its data, without which the program cannot be run.
    """
    return draw_graph(graph_of(tree))


def draw_graph(graph: Graph) -> Figure:
    """Draw the figure of `plot_model_graph` for a graph that is known already."""
    layout = arrange(graph.parents, graph.plates)
    at = {name: (x, -_ROW * row) for name, (x, row) in layout.places.items()}
    left, right = _sides(layout)
    lowest = min(y for _, y in at.values()) - _BOX[1] / 2 - _LABEL
    left, right, low, high = left - 0.03, right + 0.03, lowest - 0.03, _BOX[1] / 2 + _LABEL + 0.03
    figure = ShownFigure(figsize=(_INCHES * (right - left), _INCHES * (high - low)), layout="constrained")
    axis = figure.subplots()
    for plate, frame in layout.frames.items():
        _draw_plate(axis, plate, frame)
    for name in graph.parents:
        _draw_symbol(axis, name, at[name], graph)
    style = {"arrowstyle": "-|>", "mutation_scale": 11, "color": "0.25", "linewidth": 0.9, "zorder": 2}
    for path in _arrows(layout):
        axis.add_patch(FancyArrowPatch(path=path, **style))
    axis.set(xlim=(left, right), ylim=(low, high), aspect="equal")
    axis.set_axis_off()
    return figure


def arrange(parents: Mapping[str, Sequence[str]], plates: Mapping[str, Sequence[str]]) -> Placement:
    """Place the symbols of a graph so that arrows point down and no box lies on another."""
    beside = _arranged(_rows(parents, plates, above=False), parents, plates)
    left, right = _sides(beside)
    if right - left <= _WIDEST + 0.5:
        return beside
    over = _arranged(_rows(parents, plates, above=True), parents, plates)
    return over if _sides(over)[1] - _sides(over)[0] < right - left else beside


def _sides(layout: Placement) -> tuple[float, float]:
    """Leftmost and rightmost x of a layout."""
    sides = [side for left, right, _, _ in layout.frames.values() for side in (left, right)]
    sides += [x + side * _BOX[0] / 2 for x, _ in layout.places.values() for side in (-1, 1)]
    sides += [x for route in layout.routes.values() for x, _ in route]
    return min(sides), max(sides)


def _arranged(
    rows: Sequence[Sequence[str]], parents: Mapping[str, Sequence[str]], plates: Mapping[str, Sequence[str]]
) -> Placement:
    """Lay out symbols whose rows are known."""
    by_size = sorted(plates, key=lambda plate: -len(plates[plate]))
    inside: dict[Hashable, tuple[str, ...]] = {
        name: tuple(plate for plate in by_size if name in plates[plate]) for name in parents
    }
    row_of = {name: row for row, members in enumerate(rows) for name in members}
    held = {plate: [row_of[name] for name in members] for plate, members in plates.items()}
    spans = {plate: (min(found), max(found)) for plate, found in held.items()}
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
    return Placement(
        {name: (x[name], row_of[name]) for name in parents},
        {arrow: [(x[slot], slot[2]) for slot in chain] for arrow, chain in chains.items()},
        {plate: (*frames[plate], *spans[plate]) for plate in plates},
    )


def _rows(
    parents: Mapping[str, Sequence[str]], plates: Mapping[str, Sequence[str]], *, above: bool
) -> list[list[str]]:
    """Put symbols into rows, each as low as it can be above those that depend on it.

    With ``above``, symbols outside of plates that depend on nothing are above the plates that they lead to.
    """
    framed = {name: members for members in plates.values() for name in members}
    lower: dict[str, set[str]] = {name: set() for name in parents}
    for child, sources in parents.items():
        for source in sources:
            lifted = above and child in framed and source not in framed and not parents[source]
            lower[source] |= set(framed[child]) if lifted else {child}

    @cache
    def height(name: str) -> int:
        return max((height(other) + 1 for other in lower[name]), default=0)

    rows = []
    for level in range(max(map(height, parents)), -1, -1):
        row = [name for name in parents if height(name) == level]
        # a wide row becomes two, every second symbol that is free to move in the upper one
        upper = [name for name in row if name not in framed][::2] if len(row) > _WIDEST else []
        if len(row) - len(upper) > _WIDEST:  # one plate takes all the room
            upper = [name for name in row if not parents[name]][::2]
        rows += [part for part in (upper, [name for name in row if name not in upper]) if part]
    return rows


def _ordered(
    slots: Sequence[Sequence[Hashable]], segments: Sequence[tuple], inside: Mapping[Hashable, tuple[str, ...]]
) -> list[list[Hashable]]:
    """Order the rows by barycentre sweeps down and up, then by moves while they shorten the arrows.

    Members of a plate stay together, and the plates in one order in all rows.
    """
    rows = [list(row) for row in slots]
    row_of = {slot: i for i, row in enumerate(rows) for slot in row}
    members = {p: [slot for slot in inside if p in inside[slot]] for held in inside.values() for p in held}

    def cost(most: float = np.inf) -> tuple[float, float]:
        at = _centred(rows)
        together = [(p, q) for p, q in combinations(segments, 2) if row_of[p[0]] == row_of[q[0]]]
        crossings = sum((at[a] - at[c]) * (at[b] - at[d]) < 0 for (a, b), (c, d) in together)
        return crossings, _coordinates(rows, segments, inside)[2] if crossings <= most else np.inf

    best, lowest = [list(row) for row in rows], cost()
    for sweep in range(12):
        at = _centred(rows)
        centre = {plate: float(np.mean([at[slot] for slot in held])) for plate, held in members.items()}
        ends = [(a, b) if sweep % 2 else (b, a) for a, b in segments]
        for row in reversed(rows) if sweep % 2 else rows:
            key = {}
            for slot in row:
                near = [at[other] for one, other in ends if one == slot]
                mean = float(np.mean(near)) if near else at[slot]
                key[slot] = (*((centre[plate], plate) for plate in inside[slot]), (mean, ""))
            row.sort(key=key.get)
            at |= _centred([row])
        if (found := cost(lowest[0])) < lowest:
            best, lowest = [list(row) for row in rows], found
    rows[:] = best
    improved = True
    while improved:
        improved = False
        for row in rows:
            for slot, i in product(list(row), range(len(row))):
                before = list(row)
                row.remove(slot)
                row.insert(i, slot)
                if row != before and _in_order(rows, inside) and (found := cost(lowest[0])) < lowest:
                    lowest, improved = found, True
                else:
                    row[:] = before
    return rows


def _centred(rows: Sequence[Sequence[Hashable]]) -> dict[Hashable, float]:
    """Places at unit distance, the middle of every row at zero."""
    return {slot: i - (len(row) - 1) / 2 for row in rows for i, slot in enumerate(row)}


def _in_order(rows: Sequence[Sequence[Hashable]], inside: Mapping[Hashable, tuple[str, ...]]) -> bool:
    """Whether the slots of a plate are neighbours in every row, and plates come in one order in all."""
    left_of = set()
    for row in rows:
        for one, other in combinations(row, 2):
            pairs = product(inside[one], inside[other])
            left_of |= {(p, q) for p, q in pairs if p not in inside[other] and q not in inside[one]}
        for plate in {plate for slot in row for plate in inside[slot]}:
            held = [plate in inside[slot] for slot in row]
            if sum(a != b for a, b in pairwise([False, *held, False])) > 2:
                return False
    return not any((q, p) in left_of for p, q in left_of)


def _coordinates(
    rows: Sequence[Sequence[Hashable]], segments: Sequence[tuple], inside: Mapping[Hashable, tuple[str, ...]]
) -> tuple[dict[Hashable, float], dict[str, tuple[float, float]], float]:
    """Middles of slots and (left, right) of plates by least squares of the arrows, and the sum of squares.

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
        edge = half[slot] + _MARGIN
        for plate in inside[slot]:
            apart += [(("left", plate), slot, edge), (slot, ("right", plate), edge)]
        for outer, inner in pairwise(inside[slot]):
            apart += [
                (("left", outer), ("left", inner), _MARGIN),
                (("right", inner), ("right", outer), _MARGIN),
            ]
    for row in rows:
        for a, b in pairwise(row):
            apart.append((a, b, half[a] + half[b] + _GAP))
            before = [("right", plate) for plate in inside[a] if plate not in inside[b]]
            after = [("left", plate) for plate in inside[b] if plate not in inside[a]]
            apart += [(edge, b, half[b] + _GAP) for edge in before]
            apart += [(a, edge, half[a] + _GAP) for edge in after]
            apart += [(one, other, _GAP) for one in before for other in after]

    stiff = [3.0 if not isinstance(a, str) and not isinstance(b, str) else 1.0 for a, b in segments]
    pulls = np.concatenate(
        [
            _differences(index, segments) * np.sqrt(stiff)[:, None],
            0.3 * _differences(index, [(("left", plate), ("right", plate)) for plate in plates]),
            0.03 * np.eye(len(index)),
        ]
    )
    hessian, limits = pulls.T @ pulls, np.array([distance for *_, distance in apart])
    walls = _differences(index, apart)
    at = _centred(rows)
    start = np.array([at.get(slot, 0.0) for slot in index])
    for begin in (start, _packed(index, apart)):  # the second keeps all distances
        solution = minimize(
            lambda x: (0.5 * x @ hessian @ x, hessian @ x),
            begin,
            jac=True,
            method="SLSQP",
            constraints={"type": "ineq", "fun": lambda x: walls @ x - limits, "jac": lambda x: walls},
            options={"maxiter": 1000, "ftol": 1e-10},
        )
        if solution.success and (walls @ solution.x >= limits - 1e-6).all():
            break
    else:
        solution.x = begin
        solution.fun = 0.5 * begin @ hessian @ begin
    x = [round(float(value), 4) for value in solution.x]
    frames = {plate: (x[index["left", plate]], x[index["right", plate]]) for plate in plates}
    return {slot: x[index[slot]] for slot in slots}, frames, round(float(solution.fun), 6)


def _packed(index: Mapping[Hashable, int], apart: Sequence[tuple[Hashable, Hashable, float]]) -> np.ndarray:
    """Coordinates that keep all distances, every slot as far to the left as they let it, about zero."""
    x = np.zeros(len(index))
    for _ in index:  # longest paths: as many rounds as a path has steps at most
        before = x.copy()
        for one, other, distance in apart:
            x[index[other]] = max(x[index[other]], x[index[one]] + distance)
        if (x == before).all():
            break
    return x - x.mean()


def _differences(index: Mapping[Hashable, int], pairs: Sequence[tuple]) -> np.ndarray:
    """Matrix that maps coordinates to the distances from the first to the second of each pair."""
    steps = np.eye(len(index))
    return np.array([steps[index[b]] - steps[index[a]] for a, b, *_ in pairs]).reshape(-1, len(index))


def _draw_plate(axis: Axes, plate: str, frame: tuple[float, float, int, int]) -> None:
    """Draw the frame of a plate with its name in the lower right corner."""
    left, right, top, bottom = frame
    low, high = -_BOX[1] / 2 - _ROW * bottom - _LABEL, _BOX[1] / 2 - _ROW * top + _MARGIN
    style = {"facecolor": "0.97", "edgecolor": "0.45", "linewidth": 0.9, "zorder": 0}
    rounded = "round,pad=0,rounding_size=0.03"
    axis.add_patch(FancyBboxPatch((left, low), right - left, high - low, boxstyle=rounded, **style))
    style = {"fontsize": 8, "color": "0.3", "ha": "right", "va": "bottom"}
    box = {"facecolor": "0.97", "edgecolor": "none", "pad": 0.4}  # above an arrow that runs there
    axis.text(right - 0.03, low + 0.015, plate.removesuffix("__CLONE"), zorder=2.5, bbox=box, **style)


def _arrows(layout: Placement) -> list[Path]:
    """Paths from lower to upper edges of boxes, upright where they pass between the symbols of a row."""
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
    """Points side by side where arrows touch the boxes at their beginning (``end`` 0) or end (-1)."""
    found = {}
    for name in {arrow[end] for arrow in stops}:
        mine = sorted((stops[arrow][1 if end == 0 else -2], arrow) for arrow in stops if arrow[end] == name)
        step = min(_PORT[0], _PORT[1] / max(len(mine) - 1, 1))
        for i, (_, arrow) in enumerate(mine):
            found[arrow] = stops[arrow][end][0] + step * (i - (len(mine) - 1) / 2)
    return found


def _draw_symbol(axis: Axes, name: str, place: tuple[float, float], graph: Graph) -> None:
    kind, (x, y) = graph.distributions[name], place
    style = {
        "boxstyle": "square,pad=0" if kind == "factor" else "round,pad=0,rounding_size=0.1",
        "facecolor": "0.85" if name in graph.observed else "white",
        "linestyle": "--" if kind == "computed" else "-",
    }
    corner = (x - _BOX[0] / 2, y - _BOX[1] / 2)
    box = FancyBboxPatch(corner, *_BOX, edgecolor="0.1", linewidth=1.1, zorder=3, **style)
    box.set_gid(f"site:{name}")  # as SVG its box can be found
    axis.add_patch(box)
    held = list(graph.dims.get(name, ()))
    plain = [dim.removesuffix("_2") for dim in held]
    pairs = zip(plain, held, strict=True)
    dims = " × ".join(own if own in held[:i] else dim for i, (own, dim) in enumerate(pairs))
    lines = [(name, 9.0, "black"), (kind, 8.0, "0.15")] + ([(dims, 7.0, "0.35")] if dims else [])
    for i, (words, size, colour) in enumerate(lines):
        level = y + 0.088 * ((len(lines) - 1) / 2 - i)
        size = min(size, _LETTERS / max(len(words), 1))
        axis.text(x, level, words, fontsize=size, color=colour, ha="center", va="center", zorder=4)


def _of_another_view(source: str, child: str, views: Sequence[str]) -> bool:
    """Whether a parameter carries the name (``loadings_x``) of another view than the data site ``child``."""
    if child not in views or len(views) < 2:
        return False
    owner = next((view for view in views if source.endswith(f"_{view.removeprefix('y_')}")), child)
    return owner != child
