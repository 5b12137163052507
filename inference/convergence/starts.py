"""How the starts of an ascent ended, and whether they agree."""

import numpy as np
import xarray as xr

from inference.results.files import model_of

__all__ = ["CLOSE", "occupied_by_start", "spread_of_starts"]

CLOSE = 2.0  # nats: of starts that end so near to the best, none can be called the worse answer
MOST_NAMED = 10


def occupied_by_start(tree: xr.DataTree) -> np.ndarray | None:
    """Occupied components at the end of every start of an ascent.

    Args:
        tree: a fit.

    Returns:
        Whole numbers, shape (num_starts,), of the starts that ended with a finite objective, the best first;
            None for a sampler, one start, or a model without components.
    """
    trace = tree["trace"] if "trace" in tree.children else {}
    counted = f"{model_of(tree).occupied_site}_at_end"
    if counted not in trace or trace["objective_at_end"].size == 1:
        return None
    ends = trace["objective_at_end"].to_numpy()
    found = np.flatnonzero(np.isfinite(ends))
    return trace[counted].to_numpy()[found[np.argsort(-ends[found], kind="stable")]].astype(int)


def spread_of_starts(tree: xr.DataTree) -> str:
    """Where the starts of an ascent ended, in a sentence or two.

    Args:
        tree: a fit.

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
    counted = f"{model_of(tree).occupied_site}_at_end"
    if counted not in trace:
        return f"{text}."
    occupied = trace[counted].to_numpy()[order].astype(int)
    more = ", ..." if occupied.size > MOST_NAMED else ""
    text += f"; occupied {', '.join(map(str, occupied[:MOST_NAMED]))}{more}."
    near = np.unique(occupied[best - ends[order] <= CLOSE])
    if near.size == 1:
        return text
    numbers = " and ".join(filter(None, (", ".join(map(str, near[:-1])), str(near[-1]))))
    return f"{text} Not sure how many: starts within {CLOSE:g} nats of the best occupy {numbers}."
