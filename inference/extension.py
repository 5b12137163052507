"""Further groups of a finished fit: prior and posterior predictive draws, densities, assignments.

The prior is drawn from by forward runs of the program, or by NUTS where a factor multiplies it.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax import Array
from numpyro.handlers import seed as seeded
from numpyro.handlers import substitute, trace

from inference.convergence.identifiable import kind_of
from inference.convergence.numbering import in_program_order, numbered, shown_labels
from inference.convergence.partitions import why_no_labels
from inference.driver.chains import sample
from inference.driver.checkpoint import Checkpoint
from inference.fitting.arguments import key_of, read_init
from inference.fitting.in_memory import progress_line
from inference.methods.nuts_hmc import METHODS, position
from inference.numerics.compiled import compiled, for_work
from inference.numerics.host_keys import numbered_keys
from inference.numerics.programs import (
    draw_locals,
    latent_names,
    log_prior,
    log_prior_of_parameters,
    over_draws,
    redraw_data,
)
from inference.precision import double_precision, to_numpy
from inference.prediction import prepared
from inference.results.files import SAMPLE_DIMS, Labels, check_tree, dataset, model_of
from inference.results.groups import (
    ROW_DIMS,
    group_of,
    left_out_of,
    observed_group,
    restored_data,
    with_groups,
)
from inference.settings import NUTS
from zoo import late
from zoo.answers import answer_of
from zoo.checks import check_whole, shown, warn
from zoo.in_blocks import map_in_blocks
from zoo.intake.families import for_data
from zoo.model import Model, in_current_precision
from zoo.programs import to_be_proper
from zoo.shapes import Values


@double_precision
def extend(
    tree: xr.DataTree, *groups: Any, seed: int | jax.Array = 0, num_samples: int = 1000
) -> xr.DataTree:
    """Return a copy of a fit with more groups; the given tree is not changed.

    Args:
        tree: a fit.
        *groups: names of groups, and after them the data, all parts as they were fitted, where the fit does
            not hold them itself (``left_out`` names ``observed_data``). The names: ``"prior"`` and
            ``"prior_predictive"`` (as many rows as were fitted, ``num_samples`` draws; by NUTS, four chains,
            where a factor multiplies the prior, as the group's attributes say), ``"posterior_predictive"``
            (a replicated data set per posterior draw, new labels and all, but at the drawn latents where the
            program does not sum them out), ``"log_likelihood"``, ``"log_prior"``, ``"assignments"`` (labels
            per draw, where they were left out for their size) and ``"observed_data"`` (the data passed).
        seed: of the draws, a whole number in [0, 2**32) or a JAX key.
        num_samples: prior draws.

    Returns:
        A tree with the groups of the old one and the new ones.

    Raises:
        TypeError: ``tree`` is no tree.
        ValueError: an unknown group, a seed or a number of draws that is none, a prior that cannot be drawn
            from, or a fit that lacks the groups that it needs.
    """
    check_tree(tree)
    check_whole("num_samples", num_samples)
    key = key_of(seed)
    given = tuple(part for part in groups if not isinstance(part, str))
    groups = tuple(part for part in groups if isinstance(part, str))
    known = (*_GROUPS, "observed_data")
    if not groups:
        got = f"; got {shown(given[0])}" if given else ""
        raise ValueError(f"name at least one group, before any data: {', '.join(known)}{got}")
    unknown = [group for group in groups if group not in known]
    if unknown:
        raise ValueError(f"extend does not know {unknown[0]!r}; it makes {', '.join(known)}")
    model = model_of(tree)
    dims = dict(model.variable_dims) | {"log_likelihood": model.variable_dims[model.data_names[0]][:1]}
    new = with_groups(tree, {})
    if given:
        new["observed_data"] = xr.DataTree(_observed(tree, model, given))
    elif "observed_data" in groups and "observed_data" not in tree.children:
        raise ValueError("the fit does not hold its data: pass them, extend(tree, 'observed_data', *data)")
    if "observed_data" in new.children and not model.data[0].holds_documents:
        model = for_data(model, *restored_data(group_of(new, "observed_data"), model))
    cells = _cells_passed_over(new, num_samples) * answer_of(model, "density_passes")
    for group, make in _GROUPS.items():
        if group in groups:
            with for_work(cells, cells):
                values, attrs = make(new, model, key, num_samples)
            made = dataset(values, dims, _labels(new), SAMPLE_DIMS, attrs)
            if make is _assignments:  # they join the other draws
                group, made = "posterior", group_of(new, "posterior").merge(made, compat="override")
            new[group] = xr.DataTree(made)
            if make is _assignments and kind_of(new) == "sampling":  # rows tell them apart
                new = numbered(new)
    if given and "observed_data" not in (*groups, *tree.children):
        del new["observed_data"]
    new.attrs["left_out"] = ", ".join(name for name in left_out_of(tree) if name not in groups)
    return new


def _cells_passed_over(tree: xr.DataTree, num_samples: int) -> float:
    """Cells of the data times draws, for which programs are optimised."""
    posterior = group_of(tree, "posterior")
    draws = max(num_samples, posterior.sizes["chain"] * posterior.sizes["draw"])
    held = tree["observed_data"].data_vars.values() if "observed_data" in tree.children else ()
    return float(draws * sum(value.size for value in held)) or math.inf


def _observed(tree: xr.DataTree, model: Model, given: tuple) -> xr.Dataset:
    """The group ``observed_data`` of data that are passed, as many rows as were fitted.

    Raises:
        ValueError: other columns, a part too few, or another number of rows than the fit knows of.
    """
    model, arrays, coords = prepared(tree, given)
    if len(arrays) != len(model.data_names):
        raise ValueError(f"extend needs all parts of the data: {', '.join(model.data_names)}")
    dim = model.variable_dims[model.data_names[0]][0]
    sizes = {group.sizes[dim] for group in tree.children.values() if dim in group.sizes}
    if sizes - {arrays[0].shape[0]}:
        raise ValueError(f"the fit is of {sizes.pop()} rows; got {arrays[0].shape[0]}")
    return observed_group(model, to_numpy(arrays), Labels(_labels(tree).coords | coords))


def _labels(tree: xr.DataTree) -> Labels:
    """Coords of a fit by dim."""
    return Labels(
        {dim: coord.to_numpy() for group in tree.children.values() for dim, coord in group.coords.items()}
    )


def _data(tree: xr.DataTree, model: Model) -> tuple[jax.Array, ...]:
    return in_current_precision(restored_data(group_of(tree, "observed_data"), model))


def _num_rows(tree: xr.DataTree, model: Model) -> int:
    dim = model.variable_dims[model.data_names[0]][0]
    return next(group.sizes[dim] for group in tree.children.values() if dim in group.sizes)


def check_densities_are_cheap(tree: xr.DataTree) -> None:
    """Raise ValueError if a fit left out densities of all draws that take longer than it did itself."""
    if "log_likelihood" in left_out_of(tree) and answer_of(model_of(tree), "density_passes") > 1:
        raise ValueError(
            "the log likelihood of all draws was left out, since with cells recorded in steps it takes "
            "longer than the fit: make it by inference.extend(tree, 'log_likelihood')"
        )


def _check_generative(tree: xr.DataTree) -> None:
    if not tree.attrs.get("generative", 1):
        raise ValueError(
            "this fit is a projection, not generative: it has no densities and no draws of rows; fit the "
            "model by method='em' for those"
        )


def _draws(tree: xr.DataTree, model: Model) -> dict[str, np.ndarray]:
    """Draws of everything but rows, unless those are sites: coefficients of rows, latents not summed out."""
    _check_generative(tree)
    posterior, left_out = in_program_order(group_of(tree, "posterior"), model), []
    if answer_of(model, "needs_fitted_rows") and model.answers.has_density:
        left_out = [model.roles.latent]
    elif model.answers.has_density and answer_of(model, "sums_out_locals"):
        left_out = [name for name, value in posterior.items() if ROW_DIMS & set(value.dims)]
    return {name: value.to_numpy() for name, value in posterior.items() if name not in left_out}


def _prior(tree: xr.DataTree, model: Model, key: jax.Array, num_samples: int) -> tuple[dict, dict]:
    values, attrs = _prior_draws(tree, model, key, num_samples)
    return {name: value for name, value in values.items() if name not in model.data_names}, attrs


def _prior_predictive(tree: xr.DataTree, model: Model, key: jax.Array, num_samples: int) -> tuple[dict, dict]:
    values, attrs = _prior_draws(tree, model, key, num_samples)
    kept = {name: value for name, value in values.items() if name in model.data_names}
    for name, value in kept.items():
        infinite = ~np.isfinite(np.asarray(value, dtype=float))
        if infinite.any():
            warn(
                f"{infinite.mean():.0%} of the cells of {name!r} drawn from the prior are infinite or not a "
                f"number: a prior is so wide that its draws leave the range of floating-point numbers; give "
                f"the model a narrower one"
            )
    return kept, attrs


def _prior_draws(
    tree: xr.DataTree, model: Model, key: jax.Array, num_samples: int
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Draws that both groups share, so that parameters and data belong together, and their attributes."""
    if model.prior == "improper":
        name = type(model).__name__
        raise ValueError(f"the prior of {name} is improper and draws nothing{to_be_proper(model)}")
    if model.prior != "unnormalised":
        values = simulate(numbered_keys(key, num_samples), {}, model, _num_rows(tree, model))
        # a factor of the program is a site without values
        return {name: value[None] for name, value in to_numpy(values).items() if value.size}, {}
    data = _data(tree, model)
    values, attrs = prior_by_mcmc(tree, key, model, data, num_samples)
    return to_numpy(values | _drawn_anew(tree, key, values, model, data)), attrs


def check_replicable(tree: xr.DataTree, model: Model) -> None:
    """Raise ValueError if data like the fitted ones cannot be drawn from a fit.

    Args:
        tree: a fit.
        model: its model.
    """
    _check_generative(tree)
    if not model.answers.has_density:
        raise ValueError(f"{type(model).__name__} is no distribution of rows: it has none to replicate")
    if answer_of(model, "needs_fitted_rows"):
        raise ValueError("with a kernel x is known by inner products alone: rows cannot be replicated")


def _posterior_predictive(
    tree: xr.DataTree, model: Model, key: jax.Array, num_samples: int
) -> tuple[dict, dict]:
    check_replicable(tree, model)
    return to_numpy(_drawn_anew(tree, key, _draws(tree, model), model, _data(tree, model))), {}


def _drawn_anew(
    tree: xr.DataTree, key: jax.Array, draws: dict[str, Array], model: Model, data: tuple
) -> dict[str, Array]:
    """One data set for each draw of the latent sites, leading dims (chain, draw)."""
    chains, num_draws = next(iter(draws.values())).shape[:2]
    fresh = answer_of(model, "kept_locals")  # as every local that is summed out
    names = [name for name in latent_names(model, *data) if name not in fresh]
    flat = {name: draws[name].reshape(-1, *draws[name].shape[2:]) for name in names}
    keys = numbered_keys(key, chains * num_draws)
    if model.prior == "proper":
        values = simulate(keys, flat, model, _num_rows(tree, model))
    else:  # such a program has to be given data, whose values are then drawn anew
        values = replicate(keys, flat, model, data)
    return {
        name: np.asarray(values[name]).reshape(chains, num_draws, *values[name].shape[1:])
        for name in model.data_names
    }


@double_precision
def new_rows(tree: xr.DataTree, seed: int, num_rows: int) -> np.ndarray:
    """Draw rows of the first part of the data, some for each draw of a fit.

    Args:
        tree: a fit.
        seed: of the rows.
        num_rows: for each draw, at most as many as were fitted.

    Returns:
        Shape (num_draws, num_rows, num_features).

    Raises:
        ValueError: data like the fitted ones cannot be drawn from the fit.
    """
    model = model_of(tree)
    check_replicable(tree, model)
    draws, site = _draws(tree, model), model.data_names[0]
    if model.prior != "proper" or any(ROW_DIMS & set(model.variable_dims.get(name, ())) for name in draws):
        every = group_of(extend(tree, "posterior_predictive", seed=seed), "posterior_predictive")[site]
        every = every.to_numpy().reshape(-1, *every.shape[2:])
        order = np.tile(np.arange(every.shape[1]), (len(every), 1))
        order = np.random.default_rng(seed).permuted(order, axis=1)[:, :num_rows]
        return np.take_along_axis(every, order[..., None], axis=1)
    names = latent_names(model, *_data(tree, model))
    flat = {name: draws[name].reshape(-1, *draws[name].shape[2:]) for name in names if name in draws}
    number = len(next(iter(flat.values())))
    with for_work(number * num_rows, number * num_rows):
        keys = numbered_keys(key_of(seed), number)
        return np.asarray(simulate(keys, flat, model, num_rows, DRAWS_AT_ONCE)[site])


def _log_likelihood(tree: xr.DataTree, model: Model, key: jax.Array, num_samples: int) -> tuple[dict, dict]:
    rows = over_draws(_rows, _draws(tree, model), model, _data(tree, model))
    return {"log_likelihood": rows}, {
        "latents": "integrated out" if answer_of(model, "sums_out_locals") else "drawn"
    }


def _rows(model: Model, values: Mapping[str, Any], *data: jax.Array) -> jax.Array:
    return model.log_likelihood(values, *data)


def _log_prior(tree: xr.DataTree, model: Model, key: jax.Array, num_samples: int) -> tuple[dict, dict]:
    return {"log_prior": _at_draws(log_prior, tree, model)}, {}


@double_precision
def prior_of_parameters(tree: xr.DataTree) -> xr.Dataset:
    """The group ``log_prior`` without the density of latents of single rows, those that the program draws.

    Raises:
        ValueError: the fit does not hold its data, or is a projection.
    """
    model, data = model_of(tree), group_of(tree, "observed_data")
    if not model.data[0].holds_documents:
        model = for_data(model, *restored_data(data, model))
    values = {"log_prior": _at_draws(log_prior_of_parameters, tree, model)}
    return dataset(values, {}, _labels(tree), SAMPLE_DIMS)


def _at_draws(density: Callable, tree: xr.DataTree, model: Model) -> np.ndarray:
    """A density of parameters at every draw, shape (chain, draw)."""
    posterior = in_program_order(group_of(tree, "posterior"), model)
    draws, site = _draws(tree, model), model.roles.cluster
    if site in posterior:  # they tell which components have rows
        draws[site] = posterior[site].to_numpy()
    return over_draws(density, draws, model, _data(tree, model))


def _assignments(tree: xr.DataTree, model: Model, key: jax.Array, num_samples: int) -> tuple[dict, dict]:
    if model.roles.cluster is None:
        raise ValueError(why_no_labels(tree))
    found = to_numpy(draw_locals(key, _draws(tree, model), model, _data(tree, model), True))
    return found | {model.roles.cluster: shown_labels(found[model.roles.cluster], tree, model)}, {}


#: ``make(tree, model, key, num_samples)`` of each group: its variables and its attributes.
_GROUPS: dict[str, Callable] = {
    "prior": _prior,
    "prior_predictive": _prior_predictive,
    "posterior_predictive": _posterior_predictive,
    "log_likelihood": _log_likelihood,
    "log_prior": _log_prior,
    "assignments": _assignments,
}


DRAWS_AT_ONCE = 1024  # of which a few rows each are drawn
CHAINS, WARMUP = 4, 1000
LARGEST_RHAT = 1.05  # a thousand draws and less: their R-hat is noisy


@partial(compiled, once=True, static_argnums=(3, 4))
def simulate(keys: Array, given: Values, model: Model, num_rows: int, at_once: int = 1) -> dict[str, Array]:
    """Forward runs of the program, one per key, with given values substituted; so many at once."""

    def one(args: tuple) -> dict[str, Array]:
        key, values = args
        sites = trace(seeded(substitute(model, data=values), key)).get_trace(num_observations=num_rows)
        kinds = ("sample", "deterministic")
        return {name: site["value"] for name, site in sites.items() if site["type"] in kinds}

    return jax.lax.map(one, (keys, given)) if at_once == 1 else map_in_blocks(one, (keys, given), at_once)


@partial(compiled, once=True)
def replicate(keys: Array, given: Values, model: Model, data: tuple) -> dict[str, Array]:
    """Data drawn from the program at given values of its latent sites, one set per key."""

    def one(args: tuple) -> dict[str, Array]:
        key, values = args
        names = model.data_names
        return dict(zip(names, redraw_data(key, model, values, data, names), strict=True))

    return jax.lax.map(one, (keys, given))


def prior_by_mcmc(
    tree: xr.DataTree, key: Array, model: Model, data: tuple, num_samples: int
) -> tuple[dict[str, Array], dict[str, Any]]:
    """Draws of all sites of a program whose factors have no known normaliser, by NUTS.

    The program is given data without any cell, so that prior and factors are all that is left of it. Chains
    start at draws of the fit, where natural parameters lie in the family's domain.

    Args:
        tree: a fit of the model.
        key: random key.
        model: the model.
        data: the fitted data; only their shapes matter.
        num_samples: draws in all, of four chains together.

    Returns:
        Values of the sites, leading dims (chain, draw); how the run went, as attributes.
    """
    settings = NUTS(num_chains=CHAINS, num_warmup=WARMUP, num_samples=-(-num_samples // CHAINS))
    nuts, options = METHODS["nuts"], settings.options
    missing = jax.tree.map(lambda part: jnp.full_like(part, jnp.nan), data)
    values = read_init(tree, nuts, settings)[1]
    variables = {name: values[name] for name in latent_names(model, *missing)}
    algorithm = nuts.build("uniform", num_warmup=WARMUP, **options)
    run = sample(
        algorithm.step,
        partial(nuts.start, num_warmup=WARMUP, **options),
        position,
        model,
        missing,
        keys=numbered_keys(key, CHAINS),
        variables=variables,
        checkpoint=Checkpoint(None, {}),
        open_bar=progress_line(False),
        **settings.of_the_loop,
    )
    draws = jax.tree.map(jnp.asarray, run.draws)
    kept = nuts.conclude(key, draws, model, missing, True).posterior
    log_prior = np.asarray(run.trace["objective"])[:, -settings.num_samples :]
    rhat = (
        float(late.array_stats.rhat(log_prior, chain_axis=0, draw_axis=1))
        if log_prior.shape[1] > 3
        else np.nan
    )
    divergences = int(np.sum(run.draws["stats"]["diverging"]))
    if rhat > LARGEST_RHAT or divergences:
        warn(
            f"the prior has a factor without a normaliser, so NUTS drew from it, and not well: R-hat of its "
            f"log density {rhat:.3f}, {divergences} divergences; ask for more draws (num_samples)"
        )
    how = {"method": "nuts", "num_warmup": WARMUP}
    return kept, how | {"rhat_of_log_prior": rhat, "divergences": divergences}
