r"""Fits in standard units: the only way in, and the only way out.

A model whose `zoo.model.Model.units` are not empty is fitted to :math:`\tilde x = (x - c) / s` as
`zoo.model.Model.in_standard_units`, whatever the method; then variables return to the units of the data,
:math:`v = s_v \tilde v + c_v`. Densities of cells lose :math:`\log s` for each observed cell, times the
weight of its part; densities of parameters lose :math:`\log s_v` for each entry that varies freely: neither
for fixed zeros, nor for the second half of a symmetric matrix, nor under an improper prior, whose density is
one in any unit. A method says which densities it reports, and of which parameters
(`inference.algorithm.Outcome.densities`). What is asked of a finished fit goes to functions of the method the
same way (`asked_in_data_units`); functions of the model are in the units of the data already.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from numpyro import handlers
from numpyro.distributions.transforms import AffineTransform
from numpyro.primitives import Messenger

from inference.algorithm import FitRequest, Fitted, Method
from inference.coordinates import with_densities_less
from inference.numerics.compiled import compiled
from inference.processes import over_processes
from zoo.coordinates import free_log_scales
from zoo.model import Model

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
        data=_standard_parts(model, request.data),
        variables=None if variables is None else _standard(model, variables),
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
        guide=method.guide and partial(_guide, method.guide),
        transform=method.transform and partial(_asked, method.transform),
        covariance=method.covariance and partial(_asked, method.covariance),
        predict=method.predict and partial(_predicted, method.predict),
        log_density=method.log_density and partial(_log_density, method.log_density),
    )


def _asked(
    function: Callable, stored: Mapping[str, Any], model: Model, *data: Array, **options: Any
) -> Array:
    """What has no unit."""
    return function(
        _standard(model, stored), model.in_standard_units(), *_standard_parts(model, data), **options
    )


def _predicted(
    function: Callable, stored: Mapping[str, Any], model: Model, *data: Array, **options: Any
) -> tuple[Array, Array]:
    """Mean and variance of cells, of the part that the method completes."""
    mean, variance = _asked(function, stored, model, *data, **options)
    what = options.get("what")
    what = what if what in model.data_names else model.predicted_part(what)
    if what not in model.units:
        return mean, variance
    scale, shift = model.units[what]
    whole = data[model.data_names.index(what)] if model.data_names.index(what) < len(data) else None
    mean = mean * scale + shift
    if whole is not None and whole.shape == mean.shape:
        mean = jnp.where(jnp.isnan(whole), mean, whole)  # known cells stay exact
    return mean, variance * scale**2


def _log_density(function: Callable, stored: Mapping[str, Any], model: Model, *data: Array) -> Array:
    return _asked(function, stored, model, *data) - _log_scale_of_rows(model, data)


class _ChangeOfUnit(AffineTransform):
    """Values times a positive scale, plus a shift: of a support, onto itself."""

    @property
    def codomain(self) -> dist.constraints.Constraint:
        """That of the values in standard units."""
        return self.domain

    def log_abs_det_jacobian(self, x: Array, y: Array, intermediates: Any = None) -> Array:
        """Sum of the log scales of what varies freely in a value of the support.

        Args:
            x: values in standard units.
            y: values in the units of the data.
            intermediates: not read; NumPyro passes it.

        Returns:
            The shape of ``x`` without the dims of a value.
        """
        each = free_log_scales(self.domain, self.scale, jnp.shape(x))
        return jnp.sum(each, axis=tuple(range(-self.domain.event_dim, 0)))


class _InDataUnits(Messenger):
    """Sites in the units of the data outside, and in standard units inside."""

    def __init__(self, program: Callable, units: Mapping[str, tuple[Any, Any]]) -> None:
        self.units = units
        super().__init__(program)

    def process_message(self, message: dict[str, Any]) -> None:
        """Replace the distribution of a site by that in the units of the data."""
        if message["type"] == "sample" and message["name"] in self.units:
            scale, shift = map(jnp.asarray, self.units[message["name"]])
            own = message["fn"]
            message["fn"] = dist.TransformedDistribution(own, _ChangeOfUnit(shift, scale, own.support))

    def postprocess_message(self, message: dict[str, Any]) -> None:
        """Hand the program the value in standard units, after all others have seen it."""
        if message["type"] == "sample" and message["name"] in self.units:
            scale, shift = self.units[message["name"]]
            message["value"] = (message["value"] - shift) / scale


def _guide(guide: Callable, stored: Mapping[str, Any], model: Model, *data: Array, **options: Any) -> Any:
    """Q as a program whose sites are in the units of the data; its parameters are in standard units."""
    own = partial(guide, _standard(model, stored), model.in_standard_units())
    return _InDataUnits(own, model.units)(*_standard_parts(model, data), **options)


def _standard_parts(model: Model, data: tuple) -> tuple:
    names = model.data_names
    return tuple(_to_standard(model, name, part) for name, part in zip(names, data, strict=False))


def _to_standard(model: Model, name: str, value: Any) -> Any:
    if name not in model.units:
        return value
    scale, shift = model.units[name]
    return (value - shift) / scale


def _standard(model: Model, values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _to_standard(model, name, value) for name, value in values.items()}


def _in_data_units(model: Model, values: Mapping[str, Any]) -> dict[str, Any]:
    units = model.units
    return {
        name: value * np.asarray(units[name][0]) + np.asarray(units[name][1]) if name in units else value
        for name, value in values.items()
    }


@partial(compiled, static_argnums=0)
def _log_scale(names: tuple[str, ...], model: Model, weight: Array | None, *data: Array) -> Array:
    """Weighted sum of the log scales of the observed cells, and of the parameters of these names."""
    each = _log_scale_of_rows(model, data)
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


def _log_scale_of_rows(model: Model, data: tuple) -> Array:
    """Weighted sum of the log scales of each row's observed cells, shape (num_observations,)."""
    total = 0.0
    for name, part in zip(model.data_names, data, strict=False):
        if name in model.units and part is not None:
            weight = model.part_weights.get(name, 1.0)
            total += weight * jnp.sum(jnp.where(jnp.isnan(part), 0.0, jnp.log(model.units[name][0])), axis=-1)
    return total
