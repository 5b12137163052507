"""How the starts of an ascent ended, whether they agree, and components that stand in one place."""

import numpy as np
import pandas as pd
import xarray as xr

from inference.results.files import model_of
from inference.results.groups import group_or_empty, sample_weight_of
from zoo.checks import first_of, listed

CLOSE = 2.0  # nats: of starts that end so near to the best, none can be called the worse answer
MOST_NAMED = 10
OCCUPIED = 0.5  # rows that an occupied component is expected to hold more than
ONE_PLACE = 0.5  # cosine of two components' responsibilities: 1 in one place, seldom above 0.1 for neighbours


def starts_table(tree: xr.DataTree) -> pd.DataFrame | None:
    """Tabulate how the starts of an ascent ended, the best first; those with a finite objective.

    Returns:
        Index ``start``; ``objective``, ``behind`` and, with clusters, ``occupied``; None for one start.
    """
    trace = group_or_empty(tree, "trace")
    if "objective_at_end" not in trace or trace["objective_at_end"].size == 1:
        return None
    ends = trace["objective_at_end"].to_numpy()
    found = np.flatnonzero(np.isfinite(ends))
    order = found[np.argsort(-ends[found], kind="stable")]
    table = pd.DataFrame(
        {"objective": ends[order], "behind": ends[order[:1]].max(initial=-np.inf) - ends[order]}
    )
    counted = f"{model_of(tree).roles.occupied}_at_end"
    if counted in trace:
        table["occupied"] = trace[counted].to_numpy()[order].astype(int)
    table.index = pd.Index(order, name="start")
    lost = ends.size - order.size
    note = "objective in nats; behind: below the best one"
    note += "; occupied: clusters that hold rows" if "occupied" in table else ""
    note += f"; {lost} start{'s' if lost > 1 else ''} had no finite objective" if lost else ""
    table.attrs |= {"title": "How the starts ended", "note": note}
    return table


def spread_of_starts(tree: xr.DataTree) -> str:
    """Where the starts of an ascent ended, in a sentence or two.

    Returns:
        The number of starts, the two highest objectives and the occupied components of all, best first; and
        "not sure" where starts that end within `CLOSE` nats of the best occupy different numbers of
        components. Empty for one start, or for a sampler.
    """
    starts = starts_table(tree)
    if starts is None:
        return ""
    objective, number = starts["objective"].to_numpy(), tree["trace"]["objective_at_end"].size
    text = f"{number} starts: best {objective[0]:.1f}"
    text += f", next {objective[1]:.1f} nats" if objective.size > 1 else " nats"
    text += f", {number - objective.size} without a finite objective" if objective.size < number else ""
    if "occupied" not in starts:
        return f"{text}."
    text += f"; occupied {first_of(starts['occupied'], MOST_NAMED)}."
    near = np.unique(starts["occupied"][starts["behind"] <= CLOSE])
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
    stored = group_or_empty(tree, "variational")
    if model.roles.responsibilities not in stored:
        return []
    r = stored[model.roles.responsibilities]
    names = [str(name) for name in r[r.dims[-1]].to_numpy()]
    r = r.to_numpy().astype(float)
    weight = sample_weight_of(tree)
    weight = np.ones(len(r)) if weight is None else weight
    shared = (weight[:, None] * r).T @ r
    norm = np.sqrt(np.diag(shared))
    occupied = np.flatnonzero(weight @ r > OCCUPIED)
    cosine = shared[np.ix_(occupied, occupied)] / np.outer(norm[occupied], norm[occupied])
    first, second = np.nonzero(np.triu(cosine, 1) > ONE_PLACE)
    order = np.argsort(-cosine[first, second], kind="stable")
    return [(names[occupied[first[i]]], names[occupied[second[i]]]) for i in order]
