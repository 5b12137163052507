r"""Variational Bayes for SPPCA and S2PPCA: posteriors of loadings, means and noise, any cell missing.

The factorisation :math:`q(Z)\, q(W_x, \mu_x)\, q(W_y, \mu_y)\, q(\tau)` of a linear-Gaussian model whose
joint matrix [x, y] has a noise for x and one for all outputs or each; updates and bound are those of
`inference.methods.linear_gaussian.vb`, with NaN in y for unlabelled rows. It needs the proper prior,
``loading_prior="gaussian"``, and no kernel. The thesis only remarks that a prior of the loadings is possible
(section 7.3.3).

The objective is the whole evidence lower bound in nats; fits with different numbers of latents can be
compared by it. q's variances are too small, as always in VB; draws are independent draws of q. Class
probabilities of new rows are those at q's means.

When to use what: VB for a quick posterior and for choosing the number of latents; NUTS where the spread has
to be right.
"""

from functools import cache, partial
from typing import Any

import jax.numpy as jnp
import numpyro
from jax import Array

from inference.algorithm import Algorithm, Ascent, Init, Outcome
from inference.methods.linear_gaussian import em as linear_gaussian_em
from inference.methods.linear_gaussian import vb as linear_gaussian
from inference.methods.linear_gaussian.rows import CompressedRows, compress, rows_alone
from inference.methods.linear_gaussian.vb import LinearGaussianPosterior, LinearGaussianVBInfo
from inference.methods.ppca import vb as ppca
from inference.methods.sppca import VB
from inference.methods.sppca.em import given_parameters, joint_matrix, noise_groups, prior_of
from inference.numerics.compiled import compiled
from zoo.coordinates import Unit
from zoo.model import in_current_precision
from zoo.shapes import Values
from zoo.sppca import SPPCA

PARTS = {
    "loadings_{}_mean": ("{}", "latent"),
    "loadings_{}_covariance": ("{}", "latent", "latent_2"),
    "loadings_loc_{}_covariance": ("{}", "latent"),
    "loc_{}_mean": ("{}",),
    "loc_{}_variance": ("{}",),
    "noise_precision_{}_concentration": (),
    "noise_precision_{}_rate": (),
}
BLOCKS = {"x": "feature", "y": "output"}


def units(model: SPPCA) -> dict[str, Unit]:
    """The moments of q of both blocks; its noise precisions follow those of the program."""
    found: dict[str, Unit] = {}
    for number, block in enumerate(BLOCKS):
        moments = zip(PARTS, ppca.MOMENTS.values(), strict=False)
        found |= {part.format(block): own._replace(part=number) for part, own in moments}
        noise = model.units.get(f"noise_variance_{block}")
        found |= {} if noise is None else {f"noise_precision_{block}_rate": noise}
    return found


def prepare(model: SPPCA, data: tuple, init: Init, **options: object) -> tuple:
    """The data themselves and the compressed joint matrix."""
    return (*data, compress(joint_matrix(data), noise_groups(model), rotate=False))


def init(
    key: Array, model: SPPCA, x: Array, y: Array, rows: CompressedRows, *, strategy: str = "pca"
) -> LinearGaussianPosterior:
    """Factors of q around principal components of x, with loadings of zero for y, or at random loadings."""
    parameters = linear_gaussian_em.start_of(strategy, key, rows, model.num_latents, primary=(0,))
    return linear_gaussian.posterior_at(parameters, rows, prior_of(model, rows))


def start(
    key: Array, variables: Values, model: SPPCA, *data: Any, **options: object
) -> LinearGaussianPosterior:
    """Factors of q around given loadings, means and noise variances, or around the means of a former q."""
    values = means_of(variables) if "loadings_x_mean" in variables else variables
    rows = data[-1]
    return linear_gaussian.posterior_at(given_parameters(values, model, rows), rows, prior_of(model, rows))


def step(
    key: Array,
    state: LinearGaussianPosterior,
    model: SPPCA,
    x: Array,
    y: Array,
    rows: CompressedRows,
    *,
    acceleration: str = "px",
) -> tuple[LinearGaussianPosterior, LinearGaussianVBInfo]:
    """Run one round of updates; the key is ignored. The trace has the noise variance of x."""
    state, info = linear_gaussian.step(state, rows, prior_of(model, rows), acceleration=acceleration)
    return state, info._replace(noise_variance=state.noise_rate[0] / state.noise_concentration[0])


ALGORITHM = Algorithm(init, step)


@cache
def build(strategy: str, **options: Any) -> Algorithm:
    """Build the algorithm with a start strategy and options."""
    return Algorithm(partial(init, strategy=strategy), partial(step, **options))


def check(model: SPPCA, settings: VB) -> None:
    """Raise ValueError if the prior is improper or q does not suit the model."""
    if model.kernel is not None:
        raise ValueError("vb is for the primal model: with a kernel use method='em'")
    if model.loading_prior == "flat":
        raise ValueError("vb needs a proper prior: give the model loading_prior='gaussian'")
    if model.center != "joint" or model.noise_variance_x is not None:
        raise ValueError(
            "vb estimates means and noise with the loadings: center='joint', no noise_variance_x"
        )


# The posterior in a fit


def _stored(state: LinearGaussianPosterior, model: SPPCA, rows: CompressedRows) -> dict[str, Array]:
    """The parameters of q in their stored form by block, the means in the units of the data."""
    covariance, m = state.covariance[rows.column_class], model.num_features
    per_output = model.output_noise == "per_output"
    stored = {"num_relevant": linear_gaussian.num_relevant(state, rows)}
    for block, own in (("x", slice(0, m)), ("y", slice(m, None))):
        which = 0 if block == "x" else slice(1, None) if per_output else 1
        values = (
            state.mean[own, :-1],
            covariance[own, :-1, :-1],
            covariance[own, :-1, -1],
            state.mean[own, -1] + rows.original_centre[own],
            covariance[own, -1, -1],
            state.noise_concentration[which],
            state.noise_rate[which],
        )
        stored |= {part.format(block): value for part, value in zip(PARTS, values, strict=True)}
    return stored


def _joined(stored: Values) -> dict[str, Array]:
    """The parameters of q of the joint matrix, with noise by column."""

    def of_columns(part: str, block: str) -> Array:
        value, size = stored[part.format(block)], len(stored[f"loc_{block}_mean"])
        return jnp.broadcast_to(value, (size, *value.shape[1:]))

    return {
        name: jnp.concatenate([of_columns(part, block) for block in BLOCKS])
        for part, name in zip(PARTS, ppca.OF_COLUMNS, strict=True)
    }


def means_of(stored: Values) -> dict[str, Array]:
    """The means of loadings and means under q, and noise variances at one over their mean precision."""
    values: dict[str, Any] = {}
    for block in BLOCKS:
        values |= {f"{name}_{block}": stored[f"{name}_{block}_mean"] for name in ("loadings", "loc")}
        concentration, rate = (stored[f"noise_precision_{block}_{end}"] for end in ("concentration", "rate"))
        values[f"noise_variance_{block}"] = rate / concentration
    return values


def _rows(model: SPPCA, x: Array, y: Array | None) -> Array:
    return jnp.concatenate(
        [x, jnp.full((x.shape[0], model.num_outputs), jnp.nan) if y is None else y], axis=1
    )


def latents(stored: Values, model: SPPCA, x: Array, y: Array | None) -> tuple[Array, Array]:
    """Means and covariances of the latents of rows under q."""
    return ppca.latents(_joined(stored), model, _rows(model, x, y))


def guide(
    stored: Values,
    model: SPPCA,
    x: Array | None = None,
    y: Array | None = None,
    *,
    num_observations: int | None = None,
) -> None:
    """The guide q as a NumPyro program with exactly the sites of ``model.explicit``.

    Args:
        stored: the parameters, as they are stored in a fit.
        model: the model.
        x: inputs of the rows whose latents are drawn from q.
        y: their outputs.
        num_observations: without ``x``: draw the latents of so many new rows from their prior.
    """
    stored, model = in_current_precision((dict(stored), model))
    names = [part.format(block) for part in PARTS for block in BLOCKS]
    given = {name: numpyro.param(name, stored[name]) for name in names}
    _sample_globals(given, model)
    rows = num_observations if x is None else len(x)
    linear_gaussian.sample_latents(
        rows, model.num_latents, None if x is None else latents(given, model, x, y)
    )


def _sample_globals(stored: Values, model: SPPCA) -> None:
    """Sample everything but the latents from q: the means, then the loadings given them."""
    for block in BLOCKS:
        linear_gaussian.sample_columns(f"_{block}", *(stored[part.format(block)] for part in PARTS))


def conclude(
    key: Array, state: LinearGaussianPosterior, model: SPPCA, data: tuple, *sizes: Any, **options: object
) -> Outcome:
    """Conclude a fit by independent draws of q, its parameters, and the latents of the rows."""
    stored, moments = _concluded(state, model, *data)
    dims = {"num_relevant": ()} | {
        part.format(block): tuple(name.format(dim) for name in names)
        for part, names in PARTS.items()
        for block, dim in BLOCKS.items()
    }
    if model.output_noise == "per_output":
        dims |= {f"noise_precision_y_{end}": ("output",) for end in ("concentration", "rate")}
    return linear_gaussian.concluded(key, _sample_globals, model, stored, moments, dims, False, *sizes)


@partial(compiled, once=True)
def _concluded(
    state: LinearGaussianPosterior, model: SPPCA, x: Array, y: Array, rows: CompressedRows
) -> tuple[dict[str, Array], tuple[Array, Array]]:
    stored = _stored(state, model, rows)
    return stored, latents(stored, model, x, y)


# New rows


def transform(
    stored: Values, model: SPPCA, x: Array, y: Array | None = None, *, kind: str = "latent"
) -> Array:
    """E[z | x] or E[z | x, y] under q, or coordinates in an orthonormal basis of the mean loadings."""
    if kind == "latent":
        return latents(stored, model, x, y)[0]
    return model.scores(means_of(stored), x, y, kind=kind)


def predict(
    stored: Values, model: SPPCA, x: Array, y: Array | None = None, *, what: str = "outputs"
) -> tuple[Array, Array]:
    """Means and variances of outputs or cells under q, or class probabilities at its means."""
    if what == "classes":
        return model.predicted(means_of(stored), x, y, what=what)
    mean, variance = ppca.predict(_joined(stored), model, _rows(model, x, y))
    own = slice(0, model.num_features) if what == "cells" else slice(model.num_features, None)
    return mean[:, own], variance[:, own]


def log_density(stored: Values, model: SPPCA, x: Array, y: Array | None = None) -> Array:
    """Log of the expectation under q of p(x), or p(x, y), see `inference.methods.linear_gaussian.vb`."""
    joined = _joined(stored)
    shape, rate = (
        jnp.concatenate([jnp.atleast_1d(stored[f"noise_precision_{block}_{end}"]) for block in BLOCKS])
        for end in ("concentration", "rate")
    )
    loadings, loc, covariance = joined["loadings_mean"], joined["loc_mean"], ppca.joint_covariance(joined)
    rows, group = _rows(model, x, y), noise_groups(model)
    return linear_gaussian.log_predictive(rows, loadings, loc, covariance, shape, rate, group)


METHOD = Ascent(
    settings=VB,
    strategies=("pca", "random"),
    build=build,
    start=start,
    conclude=conclude,
    guide=guide,
    transform=transform,
    covariance=lambda stored, model, x, y=None: latents(stored, model, x, y)[1],
    predict=predict,
    log_density=log_density,
    units=units,
    trace_units={"noise_variance": Unit(2)},
    prepare=prepare,
    for_steps=rows_alone,
    check=check,
)
