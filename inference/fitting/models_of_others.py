"""What is asked of a model that is not the zoo's: whether its facts, and its method, agree with its program.

The facts of the zoo's own models are proved by its tests. Another author's wrong fact would not stop a fit:
it would end with a good verdict and numbers that are not the program's. So a few rows are put to the program
before the first fit of a class, and what its own method concludes is held against the program's sites.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro import handlers
from numpyro.infer import init_to_uniform

import zoo
from inference.algorithm import FitRequest, Fitted
from inference.coordinates import Return
from inference.numerics.programs import log_densities
from inference.numerics.weighted_rows import row_limit
from inference.precision import double_precision
from zoo.answers import answer_of
from zoo.checks import column_of, listed, row_of
from zoo.fields import names_of
from zoo.intake.tables import is_of_rows
from zoo.model import Model, in_current_precision
from zoo.sparse import SparseCounts, SparseMatrix

FEW = 16  # rows that are put to a program
_FOUND_RIGHT: set[tuple] = set()  # classes, their static fields, whether there were units, whether gaps


def check_facts(request: FitRequest) -> None:
    """Refuse a model whose program contradicts what it says of missing cells, latents of rows, and units.

    Args:
        request: the call in the coordinates of the fit; parts that are no arrays are not looked at.

    Raises:
        ValueError: what the program does, what the model says, and what to change.
    """
    back = request.back
    passed = request if back is None else back.request
    model, data = passed.model, passed.data
    if _is_the_zoos(model) or not all(isinstance(part, np.ndarray) for part in data):
        return
    gaps = _with_gaps(data)
    static = tuple(getattr(model, name) for name in names_of(model).static)  # on which the program depends
    kind = type(model), static, back is not None, bool(gaps.any())
    if kind in _FOUND_RIGHT:
        return
    chosen = np.argsort(~gaps, kind="stable")[:FEW]  # rows with gaps first
    rows = tuple(part[chosen] for part in data)
    if gaps.any():
        _check_gaps(model, rows, data)
    _check_locals(model, rows)
    if back is not None:
        _check_units(Return(replace(passed, data=rows), back.coordinates), request.model)
    _FOUND_RIGHT.add(kind)


def check_gaps(model: Model, data: tuple, scores: np.ndarray) -> None:
    """Refuse new rows with missing cells if the program of another author's model has no density for them.

    Args:
        model: of the fit.
        data: parts of the new rows; parts that are no arrays are not looked at.
        scores: log density of each row, shape (num_observations,).

    Raises:
        ValueError: as `check_facts`.
    """
    if _is_the_zoos(model) or any(isinstance(part, SparseCounts | SparseMatrix) for part in data):
        return
    parts = tuple(map(np.asarray, data))
    lost = _with_gaps(parts) & ~np.isfinite(scores)
    if lost.any():
        _check_gaps(model, tuple(part[lost][:FEW] for part in parts), parts)


def check_outcome(request: FitRequest, fitted: Fitted) -> None:
    """Refuse what the method of a model that is not the zoo's concludes, if it is not the program's.

    Args:
        request: the call.
        fitted: the run and its outcome.

    Raises:
        ValueError: a site of the program is left out, or has another shape than the program gives it.
    """
    model, data, found = request.model, request.data, fitted.outcome.posterior
    own = zoo.registered_methods(type(model).__name__.lower())
    if request.name not in own or not fitted.outcome.is_generative or request.stream is not None:
        return
    at = f"{request.name} of {type(model).__name__}: conclude"
    num_draws = max((np.prod(np.shape(held)[:2]) for held in found.values()), default=1)
    for name, value in jax.eval_shape(lambda: _at_a_point(in_current_precision(model), data)).items():
        if name not in found:
            if is_of_rows(model, name) and not row_limit(num_draws * data[0].shape[0], name, request.keep):
                continue
            raise ValueError(
                f"{at} leaves out {name!r}, a site of the program; it gives {', '.join(found) or 'nothing'}"
            )
        shape = np.shape(found[name])
        if shape[2:] != value.shape or len(shape) < 2:
            raise ValueError(
                f"{at} gives {name!r} the shape {shape}; wanted: chains, draws and then {value.shape}, as in "
                "the program (inference.algorithm.as_one_draw adds the first two)"
            )


def _is_the_zoos(model: Model) -> bool:
    return type(model).__module__.partition(".")[0] == zoo.__name__


def _with_gaps(data: tuple) -> np.ndarray:
    """Which rows have a missing cell, shape (num_observations,)."""
    return np.any([np.isnan(part).reshape(len(part), -1).any(1) for part in data], axis=0)


def _at_a_point(model: Model, rows: tuple) -> dict[str, Any]:
    """A value of every latent site of a program, given rows."""
    program = handlers.substitute(handlers.seed(model, 0), substitute_fn=init_to_uniform)
    sites = handlers.trace(program).get_trace(*rows).items()
    return {name: s["value"] for name, s in sites if s["type"] == "sample" and not s["is_observed"]}


def _of_sites(found: Mapping[str, Any], names: tuple[str, ...]) -> float:
    return sum(float(jnp.sum(found[name])) for name in names)


@double_precision
def _check_gaps(model: Model, rows: tuple, data: tuple) -> None:
    one = in_current_precision(model)
    with numpyro.validation_enabled(False):  # which warns of the cells that are asked about
        found = log_densities(one, rows, _at_a_point(one, rows))
    if np.isfinite(_of_sites(found, model.data_names)):
        return
    name, part = next((n, p) for n, p in zip(model.data_names, data, strict=True) if np.isnan(p).any())
    row, column = np.argwhere(np.isnan(part))[0]
    raise ValueError(
        f"the program of {type(model).__name__} has no density for a row with a missing cell, such as "
        f"{row_of(part, row)}, {column_of(part, column)} of {name}: let it leave out such cells, by a "
        f"distribution with .mask(~jnp.isnan({name})) observed at jnp.nan_to_num({name}); or fill them in "
        f"the data, which Table({name!r}, missing=False) asks for"
    )


@double_precision
def _check_locals(model: Model, rows: tuple) -> None:
    if not model.answers.has_density or not answer_of(model, "sums_out_locals"):
        return
    drawn = [name for name in _at_a_point(in_current_precision(model), rows) if is_of_rows(model, name)]
    if unsaid := [name for name in drawn if name not in answer_of(model, "kept_locals")]:
        raise ValueError(
            f"the program of {type(model).__name__} draws {listed(unsaid)} of every row where the rows are "
            "given too, and its answers do not say so: give it answers, a subclass of zoo.answers.Answers "
            "whose sums_out_locals returns False"
        )


@double_precision
def _check_units(back: Return, inner: Model) -> None:
    """Raise ValueError if the log density of a site at one point is not the same in both coordinates."""
    model, rows, own = back.request.model, back.request.data, back.coordinates
    moved = tuple(own.parts_inward(rows, model.data_names, model.units))
    outer, other = (in_current_precision(one).explicit for one in (model, inner))
    values = _at_a_point(other, moved)
    by_site = log_densities(outer, rows, back.variables(values)), log_densities(other, moved, values)
    for names in (*((name,) for name in values), model.data_names):
        here, there = (_of_sites(found, names) for found in by_site)
        if names == model.data_names:
            there -= float(np.sum(back.rows() * np.ones(len(rows[0]))))
        else:
            there -= float(back.parameters(names, inner))
        if np.isfinite([here, there]).all() and abs(there - here) > 1e-5 * (1 + abs(there) + abs(here)):
            raise ValueError(
                f"the units of {type(model).__name__} do not hold: at one point the log density of "
                f"{listed(names)} is {here:.5g} of the data as passed and {there:.5g} by its units in other "
                "coordinates. units must name all sites that follow the data, and a field that does has "
                "unit=; numbers that the program itself holds are in deviations of the columns, which "
                'Table(..., stated_in="columns") says'
            )
