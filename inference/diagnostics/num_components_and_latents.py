r"""How many components and directions a mixture of PCAs needs: by a bound and by held-out rows, side by side.

The bound integrates the latents (``vb`` of `zoo.DEPCAM`: exactly for Gaussian cells), so that a component
pays for its directions; bases, scales, offsets and weights are points, and pay by Schwarz's criterion:

.. math:: B - \tfrac{P}{2} \log N, \qquad P = K \{D d - d (d + 1) / 2 + d + D\} + K - 1,

B the bound on the rows' log density without the prior of the parameters (a density of points, which is no
probability and cannot be compared across sizes), P the free parameters: the Stiefel manifold's dimension,
scales, offsets, weights. Scales at zero make their directions' parameters idle, which P does not know: the
criterion then is too strict, never too lenient. The held-out density has its latents integrated (Laplace, or
exactly) and a standard error that says how much of a difference is noise. Accuracy at given classes is asked
nowhere: the best density need not be the true grouping.

References: Schwarz (1978), "Estimating the dimension of a model"; Tipping and Bishop (1999), mixtures of
PPCA.
"""

from collections.abc import Iterable
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import xarray as xr

from inference.diagnostics.model_size import cross_validate
from inference.methods.depcam.em_blocks import log_prior
from inference.fitting.front_door import fit
from inference.precision import double_precision
from inference.results.files import model_of
from zoo.depcam import DEPCAM
from zoo.checks import as_matrix

__all__ = ["choose_components_and_latents", "num_parameters"]


def choose_components_and_latents(
    x: Any,
    num_components: Iterable[int] = (1, 2, 3, 4),
    num_latents: Iterable[int] = (1, 2, 3),
    *,
    folds: int = 5,
    seed: int = 0,
    method: str = "vb",
    fields: dict[str, Any] | None = None,
    **settings: Any,
) -> pd.DataFrame:
    """Every pair of sizes of `zoo.DEPCAM`, judged by its bound and by held-out rows.

    Args:
        x: rows, shape (num_observations, num_features), NaN for missing cells; an array or a DataFrame.
        num_components: candidates for K.
        num_latents: candidates for d, at most the number of features.
        folds: of the cross-validation.
        seed: of the folds and fits.
        method: ``"vb"``, or ``"em"``, whose maximised latents have no bound: held-out rows alone judge then.
        fields: of the model, as ``{"family": "poisson", "repulsion": 0.0}``.
        **settings: of the fits, as for ``fit``: ``num_restarts``, ``init``, ``max_iterations``, ...

    Returns:
        One row a pair, index ``num_components``, ``num_latents``: ``bound`` (on the rows' log density, nats),
        ``num_parameters``, ``criterion`` (the bound less half the parameters times log N, higher is better),
        ``num_active`` (scales that are not zero), ``heldout`` and ``standard_error`` (nats per row). The
        attributes ``by_bound`` and ``by_heldout`` hold the answers as pairs, ``note`` says them in words.

    Raises:
        ValueError: no candidates, some that the data do not allow, or another method.
    """
    if method not in ("vb", "em"):
        raise ValueError(f"method must be vb or em; got {method!r}")
    rows = as_matrix(x)
    ks = _candidates("num_components", num_components, rows.shape[0])
    ds = _candidates("num_latents", num_latents, rows.shape[1])
    models = {
        (k, d): DEPCAM.from_data(rows, num_components=k, num_latents=d, **(fields or {}))
        for k, d in product(ks, ds)
    }
    settings = {"num_samples": 1, "progress": False} | settings
    scores = cross_validate(models, x, method=method, folds=folds, seed=seed, **settings)
    found = {pair: _of_one(model, x, method, seed, settings) for pair, model in models.items()}
    table = pd.DataFrame.from_dict(found, orient="index")
    table = table.join(scores[["heldout", "standard_error"]].loc[list(found)])
    table.index = pd.MultiIndex.from_tuples(list(found), names=["num_components", "num_latents"])
    answers = {"by_heldout": tuple(map(int, table["heldout"].idxmax()))}
    words = f"held-out density: {_in_words(answers['by_heldout'])}"
    if method == "vb":
        answers["by_bound"] = tuple(map(int, table["criterion"].idxmax()))
        words = f"bound: {_in_words(answers['by_bound'])}; {words}"
    else:
        table = table.drop(columns=["bound", "criterion"])
    table.attrs |= answers | {"note": words}
    return table


def num_parameters(model: DEPCAM, num_features: int) -> int:
    """Free parameters: orthonormal bases, scales, offsets, weights, a noise variance that is learnt.

    Args:
        model: the model.
        num_features: D.
    """
    d, k = model.num_latents, model.num_components
    own = num_features * d - d * (d + 1) // 2 + d + (num_features if model.offset else 0)
    return k * own + k - 1 + int(model.family.learns_noise)


def _of_one(model: DEPCAM, x: Any, method: str, seed: int, settings: dict[str, Any]) -> dict[str, float]:
    tree = fit(model, x, method=method, seed=seed, **settings)
    count = num_parameters(model, model.num_features)
    bound = _bound(tree)
    return {
        "bound": bound,
        "num_parameters": count,
        "criterion": bound - 0.5 * count * np.log(len(x)),
        "num_active": int((tree["variational"]["scales"] != 0).sum()),
    }


@double_precision
def _bound(tree: xr.DataTree) -> float:
    """The objective at the estimate without the log prior of the parameters."""
    trace = tree["trace"]["objective"]
    if "restart" in trace.dims:
        trace = trace.isel(restart=tree.attrs["best_restart"])
    stored = {name: jnp.asarray(value.to_numpy()) for name, value in tree["variational"].data_vars.items()}
    return float(trace.dropna("iteration")[-1]) - float(_log_prior(stored, model_of(tree)))


@jax.jit
def _log_prior(values: dict[str, jax.Array], model: DEPCAM) -> jax.Array:
    return log_prior(values, model)


def _candidates(name: str, values: Iterable[int], most: int) -> list[int]:
    numbers = sorted(set(values))
    if not numbers:
        raise ValueError(f"{name} is empty: give at least one candidate")
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int | np.integer) or not 1 <= number <= most:
            raise ValueError(f"{name} must be whole numbers from 1 to {most}; got {number!r}")
    return numbers


def _in_words(pair: tuple[int, int]) -> str:
    return f"{pair[0]} components of {pair[1]} latents"
