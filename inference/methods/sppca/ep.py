r"""EM with expectation propagation for SPPCA with probit outputs, which the papers propose as future work.

With the utilities u of the outputs as further latent variables everything but the cut :math:`d = T u > 0`
(`zoo.linear_gaussian.probit`) is linear-Gaussian:

* E-step, row by row: z given x is N(m, S), so d is Gaussian; expectation propagation (see below) computes its
  mean and covariance after the cut, and with them, because z and u given d are linear in it, the moments of z
  and u. Unlabelled rows have nothing to cut.
* M-step: each column of x and of u regressed on [z, 1] over the rows where it is observed; the noise of x its
  mean squared residual; that of u is 1.
* Expansion (``acceleration="px"``): the latents' found moments are taken into the loadings, as in
  `inference.methods.linear_gaussian.em`.

The objective is :math:`\sum_n \log p(x_n) + \log Z_n` (plus the log prior with ``loading_prior="gaussian"``),
Z the normalising constant of expectation propagation. With a single binary output, or two classes, it is the
log likelihood and the method exact EM; with more it approximates it (``log_density`` and class probabilities
of the fit are integrated afresh, see `zoo.linear_gaussian.probit`), and since the approximation is no
bound, a step that would lower it is shortened until it does not.

With ``loading_prior="flat"`` the likelihood has no maximum where a hyperplane of the latents separates the
outputs: the loadings then grow slowly for ever, which is warned of; the Gaussian prior cures it. An output
has probability :math:`\Phi\{(w^T m + \mu) / (1 + w^T S w)^{1/2}\}` given x, above one half exactly if m lies
on its side of the hyperplane. If every labelled row has more than that, w and mu times any c > 1 raise all of
these: no such point is a maximum. If there is a maximum, some row has less.

A step costs O(N (D K^2 + J^3)), J the number of outputs. Gibbs and NUTS give the spread of the parameters.

**With a kernel** the loadings of x are :math:`\Phi^T B`. z given x is N(m, S) in feature space too, and the
outputs meet x through z alone, so the E-step stays; the M-step of B and of the noise of x is that of
`inference.methods.sppca.kernel_em` at the moments found here. The plain step holds the mean in feature space
at that of the rows. A step costs O(N^2 K + N J^3). With the linear kernel the fit is that without a kernel.

References: Minka (2001), "Expectation propagation for approximate Bayesian inference"; Albert and Chib
(1993); Yu et al. (2006), section 7 (future work).

Expectation propagation
-----------------------
In the E-step, of d ~ N(mu, Sigma) given d > 0 every half line is replaced by a Gaussian site
:math:`\exp(\nu_j d - \tau_j d^2 / 2)`, so chosen that the approximation has, in entry j, the moments of the
cavity times the half line, which are in closed form. With one entry the result is exact, normalising constant
and moments; with more it is an approximation and no bound in either direction, least accurate where the
entries are strongly correlated. The derivative of its log normalising constant with respect to mu and Sigma
is exactly that of its moments, so a fixed point of the EM that uses them is a stationary point of the
objective.

References: Minka (2001), "Expectation propagation for approximate Bayesian inference"; Rasmussen and Williams
(2006), "Gaussian processes for machine learning", section 3.6.
"""

from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import cho_solve

from inference.algorithm import Algorithm, Ascent, Init, Outcome
from inference.methods.linear_gaussian import em as linear_gaussian
from inference.methods.linear_gaussian.em import LoadingPrior, Parameters
from inference.methods.linear_gaussian.rows import CompressedRows, compress
from inference.methods.sppca import EP
from inference.methods.sppca import kernel_em as kernel_sppca
from inference.methods.sppca.closed_form import by_site, concluded, log_density
from inference.methods.sppca.em import prior_about
from inference.methods.sppca.kernel_em import FeatureData
from zoo.checks import warn
from zoo.coordinates import Unit
from zoo.in_blocks import map_in_blocks
from zoo.kernels.gram import feature_rows
from zoo.linear_gaussian import log_density as linear_gaussian_log_density
from zoo.linear_gaussian.probit import Orthant, decisions, positive_normal_moments
from zoo.linear_gaussian.supervised import joint
from zoo.shapes import Values
from zoo.sppca import SPPCA

MOST_TRIALS = 10
BLOCK_ROWS = 256
CERTAINTY = 0.5  # of every row's outputs: all on their side of the hyperplanes, see above


class RowMoments(NamedTuple):
    """Posterior moments of the latents and utilities of each row.

    Attributes:
        mean: E[z], shape (N, K).
        covariance: Cov[z], shape (N, K, K).
        utilities: E[u], shape (N, L).
        cross: Cov[u, z], shape (N, L, K).
        log_evidence: of the observed outputs given x, nats, shape (N,).
    """

    mean: Array
    covariance: Array
    utilities: Array
    cross: Array
    log_evidence: Array


class FeatureParameters(NamedTuple):
    """The estimate where x is known by a kernel.

    Attributes:
        coefficients: B, shape (num_observations, num_latents).
        loadings: of the utilities, shape (num_outputs, num_latents).
        loc: of the utilities, shape (num_outputs,).
        noise_variance: of x, shape (1,).
    """

    coefficients: Array
    loadings: Array
    loc: Array
    noise_variance: Array


class EPState(NamedTuple):
    """The estimate and the results of its E-step.

    Attributes:
        parameters: loadings and means of [x, u], and the noise variance of x, shape (1,); or
            `FeatureParameters`.
        moments: at these parameters.
        objective: at these parameters, nats.
        at_floor: whether the noise floor holds.
    """

    parameters: Parameters | FeatureParameters
    moments: RowMoments
    objective: Array
    at_floor: Array


class EPInfo(NamedTuple):
    """Quantities recorded at each step.

    Attributes:
        objective: log likelihood as expectation propagation has it (plus log prior), nats.
        noise_variance_x: variance of the noise of x.
        num_trials: proposals that were tried until one did not lower the objective.
    """

    objective: Array
    noise_variance_x: Array
    num_trials: Array


def prepare(model: SPPCA, data: tuple, init: Init, **options: object) -> tuple:
    """The data and, for the start, the compressed matrix [x, 2 y - 1]; or the Gram matrix and the outputs."""
    x, y = data
    if model.kernel is not None:
        return *kernel_sppca.prepare(model, data), y
    groups = np.concatenate([np.zeros(x.shape[1], int), np.ones(y.shape[1], int)])
    return x, y, compress(np.concatenate([x, 2 * y - 1], axis=1), groups, rotate=False)


def init(key: Array, model: SPPCA, *data: Any, strategy: str = "pca") -> EPState:
    """The state at principal components of x, with loadings of zero for y, or at random loadings."""
    if model.kernel is not None:
        features, y = data
        coefficients, noise = kernel_sppca.first_coefficients(key, model, features, strategy)
        outputs = jnp.zeros((model.num_outputs, model.num_latents)), jnp.nanmean(2 * y - 1, axis=0)
        return _begin(FeatureParameters(coefficients, *outputs, jnp.reshape(noise, 1)), model, *data)
    rows = data[-1]
    parameters = linear_gaussian.start_of(strategy, key, rows, model.num_latents, primary=(0,))
    loadings, loc = parameters.loadings, rows.original_centre + parameters.loc
    noise = parameters.noise_variance[:1]
    if model.noise_variance_x is not None:
        noise = jnp.reshape(jnp.asarray(model.noise_variance_x), 1)
    return _begin(Parameters(loadings, loc, noise), model, *data)


def start(key: Array, variables: Values, model: SPPCA, *data: Any, **options: object) -> EPState:
    """The state at given loadings (or coefficients), means and noise variance."""
    if model.kernel is not None:
        linear_gaussian.check_given(variables, ("coefficients", "loadings_y", "loc_y", "noise_variance_x"))
        given = (jnp.asarray(variables[name]) for name in ("coefficients", "loadings_y", "loc_y"))
        coefficients, loadings, loc = given
        noise = jnp.reshape(jnp.asarray(variables["noise_variance_x"]), 1)
        return _begin(FeatureParameters(coefficients, loadings, loc, noise), model, *data)
    linear_gaussian.check_given(variables, ("loadings_x", "loadings_y", "loc_x", "loc_y", "noise_variance_x"))
    loadings, loc, _ = joint(model, variables)
    noise = jnp.reshape(jnp.asarray(variables["noise_variance_x"]), 1)
    return _begin(Parameters(loadings, loc, noise), model, *data)


def row_moments(values: Values, model: SPPCA, x: Array, y: Array) -> RowMoments:
    """Compute the posterior moments of all rows: the E-step."""
    given = model.inputs.latents(values, x)
    return _cut_moments(*given, values["loadings_y"], values["loc_y"], model, y)


def _cut_moments(mean: Array, covariance: Array, w: Array, loc: Array, model: SPPCA, y: Array) -> RowMoments:
    """The posterior moments of all rows whose latents given x have this mean and covariance."""

    def one(row: tuple[Array, Array, Array]) -> RowMoments:
        outputs, m, s = row
        cross, predictor = w @ s, loc + w @ m
        centre, spread, contrast = decisions(outputs, predictor, cross @ w.T, model.is_classes)
        cut = propagate(centre, spread)
        solved = jnp.linalg.solve(spread, contrast)  # Sigma^-1 T
        gain_z = (solved @ cross).T
        gain_u = (solved @ (cross @ w.T + jnp.eye(w.shape[0]))).T
        moved, shrunk = cut.mean - centre, cut.covariance - spread
        return RowMoments(
            mean=m + gain_z @ moved,
            covariance=s + gain_z @ shrunk @ gain_z.T,
            utilities=predictor + gain_u @ moved,
            cross=cross + gain_u @ shrunk @ gain_z.T,
            log_evidence=cut.log_probability,
        )

    return map_in_blocks(one, (y, mean, covariance), BLOCK_ROWS)


def _values(parameters: Parameters, model: SPPCA) -> dict[str, Array]:
    noise = {"noise_variance_x": parameters.noise_variance[0]}
    return by_site(parameters.loadings, parameters.loc, model) | noise


def _begin(parameters: Parameters | FeatureParameters, model: SPPCA, *data: Any) -> EPState:
    """The E-step at these parameters, and the objective."""
    if isinstance(parameters, FeatureParameters):
        return _begin_in_feature_space(parameters, model, *data)
    x, y, rows = data
    values = _values(parameters, model)
    moments = row_moments(values, model, x, y)
    inputs = linear_gaussian_log_density(x, values["loadings_x"], values["loc_x"], values["noise_variance_x"])
    objective = jnp.sum(inputs + moments.log_evidence) + linear_gaussian.log_prior(parameters, _prior(model))
    return EPState(parameters, moments, objective, jnp.zeros((), bool))


def _begin_in_feature_space(
    parameters: FeatureParameters, model: SPPCA, features: FeatureData, y: Array
) -> EPState:
    coefficients, loadings, loc, noise = parameters
    rows = feature_rows(
        features.gram,
        jnp.diag(features.gram),
        features.gram @ coefficients,
        coefficients,
        noise[0],
        model.feature_dimension,
    )
    covariance = jnp.broadcast_to(rows.covariance, (len(y), *rows.covariance.shape))
    moments = _cut_moments(rows.mean, covariance, loadings, loc, model, y)
    objective = jnp.sum(rows.log_density + moments.log_evidence)
    return EPState(parameters, moments, objective, jnp.zeros((), bool))


def _m_step(
    state: EPState, model: SPPCA, x: Array, y: Array, rows: CompressedRows
) -> tuple[Parameters, Array]:
    """Loadings, means and noise that maximise the expected log joint density."""
    moments, old, noise = state.moments, state.parameters.loadings, state.parameters.noise_variance
    size, m = old.shape[1], model.num_features
    known = jnp.concatenate([~jnp.isnan(x), ~jnp.isnan(y)], axis=1).astype(old.dtype)
    cells = known * jnp.concatenate([jnp.nan_to_num(x), moments.utilities], axis=1)
    full, right, counts = _regression(moments, known, cells)
    prior = _prior(model)
    own_noise = jnp.concatenate([jnp.full(m, noise[0]), jnp.ones(y.shape[1])])
    ridged, shifted = full, right
    if prior is not None:
        of_loadings, of_loc = (own_noise * own for own in linear_gaussian.column_precisions(prior, len(old)))
        ridge = jnp.concatenate([jnp.repeat(of_loadings[:, None], size, axis=1), of_loc[:, None]], axis=1)
        ridged = full + jax.vmap(jnp.diag)(ridge)
        shifted = right.at[:, size].add(of_loc * prior.loc)
    weights = jnp.linalg.solve(ridged, shifted[:, :, None])[:, :, 0]
    fitted = jnp.einsum("di,dij,dj->d", weights, full, weights) - 2 * jnp.sum(weights * right, axis=1)
    squares = jnp.sum((jnp.sum(cells**2, axis=0) + fitted)[:m])
    new_noise = squares / jnp.sum(counts[:m])
    if prior is not None:
        concentration = prior.noise_concentration + jnp.sum(counts[:m]) / 2 + 1
        new_noise = (prior.noise_rate[0] + squares / 2) / concentration
    floor = jnp.asarray(model.noise_floor)[0] * rows.group_variance[0]
    at_floor = ~(new_noise > floor)
    new_noise = jnp.where(at_floor, floor, new_noise)
    if model.noise_variance_x is not None:
        new_noise, at_floor = noise[0], jnp.zeros((), bool)
    return Parameters(weights[:, :size], weights[:, size], jnp.reshape(new_noise, 1)), at_floor


def _regression(moments: RowMoments, known: Array, cells: Array) -> tuple[Array, Array, Array]:
    """Normal equations of columns, utilities last, on [z, 1] over their observed rows; and their counts."""
    size, first_utility = moments.mean.shape[1], known.shape[1] - moments.utilities.shape[1]
    second = moments.covariance + moments.mean[:, :, None] * moments.mean[:, None, :]
    products = (known.T @ second.reshape(-1, size**2)).reshape(-1, size, size)
    first, counts = known.T @ moments.mean, jnp.sum(known, axis=0)
    of_utilities = jnp.einsum("nl,nlk->lk", known[:, first_utility:], moments.cross)
    cross = (cells.T @ moments.mean).at[first_utility:].add(of_utilities)
    full = linear_gaussian.bordered(products, first, counts)
    return full, jnp.concatenate([cross, jnp.sum(cells, axis=0)[:, None]], axis=1), counts


def _feature_m_step(
    state: EPState, model: SPPCA, features: FeatureData, y: Array
) -> tuple[FeatureParameters, FeatureParameters, Array]:
    """The step with the moments of the latents absorbed, the plain one, and whether the floor holds them."""
    moments, noise = state.moments, state.parameters.noise_variance
    z, num_rows, gram = moments.mean, len(y), features.gram
    known = (~jnp.isnan(y)).astype(z.dtype)
    full, right, _ = _regression(moments, known, known * moments.utilities)
    weights = jnp.linalg.solve(full, right[:, :, None])[:, :, 0]
    loadings, loc = weights[:, :-1], weights[:, -1]
    second = jnp.sum(moments.covariance, axis=0) + z.T @ z
    mean = jnp.mean(z, axis=0)
    spread = second - num_rows * jnp.outer(mean, mean)
    lowest = model.noise_floor[0] * jnp.trace(gram) / (num_rows * max(model.feature_dimension, 1))

    def at(latents: Array, products: Array) -> tuple[Array, Array, Array]:
        coefficients = cho_solve((jnp.linalg.cholesky(products), True), latents.T).T
        if model.noise_variance_x is not None:
            return coefficients, noise, jnp.zeros((), bool)
        residual = jnp.trace(gram) - jnp.sum((gram @ coefficients) * latents)
        own = residual / (num_rows * model.feature_dimension)
        return coefficients, jnp.reshape(jnp.maximum(own, lowest), 1), ~(own > lowest)

    coefficients, own_noise, at_floor = at(z, second)
    plain = FeatureParameters(coefficients, loadings, loc, own_noise)
    coefficients, own_noise, expanded_at_floor = at(z - mean, spread)
    root = jnp.linalg.cholesky(spread / num_rows)
    expanded = FeatureParameters(coefficients @ root, loadings @ root, loc + loadings @ mean, own_noise)
    return expanded, plain, at_floor | expanded_at_floor


def _expanded(parameters: Parameters, moments: RowMoments, model: SPPCA, rows: CompressedRows) -> Parameters:
    """Absorb the moments of the latents into loadings and means."""
    mean = jnp.mean(moments.mean, axis=0)
    second = jnp.mean(moments.covariance, axis=0) + moments.mean.T @ moments.mean / moments.mean.shape[0]
    return linear_gaussian.standardised(parameters, mean, second, rows, _prior(model), "joint")


def step(
    key: Array, state: EPState, model: SPPCA, *data: Any, acceleration: str = "px"
) -> tuple[EPState, EPInfo]:
    """Run one sweep, shortened if the objective would fall; the key is ignored."""
    first: Parameters | FeatureParameters
    plain: Parameters | FeatureParameters
    if model.kernel is not None:
        first, plain, at_floor = _feature_m_step(state, model, *data)
    else:
        plain, at_floor = _m_step(state, model, *data)
        first = _expanded(plain, state.moments, model, data[-1])
    first = first if acceleration == "px" else plain

    def proposal(trial: Array) -> Parameters | FeatureParameters:
        """The parameters of a trial: the expanded step, the step, half of it, a quarter, ..."""
        length = jnp.where(trial < 2, 1.0, 0.5 ** (trial - 1.0))
        short = jax.tree.map(lambda old, new: old + length * (new - old), state.parameters, plain)
        return jax.tree.map(lambda a, b: jnp.where(trial == 0, a, b), first, short)

    def goes_on(carry: tuple) -> Array:
        trial, tried = carry
        return (trial < MOST_TRIALS) & ~(tried.objective >= state.objective)

    def again(carry: tuple) -> tuple:
        trial, _ = carry
        return trial + 1, _begin(proposal(trial), model, *data)

    trials, found = jax.lax.while_loop(
        goes_on, again, (0, state._replace(objective=jnp.full_like(state.objective, -jnp.inf)))
    )
    better = found.objective >= state.objective
    new = jax.tree.map(lambda yes, no: jnp.where(better, yes, no), found, state)
    new = new._replace(at_floor=at_floor)
    return new, EPInfo(new.objective, new.parameters.noise_variance[0], trials)


ALGORITHM = Algorithm(init, step)


@cache
def build(strategy: str, **options: Any) -> Algorithm:
    """Build the algorithm with a start strategy and options."""
    return Algorithm(partial(init, strategy=strategy), partial(step, **options))


def check(model: SPPCA, settings: EP) -> None:
    """Raise ValueError unless outputs are probit, their mean estimated, and the noise of x is given."""
    if model.center == "plugin":
        raise ValueError("utilities have no observed mean to plug in: center='joint'")
    model.check_noise()
    if model.output_likelihood != "probit":
        raise ValueError("method 'ep' is for output_likelihood='probit'; Gaussian outputs have 'em'")


def _prior(model: SPPCA) -> LoadingPrior | None:
    prior = prior_about(model, 0.0)  # of the noises that of x alone: utilities have none
    return None if prior is None else prior._replace(noise_rate=prior.noise_rate[:1])


def conclude(
    key: Array, state: EPState, model: SPPCA, data: tuple, *sizes: object, **options: object
) -> Outcome:
    """Conclude with the estimate and the posterior of the latents, with a kernel as the E-step has it.

    Warns:
        UserWarning: the latents separate the outputs, so that a flat prior leaves nothing to stop at.
    """
    x, y = data[:2]
    certain = np.asarray(state.moments.log_evidence)[~np.isnan(np.asarray(y)).all(axis=1)]
    if model.loading_prior == "flat" and certain.min() > np.log(CERTAINTY):
        cure = "loading_prior='gaussian' gives it a maximum"
        if model.kernel is not None:
            cure = "use fewer latents, more labels, or kernel=None with loading_prior='gaussian'"
        warn(
            "the latents separate the outputs: with loading_prior='flat' the likelihood grows without bound "
            f"as the loadings grow; {cure}"
        )
    if isinstance(found := state.parameters, FeatureParameters):
        values = {"coefficients": found.coefficients, "loadings_y": found.loadings, "loc_y": found.loc}
        values |= {"noise_variance_x": found.noise_variance[0]}
        mean, covariance = state.moments.mean, state.moments.covariance
        return kernel_sppca.concluded_in_features(values, mean, covariance, model, x, y, method="ep")
    return concluded(_values(found, model), model, (x, y))


METHOD = Ascent(
    settings=EP,
    strategies=("pca", "random"),
    build=build,
    start=start,
    conclude=conclude,
    log_density=log_density,
    trace_units={"noise_variance_x": Unit(2)},
    check=check,
    prepare=prepare,
)


MOST_SWEEPS = 60
PRECISION = 1e-9  # of the sites


def propagate(mean: Array, covariance: Array) -> Orthant:
    """Approximate the truncated normal of one row by expectation propagation.

    Args:
        mean: mu, shape (J,).
        covariance: Sigma, positive definite, shape (J, J).
    """
    size = mean.shape[0]
    if size == 1:
        log_probability, first, second = positive_normal_moments(mean, jnp.sqrt(covariance[0]))
        return Orthant(log_probability[0], first, second[:, None])
    natural = jnp.linalg.solve(covariance, mean)

    def cavity(j: Array, carry: tuple) -> tuple[Array, Array]:
        precisions, shifts, spread = carry
        variance = spread[j, j]
        centre = spread[j] @ (natural + shifts)
        left = jnp.maximum(1 / variance - precisions[j], 1e-12)
        return 1 / left, (centre / variance - shifts[j]) / left

    def update(j: Array, carry: tuple) -> tuple:
        precisions, shifts, spread = carry
        variance, centre = cavity(j, carry)
        _, first, second = positive_normal_moments(centre, jnp.sqrt(variance))
        precision = jnp.maximum(1 / second - 1 / variance, 0.0)
        shift = first / second - centre / variance
        change = precision - precisions[j]
        column = spread[:, j]
        spread = spread - (change / (1 + change * spread[j, j])) * column[:, None] * column[None, :]
        return precisions.at[j].set(precision), shifts.at[j].set(shift), spread

    def sweep(carry: tuple) -> tuple:
        count, _, sites = carry
        new = jax.lax.fori_loop(0, size, update, sites)
        moved = jnp.max(jnp.abs(new[0] - sites[0])) + jnp.max(jnp.abs(new[1] - sites[1]))
        return count + 1, moved, new

    def goes_on(carry: tuple) -> Array:
        return (carry[0] < MOST_SWEEPS) & (carry[1] > PRECISION)

    silent = (jnp.zeros_like(mean), jnp.zeros_like(mean), covariance)
    _, _, sites = jax.lax.while_loop(goes_on, sweep, (0, jnp.asarray(jnp.inf, mean.dtype), silent))
    precisions, shifts, spread = sites
    centre = spread @ (natural + shifts)
    variances, centres = jax.vmap(lambda j: cavity(j, sites))(jnp.arange(size))
    log_parts, _, _ = positive_normal_moments(centres, jnp.sqrt(variances))
    whole = 0.5 * ((natural + shifts) @ centre - mean @ natural)
    whole = whole - 0.5 * jnp.linalg.slogdet(jnp.eye(size) + covariance * precisions[None, :])[1]
    sites_alone = 0.5 * (centres / variances + shifts) ** 2 / (1 / variances + precisions)
    sites_alone = sites_alone - 0.5 * centres**2 / variances - 0.5 * jnp.log1p(precisions * variances)
    return Orthant(whole + jnp.sum(log_parts - sites_alone), centre, spread)
