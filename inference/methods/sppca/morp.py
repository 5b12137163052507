r"""Methods of SPPCA that are projections: multi-output regularised projection (MORP) and kernel CCA.

MORP
----
One eigenvalue problem (`inference.methods.sppca.projections`) finds scores that explain inputs and outputs at
once, a point estimate that is not generative. The output matrix is :math:`\bar K = (1 - \sum_s \beta_s) G_x +
\sum_s \beta_s G_{y_s}`.

Options of ``fit(zoo.SPPCA(num_latents=K), x, y, method="morp", ...)``:

* ``weight`` beta in [0, 1], or one each for several output sets, with a sum of at most 1. 0 is PCA.
* ``ridge`` gamma >= 0, in units of the eigenvalues of :math:`X^T X`.
* ``form``: ``"primal"`` (linear, weights of columns), ``"dual"`` (the same problem with coefficients of rows;
  any kernel of the model) or ``"simplified"`` (Algorithm 6.3, no ridge; another answer where the centred Gram
  matrix has not rank N - 1); ``"auto"``: primal, or dual with a kernel.
* ``output_kernel``: ``"linear"``, ``"rbf"`` or ``"polynomial"``, or one each.
* ``output_sets``: columns of y by set, as a tuple of tuples; None: one set of all.
* ``balance``: whether every output matrix is scaled to the trace of that of the inputs.

Class labels become columns, see `zoo.linear_gaussian.class_labels`. The objective is the sum of the leading
eigenvalues, not in nats.

Reference: Yu (2006), sections 6.1 and 6.2; problem (6.5) in place of Algorithms 6.1 and 6.2, whose turned
problem (6.6) is PCA for the linear kernel.

Kernel CCA
----------
Scores of x that correlate most with a direction of y: a point estimate and not generative. Options of
``fit(zoo.SPPCA(num_latents=K), x, y, method="kernel_cca", ...)``: ``ridge``, relative to the mean positive
eigenvalue of each Gram matrix, above 0 (at 0 any two full-rank Gram matrices correlate perfectly), and
``output_kernel`` as for MORP. The kernel of x is the model's, linear without one. The objective is the sum of
the regularised canonical correlations; the number of correlations is at most the rank of the outputs.

Reference: Yu (2006), sections 6.2 and 6.3.3; Hardoon, Szedmak and Shawe-Taylor (2004), "Canonical correlation
analysis: an overview with application to learning methods".
"""

from dataclasses import replace
from typing import Any

import numpy as np
from jax import Array

from inference.algorithm import Direct, Outcome, accept
from inference.methods.sppca import MORP, KernelCCA, projections
from zoo.checks import check_complete, shown
from zoo.sppca import SPPCA

REMEDY = "fit the labelled rows, or use method='em'"


def solve(
    key: Array,
    model: SPPCA,
    data: tuple,
    *,
    weight: Any,
    ridge: float,
    form: str,
    output_kernel: Any,
    output_sets: Any,
    balance: bool,
) -> tuple[Outcome, float]:
    """The projection and the sum of its eigenvalues; the key is ignored.

    Raises:
        ValueError: weights or kernels that are not one for each set of outputs.
    """
    x, y = data
    check_complete("morp", REMEDY, x=x, y=y)
    sets = _sets(output_sets, y.shape[1])
    weights = np.atleast_1d(np.asarray(weight, np.float64))
    if weights.size != len(sets):
        raise ValueError(
            f"weight must be one number for each of the {len(sets)} output sets; got {shown(weight)}"
        )
    kernels = (output_kernel,) * len(sets) if isinstance(output_kernel, str) else tuple(output_kernel)
    if len(kernels) != len(sets):
        raise ValueError(f"output_kernel must be one name for each of the {len(sets)} output sets")
    outputs = tuple(
        projections.centred_gram(kernel, y[:, list(own)]).matrix
        for own, kernel in zip(sets, kernels, strict=True)
    )
    own = projections.centred_gram(model.kernel or "linear", x)
    blend = projections.blended_gram(own.matrix, outputs, weights, balance)
    rounding = own.rounding if own.factor is None else own.column_rounding
    if form == "primal" or (form == "auto" and model.kernel is None):
        primal = projections.morp_primal(own.factor, blend, model.num_latents, ridge, rounding)
        return projections.stored(primal, model, x), float(primal.eigenvalues.sum())
    if form != "simplified":
        found = projections.morp_dual(own.matrix, blend, model.num_latents, ridge, rounding, own.factor)
    else:
        found = projections.morp_simplified(own.matrix, blend, model.num_latents, rounding, own.factor)
    return projections.stored(found, model, x, own), float(found.eigenvalues.sum())


def check(model: SPPCA, settings: MORP) -> None:
    """Raise ValueError if a setting does not go with the model."""
    if settings.form == "primal" and model.kernel is not None:
        raise ValueError("form='primal' has weights of columns; with a kernel use form='dual'")
    if settings.output_sets is not None:
        _sets(settings.output_sets, model.num_outputs)


def _sets(output_sets: Any, num_outputs: int) -> tuple[tuple[int, ...], ...]:
    """The columns of each set of outputs, no column in two.

    Raises:
        ValueError: not sets of columns.
    """
    if output_sets is None:
        return (tuple(range(num_outputs)),)
    nested = isinstance(output_sets, tuple) and all(isinstance(own, tuple) for own in output_sets)
    sets = output_sets if nested else ()
    columns = [column for own in sets for column in own]
    whole = all(isinstance(column, int) and not isinstance(column, bool) for column in columns)
    if (
        not sets
        or not all(sets)
        or not whole
        or len(set(columns)) < len(columns)
        or not set(columns) <= set(range(num_outputs))
    ):
        raise ValueError(
            f"output_sets must be tuples of columns 0 to {num_outputs - 1}, each in one set; "
            f"got {shown(output_sets)}"
        )
    return sets


_MORP = Direct(
    settings=MORP,
    solve=solve,
    is_double=True,
    has_unit=True,
    check=check,
    transform=projections.transform,
    covariance=projections.not_generative,
    predict=projections.not_generative,
    log_density=projections.not_generative,
)


def solve_kernel_cca(
    key: Array, model: SPPCA, data: tuple, *, ridge: float, output_kernel: str
) -> tuple[Outcome, float]:
    """The projection and the sum of its correlations; the key is ignored.

    Raises:
        ValueError: more directions than the outputs have rank.
    """
    x, y = data
    check_complete("kernel_cca", REMEDY, x=x, y=y)
    own = projections.centred_gram(model.kernel or "linear", x)
    outputs = projections.centred_gram(output_kernel, y)
    rank = projections.rank_of(outputs)
    if model.num_latents > rank:
        raise ValueError(
            f"kernel_cca has as many directions as the outputs have rank, {rank}; num_latents is "
            f"{model.num_latents}"
        )
    rounding = own.rounding, outputs.rounding
    found = projections.kernel_cca(own.matrix, outputs.matrix, model.num_latents, ridge, rounding)
    return projections.stored(found, model, x, own), float(found.eigenvalues.sum())


METHODS = {
    "morp": _MORP,
    "kernel_cca": replace(_MORP, settings=KernelCCA, solve=solve_kernel_cca, check=accept),
}
