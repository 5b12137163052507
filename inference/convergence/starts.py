"""How the starts of an ascent ended, whether they agree, and components that stand in one place."""

import numpy as np
import xarray as xr

from inference.results.files import model_of
from zoo.checks import listed

CLOSE = 2.0  # nats: of starts that end so near to the best, none can be called the worse answer
MOST_NAMED = 10
OCCUPIED = 0.5  # rows that an occupied component is expected to hold more than
ONE_PLACE = 0.5  # cosine of two components' responsibilities: 1 in one place, seldom above 0.1 for neighbours


def occupied_by_start(tree: xr.DataTree) -> np.ndarray | None:
    """Occupied components at the end of every start of an ascent.

    Returns:
        Whole numbers, shape (num_starts,), of the starts that ended with a finite objective, the best first;
            None for a sampler, one start, or a model without components.
    """
    trace = tree["trace"] if "trace" in tree.children else {}
    counted = f"{model_of(tree).roles.occupied}_at_end"
    if counted not in trace or trace["objective_at_end"].size == 1:
        return None
    ends = trace["objective_at_end"].to_numpy()
    found = np.flatnonzero(np.isfinite(ends))
    return trace[counted].to_numpy()[found[np.argsort(-ends[found], kind="stable")]].astype(int)


def spread_of_starts(tree: xr.DataTree) -> str:
    """Where the starts of an ascent ended, in a sentence or two.

    Returns:
        The number of starts, the two highest objectives and the occupied components of all, best first; and
        "not sure" where starts that end within `CLOSE` nats of the best occupy different numbers of
        components. Empty for one start, or for a sampler.
    """
    trace = tree["trace"] if "trace" in tree.children else {}
    if "objective_at_end" not in trace or trace["objective_at_end"].size == 1:
        return ""
    ends = trace["objective_at_end"].to_numpy()
    found = np.flatnonzero(np.isfinite(ends))
    order = found[np.argsort(-ends[found], kind="stable")]
    best = ends[order[0]]
    text = f"{ends.size} starts: best {best:.1f}"
    text += f", next {ends[order[1]]:.1f} nats" if order.size > 1 else " nats"
    text += f", {ends.size - order.size} without a finite objective" if order.size < ends.size else ""
    counted = f"{model_of(tree).roles.occupied}_at_end"
    if counted not in trace:
        return f"{text}."
    occupied = trace[counted].to_numpy()[order].astype(int)
    more = ", ..." if occupied.size > MOST_NAMED else ""
    text += f"; occupied {', '.join(map(str, occupied[:MOST_NAMED]))}{more}."
    near = np.unique(occupied[best - ends[order] <= CLOSE])
    if near.size == 1:
        return text
    return f"{text} Not sure how many: starts within {CLOSE:g} nats of the best occupy {listed(near)}."


def components_in_one_place(tree: xr.DataTree) -> list[tuple[str, str]]:
    """Pairs of occupied components that share their rows, so that they stand in one place.

    No row says which of the two it belongs to: the cosine of the angle between their responsibilities,
    weighted as the rows are, is above one half. It does not depend on how the rows are split between them.

    Returns:
        Labels of the components, the pair that shares most first; empty where no responsibilities are stored.
    """
    model = model_of(tree)
    stored = tree["variational"] if "variational" in tree.children else {}
    if model.roles.responsibilities not in stored:
        return []
    r = stored[model.roles.responsibilities]
    names = [str(name) for name in r[r.dims[-1]].to_numpy()]
    r = r.to_numpy().astype(float)
    held = tree["constant_data"] if "constant_data" in tree.children else {}
    weight = held["sample_weight"].to_numpy() if "sample_weight" in held else np.ones(len(r))
    shared = (weight[:, None] * r).T @ r
    norm = np.sqrt(np.diag(shared))
    occupied = np.flatnonzero(weight @ r > OCCUPIED)
    cosine = shared[np.ix_(occupied, occupied)] / np.outer(norm[occupied], norm[occupied])
    first, second = np.nonzero(np.triu(cosine, 1) > ONE_PLACE)
    order = np.argsort(-cosine[first, second], kind="stable")
    return [(names[occupied[first[i]]], names[occupied[second[i]]]) for i in order]
