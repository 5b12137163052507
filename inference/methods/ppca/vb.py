r"""Variational Bayes for probabilistic PCA and factor analysis: missing cells, automatic relevance.

Morrison's factorisation :math:`q(Z)\, q(W)\, q(\tau)` with the mean in the factor of the loadings, as
Bishop (1999) has it, and with ``loading_prior="ard"`` a precision for each column of loadings, which switches
columns off that the data do not need. Updates and bound are those of `inference.methods.linear_gaussian.vb`,
for Student-t rows with their precisions in the factor of the latents. It needs a proper prior.

The bound of fits with different numbers of latents can be compared; q's variances are too small, as always in
VB. Draws of the posterior are independent draws of q.

Reference: Bishop (1999), "Variational principal components"; Morrison (2016), lecture 29, with its
update of q(tau) corrected; Ilin and Raiko (2010) for missing cells.
"""

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

from inference.algorithm import Algorithm, Ascent, Init, Outcome
from inference.methods.linear_gaussian import em as linear_gaussian_em
from inference.methods.linear_gaussian import vb as linear_gaussian
from inference.methods.linear_gaussian.em import LoadingPrior
from inference.methods.linear_gaussian.rows import CompressedRows, rows_alone
from inference.methods.linear_gaussian.vb import LinearGaussianPosterior, LinearGaussianVBInfo
from inference.methods.ppca import VB
from inference.methods.ppca.em import compressed_rows, degrees_of_rows, dense_rows, groups_of, prior_of
from inference.numerics.compiled import compiled
from inference.numerics.weighted_rows import Rows, unweighted
from inference.precision import to_numpy
from zoo.coordinates import Unit
from zoo.model import in_current_precision
from zoo.ppca import PPCA
from zoo.shapes import Values
from zoo.sppca import SPPCA

DIMS = {
    "loadings_mean": ("feature", "latent"),
    "loadings_covariance": ("feature", "latent", "latent_2"),
    "loadings_loc_covariance": ("feature", "latent"),
    "loc_mean": ("feature",),
    "loc_variance": ("feature",),
    "noise_precision_concentration": (),
    "noise_precision_rate": (),
    "loading_precision_concentration": ("latent",),
    "loading_precision_rate": ("latent",),
    "num_relevant": (),
} | dict.fromkeys(linear_gaussian.OF_ROWS, ("observation",))
SIZE = 8  # latents, or a multiple of it, that steps on few cells take
MOST_CELLS = 2**13  # of the compressed rows
OF_NOISE = ("noise_precision_concentration", "noise_precision_rate")
OF_COLUMNS = (
    "loadings_mean",
    "loadings_covariance",
    "loadings_loc_covariance",
    "loc_mean",
    "loc_variance",
    *OF_NOISE,
)
#: How the moments of loadings and mean follow the data, in the order of `OF_COLUMNS`.
MOMENTS = {
    "loadings_mean": Unit(1, (-2,)),
    "loadings_covariance": Unit(2, (-3,)),
    "loadings_loc_covariance": Unit(2, (-2,)),
    "loc_mean": Unit(1, (-1,), is_location=True),
    "loc_variance": Unit(2, (-1,)),
}


def units(model: PPCA) -> dict[str, Unit]:
    """The moments of q; its noise and loading precisions follow those of the program."""
    sites = model.units
    found = MOMENTS | {"noise_precision_rate": sites["noise_variance"]}
    if "loading_precision" in sites:
        found["loading_precision_rate"] = Unit(-sites["loading_precision"].power)
    return found


def prepare(
    model: PPCA, data: tuple[np.ndarray | Rows], init: Init, **options: object
) -> tuple[np.ndarray | Rows, CompressedRows]:
    """The rows themselves and their compressed form."""
    return data[0], dense_rows(model, data[0], rotate=False)


def init(
    key: Array, model: PPCA, x: Array | Rows, rows: CompressedRows | None = None, *, strategy: str = "pca"
) -> LinearGaussianPosterior:
    """Factors of q around principal components (``"pca"``) or random loadings (``"random"``)."""
    rows = compressed_rows(model, x, rows)
    parameters = linear_gaussian_em.start_of(strategy, key, rows, model.num_latents)
    return linear_gaussian.posterior_at(parameters, rows, prior_of(model, rows))


def start(
    key: Array, variables: Values, model: PPCA, *data: Any, **options: object
) -> LinearGaussianPosterior:
    """A former q, or q around given ``loadings``, ``loc`` and ``noise_variance``; the key is ignored."""
    rows = compressed_rows(model, *data)
    if "loadings_mean" in variables:
        return _from_stored(variables, model, rows)
    linear_gaussian_em.check_given(variables, ("loadings", "loc", "noise_variance"))
    noise = jnp.broadcast_to(variables["noise_variance"], (rows.num_groups,))
    parameters = linear_gaussian_em.given_start(variables["loadings"], variables["loc"], noise, rows)
    return linear_gaussian.posterior_at(parameters, rows, prior_of(model, rows))


def step(
    key: Array,
    state: LinearGaussianPosterior,
    model: PPCA | LoadingPrior,
    x: Array | Rows,
    rows: CompressedRows | None = None,
    *,
    acceleration: str = "px",
) -> tuple[LinearGaussianPosterior, LinearGaussianVBInfo]:
    """Run one round of `inference.methods.linear_gaussian.vb.step`; the key is ignored."""
    if isinstance(model, LoadingPrior):
        prior = model
    else:
        rows = compressed_rows(model, x, rows)
        prior = prior_of(model, rows)
    return linear_gaussian.step(state, rows, prior, acceleration=acceleration)


# Sizes that many share


def in_shared_shapes(model: PPCA, data: tuple) -> tuple[PPCA | LoadingPrior, tuple]:
    """The compressed rows without the table, and where they are few a prior that others share."""
    model, data = rows_alone(model, data)
    if not isinstance(data[-1], CompressedRows) or sum(map(np.size, jax.tree.leaves(data))) > MOST_CELLS:
        return model, data
    present = np.arange(-(-model.num_latents // SIZE) * SIZE) < model.num_latents
    prior, is_ard = prior_of(*to_numpy((model, data[-1]))), model.loading_prior == "ard"
    variance = np.broadcast_to(1.0 if is_ard else prior.loading_variance, prior.loc.shape)
    sized = prior._replace(loading_variance=variance, present=present, is_ard=np.asarray(is_ard))
    return in_current_precision(sized), data


def resized(state: LinearGaussianPosterior, model: PPCA | LoadingPrior) -> LinearGaussianPosterior:
    """The state with as many latents as the model has, those beyond the others without loadings."""
    size = model.present.size if isinstance(model, LoadingPrior) else model.num_latents
    own = min(state.mean.shape[1] - 1, size)

    def of_latents(values: Array, axis: int, is_joint: bool = True) -> Array:
        shape, length = list(values.shape), values.shape[axis]
        shape[axis] = size - own
        more = jax.lax.full(shape, 0.0 if is_joint else 1.0, values.dtype)
        ends = [(0, own), (length - 1, length)][: 1 + is_joint]
        first, *last = (jax.lax.slice_in_dim(values, *end, axis=axis) for end in ends)
        return jax.lax.concatenate([first, more, *last], axis)

    return state._replace(
        mean=of_latents(state.mean, 1),
        covariance=of_latents(of_latents(state.covariance, 1), 2),
        ard_concentration=of_latents(state.ard_concentration, 0, False),
        ard_rate=of_latents(state.ard_rate, 0, False),
    )


ALGORITHM = Algorithm(init, step)


@cache
def build(strategy: str, **options: Any) -> Algorithm:
    """Build the algorithm with a start strategy and options."""
    return Algorithm(partial(init, strategy=strategy), partial(step, **options))


def check(model: PPCA, settings: VB) -> None:
    """Raise ValueError if the prior is not proper."""
    if model.loading_prior == "flat":
        raise ValueError(
            "vb needs a proper prior: give the model loading_prior='ard' or 'gaussian', not 'flat'"
        )


# The posterior in a fit


@partial(compiled, once=True)
def _stored(state: LinearGaussianPosterior, model: PPCA, rows: CompressedRows) -> dict[str, Array]:
    """The parameters of q in their stored form, the mean in the units of the data."""
    covariance = state.covariance[rows.column_class]
    noise = state.noise_concentration, state.noise_rate
    if model.noise == "isotropic":
        noise = noise[0][0], noise[1][0]
    stored = {
        "loadings_mean": state.mean[:, :-1],
        "loadings_covariance": covariance[:, :-1, :-1],
        "loadings_loc_covariance": covariance[:, :-1, -1],
        "loc_mean": state.mean[:, -1] + rows.original_centre,
        "loc_variance": covariance[:, -1, -1],
        "num_relevant": linear_gaussian.num_relevant(state, rows),
    } | dict(zip(OF_NOISE, noise, strict=True))
    if model.loading_prior == "ard":
        stored["loading_precision_concentration"] = state.ard_concentration
        stored["loading_precision_rate"] = state.ard_rate
    return stored


def joint_covariance(stored: Values) -> Array:
    """Covariance of [w, mu] of each column, shape (num_features, num_latents + 1, num_latents + 1)."""
    parts = (stored[name] for name in ("loadings_covariance", "loadings_loc_covariance", "loc_variance"))
    return linear_gaussian_em.bordered(*parts)


def _from_stored(stored: Values, model: PPCA, rows: CompressedRows) -> LinearGaussianPosterior:
    """Restore the state from stored parameters, with one covariance for each class of columns."""
    about = stored["loc_mean"] - rows.centre
    ones = jnp.ones(model.num_latents)
    return LinearGaussianPosterior(
        mean=jnp.concatenate([stored["loadings_mean"], about[:, None]], axis=1),
        covariance=joint_covariance(stored)[rows.class_member],
        noise_concentration=jnp.broadcast_to(stored[OF_NOISE[0]], (rows.num_groups,)),
        noise_rate=jnp.broadcast_to(stored[OF_NOISE[1]], (rows.num_groups,)),
        ard_concentration=stored.get("loading_precision_concentration", ones),
        ard_rate=stored.get("loading_precision_rate", ones),
    )


def latents(stored: Values, model: PPCA | SPPCA, x: Array) -> tuple[Array, ...]:
    """Means and covariances of the latents of rows under q.

    Of Student-t rows those given a precision of 1, and concentrations and rates of the precisions.
    """
    loadings, loc, covariance = stored["loadings_mean"], stored["loc_mean"], joint_covariance(stored)
    columns = (
        loadings,
        loc,
        covariance,
        jnp.broadcast_to(stored[OF_NOISE[0]] / stored[OF_NOISE[1]], loc.shape),
    )
    means, spread = linear_gaussian.latents_of(x, *columns)
    nu = degrees_of_rows(model)
    if nu is None:
        return means, spread
    return means, spread, *linear_gaussian.precisions_of(x, means, *columns, nu)


def expected_variances(of_rows: list[Array]) -> Array | float:
    """E[1/u] of rows with these concentrations and rates, to multiply their matrices; 1 of normal rows."""
    return linear_gaussian.expected_variance(*of_rows)[:, None, None] if of_rows else 1.0


def covariance_of(stored: Values, model: PPCA, x: Array) -> Array:
    """Covariances of the latents of rows under q."""
    _, spread, *of_rows = latents(stored, model, x)
    return spread * expected_variances(of_rows)


def guide(
    stored: Values, model: PPCA, x: Array | None = None, *, num_observations: int | None = None
) -> None:
    """The guide q as a NumPyro program with exactly the sites of ``model.explicit``.

    Args:
        stored: the parameters, as they are stored in a fit.
        model: the model.
        x: the rows whose latents are drawn from q, shape (num_observations, num_features).
        num_observations: without ``x``: draw the latents of so many new rows from their prior.
    """
    stored, model = in_current_precision((dict(stored), model))
    own = [name for name in DIMS if name in stored and name not in ("num_relevant", *linear_gaussian.OF_ROWS)]
    given = {name: numpyro.param(name, stored[name]) for name in own}
    _sample_globals(given, model)
    rows = num_observations if x is None else x.shape[0]
    moments = None if x is None else latents(given, model, x)
    linear_gaussian.sample_latents(rows, model.num_latents, moments, model.degrees_of_freedom)


def _sample_globals(stored: Values, model: PPCA) -> None:
    """Sample everything but the latents from q: the mean, then the loadings given it."""
    if model.loading_prior == "ard":
        names = ("loading_precision_concentration", "loading_precision_rate")
        numpyro.sample("loading_precision", dist.Gamma(*(stored[name] for name in names)).to_event(1))
    linear_gaussian.sample_columns("", *(stored[name] for name in OF_COLUMNS))


def conclude(
    key: Array, state: LinearGaussianPosterior, model: PPCA, data: tuple, *sizes: Any, **options: object
) -> Outcome:
    """Conclude a fit by independent draws of q, its parameters, and the latents of the rows."""
    cells = unweighted(data[0])
    stored = _stored(state, model, compressed_rows(model, *data))
    moments = _latents(stored, model, cells)
    dims = DIMS | (dict.fromkeys(OF_NOISE, ("feature",)) if model.noise == "diagonal" else {})
    shared = model.degrees_of_freedom is None and not np.isnan(np.asarray(cells)).any()
    return linear_gaussian.concluded(key, _sample_globals, model, stored, moments, dims, bool(shared), *sizes)


_latents = compiled(latents, once=True)


# New rows


def transform(stored: Values, model: PPCA, x: Array, *, kind: str = "latent") -> Array:
    """E[z | x] under q, or coordinates of the completed row in an orthonormal basis of the mean loadings."""
    if kind == "latent":
        return latents(stored, model, x)[0]
    left, _, right = jnp.linalg.svd(stored["loadings_mean"], full_matrices=False)
    return (predict(stored, model, x)[0] - stored["loc_mean"]) @ (left @ right)


def predict(stored: Values, model: PPCA | SPPCA, x: Array) -> tuple[Array, Array]:
    """Rows with missing cells replaced by their means under q, and the variance of every cell.

    A noise variance whose q has no mean (a concentration of at most 1) counts as infinite.
    """
    missing = jnp.isnan(x)
    mean, spread, *of_rows = latents(stored, model, x)
    scale = expected_variances(of_rows)
    loadings, covariance = stored["loadings_mean"], joint_covariance(stored)
    filled = jnp.where(missing, stored["loc_mean"] + mean @ loadings.T, x)
    concentration, rate = (jnp.broadcast_to(stored[name], stored["loc_mean"].shape) for name in OF_NOISE)
    noise = linear_gaussian.expected_variance(concentration, rate)
    k = loadings.shape[1]
    outer = loadings[:, :, None] * loadings[:, None, :] + covariance[:, :k, :k]
    extended = jnp.concatenate([mean, jnp.ones((mean.shape[0], 1))], axis=1)
    second = extended[:, :, None] * extended[:, None, :]
    variance = jnp.einsum("nij,dij->nd", spread * scale, outer)
    variance += jnp.einsum("nij,dij->nd", second, covariance)
    variance += noise * jnp.reshape(scale, (-1, 1))
    return filled, jnp.where(missing, variance, 0.0)


def log_density(stored: Values, model: PPCA, x: Array) -> Array:
    """Log of the expectation of each row's density under q, see `inference.methods.linear_gaussian.vb`."""
    group = groups_of(model, x.shape[1])
    shape, rate = (jnp.broadcast_to(stored[name], (int(group.max()) + 1,)) for name in OF_NOISE)
    loadings, loc, covariance = stored["loadings_mean"], stored["loc_mean"], joint_covariance(stored)
    if model.degrees_of_freedom is None:
        return linear_gaussian.log_predictive(x, loadings, loc, covariance, shape, rate, group)
    nu = model.degrees_of_freedom
    return linear_gaussian.log_predictive_of_student(x, loadings, loc, covariance, shape, rate, group, nu)


METHOD = Ascent(
    settings=VB,
    strategies=("pca", "random"),
    takes=frozenset({"weights", "batches", "moments"}),
    build=build,
    start=start,
    conclude=conclude,
    guide=guide,
    transform=transform,
    covariance=covariance_of,
    predict=predict,
    log_density=log_density,
    units=units,
    trace_units={"noise_variance": Unit(2)},
    prepare=prepare,
    for_steps=in_shared_shapes,
    resized=resized,
    check=check,
)
