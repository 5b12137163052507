"""Choosing between models by rows they have not seen: cross-validation, with BIC beside it."""

import time
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from inference.fitting.front_door import fit
from inference.prediction import log_density
from zoo.model import Model

__all__ = ["cross_validate"]


def cross_validate(
    models: Mapping[Any, Model],
    x: Any,
    *,
    method: str = "auto",
    folds: int = 5,
    seed: int = 0,
    **settings: Any,
) -> pd.DataFrame:
    """Held-out log density of several models on the same folds, and the BIC of each fitted to all rows.

    Args:
        models: name (such as the number of components) to model.
        x: data, shape (num_observations, num_features), an array or a DataFrame.
        method: as for ``fit``.
        folds: how many parts the rows are dealt into, at random but the same for every model.
        seed: of the parts, and of each fit.
        **settings: as for ``fit``: ``num_restarts``, ``init``, options of the method.

    Returns:
        One row a model: ``heldout`` and its ``standard_error`` over the rows (nats per row), ``difference``
        to the best and the standard error of that paired difference, ``bic`` (where the method gives one,
        lower is better), ``fitted`` (log density per row of the rows that were fitted), ``not_converged`` (of
        all fits) and ``seconds``.

    Raises:
        TypeError: ``models`` is not a mapping of models.
        ValueError: no models, or a number of folds that the rows do not allow.
    """
    if not isinstance(models, Mapping) or not all(isinstance(model, Model) for model in models.values()):
        raise TypeError("models must be a dict of name to model of the zoo")
    if not models:
        raise ValueError("models is empty: give at least one")
    rows = x if hasattr(x, "iloc") else np.asarray(x)
    num_rows = len(rows)
    if isinstance(folds, bool) or not isinstance(folds, int) or not 2 <= folds <= num_rows // 2:
        raise ValueError(
            f"folds must be a whole number from 2 to {num_rows // 2}, half the rows; got {folds!r}"
        )
    part = np.random.default_rng(seed).permutation(num_rows) % folds
    table, scores = {}, {}
    for name, model in models.items():
        begin = time.perf_counter()
        scores[name] = np.empty(num_rows)
        missed = 0
        for fold in range(folds):
            tree = _fit(model, _take(rows, part != fold), method, seed, settings)
            scores[name][part == fold] = log_density(tree, _take(rows, part == fold)).to_numpy()
            missed += not tree.attrs["converged"]
        whole = _fit(model, rows, method, seed, settings)
        table[name] = {
            "heldout": scores[name].mean(),
            "standard_error": scores[name].std(ddof=1) / np.sqrt(num_rows),
            "bic": whole.attrs.get("bic", np.nan),
            "fitted": float(log_density(whole, rows).mean()),
            "not_converged": missed + (not whole.attrs["converged"]),
            "seconds": time.perf_counter() - begin,
        }
    best = max(table, key=lambda name: table[name]["heldout"])
    for name, row in table.items():
        gap = scores[name] - scores[best]
        row |= {"difference": gap.mean(), "difference_error": gap.std(ddof=1) / np.sqrt(num_rows)}
    columns = ["heldout", "standard_error", "difference", "difference_error", "bic", "fitted"]
    return pd.DataFrame.from_dict(table, orient="index")[[*columns, "not_converged", "seconds"]]


def _take(rows: Any, which: np.ndarray) -> Any:
    return rows.iloc[which] if hasattr(rows, "iloc") else rows[which]


def _fit(model: Model, rows: Any, method: str, seed: int, settings: Mapping[str, Any]) -> Any:
    """A fit whose failure to converge is counted in the table, not warned of once a fold."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*has not converged")
        return fit(model, rows, method=method, seed=seed, **settings)
