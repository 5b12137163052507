r"""The border: a fit is computed in coordinates in which its data are about their origin and in their scale.

There is one way in (`inward`) and one way out (`Return`). A model that declares the units of its sites and
fields (`zoo.model.Model.units`) is written in coordinates of its data, as far as it is free, and so
are data and start. Differences and quotients are in double precision, before anything is cast. Variables
and densities, and hyperparameters that were learnt, return to the coordinates of the data as passed. A model
that is stated in coordinates of its own (`zoo.model.Model.own_coordinates`) is fitted in these, about the
origin of its data unless they have one.

Of rows in batches that are not summed up before the fit, and of rows spread over processes, each process
sees but some: there the origin alone changes, whose Jacobian is one, to that of the rows that are seen first;
a model stated in coordinates of its own is left as it is. So are models that declare no units, and methods
whose options or results have one.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import Array
from numpyro import handlers
from numpyro.infer import init_to_uniform

from inference.algorithm import FitRequest, Fitted, Stochastic
from inference.precision import double_precision, to_numpy, warn_of_lost_digits
from inference.processes import gathered
from zoo.answers import has_answer
from zoo.coordinates import Coordinates, coordinates_of, free_log_scales, is_improper
from zoo.coordinates.of_models import coordinate_fields, expressed, inside, part_weights
from zoo.model import Model, in_current_precision


def inward(request: FitRequest) -> FitRequest:
    """The call in the coordinates of its data.

    Args:
        request: the call.

    Returns:
        The call; itself where nothing changes.

    Warns:
        UserWarning: single precision loses digits of columns that keep their origin.
    """
    model, units = request.model, request.model.units
    own = _coordinates_of_fit(request) if units and not request.method.has_unit else None
    if request.dtype == "float32" and not getattr(request.method, "is_double", False):
        warn_of_lost_digits(request, (None,) * len(request.data) if own is None else own.origins)
    if own is None:
        return request
    back, names = Return(request, own), model.data_names
    return replace(
        request,
        model=_inside(model, own),
        data=tuple(own.parts_inward(request.data, names, units)),
        stream=request.stream if _holds_all(request) else request.stream.about(own.origins[0]),
        variables=request.variables and back.changed(request.variables, own.inward),
        back=back,
    )


def _holds_all(request: FitRequest) -> bool:
    """Whether the data are all rows of the fit, or sums of them."""
    return request.stream is None or "moments" in request.method.takes


def _coordinates_of_fit(request: FitRequest) -> Coordinates | None:
    """Those in which the model is stated, about the origin of its data if they have none; else the data's."""
    model, sees_all = request.model, _holds_all(request) and not request.spreads_rows
    free, stated = coordinates_of(request.data, model.coordinate_freedom), model.own_coordinates
    if stated is not None:
        if free is None or not sees_all:
            return stated if sees_all else None
        pairs = zip(stated.origins, free.origins, strict=True)
        return replace(stated, origins=tuple(other if own is None else own for own, other in pairs))
    if free is None or sees_all:
        return free
    origins = free.origins  # of the rows that are seen first
    if request.spreads_rows:
        first = gathered(**{str(i): at for i, at in enumerate(origins) if at is not None})[0]
        origins = tuple(first.get(str(i)) for i in range(len(origins)))
    changes = any(at is not None for at in origins)
    return Coordinates(origins, (None,) * len(origins)) if changes else None


@double_precision
def _inside(model: Model, own: Coordinates) -> Model:
    return to_numpy(inside(model, own))


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
        """Variables by name, sites and those of q, in other coordinates where they have a unit."""
        units = {**self.request.method.units(self.request.model), **self.request.model.units}
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
        given = self.request.model
        if learnt is None:
            return given
        own = {name: getattr(given, name) for name in coordinate_fields(given)}
        stated = learnt.replaced(**own)  # the units of fields are those of a model that is stated so
        outward = self.coordinates.outward
        return double_precision(lambda: to_numpy(expressed(stated, outward).replaced(**own)))()

    def data(self) -> tuple:
        """The data of the fit as they were passed."""
        stream = self.request.stream
        return self.request.data if _holds_all(self.request) else (stream.whole(),)

    def rows(self) -> np.ndarray:
        """By how many nats the log density of a row is larger in the fit, shape (num_observations,) or ()."""
        model = self.request.model
        if all(scale is None for scale in self.coordinates.scales):
            return np.zeros(())
        return self.coordinates.log_scale_of_rows(self.request.data, part_weights(model))

    @double_precision
    def parameters(
        self, sites: Collection[str], fitted: Model | None = None, occupied: np.ndarray | None = None
    ) -> Any:
        """By how much the log prior density of sites of the program is larger in the fit.

        Args:
            sites: their names.
            fitted: the model that the fit ended with, in its coordinates; None: that it began with.
            occupied: how many components have rows, if the others are not in the density
                (`zoo.answers.Answers.prior_of_occupied`), any shape.

        Returns:
            A number, or the shape of ``occupied``, in nats.
        """
        units = self.request.model.units
        inner = _inside(self.request.model, self.coordinates) if fitted is None else fitted
        model = in_current_precision(inner)  # numbers that stay known where the program is traced
        found: list[tuple[str, Any, tuple[int, ...]]] = []

        def note(key: Array) -> None:  # a flat prior has no draws but a starting point
            program = handlers.substitute(handlers.seed(model, key), substitute_fn=init_to_uniform)
            for name, site in handlers.trace(program).get_trace(*self.request.data).items():
                is_counted = name in sites and name in units and site["type"] == "sample"
                if is_counted and not is_improper(site["fn"]):
                    found.append((name, site["fn"].support, np.shape(site["value"])))

        jax.eval_shape(note, jax.random.key(0))
        total: Any = 0.0
        for name, support, shape in found:
            own = float(np.sum(free_log_scales(support, self.coordinates.factor(units[name]), shape)))
            is_of_components = model.variable_dims[name][:1] == ("component",)
            total += own if occupied is None or not is_of_components else own / shape[0] * occupied
        return total

    def densities(self, found: Mapping[str, Any], draws: Mapping[str, Any], fitted: Model) -> dict[str, Any]:
        """Log likelihoods of rows and log priors of draws in the coordinates of the data.

        Args:
            found: ``log_likelihood``, a last axis over rows, ``log_prior``, and what has other names.
            draws: of the sites that have a prior density in ``log_prior``, and what follows from them.
            fitted: the model that the fit ended with, in its coordinates.

        Returns:
            The same by name.
        """
        tells_occupied = fitted.roles.cluster in draws and has_answer(fitted, "prior_of_occupied")
        occupied = draws[fitted.roles.occupied] if tells_occupied else None
        lost = {"log_likelihood": self.rows}
        lost |= {"log_prior": partial(self.parameters, tuple(draws), fitted, occupied)}
        return {name: value - lost[name]() if name in lost else value for name, value in found.items()}

    def fitted(self, fitted: Fitted) -> Fitted:
        """A run with its trace, its densities and a guide in the coordinates of the data.

        The variables of `variables` stay.
        """
        request, outward = self.request, self.coordinates.outward
        rows, weight = self.rows(), request.sample_weight
        of_rows = float(rows.sum() if weight is None or not rows.ndim else rows @ weight)
        occupied = fitted.run.trace[request.model.roles.occupied] if fitted.outcome.of_occupied else None

        def lost(sites: tuple[str, ...]) -> Any:
            return of_rows + (self.parameters(sites, occupied=occupied) if sites else 0.0)

        fitted = with_densities_less(fitted, lost)
        found = {n: outward(fitted.run.trace[n], unit) for n, unit in request.method.trace_units.items()}
        fitted = fitted._replace(run=fitted.run._replace(trace=fitted.run.trace | found))
        if not isinstance(request.method, Stochastic):
            return fitted
        outcome = fitted.outcome._replace(variational=self._guide(fitted.outcome.variational))
        return fitted._replace(outcome=outcome)

    @double_precision
    def _guide(self, params: Mapping[str, Any]) -> dict[str, Any]:
        request, own = self.request, self.coordinates
        inner, outer = ((model, *request.data) for model in (_inside(request.model, own), request.model))
        return to_numpy(request.method.turned(params, inner, outer, self.variables, **request.options))


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
