"""The family of components for a table, by what its columns hold."""

from typing import Any

import numpy as np
import pandas as pd

from zoo.checks import as_numbers
from zoo.conjugate.categorical_dirichlet import CategoricalDirichlet
from zoo.conjugate.cellwise import BernoulliBeta, PoissonGamma
from zoo.conjugate.component_prior import ComponentPrior
from zoo.conjugate.gaussian import GaussianWishart
from zoo.conjugate.multinomial_dirichlet import MultinomialDirichlet
from zoo.conjugate.normal_gamma import LogNormalGamma, NormalGamma
from zoo.conjugate.product import Product
from zoo.intake import Columns, read_columns
from zoo.intake.suitable_fields import kind_of_cells

__all__ = ["components_for", "read_off", "suitable_components"]

FAMILIES = {
    "real": NormalGamma,
    "positive": LogNormalGamma,
    "count": PoissonGamma,
    "yes/no": BernoulliBeta,
}


ROWS_PER_COLUMN = 5  # of a covariance of real columns beside others


def components_for(columns: Columns) -> ComponentPrior | None:
    """The family of components for columns of these kinds.

    Real columns and dates have one Gaussian with full covariance; beside other columns they are independent
    where the table has fewer than 5 rows a real column, and where they miss cells and come in batches, whose
    patterns are not known.

    Args:
        columns: of a table.

    Returns:
        The family, not filled; None: a Gaussian of all of them.
    """
    kept = columns.kept
    if {column.kind for column in kept} <= {"real", "date"}:
        return None
    groups: dict[Any, list[int]] = {}
    for place, column in enumerate(kept):
        kind = {"date": "real", "ordered": "category"}.get(column.kind, column.kind)
        groups.setdefault((kind, column.levels if kind == "category" else ()), []).append(place)
    real = groups.get(("real", ()), [])
    suffices = columns.num_rows is None or columns.num_rows >= ROWS_PER_COLUMN * len(real)
    are_known = columns.is_held or not any(kept[place].num_missing for place in real)
    is_joint = len(real) > 1 and suffices and are_known
    own = FAMILIES | ({"real": GaussianWishart} if is_joint else {})
    families = tuple(
        CategoricalDirichlet(levels=levels) if kind == "category" else own[kind]() for kind, levels in groups
    )
    return families[0] if len(groups) == 1 else Product(families, tuple(map(tuple, groups.values())))


def read_off(x: Any, components: Any, sample_weight: Any = None) -> Any:
    """Components with their fields read off the data.

    Args:
        x: rows, shape (num_observations, num_features); of a DataFrame the columns are read by what they
            hold, of anything else all cells are real numbers.
        components: a family, filled or not; None: that of the columns.
        sample_weight: weight of each row, shape (num_observations,); None: one.

    Returns:
        The family; what is no family as it is.
    """
    if isinstance(x, pd.DataFrame):
        columns = read_columns(x)
        components = components_for(columns) if components is None else components
        x = columns.encoded(x)
    components = GaussianWishart() if components is None else components
    return components.filled(x, sample_weight) if isinstance(components, ComponentPrior) else components


def suitable_components(x: Any) -> ComponentPrior | None:
    """Components for the kind of cells, independent by column unless they are complete real numbers.

    Args:
        x: rows, shape (num_observations, num_features).

    Returns:
        The family with its fields; None: the default.
    """
    if hasattr(x, "tocsr"):
        return MultinomialDirichlet.from_data(x)
    kind = kind_of_cells(x)
    if kind == "gaussian" and not np.isnan(as_numbers(x)).any():
        return None
    if kind == "poisson":  # a column without events: as if half a one had been seen
        means = np.nanmean(as_numbers(x), axis=0)
        return PoissonGamma.from_data(x, rate=1.0 / np.maximum(means, 0.5 / len(x)))
    return {"bernoulli": BernoulliBeta, "gaussian": NormalGamma}[kind].from_data(x)
