"""New rows: scores, what is missing, and held-out log density, from any fit."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from inference.front_door import method_of
from inference.precision import double_precision
from inference.results import Labels, model_of
from inference.symmetry import relabel
from inference.tables import as_arrays, matching_columns
from zoo.model import Model

__all__ = ["log_density", "predict", "transform"]


@double_precision
def transform(tree: xr.DataTree, *new_data: Any) -> xr.DataArray:
    """Posterior mean scores of new rows.

    For a mixture their shares in the components, dims (observation, component), which sum to one.

    From VB the shares are exact under q. From draws they are averaged over draws whose labels were aligned
    first (`inference.symmetry.relabel`).

    Args:
        tree: a fit.
        *new_data: rows with the columns of the fit; a DataFrame is matched by name.

    Raises:
        ValueError: other columns, or cells that the model cannot miss.
    """
    model, arrays, coords = _prepared(tree, new_data)
    own = method_of(model, tree.attrs["method"]).transform
    if own is not None:
        scores = _apply(own, _variables(tree), model, arrays)
    else:
        aligned = relabel(tree) if "labels" in model.symmetries else tree
        scores = _mean_over_draws(_responsibilities, _draws(aligned), model, arrays)
    labels = Labels({**coords, "component": tree["posterior"]["component"].to_numpy()})
    return _labelled(scores, ("observation", "component"), labels)


@double_precision
def predict(tree: xr.DataTree, *new_data: Any) -> xr.DataArray:
    """What is missing of new rows: for a mixture the component with the largest share, dims (observation,).

    Args:
        tree: a fit.
        *new_data: rows with the columns of the fit.
    """
    shares = transform(tree, *new_data)
    return shares["component"][shares.argmax("component")].drop_vars("component").rename("assignments")


@double_precision
def log_density(tree: xr.DataTree, *new_data: Any) -> xr.DataArray:
    """Log posterior predictive density of each new row, in nats, local latents integrated out.

    Dims (observation,).

    From VB exact under q; from draws the log of the mean density over draws.

    Args:
        tree: a fit.
        *new_data: rows with the columns of the fit.
    """
    model, arrays, coords = _prepared(tree, new_data)
    own = method_of(model, tree.attrs["method"]).log_density
    values = (
        _apply(own, _variables(tree), model, arrays)
        if own is not None
        else _log_mean_density(_draws(tree), model, arrays)
    )
    return _labelled(values, ("observation",), Labels(coords)).rename("log_density")


def _prepared(tree: xr.DataTree, new_data: tuple) -> tuple[Model, tuple, dict[str, Any]]:
    model = model_of(tree)
    if len(new_data) != len(model.data_names):
        raise TypeError(f"this model takes {', '.join(model.data_names)}; got {len(new_data)} parts of data")
    dims = [model.variable_dims[name][1] for name in model.data_names]
    parts = tuple(
        matching_columns(part, _columns(tree, dim)) for part, dim in zip(new_data, dims, strict=True)
    )
    arrays, coords = as_arrays(parts)
    model.check(*arrays)
    return model, jax.tree.map(jnp.asarray, arrays), coords


def _columns(tree: xr.DataTree, dim: str) -> np.ndarray:
    return next(group[dim].to_numpy() for group in tree.children.values() if dim in group.coords)


def _variables(tree: xr.DataTree) -> dict[str, jax.Array]:
    return {
        name: jnp.asarray(value.to_numpy())
        for name, value in tree["variational"].data_vars.items()
        if "observation" not in value.dims
    }


def _draws(tree: xr.DataTree) -> dict[str, jax.Array]:
    """Draws of everything but rows, chains laid end to end."""
    posterior = tree["posterior"].to_dataset()
    kept = {name: value for name, value in posterior.data_vars.items() if "observation" not in value.dims}
    return {name: jnp.asarray(value.to_numpy().reshape(-1, *value.shape[2:])) for name, value in kept.items()}


def _labelled(values: jax.Array, dims: tuple[str, ...], labels: Labels) -> xr.DataArray:
    values = np.asarray(values)
    return xr.DataArray(
        values,
        dims=dims,
        coords={dim: labels.of(dim, size) for dim, size in zip(dims, values.shape, strict=True)},
    )


@partial(jax.jit, static_argnums=0)
def _apply(function: Callable, variables: dict[str, jax.Array], model: Model, data: tuple) -> jax.Array:
    return function(variables, model, *data)


def _responsibilities(model: Model, values: dict[str, jax.Array], *data: jax.Array) -> jax.Array:
    return model.local_conditionals(values, *data)["assignments"].probs


@partial(jax.jit, static_argnums=0)
def _mean_over_draws(function: Callable, draws: dict[str, jax.Array], model: Model, data: tuple) -> jax.Array:
    """Running mean, so that no draw's matrix is kept."""
    count = jax.tree.leaves(draws)[0].shape[0]
    total = jax.eval_shape(
        lambda values: function(model, values, *data), jax.tree.map(lambda leaf: leaf[0], draws)
    )

    def add(total: jax.Array, values: dict[str, jax.Array]) -> tuple[jax.Array, None]:
        return total + function(model, values, *data) / count, None

    return jax.lax.scan(add, jnp.zeros(total.shape, total.dtype), draws)[0]


@jax.jit
def _log_mean_density(draws: dict[str, jax.Array], model: Model, data: tuple) -> jax.Array:
    """Running log of summed densities."""
    count = jax.tree.leaves(draws)[0].shape[0]

    def add(total: jax.Array, values: dict[str, jax.Array]) -> tuple[jax.Array, None]:
        return jnp.logaddexp(total, model.log_likelihood(values, *data)), None

    start = jnp.full(data[0].shape[0], -jnp.inf)
    return jax.lax.scan(add, start, draws)[0] - jnp.log(count)
