r"""Expectation maximisation for SPPCA and S2PPCA (Algorithms 7.1 and 7.2): missing outputs are missing cells.

The joint matrix [x, y] has the noise groups x and y (or x and one an output) and NaN wherever a cell is
missing; the sweep is that of `inference.methods.linear_gaussian.em`: posterior moments of z given what is
observed of a row (7.5), (7.6), (7.11), (7.12), then every column regressed on [z, 1] over the rows where it
is observed (7.13)-(7.16). (7.12) lacks the factor :math:`\sigma_x^2` in print; without it the likelihood
falls.

``model.center="joint"`` estimates both means with the loadings. With unlabelled rows the mean of the labelled
outputs, which the text plugs in (7.7), is not the maximum: those rows' latents need not have mean zero.

Options: ``acceleration="px"`` (parameter expansion, the default: tens of sweeps where the text's plain EM,
``"none"``, takes hundreds). Starts: ``"pca"``, principal
components of x (the first sweep regresses y on the scores), or ``"random"``. With a Gaussian prior of the
loadings the objective is the log posterior. With a kernel the same name runs
`inference.methods.sppca.kernel_em`. Sparse inputs stay sparse:
`inference.methods.linear_gaussian.sparse_em`, whose sweeps run on the host. The trace has the noise variance
of x.

With unlabelled rows there are local maxima, where a latent serves the labelled outputs alone and its loadings
there are huge: of four random starts for each of eight draws of the toy one ended there, 342 nats below, with
either acceleration, and of the starts by components none.

When to use what: this for point estimates at any size and with any holes; ``closed_form`` where every row is
labelled and there are few columns; NUTS where the spread of the parameters matters, as with few labels.

Reference: Yu et al. (2006), section 4; Yu (2006), section 7.2, corrected as above.
"""

from functools import cache, partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from inference.algorithm import Algorithm, Ascent, Init, Outcome
from inference.methods.linear_gaussian import em as linear_gaussian
from inference.methods.linear_gaussian import rows as linear_gaussian_rows
from inference.methods.linear_gaussian import sparse_em as sparse_linear_gaussian
from inference.methods.linear_gaussian.em import (
    LinearGaussianInfo,
    LoadingPrior,
    Parameters,
)
from inference.methods.linear_gaussian.rows import CompressedRows, SparseRows
from inference.methods.sppca import EM
from inference.methods.sppca import kernel_em as kernel_sppca
from inference.methods.sppca.closed_form import by_site, concluded, log_density
from inference.precision import to_numpy
from zoo.coordinates import Unit
from zoo.linear_gaussian.supervised import block_prior, joint
from zoo.shapes import Values
from zoo.sparse import SparseMatrix
from zoo.sppca import SPPCA

GIVEN = ("loadings_x", "loadings_y", "loc_x", "loc_y", "noise_variance_x", "noise_variance_y")


def noise_groups(model: SPPCA) -> np.ndarray:
    """The noise group of each column of [x, y]: 0 for x, then 1 for all outputs or 1, 2, ... for each."""
    per_output = model.output_noise == "per_output"
    outputs = np.arange(model.num_outputs) + 1 if per_output else np.ones(model.num_outputs, int)
    return np.concatenate([np.zeros(model.num_features, int), outputs])


def prepare(model: SPPCA, data: tuple, init: Init, **options: object) -> tuple:
    """The data and the compressed joint matrix, or with a kernel the Gram matrix and the outputs."""
    if model.kernel is not None:
        return kernel_sppca.prepare(model, data)
    if isinstance(data[0], SparseMatrix):
        x, y = data
        return x, y, linear_gaussian_rows.sparse_rows(x, y, noise_groups(model))
    rotate, joint = model.loading_prior == "flat", joint_matrix(data)
    return (*data, linear_gaussian_rows.compress(joint, noise_groups(model), rotate=rotate))


def joint_matrix(data: tuple) -> np.ndarray:
    """Inputs and outputs side by side."""
    return np.concatenate(data, axis=1)


def init(key: Array, model: SPPCA, *data: Any, strategy: str = "pca") -> Any:
    """The state at principal components (``"pca"``) or at random loadings (``"random"``)."""
    if model.kernel is not None:
        return kernel_sppca.init(key, model, *data, strategy=strategy)
    rows = data[-1]
    parameters = sparse_linear_gaussian.first_parameters(strategy, key, rows, model.num_latents, (0,))
    noise = _given_noise(model, rows)
    if noise is not None:
        noise = jnp.where(jnp.isnan(noise), parameters.noise_variance, noise)
        parameters = parameters._replace(noise_variance=noise)
    return sparse_linear_gaussian.begin_with(parameters, rows, prior_of(model, rows))


def start(key: Array, variables: Values, model: SPPCA, *data: Any, acceleration: str) -> Any:
    """The state at given loadings, means and noise variances."""
    if model.kernel is not None:
        return kernel_sppca.start(key, variables, model, *data)
    rows = data[-1]
    parameters = given_parameters(variables, model, rows)
    return sparse_linear_gaussian.begin_with(parameters, rows, prior_of(model, rows))


def given_parameters(variables: Values, model: SPPCA, rows: CompressedRows | SparseRows) -> Parameters:
    """Convert given values of all sites to parameters of the rows.

    Raises:
        ValueError: a site is missing.
    """
    linear_gaussian.check_given(variables, GIVEN)
    loadings, loc, _ = joint(model, variables)
    noise_y = jnp.atleast_1d(jnp.asarray(variables["noise_variance_y"]))
    noise = jnp.concatenate([jnp.reshape(variables["noise_variance_x"], 1), noise_y])
    return linear_gaussian.given_start(loadings, loc, noise, rows)


def step(
    key: Array, state: Any, model: SPPCA, *data: Any, acceleration: str = "px"
) -> tuple[Any, LinearGaussianInfo]:
    """Run one sweep; the key is ignored."""
    if model.kernel is not None:
        return kernel_sppca.step(key, state, model, *data, acceleration=acceleration)
    rows, floor = data[-1], model.noise_floor
    if not isinstance(rows, SparseRows):  # whose sweeps are not compiled as a whole
        floor = jnp.asarray(floor)
    state, info = sparse_linear_gaussian.sweep(
        state,
        rows,
        prior_of(model, rows),
        acceleration=acceleration,
        center=model.center,
        floor=floor[np.minimum(np.arange(rows.num_groups), 1)],
        fixed_noise=_given_noise(model, rows),
    )
    return state, info._replace(noise_variance=state.parameters.noise_variance[0])


ALGORITHM = Algorithm(init, step, settling_steps=linear_gaussian.settling_steps)


@cache
def build(strategy: str, **options: Any) -> Algorithm:
    """Build the algorithm with a start strategy and options."""
    begin, once = partial(init, strategy=strategy), partial(step, **options)
    return ALGORITHM._replace(init=begin, step=once)


def check(model: SPPCA, settings: EM) -> None:
    """Raise ValueError if the settings do not go with the model."""
    if model.loading_prior != "flat" and model.center == "plugin":
        raise ValueError("center='plugin' is the mean of the observed cells and has no prior: use 'joint'")


def _given_noise(model: SPPCA, rows: CompressedRows | SparseRows) -> Array | None:
    """The known noise variances, NaN where they are estimated; None if all are estimated."""
    if model.noise_variance_x is None:
        return None
    return jnp.full(rows.num_groups, jnp.nan).at[0].set(model.noise_variance_x)


def prior_of(model: SPPCA, rows: CompressedRows | SparseRows) -> LoadingPrior | None:
    """The proper prior of loadings, means and noise about the data's centre; None if it is flat."""
    return prior_about(model, rows.original_centre)


def prior_about(model: SPPCA, centre: Array | float) -> LoadingPrior | None:
    """The prior of `prior_of` with its means about ``centre``, of every column of [x, y]."""
    if model.loading_prior == "flat":
        return None
    sizes, priors = (model.num_features, model.num_outputs), [block_prior(model, block) for block in "xy"]

    def of_columns(name: str) -> Array:
        own = (jnp.broadcast_to(getattr(p, name), size) for p, size in zip(priors, sizes, strict=True))
        return jnp.concatenate(list(own))

    num_noises = model.num_outputs if model.output_noise == "per_output" else 1
    rates = jnp.atleast_1d(priors[0].noise_rate), jnp.broadcast_to(priors[1].noise_rate, (num_noises,))
    return LoadingPrior(
        loading_variance=of_columns("loading_variance"),
        ard_concentration=jnp.ones(()),
        ard_rate=jnp.ones(()),
        loc=of_columns("loc_mean") - centre,
        loc_variance=of_columns("loc_variance"),
        noise_concentration=priors[0].noise_concentration,
        noise_rate=jnp.concatenate(rates),
    )


def conclude(key: Array, state: Any, model: SPPCA, data: tuple, *sizes: object, **options: object) -> Outcome:
    """Conclude with the estimate and the posterior of the latents."""
    if model.kernel is not None:
        return kernel_sppca.conclude(key, state, model, data)
    rows, latents, variance_x = data[-1], None, None
    parameters = to_numpy(state.parameters)
    loadings, loc = linear_gaussian_rows.expanded(parameters.loadings, parameters.loc, rows)
    noise = parameters.noise_variance
    noise_y = noise[1:] if model.output_noise == "per_output" else noise[1]
    values = by_site(loadings, loc, model) | {"noise_variance_x": noise[0], "noise_variance_y": noise_y}
    if isinstance(rows, SparseRows):
        latents = np.asarray(state.moments.latents)
        variance_x = float(rows.group_variance[0])
    return concluded(values, model, data[:2], latents=latents, variance_x=variance_x)


METHOD = Ascent(
    settings=EM,
    strategies=("pca", "random"),
    takes=frozenset({"sparse"}),
    build=build,
    start=start,
    conclude=conclude,
    log_density=log_density,
    trace_units={"noise_variance": Unit(2)},
    check=check,
    otherwise=lambda model, data, is_refused: "ep" if model.output_likelihood == "probit" else "",
    prepare=prepare,
    for_steps=linear_gaussian_rows.rows_alone,
    runs_on_host=linear_gaussian_rows.runs_on_host,
)
