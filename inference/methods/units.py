"""What is asked of a finished fit, of a model that is stated in coordinates of its own.

Functions of a method take and return those of the data (`asked_in_data_units`); functions of the model do so
already. A fit computes in other coordinates by `inference.coordinates`.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from inference.algorithm import FitRequest, Fitted, Method
from inference.processes import over_processes
from zoo.answers import completion_of, scores_outward
from zoo.coordinates.of_models import inside, part_weights
from zoo.model import Model
from zoo.programs import InCoordinates


def fitted_in_data_units(request: FitRequest, fitted: Fitted) -> Fitted:
    """A run with its trace and densities in the coordinates of the data; AIC and BIC of these.

    Args:
        request: the call that was fitted.
        fitted: the run.

    Returns:
        The run.
    """
    if request.back is not None:
        fitted = request.back.fitted(fitted)
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
        log_joint=method.log_joint and partial(_asked, method, "log_joint"),
    )


def _units(method: Method, model: Model) -> Mapping[str, tuple[Any, Any]]:
    """Parts of the data, sites and variables of q to scale and shift of the units of the program."""
    own = model.own_coordinates
    named = {**method.units(model), **model.units}
    return {name: (own.factor(unit), own.shift(unit)) for name, unit in named.items()}


def _asked(
    method: Method, name: str, stored: Mapping[str, Any], model: Model, *data: Array, **options: Any
) -> Array:
    """What has no unit, or that of scores."""
    units = _units(method, model)
    inner, parts = inside(model, model.own_coordinates), _standard_parts(units, model, data)
    found = getattr(method, name)(_standard(units, stored), inner, *parts, **options)
    return scores_outward(model, found, **options) if name == "transform" else found


def _predicted(
    method: Method, stored: Mapping[str, Any], model: Model, *data: Array, **options: Any
) -> tuple[Array, Array]:
    """Mean and variance of cells, of the part that the method completes."""
    mean, variance = _asked(method, "predict", stored, model, *data, **options)
    part, units = completion_of(model, options.get("what")).part, _units(method, model)
    if part not in units:
        return mean, variance
    scale, shift = units[part]
    whole = data[model.data_names.index(part)] if model.data_names.index(part) < len(data) else None
    mean = mean * scale + shift
    if whole is not None and whole.shape == mean.shape:
        mean = jnp.where(jnp.isnan(whole), mean, whole)  # known cells stay exact
    return mean, variance * scale**2


def _log_density(method: Method, stored: Mapping[str, Any], model: Model, *data: Array) -> Array:
    lost = model.own_coordinates.log_scale_of_rows(data, part_weights(model))
    return _asked(method, "log_density", stored, model, *data) - lost


def _guide(method: Method, stored: Mapping[str, Any], model: Model, *data: Array, **options: object) -> Any:
    """Q as a program whose sites are in the units of the data; its parameters are in standard units."""
    units = _units(method, model)
    own = partial(method.guide, _standard(units, stored), inside(model, model.own_coordinates))
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
