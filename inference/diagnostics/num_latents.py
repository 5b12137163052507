r"""How many latents a projection needs: by the variational bound, by ARD and by held-out rows, side by side.

Three answers to one question, each with its own weakness. The bound of VB with a Gaussian prior of the
loadings approximates the log evidence; it depends on the prior's scale and is short of it by what the
factorisation costs. Automatic relevance determination offers the most latents at once and counts those that
keep loadings; it is one fit, and can stop in a local optimum. The held-out log density of maximum likelihood
asks for prediction, not for truth: it punishes a latent too many only mildly, and its standard error says how
much of a difference is noise.

Reference: Bishop (1999), "Variational principal components"; Minka (2001), "Automatic choice of
    dimensionality for
PCA", on what the likelihood alone cannot say.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from inference.diagnostics.model_size import cross_validate
from inference.fitting.front_door import fit
from zoo.ppca import PPCA
from zoo.checks import as_matrix

__all__ = ["choose_num_latents"]


def choose_num_latents(
    x: Any,
    candidates: Iterable[int] | None = None,
    *,
    noise: str = "isotropic",
    folds: int = 5,
    seed: int = 0,
    **settings: Any,
) -> pd.DataFrame:
    """The number of latents of `zoo.PPCA` by bound, ARD and held-out density.

    Args:
        x: rows, shape (num_observations, num_features), NaN for missing cells; an array or a DataFrame.
        candidates: numbers of latents; None: 1 to at most 10, fewer than features and half the rows.
        noise: ``"isotropic"`` or ``"diagonal"``.
        folds: of the cross-validation.
        seed: of the folds and fits.
        **settings: of the fits by VB, as for ``fit``: ``max_iterations``, ``tolerance``, ``num_restarts``,
            ...

    Returns:
        One row a candidate, index ``num_latents``: ``bound`` (nats, Gaussian prior), ``heldout`` and
        ``standard_error`` (nats per row), ``bic`` (lower is better) and, where it was offered,
        ``ard_relevant``, the latents that ARD kept of the largest candidate. The attributes ``by_bound``,
        ``by_ard``, ``by_heldout`` hold the three answers, ``note`` says them in words.

    Raises:
        ValueError: no candidates, or some that the data do not allow.
    """
    rows = as_matrix(x)
    most = min(rows.shape[1], rows.shape[0] // 2) - 1
    numbers = sorted(set(range(1, min(most, 10) + 1) if candidates is None else candidates))
    if not numbers:
        raise ValueError("candidates is empty: give at least one number of latents")
    bad = [
        k for k in numbers if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= most
    ]
    if bad:
        raise ValueError(
            f"candidates must be whole numbers from 1 to {most}, fewer than features and half the rows; "
            f"got {bad[0]!r}"
        )
    flat = {k: PPCA(num_latents=k, noise=noise) for k in numbers}
    table = cross_validate(flat, x, folds=folds, seed=seed)[["heldout", "standard_error", "bic"]]
    table = table.loc[numbers].rename_axis("num_latents")
    settings = {"num_samples": 1, "seed": seed, "progress": False} | settings
    bounds = {}
    for k in numbers:
        model = PPCA(num_latents=k, noise=noise, loading_prior="gaussian")
        bounds[k] = _last_objective(fit(model, x, method="vb", **settings))
    table.insert(0, "bound", pd.Series(bounds))
    offered = fit(PPCA(num_latents=numbers[-1], noise=noise, loading_prior="ard"), x, method="vb", **settings)
    relevant = int(offered["variational"]["num_relevant"])
    table["ard_relevant"] = pd.Series({numbers[-1]: float(relevant)})
    answers = {
        "by_bound": int(table["bound"].idxmax()),
        "by_ard": relevant,
        "by_heldout": int(table["heldout"].idxmax()),
    }
    table.attrs |= answers | {
        "note": (
            f"bound: {answers['by_bound']} latents; ARD keeps {relevant} of {numbers[-1]}; held-out density: "
            f"{answers['by_heldout']}"
        )
    }
    return table


def _last_objective(tree: Any) -> float:
    trace = tree["trace"]["objective"]
    if "restart" in trace.dims:
        trace = trace.isel(restart=tree.attrs["best_restart"])
    return float(trace.dropna("iteration")[-1])
