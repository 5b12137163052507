r"""The log evidence under a prior half and twice as wide, from the draws of a fit that knows its evidence.

With p the prior and p' the other one the ratio of the evidences is the posterior mean of p'(theta) /
p(theta), with the Monte Carlo standard error of that mean. What is made wider is the prior of means or
loadings, by the field that says its width: ``mean_precision`` of Gaussian components (the ratio is then that
of the evidence of each draw's partition, parameters integrated out), and ``loading_variance``. Other models
have no such field, and no numbers.

An evidence always depends on the width of the prior: of parameters that the data know well a prior twice as
wide costs log 2 each. It matters where it changes which of several models has more of it.
"""

import dataclasses
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
import xarray as xr
from jax import Array

from inference.numerics.programs import latent_names, log_prior, over_draws
from inference.precision import double_precision
from inference.results.files import model_of
from inference.results.groups import group_of, labels_of, restored_data
from zoo import late
from zoo.conjugate.component_prior import ComponentPrior
from zoo.fields import family_field, names_of
from zoo.model import Model, in_current_precision
from zoo.shapes import Values

WIDTHS = {"half": 0.5, "twice": 2.0}
FEWEST_EFFECTIVE = 50.0  # draws that the weights p' / p leave, below which nothing is told


class AtWidth(NamedTuple):
    """A log evidence and its standard error, in nats; NaN where nothing is known."""

    value: float = np.nan
    error: float = np.nan


@double_precision
def evidence_at_width(tree: xr.DataTree, factor: float) -> AtWidth:
    """Estimate the log evidence of a fit under a prior with another width.

    Args:
        tree: a fit.
        factor: how many times as wide the prior is.

    Returns:
        NaN where the fit tells no evidence, the prior has no field for its width, or the draws do not reach.
    """
    model, told = model_of(tree), tree.attrs
    if not np.isfinite(told.get("log_evidence", np.nan)) or "observed_data" not in tree.children:
        return AtWidth()
    wider = _wider(model, factor)
    data = restored_data(group_of(tree, "observed_data"), model)
    of_labels = isinstance(_components(model), ComponentPrior)
    labels = labels_of(tree) if of_labels else None
    if wider is None or (of_labels and labels is None):
        return AtWidth()
    posterior, ratio = tree["posterior"], _of_partition if of_labels else _of_sites
    names = () if of_labels else latent_names(model, *data)
    draws = {"labels": labels.to_numpy()} if of_labels else {n: posterior[n].to_numpy() for n in names}
    logs = np.asarray(over_draws(ratio, draws, (model, wider), in_current_precision(data)))
    weights = np.exp(logs - logs.max())
    if not weights.sum() ** 2 / (weights**2).sum() >= FEWEST_EFFECTIVE:
        return AtWidth()
    error = late.array_stats.mcse(weights, chain_axis=0, draw_axis=1, method="mean") / weights.mean()
    change = logs.max() + np.log(weights.mean())
    return AtWidth(float(told["log_evidence"] + change), float(np.hypot(told["log_evidence_se"], error)))


@double_precision
def is_read_off(tree: xr.DataTree) -> bool:
    """Whether the prior of a fit is one that its data give, and half of them would give another.

    False where the fit holds no data.
    """
    if "observed_data" not in tree.children:
        return False
    model = model_of(tree)
    data = restored_data(group_of(tree, "observed_data"), model)
    if not all(isinstance(part, np.ndarray) for part in data):
        return False  # of documents no prior is read off
    components = _components(model)
    if isinstance(components, ComponentPrior):
        families = [
            (own, set(names_of(own).leaves) - set(own.optional_fields), c) for own, c in components.by_columns
        ]
        return any(_by_half(own, names, type(own).filled, data[0][:, list(c)]) for own, names, c in families)
    names = {
        field.name
        for field in dataclasses.fields(model)
        if {"read", "fill", "scales"} & field.metadata.keys()
    }
    others = _by_half(model, names, type(model).with_sizes_from, *data)
    values = {name: tree["posterior"][name].to_numpy()[:1, :1] for name in latent_names(model, *data)}
    models = (model, model.replaced(**others))
    return bool(others) and bool(np.any(over_draws(_of_sites, values, models, in_current_precision(data))))


def _by_half(own: Any, names: Collection[str], filled: Callable, *data: np.ndarray) -> dict[str, Any]:
    """The fields with the value that they are filled with, as every other row would fill them otherwise."""
    blank = own.replaced(**dict.fromkeys(names))
    whole, half = filled(blank, *data), filled(blank, *(part[::2] for part in data))
    others = {name: getattr(half, name) for name in names if _alike(getattr(own, name), getattr(whole, name))}
    return {name: value for name, value in others.items() if not _alike(value, getattr(own, name))}


def _alike(one: Any, other: Any) -> bool:
    """Whether two values of a field are the same but for rounding."""
    leaves = [jax.tree.leaves(value) for value in (one, other)]
    return len(leaves[0]) == len(leaves[1]) and all(map(partial(np.allclose, rtol=1e-6, atol=0), *leaves))


def _components(model: Model) -> Any:
    return getattr(model, family_field(model), None)


def _wider(model: Model, factor: float) -> Model | None:
    """The model with another width of its prior; None where no field says how wide it is."""
    components = _components(model)
    strength = getattr(components, "mean_precision", None)
    if isinstance(components, ComponentPrior) and isinstance(strength, np.ndarray):
        return model.replaced(components=components.replaced(mean_precision=strength / factor**2))
    if getattr(model, "loading_prior", "") == "gaussian":
        return model.replaced(loading_variance=model.loading_variance * factor**2)
    return None


def _of_partition(models: tuple[Model, Model], values: Values, x: Any) -> Array:
    """Log ratio of the evidences of a partition."""
    first, second = map(_components, models)
    sums = first.statistics(x, values["labels"], models[0].num_components)
    return second.log_evidence(sums).sum() - first.log_evidence(sums).sum()


def _of_sites(models: tuple[Model, Model], values: Values, *data: Any) -> Array:
    """Log ratio of the densities of the parameters."""
    first, second = (log_prior(model, values, *data) for model in models)
    return second - first
