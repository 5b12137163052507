r"""Gibbs sampling for exponential-family projections with Bernoulli, binomial or Gaussian cells.

One sweep serves `zoo.EPCA` and `zoo.Paired` (low rank): views are tables side by side, each of whose columns
sees some of the latents. It draws, each from its exact conditional given the rest and the Polya-Gamma
variables of logistic cells (`inference.methods.epca.quadratic_cells`; Gaussian cells need none):

* the Polya-Gamma variable of every cell given its natural parameter;
* the latents of each row: normal with precision
  :math:`\sum_d \omega_{nd} v_d v_d^T + I/\sigma^2`, over the columns of all views;
* loadings and mean of each column together, the regression on the latents it sees and 1;
* the precision of each latent's loadings (``ard=True``), gamma, and unknown noise variances, inverse gamma.

The Polya-Gamma variables take most of a sweep's time, so rows and columns are drawn `TURNS` times for each
draw of them: on binary views of 50 rows and 20 columns 1.5 times as many effective draws by CPU second as
with one turn, 1.15 and 1.09 times as many as with two and four
(``python -m tests.benchmarks.paired_mixing --attempts``).

Then, unless ``moves=False``, latents and means are shifted and every latent rescaled along directions in
which no natural parameter changes.

The joint prior's kernel is a binomial pseudo-count, and a view's weight makes a fraction of a count. For a
fractional count there is no exact draw of its variable; an acceptance step for every row and column
(``acceptance_rate``, mostly above 0.9) makes the draws exact for every beta below 1.

A sweep costs O(N D K^2), all rows at once and then all columns.

Reference: Polson, Scott and Windle (2013); Virtanen (2010), section 6.2 for the sampler that it replaces.

Moves along flat directions
---------------------------
Along directions in which no natural parameter changes the conditionals alone take small steps (Liu and
Sabatti 2000, "Generalised Gibbs sampler and multigrid Monte Carlo for Bayesian computation"). Whatever acts
on natural parameters alone, likelihood or conjugate kernel, is of no account: only the Gaussian priors of
latents, loadings and means are.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array

from inference.algorithm import Algorithm, Outcome, Sampler
from inference.methods.epca import Gibbs
from inference.methods.epca.quadratic_cells import (
    QuadraticCells,
    columns_given,
    draw_precisions,
    log_lacking,
    rows_given,
    side_by_side,
)
from inference.methods.epca.views import View, given_values, prior_variance, views_of
from inference.numerics.programs import log_densities
from inference.numerics.slice_sampling import PositiveSlice
from zoo.answers import start_of
from zoo.checks import listed
from zoo.epca import EPCA
from zoo.exponential_family.natural_params import padded
from zoo.model import in_current_precision
from zoo.paired import Paired
from zoo.shapes import Values

TURNS = 3  # of rows and columns for each draw of the Polya-Gamma variables


class GibbsState(NamedTuple):
    """Current values of every latent site of the program, in constrained space.

    Attributes:
        values: site name to value.
        acceptance_rate: share of rows and columns whose draw was kept in the last sweep.
    """

    values: dict[str, Array]
    acceptance_rate: Array


class GibbsInfo(NamedTuple):
    """Quantities recorded at each sweep.

    Attributes:
        objective: log density of data and latent sites in the program, nats.
    """

    objective: Array


Conditionals = dict[str, dist.Distribution]


def _joined(values: Values, model: EPCA | Paired) -> tuple[Array, Array]:
    """The loadings and means of all views, concatenated."""
    suffixes = [view.suffix for view in views_of(model)]
    loadings = [values[f"loadings{suffix}"] for suffix in suffixes]
    return jnp.concatenate(loadings), jnp.concatenate([values[f"loc{suffix}"] for suffix in suffixes])


def theta_of(values: Values, model: EPCA | Paired) -> Array:
    """Natural parameters of all views side by side, shape (num_observations, num_features)."""
    loadings, loc = _joined(values, model)
    return values["latents"] @ loadings.T + loc


# The blocks, given values of the sites and ``cell_precisions``


def cells_of(values: Values, model: EPCA | Paired, *data: Array) -> QuadraticCells:
    """The coefficients of every cell of all views at the current noise variances."""
    beta, parts = in_current_precision(model).beta, []
    for view, x in zip(views_of(model), data, strict=True):
        family = view.family
        if f"noise_variance{view.suffix}" in values:
            family = family.with_noise(values[f"noise_variance{view.suffix}"])
        terms = family.cell_terms(x, beta, view.conjugate, view.weight)
        parts.append(QuadraticCells(*terms[:3]))  # none has an exponential term
    return side_by_side(parts)


def latents(values: Values, model: EPCA | Paired, *data: Array) -> Conditionals:
    """The conditional of the latents of all rows."""
    linear = cells_of(values, model, *data).linear
    own = (*_joined(values, model), 1 / prior_variance(model))
    return {"latents": rows_given(linear, values["cell_precisions"], *own)}


def columns(values: Values, model: EPCA | Paired, *data: Array) -> Conditionals:
    """The conditionals of loadings, the mean integrated out, and means of every column, view by view."""
    conditionals = {}
    for view, loadings, loc_given in _columns_of(values, model, data):
        conditionals[f"loadings{view.suffix}"] = loadings
        conditionals[f"loc{view.suffix}"] = loc_given(values[f"loadings{view.suffix}"])
    return conditionals


def _columns_of(
    values: Values, model: EPCA | Paired, data: tuple[Array, ...]
) -> list[tuple[View, dist.Distribution, Callable]]:
    """For every view, the conditional of the loadings and a function from them to that of the mean."""
    linear, found, first = cells_of(values, model, *data).linear, [], 0
    ridge = jnp.broadcast_to(_loading_precision(values, model), (model.num_latents,))
    loc_precision = 1 / in_current_precision(model).loc_variance
    for view, x in zip(views_of(model), data, strict=True):
        own, places = slice(first, first + x.shape[1]), list(view.places)
        loadings, loc_given = columns_given(
            linear[:, own],
            values["cell_precisions"][:, own],
            values["latents"][:, places],
            ridge[jnp.asarray(places)],
            loc_precision,
        )
        loadings = padded(loadings.to_event(1), view.places, model.num_latents)

        def own_loc(
            drawn: Array, loc_given: Callable = loc_given, places: list = places
        ) -> dist.Distribution:
            return loc_given(drawn[:, places]).to_event(1)

        found.append((view, loadings, own_loc))
        first += x.shape[1]
    return found


def _draw_latents(key: Array, values: Values, model: EPCA | Paired, data: tuple) -> dict:
    return {"latents": latents(values, model, *data)["latents"].sample(key)}


def _draw_columns(key: Array, values: Values, model: EPCA | Paired, data: tuple) -> dict:
    drawn = {}
    for number, (view, loadings, loc_given) in enumerate(_columns_of(values, model, data)):
        first, second = jax.random.split(jax.random.fold_in(key, number))
        drawn[f"loadings{view.suffix}"] = loadings.sample(first)
        drawn[f"loc{view.suffix}"] = loc_given(drawn[f"loadings{view.suffix}"]).sample(second)
    return drawn


def relevance(values: Values, model: EPCA | Paired, *data: Array) -> Conditionals:
    """The conditional of the precision of each latent's loadings."""
    current = in_current_precision(model)
    rate = current.ard_rate + jnp.sum(_joined(values, model)[0] ** 2, axis=0) / (2 * prior_variance(model))
    own = dist.Gamma(current.ard_concentration + _num_columns(values, model) / 2, rate)
    return {"loading_precision": own.to_event(1)}


def noise(values: Values, model: EPCA | Paired, *data: Array) -> Conditionals:
    """The conditionals of the unknown noise variances of Gaussian cells."""
    conditionals = {}
    for view, x in zip(views_of(model), data, strict=True):
        if not view.family.learns_noise:
            continue
        chosen = view.family.noise_columns(x.shape[1])
        loadings, loc = values[f"loadings{view.suffix}"], values[f"loc{view.suffix}"]
        away = (x - values["latents"] @ loadings.T - loc)[:, chosen]
        count, squares = jnp.sum(~jnp.isnan(away)), jnp.nansum(away**2)
        own = dist.InverseGamma(1.0 + view.weight * count / 2, 1.0 + view.weight * squares / 2)
        conditionals[f"noise_variance{view.suffix}"] = own
    return conditionals


def _loading_precision(values: Values, model: EPCA | Paired) -> Array:
    return values.get("loading_precision", 1.0) / prior_variance(model)


def _num_columns(values: Values, model: EPCA | Paired) -> Array:
    """The number of columns that see each latent."""
    counts = jnp.zeros(model.num_latents)
    for view in views_of(model):
        counts = counts.at[jnp.asarray(view.places)].add(values[f"loadings{view.suffix}"].shape[0])
    return counts


# The algorithm


def init(key: Array, model: EPCA | Paired, *data: Array) -> GibbsState:
    """The state at the model's starting point."""
    return GibbsState(start_of(model, key, *data), jnp.ones(()))


def start(key: Array, variables: Values, model: EPCA | Paired, *data: Array, **options: object) -> GibbsState:
    """The state at given values of sites, the others as in a fresh start.

    Raises:
        ValueError: a given value has another shape.
    """
    fresh = init(key, model, *data)
    return fresh._replace(values=given_values(fresh.values, variables))


def _step(
    key: Array, state: GibbsState, model: EPCA | Paired, *data: Array, moves: bool
) -> tuple[GibbsState, GibbsInfo]:
    """Run one sweep."""
    keys = jax.random.split(key, 7)
    cells, theta = cells_of(state.values, model, *data), theta_of(state.values, model)
    values, rest = dict(state.values), (cells, model, data)
    if any("logistic" in view.family.log_partition_forms for view in views_of(model)):
        held = {"cell_precisions": draw_precisions(keys[0], cells, theta)}

        def again(carry: tuple, key: Array) -> tuple:
            values, lacking, kept = _turn(key, carry[0] | held, carry[1], *rest)
            return ({name: values[name] for name in carry[0]}, lacking), kept

        carry = values, log_lacking(cells, theta)
        (values, _), kept = jax.lax.scan(again, carry, jax.random.split(keys[1], TURNS))
        kept = jnp.mean(kept)
    else:
        values, _, kept = _turn(keys[1], values | {"cell_precisions": cells.precision}, None, *rest)
        del values["cell_precisions"]
    if "loading_precision" in values:
        values |= {name: own.sample(keys[3]) for name, own in relevance(values, model, *data).items()}
    for place, (name, own) in enumerate(noise(values, model, *data).items()):
        values[name] = own.sample(jax.random.fold_in(keys[4], place))
    if moves:
        values = flat_moves(keys[5:], values, model, _loading_precision(values, model))
    objective = sum(log_densities(model, data, values).values())
    return GibbsState(values, kept), GibbsInfo(objective)


def _turn(
    key: Array,
    values: dict[str, Array],
    lacking: Array | None,
    cells: QuadraticCells,
    model: EPCA | Paired,
    data: tuple[Array, ...],
) -> tuple[dict[str, Array], Array | None, Array]:
    """Draw all rows, then all columns, given the precisions of the cells; see `_draw_block`."""
    (first, second), rest = jax.random.split(key), (cells, model, data)
    values, lacking, rows = _draw_block(first, _draw_latents, values, lacking, *rest, axis=1)
    values, lacking, cols = _draw_block(second, _draw_columns, values, lacking, *rest, axis=0)
    return values, lacking, (rows + cols) / 2


def _draw_block(
    key: Array,
    draw: Callable,
    values: dict[str, Array],
    lacking: Array | None,
    cells: QuadraticCells,
    model: EPCA | Paired,
    data: tuple[Array, ...],
    *,
    axis: int,
) -> tuple[dict[str, Array], Array | None, Array]:
    """Draw a block given the precisions of the cells, and accept it row by row or column by column.

    ``lacking`` is None where there are no logistic cells; else each row (axis 1) or column (axis 0) is kept
    with the probability that makes the draw exact.
    """
    draw_key, accept_key = jax.random.split(key)
    drawn = draw(draw_key, values, model, data)
    proposed, names = values | drawn, tuple(drawn)
    if lacking is None:
        return proposed, None, jnp.ones(())
    new = log_lacking(cells, theta_of(proposed, model))
    gain = jnp.sum(new - lacking, axis=axis)
    keep = gain > -jax.random.exponential(accept_key, gain.shape, gain.dtype)
    first = 0
    for name in names:
        if axis == 0 and name.startswith("loc"):  # the same columns as the loadings before it
            first -= proposed[name].shape[0]
        size = proposed[name].shape[0]
        where = keep[first : first + size].reshape(-1, *[1] * (proposed[name].ndim - 1))
        proposed[name] = jnp.where(where, proposed[name], values[name])
        first += size
    kept_cells = jnp.expand_dims(keep, axis)
    return proposed, jnp.where(kept_cells, new, lacking), jnp.mean(keep, dtype=gain.dtype)


def flat_moves(
    keys: Array, values: dict[str, Array], model: EPCA | Paired, loading_precision: Array
) -> dict[str, Array]:
    """Shift, then rescale latents, loadings and means along directions of constant natural parameters.

    Args:
        keys: two JAX keys.
        values: site name to value.
        model: the model.
        loading_precision: prior precision of the loadings, shape () or (num_latents,).
    """
    z, (w, loc), own = values["latents"], _joined(values, model), 1 / prior_variance(model)
    delta = common_shift(keys[0], z, w, loc, own, 1 / in_current_precision(model).loc_variance)
    scale = rescaling(keys[1], z + delta, w, own, loading_precision, _num_columns(values, model))
    moved = {"latents": (z + delta) * scale}
    for view in views_of(model):
        loadings = values[f"loadings{view.suffix}"]
        moved[f"loadings{view.suffix}"] = loadings / scale
        moved[f"loc{view.suffix}"] = values[f"loc{view.suffix}"] - loadings @ delta
    return values | moved


@cache
def algorithm_of(moves: bool = True) -> Algorithm:
    """The sampler with or without moves."""
    return Algorithm(init, partial(_step, moves=moves))


def build(strategy: str, num_warmup: int, moves: bool) -> Algorithm:
    """Build the sampler, which does not adapt."""
    return algorithm_of(moves)


def check(model: EPCA | Paired, settings: Gibbs) -> None:
    """Raise ValueError if a family has no conjugate sweep."""
    for view in views_of(model):
        families = getattr(view.family, "families", (view.family,))
        others = [own for own in families if not own.log_partition_forms <= {"quadratic", "logistic"}]
        if others:
            named = listed(dict.fromkeys(type(own).__name__ for own in others))
            raise ValueError(
                "gibbs needs Gaussian, Bernoulli or binomial cells, whose conditionals are normal given "
                f"Polya-Gamma variables; got {named}: use nuts"
            )


def position(state: GibbsState, model: EPCA | Paired) -> dict[str, Any]:
    """The kept values and statistics of a draw."""
    return {"values": state.values, "stats": {"acceptance_rate": state.acceptance_rate}}


def conclude(
    key: Array, draws: dict[str, Any], model: EPCA | Paired, data: tuple, keep_rows: bool
) -> Outcome:
    """Conclude with the draws and their acceptance rates."""
    densities = {"objective": tuple(draws["values"])}
    return Outcome(posterior=draws["values"], sample_stats=draws["stats"], densities=densities)


METHOD = Sampler(
    settings=Gibbs,
    strategies=("random",),
    build=build,
    start=start,
    conclude=conclude,
    position=lambda keep_rows: position,
    check=check,
)


def common_shift(
    key: Array, latents: Array, loadings: Array, loc: Array, latent_precision: Array, loc_precision: Array
) -> Array:
    """Draw delta of the move latents + delta, loc - loadings delta exactly, shape (num_latents,).

    Args:
        key: a JAX key.
        latents: shape (num_observations, num_latents).
        loadings: shape (num_features, num_latents).
        loc: shape (num_features,).
        latent_precision: prior precision of the latents, about zero.
        loc_precision: prior precision of the means, about zero, shape () or (num_features,).
    """
    size = latents.shape[1]
    weighed = loc_precision * loadings.T
    precision = latents.shape[0] * latent_precision * jnp.eye(size) + weighed @ loadings
    linear = weighed @ loc - latent_precision * jnp.sum(latents, axis=0)
    factor = jnp.linalg.cholesky(precision)
    standard = jax.random.normal(key, linear.shape, linear.dtype)
    delta = jax.scipy.linalg.cho_solve((factor, True), linear)
    return delta + jax.scipy.linalg.solve_triangular(factor.T, standard, lower=False)


def rescaling(
    key: Array,
    latents: Array,
    loadings: Array,
    latent_precision: Array,
    loading_precision: Array,
    num_columns: Array | int | None = None,
    num_rows: Array | int | None = None,
) -> Array:
    """Draw the scales g of the move latents g, loadings / g by slice sampling, shape (num_latents,).

    Args:
        key: a JAX key.
        latents: shape (num_observations, num_latents).
        loadings: shape (num_features, num_latents).
        latent_precision: prior precision of the latents, about zero.
        loading_precision: of the loadings, shape () or (num_latents,).
        num_columns: how many loadings of each latent are free, shape (num_latents,); None: all of them.
        num_rows: how many latents are those of rows; None: all of them. The others are zero.
    """
    num_rows = latents.shape[0] if num_rows is None else num_rows
    columns = jnp.broadcast_to(loadings.shape[0] if num_columns is None else num_columns, latents.shape[1:])

    def one(key: Array, z_squares: Array, w_squares: Array, difference: Array) -> Array:
        def log_density(g: Array) -> Array:  # the measure of a scale group is dg / g
            return (difference - 1) * jnp.log(g) - 0.5 * (g**2 * z_squares + w_squares / g**2)

        return PositiveSlice(log_density, jnp.ones_like(z_squares), width=0.3).sample(key)

    keys = jax.random.split(key, latents.shape[1])
    z_squares = latent_precision * jnp.sum(latents**2, axis=0)
    w_squares = loading_precision * jnp.sum(loadings**2, axis=0)
    return jax.vmap(one)(keys, z_squares, w_squares, num_rows - columns)
