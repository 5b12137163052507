"""Variational Bayes for `zoo.Paired`.

``specific="low_rank"``: `inference.methods.epca.vb`, for Gaussian, Bernoulli, binomial and Poisson
cells and mixed tables of them. ``specific="full_covariance"``: `inference.methods.paired.full_covariance_vb`,
for Gaussian views of unknown noise (Bayesian CCA).
"""

from contextlib import suppress
from dataclasses import replace
from types import ModuleType
from typing import Any

from jax import Array

from inference.algorithm import Algorithm, Init, Outcome
from inference.methods.epca import vb as projections
from inference.methods.paired import full_covariance_vb as full_covariance
from inference.numerics.weighted_rows import beside_rows
from zoo.answers import answer_of
from zoo.paired import Paired
from zoo.shapes import Values


def _own(model: Paired) -> ModuleType:
    """The module with the ascent for the model's program."""
    return full_covariance if model.specific == "full_covariance" else projections


def init(key: Array, model: Paired, *data: Array) -> Any:
    """Narrow factors around the model's starting point."""
    return _own(model).init(key, model, *data)


def step(key: Array, state: Any, model: Paired, *data: Array) -> tuple[Any, projections.ProjectionVBInfo]:
    """Update every factor once."""
    return _own(model).step(key, state, model, *data)


ALGORITHM = Algorithm(init, step)


def _start(key: Array, variables: Values, model: Paired, *data: Array, **options: object) -> Any:
    return _own(model).start(key, variables, model, *data, **options)


def _for_steps(model: Paired, data: tuple) -> tuple[Paired, tuple]:
    return (model, data) if model.specific == "full_covariance" else beside_rows(model, data)


def _prepare(model: Paired, data: tuple, init: Init, **options: object) -> tuple:
    if model.specific == "full_covariance":
        full_covariance.check_data(model, data)
    return data


def _conclude(
    key: Array, state: Any, model: Paired, data: tuple, *sizes: object, **options: object
) -> Outcome:
    return _own(model).conclude(key, state, model, data, *sizes, **options)


def guide(stored: Values, model: Paired, *data: Array, **sizes: object) -> None:
    """The guide q as a NumPyro program with exactly the sites of the model."""
    _own(model).guide(stored, model, *data, **sizes)


def _check(model: Paired, settings: Any) -> None:
    _own(model).check(model, settings)


def _otherwise(model: Paired, data: tuple, is_refused: bool) -> str:
    with suppress(ValueError):
        _prepare(model, data, None)
        return "map" if is_refused else ""
    return "map"


def _transform(stored: dict[str, Array], model: Paired, *data: Array, **options: Any) -> Array:
    return model.scores(_own(model).point(stored, model), *data, **options)


def _covariance(stored: dict[str, Array], model: Paired, *data: Array) -> Array:
    return answer_of(model, "scores_covariance", _own(model).point(stored, model), *data)


def _predict(stored: dict[str, Array], model: Paired, *data: Array, **options: object) -> tuple[Array, Array]:
    return _own(model).predict(stored, model, *data, **options)


METHOD = replace(
    projections.METHOD,
    units=lambda model: _own(model).units(model),
    build=lambda strategy: ALGORITHM,
    start=_start,
    prepare=_prepare,
    for_steps=_for_steps,
    conclude=_conclude,
    guide=guide,
    transform=_transform,
    covariance=_covariance,
    predict=_predict,
    check=_check,
    otherwise=_otherwise,
)
