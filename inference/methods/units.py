r"""Fits in standard units: the only way in, and the only way out.

A model whose `zoo.model.Model.units` are not empty is fitted to :math:`\tilde x = (x - c) / s` as
`zoo.model.Model.in_standard_units`, whatever the method; then variables return to the units of the data,
:math:`v = s_v \tilde v + c_v`. Densities of cells lose :math:`\log s` for each observed cell, times the
weight of its part; densities of parameters lose :math:`\log s_v` for each entry that varies freely: neither
for fixed zeros, nor for the second half of a symmetric matrix, nor under an improper prior, whose density is
one in any unit. A method says which densities it reports, and of which parameters
(`inference.algorithm.Outcome.densities`).

A model that declares `zoo.model.Model.units_of_sites` is fitted by `inference.coordinates` instead, and asked
here where it is stated in the columns' deviations. What is asked of a finished fit goes to functions of the
method the same way (`asked_in_data_units`); functions of the model are in the units of the data already.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro import handlers

from inference.algorithm import FitRequest, Fitted, Method
from inference.coordinates import with_densities_less
from inference.numerics.compiled import compiled
from inference.processes import over_processes
from zoo.answers import scores_outward
from zoo.coordinates import free_log_scales
from zoo.model import Model
from zoo.programs import InCoordinates

__all__ = ["asked_in_data_units", "fitted_in_data_units", "request_in_standard_units"]


def request_in_standard_units(request: FitRequest) -> FitRequest:
    """The call of `fit` on data in standard units; itself where the model has no units.

    Args:
        request: the call.

    Returns:
        The call whose model, data and start are in standard units.
    """
    model = request.model
    if not model.units:
        return request
    variables = request.variables
    return replace(
        request,
        model=model.in_standard_units(),
        data=_standard_parts(model.units, model, request.data),
        variables=None if variables is None else _standard(model.units, variables),
    )


def fitted_in_data_units(request: FitRequest, fitted: Fitted) -> Fitted:
    """A run in standard units with its outcome and densities in the units of the data; AIC and BIC of these.

    Args:
        request: the call, in the units of the data.
        fitted: the run that `request_in_standard_units` led to.

    Returns:
        The run.
    """
    model = request.model
    if request.back is not None:
        fitted = request.back.fitted(fitted)
    if model.units:
        call = model, request.sample_weight, *request.data
        fitted = with_densities_less(fitted, lambda sites: np.asarray(_log_scale(sites, *call)))
        outcome = fitted.outcome._replace(
            posterior=_in_data_units(model, fitted.outcome.posterior),
            variational=_in_data_units(model, fitted.outcome.variational),
            model=None if fitted.outcome.model is None else model,
        )
        fitted = fitted._replace(outcome=outcome, data=None if fitted.data is None else request.data)
    attrs = _with_criteria(fitted.outcome.attrs, request)
    return fitted._replace(outcome=fitted.outcome._replace(attrs=attrs))


def _with_criteria(attrs: Mapping[str, Any], request: FitRequest) -> Mapping[str, Any]:
    """The attributes of a fit with AIC and BIC, where its method counts the parameters of a likelihood."""
    if not {"log_likelihood", "num_parameters"} <= attrs.keys():
        return attrs
    weight, number = request.sample_weight, attrs["num_parameters"]
    num_rows = request.data[0].shape[0] if weight is None else float(np.sum(weight))
    if request.spreads_rows:
        num_rows = over_processes(num_rows)
    misfit = -2 * attrs["log_likelihood"]
    return dict(attrs) | {"bic": float(misfit + number * np.log(num_rows)), "aic": float(misfit + 2 * number)}


@cache
def asked_in_data_units(method: Method) -> Method:
    """A method whose functions of a finished fit take and return the units of the data.

    Args:
        method: of a model with units.

    Returns:
        The method; what is run by `fit` is as it was.
    """
    return replace(
        method,
        guide=method.guide and partial(_guide, method),
        transform=method.transform and partial(_asked, method, "transform"),
        covariance=method.covariance and partial(_asked, method, "covariance"),
        predict=method.predict and partial(_predicted, method),
        log_density=method.log_density and partial(_log_density, method),
    )


def _units(method: Method, model: Model) -> Mapping[str, tuple[Any, Any]]:
    """Parts of the data, sites and variables of q to scale and shift of the units of the program."""
    own = model.own_coordinates
    if own is None:
        return model.units
    named = {**method.units(model), **model.units_of_sites}
    return {name: (own.factor(unit), own.shift(unit)) for name, unit in named.items()}


def _stated(model: Model) -> Model:
    """The model of data in these units."""
    own = model.own_coordinates
    return model.in_standard_units() if own is None else model.inside(own)


def _asked(
    method: Method, name: str, stored: Mapping[str, Any], model: Model, *data: Array, **options: Any
) -> Array:
    """What has no unit, or that of scores."""
    units = _units(method, model)
    inner = _standard(units, stored), _stated(model), *_standard_parts(units, model, data)
    found = getattr(method, name)(*inner, **options)
    return scores_outward(model, found, **options) if name == "transform" else found


def _predicted(
    method: Method, stored: Mapping[str, Any], model: Model, *data: Array, **options: Any
) -> tuple[Array, Array]:
    """Mean and variance of cells, of the part that the method completes."""
    mean, variance = _asked(method, "predict", stored, model, *data, **options)
    what, units = options.get("what"), _units(method, model)
    what = what if what in model.data_names else model.predicted_part(what)
    if what not in units:
        return mean, variance
    scale, shift = units[what]
    whole = data[model.data_names.index(what)] if model.data_names.index(what) < len(data) else None
    mean = mean * scale + shift
    if whole is not None and whole.shape == mean.shape:
        mean = jnp.where(jnp.isnan(whole), mean, whole)  # known cells stay exact
    return mean, variance * scale**2


def _log_density(method: Method, stored: Mapping[str, Any], model: Model, *data: Array) -> Array:
    units = _units(method, model)
    return _asked(method, "log_density", stored, model, *data) - _log_scale_of_rows(units, model, data)


def _guide(method: Method, stored: Mapping[str, Any], model: Model, *data: Array, **options: Any) -> Any:
    """Q as a program whose sites are in the units of the data; its parameters are in standard units."""
    units = _units(method, model)
    own = partial(method.guide, _standard(units, stored), _stated(model))
    sites = {name: units[name] for name in units if name not in method.units(model)}
    return InCoordinates(own, changes=sites)(*_standard_parts(units, model, data), **options)


type _Units = Mapping[str, tuple[Any, Any]]


def _standard_parts(units: _Units, model: Model, data: tuple) -> tuple:
    names = model.data_names
    return tuple(_to_standard(units, name, part) for name, part in zip(names, data, strict=False))


def _to_standard(units: _Units, name: str, value: Any) -> Any:
    if name not in units:
        return value
    scale, shift = units[name]
    return (value - shift) / scale


def _standard(units: _Units, values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _to_standard(units, name, value) for name, value in values.items()}


def _in_data_units(model: Model, values: Mapping[str, Any]) -> dict[str, Any]:
    units = model.units
    return {
        name: value * np.asarray(units[name][0]) + np.asarray(units[name][1]) if name in units else value
        for name, value in values.items()
    }


@partial(compiled, static_argnums=0)
def _log_scale(names: tuple[str, ...], model: Model, weight: Array | None, *data: Array) -> Array:
    """Weighted sum of the log scales of the observed cells, and of the parameters of these names."""
    each = _log_scale_of_rows(model.units, model, data)
    total = jnp.sum(each if weight is None else jnp.asarray(weight) * each)
    counted = names and model.prior != "improper"
    return total + _log_scale_of_parameters(model, data, names) if counted else total


def _log_scale_of_parameters(model: Model, data: tuple, names: tuple[str, ...]) -> Array:
    """Sum of the log scales of what varies freely in the sites of the program that a fit has values of."""
    trace = handlers.trace(handlers.seed(model, 0)).get_trace(*data)
    units = {name: model.units[name][0] for name in names if name in model.units}
    sites = (
        (units[name], site) for name, site in trace.items() if name in units and site["type"] == "sample"
    )
    return sum(
        jnp.sum(free_log_scales(site["fn"].support, scale, jnp.shape(site["value"]))) for scale, site in sites
    )


def _log_scale_of_rows(units: _Units, model: Model, data: tuple) -> Array:
    """Weighted sum of the log scales of each row's observed cells, shape (num_observations,)."""
    total = 0.0
    for name, part in zip(model.data_names, data, strict=False):
        if name in units and part is not None:
            weight = model.part_weights.get(name, 1.0)
            total += weight * jnp.sum(jnp.where(jnp.isnan(part), 0.0, jnp.log(units[name][0])), axis=-1)
    return total
