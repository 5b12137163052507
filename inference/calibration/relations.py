r"""Whether a method keeps the relations that follow from its model (metamorphic testing).

No reference values are needed: a table in other units, in another order or in another format must give the
answer that follows from the first. Let T change the data. A method keeps the relation if

.. math:: \mathrm{fit}(T x) = T' \, \mathrm{fit}(x),

where T' renumbers the elements of every dim, puts predictions into the new units, and moves log densities of
rows by :math:`-\sum_d \log s_d` over the observed cells, the log Jacobian of :math:`x_d \to s_d x_d + t_d`.

Methods that ascend, and samplers whose random numbers fall on the same elements as before, are compared
number by number: the largest difference relative to the spread of the quantity. Labels are matched first;
what a rotation changes is replaced by products over the latents, which it does not. Where random numbers
fall on other elements, many short chains are compared in distribution: chains are independent, and the law of
a chain after any number of steps is the same on both sides, so the test is exact whether or not they mix.
"""

import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import xarray as xr
from scipy.optimize import linear_sum_assignment

from inference.algorithm import Direct, Method, Sampler, Stochastic
from inference.calibration.relation_changes import RELATIONS, Change, Relation, Side, cell_units
from inference.calibration.verdicts import RelationVerdict, two_sample
from inference.convergence.identifiable import invariants, kind_of
from inference.coordinates import Return
from inference.fitting.front_door import fit
from inference.inputs.tables import as_arrays
from inference.methods import method_of
from inference.numerics.weighted_rows import in_own_shapes
from inference.prediction import log_density, predict, transform
from inference.results.files import model_of
from inference.results.model_fields import dims_of
from zoo.answers import completions_of, has_answer
from zoo.checks import check_choice
from zoo.coordinates import Coordinates
from zoo.documents.topic_model import dirichlet_of
from zoo.fields import names_of
from zoo.intake.tables import num_needed, takes_missing, takes_sparse_counts
from zoo.model import Assumptions, Model

TOLERANCE = 1e-6  # of the spread
SINGLE = float(np.finfo(np.float32).eps)
#: What a model's phrase may say of the kind of sameness.
_UP_TO_CONSTANT, _SCORES_IN_UNITS = "objective up to a constant", "scores in the new unit"
_NOT_STORED, _SETTLED = "stored are others", "to the tolerance of passes over documents"
_OF_Y_ALONE, _QUADRATURE = "density of y alone", "to the error of quadrature"
_WHERE_IT_ENDS = "where it ends, to the root of single precision"
FALLS = 100  # of two fits, in units of rounding of the objective: each takes steps that lower it by less
QUADRATURE = 1e-5  # of the spread: rules of a few nodes, whose error depends on the order of the integrals
SETTLED = 1e-2  # of the spread of scores: passes that end when few tokens move leave that much, at most
NUM_CHAINS = 32  # and runs of SVI: of so many a side, the smallest p-value of a rank test is below 1e-9
LEAST_CHAINS = 8  # of which rank tests have p-values of use
_UNITS, _SHIFTS = ("rescaled", "columns_rescaled"), ("shifted", "other_units")
_MISSING = ("masked_array", "frame_nan", "frame_na", "row_masked")
LABEL_DIMS = ("component", "topic", "cluster")
#: Dims of invariants that name no elements of the data, and so survive any renumbering.
NAMELESS_DIMS = re.compile("chain|draw|(shared_)?rank(_.+)?")
ROW_DIMS = ("observation", "document")
#: The log likelihood of each row, the one functional that names rows: it tells apart what moments do not.
ROW_LIKELIHOOD = "log_likelihood"
UNIT_FREE_INVARIANTS = ("mean_log_likelihood", "same_cluster", "sorted_weights")


def relation_check(
    model: Model | Callable[..., Model],
    method: str,
    data: tuple,
    relation: str | Relation,
    *,
    seed: int = 0,
    false_alarm_rate: float = 1e-3,
    threshold: float | None = None,
    **options: Any,
) -> RelationVerdict:
    """Whether two fits agree, one of which follows from the other (other units, order or format).

    Args:
        model: a model, or a function of the data that makes it, so that priors are read off the changed data
            too. Fields that are None are read off the data of each fit.
        method: a method of the model.
        data: parts of the data, as arrays.
        relation: a name of `RELATIONS`, or a `Relation`, such as one of these with another ``said`` where
            units and cells of the model do not tell what happens.
        seed: of the fits, and of the change.
        false_alarm_rate: probability that correct code fails, at most, where draws are compared in
            distribution; shared by all p-values (Bonferroni).
        threshold: the largest error that passes, relative to the spread of each quantity; None: 1e-6, and in
            single precision 4 T c eps for T iterations and correlation matrices, of all columns and within
            each component, of condition numbers up to c, by which a step can amplify the rounding of its
            input. Where the objective decides on each step, both fits have to end within 100 eps of it, and
            errors count as the nats a row that they cost.
        **options: passed to both fits.

    Returns:
        The verdict: ``statistic`` is the largest error, or the smallest p-value.

    Raises:
        TypeError: ``data`` is not a tuple.
        ValueError: the relation does not hold for this model and method (with the reason), or the data have
            nothing that it changes.

    Example:
        >>> import numpy as np, zoo
        >>> from inference.calibration import relation_check
        >>> x = np.random.default_rng(0).normal(size=(20, 3))
        >>> bool(relation_check(zoo.PPCA(num_latents=1), "closed_form", (x,), "rescaled"))
        True
    """
    if not isinstance(data, tuple):
        raise TypeError(f"data must be a tuple of the parts of the data; got {type(data).__name__}")
    if isinstance(relation, str):
        check_choice("relation", relation, tuple(RELATIONS))
        relation = RELATIONS[relation]
    make = model if not isinstance(model, Model) else lambda *parts: model
    known = sized(make, data)
    chosen = method_of(known, method)
    said = outcome_of(known, method, relation)
    if said.startswith("no: "):
        raise ValueError(f"{relation.name} does not hold here: {said.removeprefix('no: ')}")
    change = relation.change(known, data, np.random.default_rng(seed))
    if isinstance(model, Model) and change.after.model is None:
        change = change._replace(after=change.after._replace(model=_reordered(model, change.order)))
    options = {"progress": False, "method": method} | options
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fits are cut short, and documents are empty, on purpose
        if relation.stored:
            tree = _fitted(make, change.before, options, seed)
            found = dict(_as_new(tree, change.before.data))
            stored = dict(_stored(tree, data, said))
            return _by_number(stored, found, threshold or TOLERANCE, known, change, said)
        if isinstance(chosen, Sampler | Stochastic) and not (
            relation.keeps_draws and _in_step(chosen, relation)
        ):
            return _in_law(make, chosen, change, relation, options, seed, false_alarm_rate)
        before_options, after_options = _starts(make, chosen, change, relation, options, seed)
        before = _fitted(make, change.before, options | before_options, seed)
        after = _fitted(make, change.after, options | after_options, seed)
        with _shapes_of(change.after):
            found = dict(_found(after, change, said))
        if threshold is None:
            threshold = QUADRATURE if _QUADRATURE in said else TOLERANCE
            threshold = _single(before, data, said) if relation.single_precision else threshold
        expected = dict(_expected(before, change, said))
        if not relation.keeps_draws and _is_random_density(before, chosen):
            del expected["log_density"]  # other random numbers
        if isinstance(chosen, Sampler) and relation.in_units:
            expected.pop("objective", None)  # a density of parameters, which have units too
        elif relation.in_units and "objective" in expected and kind_of(before) == "point":
            other = expected["objective"] - _log_jacobian_of_sites(before, change)
            nearer = abs(found["objective"] - other) < abs(found["objective"] - expected["objective"])
            expected["objective"] = other if nearer else expected["objective"]
        return _by_number(expected, found, threshold, known, change, said)


def _log_jacobian_of_sites(tree: xr.DataTree, change: Change) -> float:
    """By how much the log prior of the sites of a point is less in the new units, in nats."""
    model, scales = model_of(tree), tuple(None if own is None else np.asarray(own) for own in change.scale)
    call = SimpleNamespace(model=model, data=as_arrays(model, change.before.data)[0])
    moved = Return(call, Coordinates((None,) * len(scales), scales))
    return float(moved.parameters(tuple(map(str, tree["posterior"].data_vars)), model))


def _single(tree: xr.DataTree, data: tuple, said: str) -> float:
    """The tolerance of single precision."""
    if _WHERE_IT_ENDS in said:
        return FALLS * SINGLE * abs(_objective(tree)) / len(data[0])
    return 4 * max(int(tree.attrs["num_iterations"]), 1) * _condition(tree, data) * SINGLE


def _condition(tree: xr.DataTree, data: tuple) -> float:
    """The largest condition number of correlation matrices, at most 1e4: of all columns, and of those fitted.

    Components are flatter than the whole, and each step solves with their covariances.
    """
    tables = [
        np.asarray(part, float)
        for part in data
        if np.ndim(part) == 2 and np.asarray(part).dtype.kind in "fiub"
    ]
    x = np.concatenate(tables, axis=1)
    x = np.nan_to_num(x - np.nanmean(x, axis=0))
    matrices = [np.atleast_2d(np.cov(x[:, x.std(axis=0) > 0], rowvar=False))]
    group = tree["variational"] if "variational" in tree.children else tree["posterior"]
    for variable in group.data_vars.values():
        *_, row, column = ("", "", *map(str, variable.dims))
        if row.startswith(("feature", "output")) and column == f"{row}_2":
            matrices += list(variable.values.reshape(-1, *variable.shape[-2:]))
    return max(map(_condition_of_correlations, matrices))


def _condition_of_correlations(covariance: np.ndarray) -> float:
    sizes = np.sqrt(np.diagonal(covariance))
    values = np.linalg.eigvalsh(covariance / np.outer(sizes, sizes))
    return float(values[-1] / max(values[0], 1e-4 * values[-1]))


def outcome_of(model: Model, method: str, relation: Relation) -> str:
    """What happens under a relation: as it says, or what units, cells and method make of it."""
    said, name = relation.said, relation.name
    is_general = said == getattr(RELATIONS.get(name), "said", None)
    if name == "columns_rescaled" and is_general and _has_unit_of_each_column(model):
        said = "same, predictions in the new units"
    if said.startswith("no: "):
        return said
    if name in (*_UNITS, *_SHIFTS) and not any(u != "none" for u in cell_units(model)):
        return "no: the cells have no unit"
    if name in _SHIFTS and "location_scale" not in cell_units(model):
        return "no: the cells have an origin"
    if name in _MISSING and not takes_missing(model):
        return "no: no cell may be missing"
    takes = method_of(model, method).takes
    needs = {"row_doubled": "weights", "row_left_out": "weights", "batches": "batches", "devices": "devices"}
    if (needed := needs.get(name)) and needed not in takes:
        return f"no: method {method!r} takes no {needed}"
    takes_counts = model.data[0].holds_documents or takes_sparse_counts(model)
    if name == "sparse" and not (takes_counts or "sparse" in takes):
        return f"no: method {method!r} takes dense rows"
    return said


def _has_unit_of_each_column(model: Model) -> bool:
    """Whether a model can be, or is, written in coordinates with a scale for each column."""
    own = model.own_coordinates
    if own is not None:
        return all(scale is not None and scale.ndim for scale in own.scales)
    return {"columns"} == {None if own is None else own.scale for own in model.coordinate_freedom}


def sized(make: Callable[..., Model], data: tuple) -> Model:
    """The model with its sizes, as `inference.fit` would read them."""
    model, parts = make(*data).encoded(*data)
    arrays, _ = as_arrays(model, parts)
    return model.with_sizes_from(*arrays)


def _reordered(model: Model, order: Mapping[str, np.ndarray]) -> Model:
    """A model whose given arrays have their columns in the order of the changed data."""
    found = {
        name: _in_order(getattr(model, name), dims_of(model).get(name, ()), order)
        for name in names_of(model).leaves
    }
    for name, value in found.items():
        if isinstance(value, Assumptions):
            dims = dims_of(value)
            own = {
                field: _in_order(getattr(value, field), dims.get(field, ()), order)
                for field in names_of(value).leaves
            }
            found[name] = value.replaced(**own)
    return model.replaced(**found)


def _in_order(value: Any, dims: tuple[str, ...], order: Mapping[str, np.ndarray]) -> Any:
    if not isinstance(value, np.ndarray) or value.ndim != len(dims):
        return value
    return _renumbered(xr.DataArray(value, dims=dims), order).values


def _fitted(make: Callable, side: Side, options: Mapping[str, Any], seed: int) -> xr.DataTree:
    model = make(*side.data) if side.model is None else side.model
    with _shapes_of(side):
        return fit(model, *side.data, seed=seed, **{**options, **side.options})


def _shapes_of(side: Side) -> AbstractContextManager:
    """The context of a side's calls."""
    return in_own_shapes() if side.in_own_shapes else nullcontext()


# Starts


def _starts(
    make: Callable, method: Method, change: Change, relation: Relation, options: Mapping[str, Any], seed: int
) -> tuple[dict, dict]:
    """Starts of both fits: given variables renumbered, or those of a short fit where draws move."""
    given = options.get("init")
    if isinstance(given, Mapping):
        dims = sized(make, change.before.data).variable_dims
        start = {name: xr.DataArray(value, dims=dims[name]) for name, value in given.items()}
    elif isinstance(method, Direct) or relation.keeps_draws:
        return {}, {}
    elif (given or method.strategies[0]) in method.seedless:
        return {}, {}
    else:
        short = _fitted(make, change.before, dict(options) | {"max_iterations": 1, "num_restarts": 1}, seed)
        start = {str(name): variable for name, variable in short["variational"].data_vars.items()}
    moved = {_after_exchange(name, change): _renumbered(value, change.order) for name, value in start.items()}
    return tuple({"init": {name: value.values for name, value in side.items()}} for side in (start, moved))


def _place(dim: str, order: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """The renumbering of a dim; the second axis of a square matrix has that of the first."""
    return order.get(dim, order.get(dim.removesuffix("_2")))


def _renumbered(value: xr.DataArray, order: Mapping[str, np.ndarray]) -> xr.DataArray:
    """A variable of the first fit with the elements of the second; new elements are zero."""
    value = value.drop_vars(list(value.coords))
    for dim in value.dims:
        places = _place(str(dim), order)
        if places is not None and value.sizes[dim] == np.max(places) + 1:
            value = value.isel({dim: np.maximum(places, 0)})
            is_new = xr.DataArray(places < 0, dims=dim)
            value = (
                xr.where(is_new, np.zeros((), value.dtype), value).transpose(*value.dims)
                if is_new.any()
                else value
            )
    return value


# Number by number


def _is_generative(tree: xr.DataTree) -> bool:
    """Whether a fit is of the whole model: MORP and kernel CCA are projections, which have scores alone."""
    return bool(tree.attrs.get("generative", 1))


def _is_random_density(tree: xr.DataTree, method: Method) -> bool:
    """Whether densities of new rows are estimated with random numbers, or averaged over several draws."""
    is_averaged = method.log_density is None and kind_of(tree) != "point"
    return _has_density(tree) and (is_averaged or model_of(tree).answers.estimates_density)


def _has_density(tree: xr.DataTree) -> bool:
    """Whether a fit has densities of new rows."""
    return _is_generative(tree) and model_of(tree).answers.has_density


def _objective(tree: xr.DataTree) -> float:
    """The objective that was reached, nats."""
    values = tree["trace"]["objective"].values
    return (
        float(np.max(values[..., -1]))
        if np.isfinite(values[..., -1]).all()
        else float(values[np.isfinite(values)][-1])
    )


def _found(tree: xr.DataTree, change: Change, said: str, *, first: bool = False) -> Iterator[tuple[str, Any]]:
    """The quantities of a fit that are compared, by name."""
    model, data = model_of(tree), (change.before if first else change.after).data
    if _has_density(tree):
        values = tree["trace"]["objective"].values.reshape(-1, tree["trace"].sizes["iteration"])
        yield (
            "objective",
            xr.DataArray(_objective(tree) - (values.max(0)[0] if _UP_TO_CONSTANT in said else 0.0)),
        )
        yield "log_density", log_density(tree, *data)
    method = method_of(model, tree.attrs["method"])
    if model.answers.projects_by_draws or not isinstance(method, Sampler | Stochastic):
        yield "scores", transform(tree, *data)
    if has_answer(model, "cells") and _is_generative(tree) and not change.reverses_views:
        what = "cells" if "clusters" in completions_of(model) else None
        predicted = predict(tree, *data[: num_needed(model)], what=what)
        yield "predicted", predicted.drop_vars("standard_deviation")
        yield "standard_deviation", predicted["standard_deviation"]
    group = "variational" if "variational" in tree.children else "posterior"
    for name, variable in tree[group].data_vars.items():
        yield f"{group}/{name}", variable


def _expected(tree: xr.DataTree, change: Change, said: str) -> Iterator[tuple[str, xr.DataArray]]:
    """What the quantities of the second fit must be, from the first."""
    model = model_of(tree)
    log_jacobian = _log_jacobian(change, said)
    unit_free = (model.roles.cluster, model.roles.weight, model.roles.responsibilities, model.roles.occupied)
    for name, value in _found(tree, change, said, first=True):
        group, _, variable = name.rpartition("/")
        if change.scale and group and variable not in unit_free:
            continue
        if change.scale and name == "objective" and _UP_TO_CONSTANT not in said:
            value = value - np.sum(log_jacobian)
        if change.scale and name in ("log_density", "log_likelihood"):
            value = value - log_jacobian
        if change.scale and name == "scores" and _SCORES_IN_UNITS in said:
            value = value * change.scale[0][0]
        if change.scale and name in ("predicted", "standard_deviation"):
            number = [model.variable_dims[n][-1] for n in model.data_names].index(value.dims[-1])
            value = value * change.scale[number]
            value = value + change.shift[number] if name == "predicted" else value
        if group:
            name = f"{group}/{_after_exchange(variable, change)}"
            value = value.rename({dim: _after_exchange(str(dim), change) for dim in value.dims})
        yield name, _renumbered(value, change.order)


def _after_exchange(name: str, change: Change) -> str:
    """The name after the change of a variable or dim that ends in the number of a view."""
    if not change.reverses_views or name == "latent_2":
        return name
    last = len(change.after.data) - 1
    return re.sub(r"(?<=_)\d+(?=$|_2$)", lambda number: str(last - int(number[0])), name, count=1)


def _log_jacobian(change: Change, said: str = "") -> np.ndarray:
    """Sum of log scales over the observed cells of each row; inputs of a kernel have no density."""
    if not change.scale:
        return np.zeros(())
    total = 0.0
    for number, (part, scale) in enumerate(zip(change.before.data, change.scale, strict=True)):
        if np.any(scale != 1.0) and not (number == 0 and _OF_Y_ALONE in said):
            total = total + ~np.isnan(np.asarray(part, float)) @ np.log(np.abs(scale))
    return np.asarray(total)


def _has_one_latent(value: xr.DataArray) -> bool:
    """Whether `_without_latents` makes squares of a value."""
    return len(value.dims) > 1 and "latent" in value.dims and "latent_2" not in value.dims


def _without_latents(value: xr.DataArray) -> xr.DataArray:
    """Products over the latents, which no rotation and no sign changes; of vectors the sorted values."""
    latents = [dim for dim in value.dims if dim in ("latent", "latent_2")]
    if not latents:
        return value
    if len(latents) == 2:
        trace = np.trace(value.transpose(..., *latents).values, axis1=-2, axis2=-1)
        return xr.DataArray(trace, dims=[dim for dim in value.dims if dim not in latents])
    others = [dim for dim in value.dims if dim not in latents]
    if not others:
        return xr.DataArray(np.sort(value.values), dims=value.dims)
    other = value.rename({others[-1]: "other"})
    return xr.dot(value, other, dim="latent").transpose(*others, "other")


def _by_number(
    expected: Mapping[str, xr.DataArray],
    found: Mapping[str, xr.DataArray],
    tolerance: float,
    model: Model,
    change: Change,
    said: str,
) -> RelationVerdict:
    """The verdict by the largest error of any quantity that both have."""
    errors = {}
    names = [name for name in expected if name in found]
    labels = _labels(model, expected, found)
    turned = {"rotation", "sign"} & set(model.symmetries)
    num_rows = len(change.before.data[0])
    for name in names:
        before = expected[name]
        if before.dims != found[name].dims:
            errors[name] = float("inf")
            continue
        after = found[name].drop_vars(list(found[name].coords))
        for dim, places in labels.items():
            after = after.isel({dim: places}) if dim in after.dims else after
        for dim in after.dims:
            places = _place(str(dim), change.order)
            if places is not None and np.any(places < 0):
                before, after = (v.isel({dim: places >= 0}) for v in (before, after))
        least = num_rows if name == "objective" else _least_spread(name, expected)
        if turned:
            least = least**2 if _has_one_latent(before) else least
            before, after = _without_latents(before), _without_latents(after)
        errors[name] = _error(before.values, after.values, least, is_total=name == "objective")
        if _SETTLED in said and name == "scores":
            errors[name] *= TOLERANCE / SETTLED
        if _WHERE_IT_ENDS in said and name != "objective":
            # A loss of d nats leaves parameters within sqrt(2 d) of their standard deviations, and what
            # follows from them within that share of its spread: the loss a row that an error stands for.
            errors[name] = 0.5 * errors[name] ** 2 / num_rows
    worst = max(errors.values())
    return RelationVerdict(
        statistic=worst,
        threshold=tolerance,
        false_alarm_rate=0.0,
        passed=bool(worst <= tolerance),
        errors=errors,
    )


def _labels(model: Model, expected: Mapping, found: Mapping) -> dict[str, np.ndarray]:
    """The order of labels after the change, by scores."""
    dim = model.roles.scores[-1]
    if (
        "labels" not in model.symmetries
        or dim not in LABEL_DIMS
        or not ("scores" in expected and "scores" in found)
    ):
        return {}
    before, after = expected["scores"].values, found["scores"].values
    if before.shape != after.shape or not (np.isfinite(before).all() and np.isfinite(after).all()):
        return {}
    cost = np.sum((before[:, :, None] - after[:, None, :]) ** 2, axis=0)
    return {dim: linear_sum_assignment(cost)[1]}


def _least_spread(name: str, expected: Mapping[str, xr.DataArray]) -> float:
    """The size of covariances where their spread says little.

    Of covariances with locations, which may be zero but for rounding, the product of the deviations; of
    others, which may be nearly the same in all rows, the largest.
    """
    found = re.fullmatch(r"(.*)_loc(.*)_covariance(_\d+)?", name)
    if not found:
        is_covariance = name.endswith("_covariance")
        return float(np.max(np.abs(expected[name].values), initial=0.0)) if is_covariance else 0.0
    group, _, block = found[1].rpartition("/")
    view = found[3] or ""
    variances = f"{group}/{block}{found[2]}_covariance{view}", f"{group}/loc{found[2]}_variance{view}"
    return float(np.prod([np.sqrt(np.max(np.abs(expected[v].values))) for v in variances if v in expected]))


def _error(expected: np.ndarray, found: np.ndarray, least: float, *, is_total: bool = False) -> float:
    """The largest difference relative to the spread, or to ``least``; of a total relative to that alone."""
    if expected.shape != found.shape:
        return float("inf")
    if expected.dtype.kind not in "fiub":
        return 0.0 if np.array_equal(expected, found) else float("inf")
    expected, found = expected.astype(float), found.astype(float)
    same = (expected == found) | (np.isnan(expected) & np.isnan(found))
    if same.all():
        return 0.0
    if is_total:
        spread = least
    else:
        known = expected[np.isfinite(expected)]
        spread = (
            np.std(known)
            if known.size and np.ptp(known) > 1e-8 * np.max(np.abs(known))
            else np.max(np.abs(known), initial=0.0)
        )
    difference = np.max(np.abs(np.where(same, 0.0, expected - found)))
    return float(difference / (max(spread, least) or 1.0)) if np.isfinite(difference) else float("inf")


# Fitted rows as new rows


def _stored(tree: xr.DataTree, data: tuple, said: str) -> Iterator[tuple[str, xr.DataArray]]:
    """Scores and log densities of the fitted rows as the fit holds them, and in the order of the fit."""
    model = model_of(tree)
    for name, value in _asked(tree, data):
        if name == "scores" or not model.answers.estimates_density:
            yield f"{name} in another order", value
    group = tree["variational"] if "variational" in tree.children else tree["posterior"]
    for site in (model.roles.responsibilities, model.roles.latent, model.roles.document_topic):
        if site in group and group[site].dims == model.roles.scores and _NOT_STORED not in said:
            yield "scores", group[site]
    if model.data[0].holds_documents and (site := dirichlet_of(model.roles.document_topic or "")) in group:
        yield "scores", group[site] / group[site].sum(model.roles.scores[-1])
    if "log_likelihood" in tree.children and method_of(model, tree.attrs["method"]).log_density is None:
        rows = tree["log_likelihood"]["log_likelihood"]
        if rows.attrs.get("latents", tree["log_likelihood"].attrs.get("latents")) == "integrated out":
            number = rows.sizes["chain"] * rows.sizes["draw"]
            flat = rows.values.reshape(number, -1)
            means = np.logaddexp.reduce(flat, axis=0) - np.log(number)
            yield "log_density", xr.DataArray(means, dims=rows.dims[2:])


def _as_new(tree: xr.DataTree, data: tuple) -> Iterator[tuple[str, xr.DataArray]]:
    """The same of the same rows as new ones, in reverse order and turned back."""
    for name, value in _asked(tree, tuple(np.asarray(part)[::-1] for part in data)):
        turned = value.isel({value.dims[0]: slice(None, None, -1)})
        yield name, turned
        yield f"{name} in another order", turned


def _asked(tree: xr.DataTree, data: tuple) -> Iterator[tuple[str, xr.DataArray]]:
    """Scores and log densities of new rows."""
    yield "scores", transform(tree, *data)
    if _has_density(tree):
        yield "log_density", log_density(tree, *data)


# In distribution


def _in_step(method: Method, relation: Relation) -> bool:
    """Whether the random steps of a method follow the change, so that draws can be matched."""
    return method.follows_units or not relation.in_units


def _in_law(
    make: Callable,
    method: Method,
    change: Change,
    relation: Relation,
    options: Mapping[str, Any],
    seed: int,
    false_alarm_rate: float,
) -> RelationVerdict:
    """The verdict by rank tests on one number per chain, or a run of SVI, of each invariant."""
    jacobian = _log_jacobian(change)
    moved = {"mean_log_likelihood": np.mean(jacobian), ROW_LIKELIHOOD: jacobian}
    first = _numbers(make, method, change.before, options, seed, relation)
    if (num_chains := min(map(len, first.values()), default=NUM_CHAINS)) < LEAST_CHAINS:
        raise ValueError(
            f"chains are compared in distribution, one number of each: num_chains must be at least "
            f"{LEAST_CHAINS}; got {num_chains}"
        )
    before = {_after_exchange(name, change): values for name, values in first.items()}
    after = _numbers(make, method, change.after, options, seed + NUM_CHAINS, relation)
    if ROW_LIKELIHOOD in before:
        both = before[ROW_LIKELIHOOD], after[ROW_LIKELIHOOD]
        before[ROW_LIKELIHOOD], after[ROW_LIKELIHOOD] = _same_rows(*both, change)
        for side in (before, after):  # of the rows that both have
            side["mean_log_likelihood"] = side[ROW_LIKELIHOOD].mean(1, keepdims=True)
    p_values = {}
    for name in before:
        expected = before[name] - moved.get(name, 0.0)
        # Ranks that one side lacks hold next to nothing: whether they are listed is a matter of chance.
        size = min(expected.shape[-1], after[name].shape[-1])
        for rank in range(size):
            pair = [values[:, rank] for values in (expected, after[name])]
            scale = max(np.max(np.abs(v), initial=0.0, where=np.isfinite(v)) for v in pair)
            pair = [np.round(v / scale, 9) if scale > 0 else v for v in pair]  # rounding is no difference
            label = f"{name}[{rank}]" if size > 1 else name
            p_values |= {f"{label}, {test}": p for test, p in two_sample(*pair).items()}
    if not p_values:
        raise ValueError("no invariant varies between chains: there is nothing to compare")
    smallest, threshold = min(p_values.values()), false_alarm_rate / len(p_values)
    return RelationVerdict(
        statistic=smallest,
        threshold=threshold,
        false_alarm_rate=false_alarm_rate,
        passed=bool(smallest >= threshold),
        p_values=p_values,
    )


def _numbers(
    make: Callable, method: Method, side: Side, options: Mapping[str, Any], seed: int, relation: Relation
) -> dict[str, np.ndarray]:
    """Means over the draws of each chain, or run, of its invariants: name to shape (chains, entries)."""
    if isinstance(method, Sampler):
        trees = [_fitted(make, side, {"num_chains": NUM_CHAINS} | dict(options), seed)]
    else:
        trees = [_fitted(make, side, options, seed + run) for run in range(NUM_CHAINS)]
    found: dict[str, list] = {}
    for tree in trees:
        unit_free = {*UNIT_FREE_INVARIANTS, *model_of(tree).roles.unit_free}
        for name, variable in invariants(tree).data_vars.items():
            is_nameless = all(NAMELESS_DIMS.fullmatch(str(dim)) for dim in variable.dims)
            if name in unit_free if relation.in_units else is_nameless:
                means = variable.transpose("chain", "draw", ...).values.astype(float).mean(1)
                found.setdefault(str(name), []).extend(means.reshape(len(means), -1))
        if "log_likelihood" in tree.children:
            rows = tree["log_likelihood"]["log_likelihood"].transpose("chain", "draw", ...)
            found.setdefault(ROW_LIKELIHOOD, []).extend(rows.values.astype(float).mean(1))
    return {name: np.stack(_padded(rows)) for name, rows in found.items()}


def _same_rows(before: np.ndarray, after: np.ndarray, change: Change) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of the rows that both sides have, shape (chains, rows), in the order of the second."""
    places = next((change.order[dim] for dim in ROW_DIMS if dim in change.order), np.arange(after.shape[1]))
    return before[:, places[places >= 0]], after[:, places >= 0]


def _padded(rows: list[np.ndarray]) -> list[np.ndarray]:
    longest = max(len(row) for row in rows)
    return [np.pad(row, (0, longest - len(row))) for row in rows]
