r"""The border: a fit is computed in coordinates in which its data are about their origin and in their scale.

There is one way in (`inward`) and one way out (`Return`). A model that declares the units of its sites and
fields (`zoo.model.Model.units_of_sites`) is written in coordinates of its data, as far as it is free, and so
are data and start. Differences and quotients are in double precision, before anything is cast. Variables
and densities, and hyperparameters that were learnt, return to the coordinates of the data as passed.

Models that declare no units, data in batches, rows spread over processes and SVI, whose guides are in
unconstrained coordinates, are left as they are.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.infer import init_to_uniform

from inference.algorithm import FitRequest, Fitted, Stochastic
from inference.precision import double_precision, to_numpy
from zoo.coordinates import Coordinates, coordinates_of, free_log_scales
from zoo.model import Model

__all__ = ["Return", "inward", "with_densities_less"]


def inward(request: FitRequest) -> FitRequest:
    """The call in the coordinates of its data.

    Args:
        request: the call.

    Returns:
        The call; itself where nothing changes.

    Raises:
        TypeError: the model declares its units and moves its data itself.
    """
    model, units = request.model, request.model.units_of_sites
    if not units or request.stream is not None or request.spreads_rows:
        return request
    if model.units or type(model).origin is not Model.origin:
        raise TypeError(
            f"{type(model).__name__} declares units_of_sites, and also units or origin: data would change "
            "their coordinates twice; declare units_of_sites alone"
        )
    if isinstance(request.method, Stochastic):
        return request
    own = coordinates_of(request.data, model.coordinate_freedom)
    if own is None:
        return request
    back, names = Return(request, own), model.data_names
    return replace(
        request,
        model=_expressed(model, own.inward),
        data=tuple(
            own.inward(x, units[n]) if n in units else x for n, x in zip(names, request.data, strict=True)
        ),
        variables=request.variables and back.changed(request.variables, own.inward),
        back=back,
    )


@double_precision
def _expressed(model: Model, turn: Callable) -> Model:
    """The model of data in other coordinates; ``turn`` is a way of `zoo.coordinates.Coordinates`."""
    return to_numpy(model.expressed(turn))


@dataclass(frozen=True, eq=False)
class Return:
    """The way back from the coordinates of a fit to those of its data.

    Attributes:
        request: the call as it was passed.
        coordinates: those of the fit.
    """

    request: FitRequest
    coordinates: Coordinates

    def changed(self, values: Mapping[str, Any], turn: Callable) -> dict[str, Any]:
        """Variables by name, in other coordinates where they have a unit."""
        units = self.request.model.units_of_sites
        return {name: turn(value, units[name]) if name in units else value for name, value in values.items()}

    def variables(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Variables of a fit in the coordinates of the data.

        Args:
            values: variable name to array.

        Returns:
            The same variables, in double precision where they change.
        """
        return self.changed(values, self.coordinates.outward)

    def model(self, learnt: Model | None) -> Model:
        """The model to be stored.

        Args:
            learnt: the model that the method ended with, or None.

        Returns:
            The model of the data as passed.
        """
        return self.request.model if learnt is None else _expressed(learnt, self.coordinates.outward)

    def rows(self) -> np.ndarray:
        """By how many nats the log density of each row is larger in the fit, shape (num_observations,)."""
        model = self.request.model
        weights = [model.part_weights.get(name, 1.0) for name in model.data_names]
        return self.coordinates.log_scale_of_rows(self.request.data, weights)

    @double_precision
    def parameters(self, sites: tuple[str, ...]) -> float:
        """By how much the log prior density of sites of the program is larger in the fit, in nats."""
        units, model = (
            self.request.model.units_of_sites,
            _expressed(self.request.model, self.coordinates.inward),
        )
        found: list[tuple[str, Any, tuple[int, ...]]] = []

        def note(key: Any) -> None:  # a flat prior has no draws but a starting point
            program = handlers.substitute(handlers.seed(model, key), substitute_fn=init_to_uniform)
            for name, site in handlers.trace(program).get_trace(*self.request.data).items():
                is_counted = name in sites and name in units and site["type"] == "sample"
                if is_counted and not _is_improper(site["fn"]):
                    found.append((name, site["fn"].support, np.shape(site["value"])))

        jax.eval_shape(note, jax.random.key(0))
        each = (
            free_log_scales(own, self.coordinates.factor(units[name]), shape) for name, own, shape in found
        )
        return float(sum(np.sum(logs) for logs in each))

    def densities(self, found: Mapping[str, Any], sites: tuple[str, ...]) -> dict[str, Any]:
        """Log likelihoods of rows and log priors of draws in the coordinates of the data.

        Args:
            found: ``log_likelihood``, a last axis over rows, ``log_prior``, and what has other names.
            sites: that have a prior density in ``log_prior``.

        Returns:
            The same by name.
        """
        lost = {"log_likelihood": self.rows} | {"log_prior": partial(self.parameters, sites)}
        return {name: value - lost[name]() if name in lost else value for name, value in found.items()}

    def fitted(self, fitted: Fitted) -> Fitted:
        """A run with its densities in the coordinates of the data; its variables stay."""
        rows, weight = self.rows(), self.request.sample_weight
        of_rows = float(rows.sum() if weight is None else rows @ weight)
        return with_densities_less(fitted, lambda sites: of_rows + (self.parameters(sites) if sites else 0.0))


def with_densities_less(fitted: Fitted, lost: Callable[[tuple[str, ...]], Any]) -> Fitted:
    """A run whose log densities, in the trace and among the attributes, are less by a number.

    Args:
        fitted: the run.
        lost: of the sites whose prior density is a part of a density, how much this loses, in nats.

    Returns:
        The run; see `inference.algorithm.Outcome.densities`.
    """
    run, outcome = fitted.run, fitted.outcome
    less = {name: lost(sites) for name, sites in outcome.densities.items()}
    trace = {name: run.trace[name] - own for name, own in less.items() if name in run.trace}
    attrs = {name: float(outcome.attrs[name] - own) for name, own in less.items() if name in outcome.attrs}
    outcome = outcome._replace(attrs=dict(outcome.attrs) | attrs)
    return fitted._replace(run=run._replace(trace=run.trace | trace), outcome=outcome)


def _is_improper(prior: dist.Distribution) -> bool:
    while isinstance(prior, dist.Independent | dist.ExpandedDistribution):
        prior = prior.base_dist
    return isinstance(prior, dist.ImproperUniform)
