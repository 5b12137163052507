"""Where the symbols of a program stand when its graph is drawn: places on a grid, found by search.

A symbol stands above, or beside, what depends on it; the frame of a plate holds its members and nothing
else; arrows run through no symbol and cross seldom. What is left of that is counted as a
cost and lowered by simulated annealing with a fixed seed: graphs of a dozen symbols take a second or two, and
the same graph always gives the same picture.
"""

import functools
import math
import random
from collections.abc import Mapping, Sequence

__all__ = ["ASPECT", "BOX", "arrange", "hidden"]

ASPECT = 0.62  # height of a place on the grid over its width
BOX = (0.86, 0.30)  # of a symbol's frame, in widths of a place
_STEPS = 6000
_SAME_PLACE, _UPWARDS, _FRAME, _THROUGH = 80, 60, 60, 45
_CROSSING, _SIDEWAYS, _LENGTH, _WIDTH, _HEIGHT = 5, 3, 1, 1.5, 0.5

Place = tuple[int, int]


def arrange(
    parents: Mapping[str, Sequence[str]], plates: Mapping[str, Sequence[str]], num_columns: int = 4
) -> dict[str, Place]:
    """Places of the symbols of a graph.

    Args:
        parents: symbol to those that it depends on.
        plates: plate to the symbols in it.
        num_columns: so many symbols side by side, and one more if some arrow still runs through a symbol.

    Returns:
        Symbol to (column, row), the top row 0.
    """
    edges = [(source, child) for child, sources in parents.items() for source in sources]
    depth = _depths(parents)
    num_rows = max(depth.values(), default=0) + 3
    found: list[dict[str, Place]] = []
    for start, columns in enumerate((num_columns, num_columns, num_columns + 1, num_columns + 1)):
        size = (columns, num_rows)
        found.append(_anneal(random.Random(start), list(parents), edges, plates, depth, size))
        best = min(found, key=lambda places: (len(hidden(places, parents)), _cost(places, edges, plates)))
        if start and not hidden(best, parents):
            break
    left, top = (min(place[axis] for place in best.values()) for axis in (0, 1))
    return {name: (column - left, row - top) for name, (column, row) in best.items()}


def hidden(places: Mapping[str, Place], parents: Mapping[str, Sequence[str]]) -> set[tuple[str, str]]:
    """The arrows (from, to) whose straight line runs through a symbol, so that they could be taken for two.

    Args:
        places: symbol to (column, row).
        parents: symbol to those that it depends on.
    """
    return {
        (source, child)
        for child, sources in parents.items()
        for source in sources
        for other, place in places.items()
        if other not in (source, child) and _runs_through(places[source], places[child], place)
    }


def _depths(parents: Mapping[str, Sequence[str]]) -> dict[str, int]:
    depth: dict[str, int] = {}
    for name, sources in parents.items():  # in the program's order: parents come first
        depth[name] = 1 + max((depth.get(source, -1) for source in sources), default=-1)
    return depth


def _anneal(
    rng: random.Random,
    names: list[str],
    edges: Sequence[tuple[str, str]],
    plates: Mapping[str, Sequence[str]],
    depth: Mapping[str, int],
    size: tuple[int, int],
) -> dict[str, Place]:
    places = {name: (rng.randrange(size[0]), depth[name]) for name in names}
    cost = _cost(places, edges, plates)
    best, lowest = dict(places), cost
    for step in range(_STEPS):
        heat = 20.0 * (1.0 - step / _STEPS) ** 2 + 1e-3
        moved = rng.choice(names)
        place = (rng.randrange(size[0]), rng.randrange(size[1]))
        other = next((name for name in names if places[name] == place), None)
        before = places[moved]
        places[moved] = place
        if other is not None:
            places[other] = before
        new = _cost(places, edges, plates)
        if new <= cost or rng.random() < math.exp((cost - new) / heat):
            cost = new
            if cost < lowest:
                best, lowest = dict(places), cost
        else:
            places[moved] = before
            if other is not None:
                places[other] = place
    return best


def _cost(
    places: Mapping[str, Place], edges: Sequence[tuple[str, str]], plates: Mapping[str, Sequence[str]]
) -> float:
    taken = list(places.values())
    total = _SAME_PLACE * (len(taken) - len(set(taken)))
    columns, rows = ({place[axis] for place in taken} for axis in (0, 1))
    total += _WIDTH * (max(columns) - min(columns)) + _HEIGHT * (max(rows) - min(rows))
    lines = []
    for source, child in edges:
        a, b = places[source], places[child]
        total += _UPWARDS * max(a[1] - b[1], 0) + _SIDEWAYS * (a[1] == b[1])
        total += _LENGTH * math.hypot(a[0] - b[0], ASPECT * (a[1] - b[1]))
        total += _THROUGH * sum(_runs_through(a, b, c) for c in taken if c != a and c != b)
        lines.append((a, b))
    for i, one in enumerate(lines):
        total += _CROSSING * sum(_crosses(*one, *other) for other in lines[:i])
    frames = []
    for members in plates.values():
        inside = [places[name] for name in members]
        if not inside:
            continue
        (left, right), (top, bottom) = (
            (min(p[axis] for p in inside), max(p[axis] for p in inside)) for axis in (0, 1)
        )
        total += 0.5 * (right - left + bottom - top)
        strangers = [place for name, place in places.items() if name not in members]
        total += _FRAME * sum(left <= c <= right and top <= r <= bottom for c, r in strangers)
        for others, (l2, r2, t2, b2) in frames:
            if not others & set(members):
                total += _FRAME * (left <= r2 and l2 <= right and top <= b2 and t2 <= bottom)
        frames.append((set(members), (left, right, top, bottom)))
    return total


@functools.cache
def _runs_through(a: Place, b: Place, c: Place) -> bool:
    """Whether the line between two places touches the frame of a symbol at a third."""
    x0, y0, x1, y1 = a[0] - c[0], ASPECT * (a[1] - c[1]), b[0] - c[0], ASPECT * (b[1] - c[1])
    low, high = 0.0, 1.0
    for start, end, half in ((x0, x1, BOX[0] / 2), (y0, y1, BOX[1] / 2)):
        if start == end:
            if abs(start) > half:
                return False
            continue
        enter, leave = sorted(((-half - start) / (end - start), (half - start) / (end - start)))
        low, high = max(low, enter), min(high, leave)
    return low <= high


@functools.cache
def _crosses(a: Place, b: Place, c: Place, d: Place) -> bool:
    """Whether two lines cross away from their ends."""
    if {a, b} & {c, d}:
        return False

    def side(p: Place, q: Place, r: Place) -> int:
        value = (q[0] - p[0]) * (r[1] - p[1]) - (q[1] - p[1]) * (r[0] - p[0])
        return (value > 0) - (value < 0)

    return side(a, b, c) * side(a, b, d) < 0 and side(c, d, a) * side(c, d, b) < 0
