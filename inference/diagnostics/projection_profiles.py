r"""Profiles of projections: shares of variance, loadings by column, extreme rows, and what views share.

All draws are turned to the canonical orientation (`inference.symmetry.align_rotation`). With latents of
covariance C and loadings W, latent k explains :math:`(C W^T W)_{kk}`; these add up to the trace of
:math:`W C W^T`, so shares do whatever the orientation. C is the identity where the latents are summed out,
else the covariance over the fitted rows.

Columns of Gaussian cells beside others have no scale in common. Shares are then of the cells, each column in
its standard deviations: the share of a column that is explained, parted between latents by their shares
:math:`(W C)_{dk} W_{dk}` of its natural parameters, and the mean of these over the columns.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
import xarray as xr

from inference.convergence.identifiable import draws_of, kind_of
from inference.diagnostics.profile_parts import (
    MOST_DRAWS,
    Asked,
    fitted_data,
    intervals,
    kind_in_words,
    names_along,
    parameters_of,
    ranked,
    row_names,
)
from inference.diagnostics.suggested_names import name_of_latent
from inference.numerics.programs import over_draws
from inference.prediction import transform
from inference.results.files import model_of
from inference.results.groups import flat_draws, group_or_empty, loadings_of, thinned
from inference.symmetry.identified import canonical_correlations
from inference.symmetry.rotation import aligned_draws
from zoo.answers import answer_of, has_answer
from zoo.coordinates.of_models import noise_factors
from zoo.intake.tables import num_needed
from zoo.model import Model

_OF_POINTS = (
    "too large: the latents are points, which follow the noise of their rows (methods that integrate them, "
    "such as vb, are right)"
)
type _Variances = Mapping[str, tuple[np.ndarray, np.ndarray]]  # explained and left, by suffix of the view
_MOST_VARIANCES = 100  # draws of which explained variances are made


class _View(NamedTuple):
    """The loadings of a view.

    Attributes:
        name: of its data site.
        suffix: of its variables.
        columns: names.
        loadings: shape (draws, columns, latents).
        factors: squared scale of each column, by which variances are divided.
        variances: of each column under the model, or ``factors`` where cells are not Gaussian.
        is_linear: whether cells are Gaussian and their noise is known.
    """

    name: str
    suffix: str
    columns: list[str]
    loadings: np.ndarray
    factors: np.ndarray
    variances: np.ndarray
    is_linear: bool


def projection_tables(tree: xr.DataTree, asked: Asked) -> dict[str, pd.DataFrame]:
    """Build the tables on latents."""
    model, found = model_of(tree), {}
    turns = bool(loadings_of(tree)) or model.roles.latent in draws_of(tree)
    aligned = aligned_draws(tree, MOST_DRAWS) if turns else thinned(tree, MOST_DRAWS)
    variances = _variances(aligned) if loadings_of(aligned) else {}
    views = _views(aligned, variances)
    if views:
        found["latents"] = _latents(aligned, views, variances, asked)
        found["loadings"] = _loadings(aligned, views, asked)
        columns = _columns(aligned, views, variances, asked)
        found |= {} if columns is None else {"columns": columns}
    elif turns:
        found["latents"] = _by_inner_products(aligned, asked)
    if views or turns:  # in the canonical orientation a latent that has vanished is zero in every draw
        found["latents"] = found["latents"][found["latents"]["share"] != 0.0]
    rows = _extreme_rows(aligned, asked)
    found |= {} if rows is None else {"extreme_rows": rows}
    if answer_of(model, "num_canonical") and len(views) == 2:
        found["canonical_correlations"] = _correlations(thinned(tree, MOST_DRAWS), asked)
    return found


def column_factors(tree: xr.DataTree, variances: _Variances | None = None) -> dict[str, np.ndarray]:
    """Squared scales of columns whose loadings are compared in these, by suffix of the loadings.

    They are those that the model measures columns in; or, where each column has noise of its own, so that
    its unit does not count, the columns' variances under the model.

    Args:
        tree: a fit.
        variances: of `_variances`; None: they are computed.
    """
    model = model_of(tree)
    found = {suffix: np.asarray(own) for suffix, own in noise_factors(model).items()}
    for suffix, own in (_variances(tree) if variances is None else variances).items():
        units = (model.units.get(f"{noise}{suffix}") for noise in ("noise_variance", "specific_precision"))
        if suffix not in found and any(unit is not None and unit.axes for unit in units):
            found[suffix] = sum(own).mean(0)
    return found


def _part_of(model: Model, suffix: str) -> str:
    """The data site of the loadings with a suffix."""
    return dict(zip(model.roles.loadings.values(), model.data_names, strict=False))[suffix]


def _views(aligned: xr.DataTree, variances: _Variances) -> list[_View]:
    model, found = model_of(aligned), []
    known = column_factors(aligned, variances)
    for suffix, loadings in loadings_of(aligned).items():
        dim, values = str(loadings.dims[2]), flat_draws(loadings, loadings.dims[2], "latent")
        columns = names_along(aligned, dim, values.shape[1], dim.partition("_")[0])
        name = _part_of(model, suffix)
        is_linear = suffix in variances and _is_linear(model, model.data_names.index(name))
        factors = np.broadcast_to(known.get(suffix, np.ones(())), values.shape[1:2])
        total = sum(variances[suffix]).mean(0) if is_linear else factors
        found.append(_View(name, suffix, columns, values, factors, total, is_linear))
    return found


def _covariance(aligned: xr.DataTree) -> np.ndarray | None:
    """Covariance of the latents over the fitted rows, (draws, latents, latents); None: the identity."""
    model, posterior = model_of(aligned), draws_of(aligned)
    if answer_of(model, "sums_out_locals") or model.roles.latent not in posterior:
        return None
    latents = flat_draws(posterior[model.roles.latent], "observation", "latent")
    centred = latents - latents.mean(1, keepdims=True)
    return np.einsum("snk,snl->skl", centred, centred) / latents.shape[1]


def _explained(view: _View, covariance: np.ndarray | None) -> np.ndarray:
    """Variance by latent, (draws, latents), of columns in units of their scale."""
    scaled = view.loadings / np.sqrt(view.factors)[:, None]
    gram = np.einsum("sdk,sdl->skl", scaled, scaled)
    if covariance is None:
        return np.einsum("skk->sk", gram)
    # of axes that are not quite the principal ones a term may be below zero
    return np.maximum(np.einsum("skl,slk->sk", covariance, gram), 0.0)


def _explained_of_cells(
    view: _View, covariance: np.ndarray | None, pair: tuple[np.ndarray, np.ndarray], owner: np.ndarray
) -> np.ndarray:
    """Sum of the columns' explained shares by latent, (draws, latents), of as many draws as ``pair`` has.

    Args:
        view: the view.
        covariance: of the latents, or None.
        pair: explained and remaining variance of its columns.
        owner: the column of each row of its loadings.
    """
    explained, left = pair
    chosen = _places(len(view.loadings), len(explained))
    loadings = view.loadings[chosen]
    turned = loadings if covariance is None else loadings @ covariance[chosen]
    parts = np.maximum(turned * loadings, 0.0)  # as in `_explained`
    by_column = np.stack([parts[:, owner == d].sum(1) for d in range(explained.shape[1])], axis=1)
    whole = by_column.sum(-1)
    shares = _share_of(explained, explained + left) / np.where(whole > 0, whole, 1.0)
    return np.einsum("sd,sdk->sk", shares, by_column)


def _places(size: int, count: int) -> np.ndarray:
    """Which of ``size`` draws `_variances` takes where it has ``count``."""
    return np.linspace(0, size - 1, count).round().astype(int)


def _share_of(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Quotient, zero where nothing varies; NaN stays."""
    return np.divide(part, whole, where=whole != 0, out=np.zeros_like(whole))


def _variances_by_view(model: Model, values: Mapping[str, Any]) -> dict[str, tuple[jax.Array, jax.Array]]:
    return answer_of(model, "view_variances", values)


def _variances(aligned: xr.DataTree) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Explained and remaining variance of the columns of each view, (draws, columns)."""
    model = model_of(aligned)
    draws_rows = not answer_of(model, "sums_out_locals")
    if draws_rows and model.roles.latent not in draws_of(aligned):
        return {}
    draws = parameters_of(aligned, _MOST_VARIANCES, draws_rows)
    if draws_rows:  # nothing but the sites by row: assignments and the like are not read
        draws = {name: value for name, value in draws.items() if name in model.variable_dims}
    found = over_draws(_variances_by_view, draws, model, ())
    return {suffix: tuple(np.asarray(part)[0] for part in pair) for suffix, pair in found.items()}


def _has_point_latents(tree: xr.DataTree) -> bool:
    """Whether latents of rows were maximised along with the parameters."""
    model = model_of(tree)
    is_drawn = not answer_of(model, "sums_out_locals") and model.roles.latent in draws_of(tree)
    return is_drawn and tree.attrs["method"] == "map"


def _bias(tree: xr.DataTree) -> str:
    """What to say beside a share or a correlation that does not stand in a table with a note."""
    return " (too large: the latents are points)" if _has_point_latents(tree) else ""


def _is_linear(model: Model, place: int) -> bool:
    """Whether the cells of a view are Gaussian about their natural parameters."""
    return _forms(model, place) == {"quadratic"}


def _forms(model: Model, place: int) -> frozenset[str]:
    """Of the log-partition functions of a view's columns."""
    family = model.part_families[place]
    return frozenset({"quadratic"}) if family is None else family.log_partition_forms


def _latents(
    aligned: xr.DataTree,
    views: list[_View],
    variances: _Variances,
    asked: Asked,
) -> pd.DataFrame:
    """Shares of variance by latent."""
    model, kind, covariance = model_of(aligned), kind_of(aligned), _covariance(aligned)
    sites = [model.data_names.index(view.name) for view in views]
    forms = frozenset().union(*(_forms(model, place) for place in sites))
    by_cells = {"quadratic"} < forms and all(view.suffix in variances for view in views)
    by_view, totals = [], []
    for view, place in zip(views, sites, strict=True):
        if by_cells:
            pair, family = variances[view.suffix], model.part_families[place]
            size = pair[0].shape[1]
            owner = np.arange(size) if family is None else np.asarray(family.param_columns(size))
            explained = _explained_of_cells(view, covariance, pair, owner)
            total = np.full(len(explained), float(size))
        else:
            explained = _explained(view, covariance)
            # the noise of a thinner set of draws, by its mean
            noise = (variances[view.suffix][1] / view.factors).sum(1).mean() if view.is_linear else 0.0
            total = explained.sum(1) + noise
        by_view.append(explained)
        totals.append(total)
    whole = sum(by_view) / sum(totals)[:, None]
    table = _by_latent(whole, kind, asked)
    if len(views) > 1:
        seen = np.stack([np.any(view.loadings != 0, axis=(0, 1)) for view in views])
        names = np.array([view.name for view in views])
        table["kind"] = ["shared" if use.sum() > 1 or not use.any() else str(names[use][0]) for use in seen.T]
        for place, (explained, total) in enumerate(zip(by_view, totals, strict=True)):
            table[f"share_{place}"] = (explained / total[:, None]).mean(0)
    table["name"] = _names(views, len(table), kind)
    cells = views[0].name if len(views) < len(model.data) else "the cells"  # inputs of a kernel have none
    of = (
        f"the variance of {cells}; the rest is noise"
        if by_cells or all(view.is_linear for view in views)
        else "the variance of natural parameters"
    )
    note = f"share of {of}; {kind_in_words(aligned)}"
    if by_cells or any(np.any(view.factors != 1.0) for view in views):
        note += "; columns are in their standard deviations"
    if _has_point_latents(aligned):
        note += f"; {_OF_POINTS}"
    if len(views) > 1:
        note += (
            f"; kind: the only view that has the latent, or shared; share_0, ...: of {', '.join(names)} alone"
        )
    if not by_cells and (remedies := list(filter(None, model.scale_remedies))):
        note += (
            "; in the units of the columns, so that those with large numbers count most (unless all are in "
            f"the same unit, {remedies[0]})"
        )
    table.attrs |= {"title": "Latents by the variance they explain", "note": note, "of": of.partition(";")[0]}
    table.attrs["bias"] = _bias(aligned)
    return table


def _names(views: list[_View], count: int, kind: str) -> list[str]:
    """Names of the latents by their loadings in the standard deviations of the columns."""
    columns = [column for view in views for column in view.columns]
    several = len(set(columns)) < len(columns)
    columns = [f"{view.name}: {column}" if several else column for view in views for column in view.columns]
    drawn = np.concatenate([view.loadings / np.sqrt(view.variances)[:, None] for view in views], axis=1)
    means = drawn.mean(0)
    sure = np.full(means.shape, np.nan) if kind == "point" else (np.sign(drawn) == np.sign(means)).mean(0)
    return [name_of_latent(columns, means[:, k], sure[:, k]) for k in range(count)]


def _by_latent(shares: np.ndarray, kind: str, asked: Asked) -> pd.DataFrame:
    """Tabulate drawn shares of the latents, (draws, latents), with intervals."""
    found = intervals(shares, kind, asked.probability)
    return pd.DataFrame(
        {"share": found["mean"], "lb": found["lb"], "ub": found["ub"], "cumulative": found["mean"].cumsum()},
        index=pd.RangeIndex(shares.shape[1], name="latent"),
    )


def _by_inner_products(aligned: xr.DataTree, asked: Asked) -> pd.DataFrame:
    """Shares of the latents' variance of a model without loadings."""
    latents = flat_draws(draws_of(aligned)[model_of(aligned).roles.latent], "observation", "latent")
    sizes = (latents**2).sum(1)
    total = np.broadcast_to(sizes.sum(1, keepdims=True), sizes.shape)
    table = _by_latent(_share_of(sizes, total), kind_of(aligned), asked)
    note = f"share of the variance of all fitted latents; {kind_in_words(aligned)}"
    table.attrs |= {"title": "Latents by their variance", "note": note}
    return table


def _loadings(aligned: xr.DataTree, views: list[_View], asked: Asked) -> pd.DataFrame:
    """Loadings by column."""
    kind, rows = kind_of(aligned), []
    for view in views:
        found = intervals(view.loadings, kind, asked.probability)
        sure = (np.sign(view.loadings) == np.sign(found["mean"])).mean(0)
        for d, k in np.ndindex(found["mean"].shape):
            if not np.any(view.loadings[:, d, k]):
                continue  # a latent of another view
            key = {"view": view.name, "column": view.columns[d], "latent": k}
            sign = np.nan if kind == "point" else sure[d, k]
            rows.append(key | {name: part[d, k] for name, part in found.items()} | {"probability": sign})
    table = ranked(rows, ("view", "column", "latent"), ("mean", "lb", "ub", "probability"))
    turned = "turned to the principal axes" if kind == "point" else "of all draws turned to one orientation"
    note = f"{turned}, the signs of a latent are a convention; probability: that the sign is right; "
    note += kind_in_words(aligned)
    units = {
        (view.name, column): float(unit)
        for view in views
        for column, unit in zip(view.columns, np.sqrt(view.variances), strict=True)
    }
    table.attrs |= {"title": "Loadings of the columns", "note": note, "units": units}
    return table


def _columns(
    aligned: xr.DataTree,
    views: list[_View],
    variances: _Variances,
    asked: Asked,
) -> pd.DataFrame | None:
    """Share of each column's variance that the latents explain; None where it cannot be known."""
    kind, rows = kind_of(aligned), []
    for view in views:
        if view.suffix not in variances:
            continue
        explained, left = variances[view.suffix]
        total = explained + left
        if explained.shape[1] != len(view.columns):  # classes: several loadings to a column
            dim = model_of(aligned).variable_dims[view.name][1]
            columns = names_along(aligned, dim, explained.shape[1], "feature")
        else:
            columns = view.columns
        found = intervals(_share_of(explained, total), kind, asked.probability)
        for d, column in enumerate(columns):
            cells = {"explained": found["mean"][d], "lb": found["lb"][d], "ub": found["ub"][d]}
            rows.append({"view": view.name, "column": column} | cells)
    if not rows:
        return None
    table = ranked(rows, ("view", "column"), ("explained", "lb", "ub"))
    note = f"share of the variance of a column's cells that the latents explain; {kind_in_words(aligned)}"
    if _has_point_latents(aligned):
        note += f"; {_OF_POINTS}"
    if any(family.has_classes for family in model_of(aligned).part_families if family is not None):
        note += "; of classes the variance of their indicators (Goodman and Kruskal's tau)"
    table.attrs |= {"title": "How well each column is explained", "note": note}
    return table


def _scores(aligned: xr.DataTree) -> tuple[np.ndarray, np.ndarray] | None:
    """Scores of the fitted rows and their standard deviations (NaN where unknown), (rows, latents) each."""
    model, posterior, data = model_of(aligned), draws_of(aligned), None
    site = model.roles.latent
    if not model.roles.loadings and kind_of(aligned) == "point":  # `transform` has standard scores
        data = fitted_data(aligned)
    stored = group_or_empty(aligned, "variational")
    held = next((name for name in (site, f"{site}_mean") if name in stored), None)
    if data is None and held is not None and kind_of(aligned) != "sampling":
        mean = stored[held].transpose("observation", "latent").to_numpy()
        spread = stored.get(f"{site}_covariance")
        if spread is None:
            return mean, np.full(mean.shape, np.nan)
        variances = np.diagonal(spread.transpose(..., *spread.dims[-2:]).to_numpy(), axis1=-2, axis2=-1)
        return mean, np.broadcast_to(np.sqrt(variances), mean.shape)  # complete rows have one covariance
    if data is None and site in posterior:
        values = flat_draws(posterior[site], "observation", "latent")
        return values.mean(0), values.std(0) if len(values) > 1 else np.full(values.shape[1:], np.nan)
    data = fitted_data(aligned) if data is None else data
    if data is None or not has_answer(model, "scores"):
        return None
    mean = transform(aligned, *data[: num_needed(model)]).to_numpy()
    return mean, np.full(mean.shape, np.nan)


def _extreme_rows(aligned: xr.DataTree, asked: Asked) -> pd.DataFrame | None:
    """The rows with the lowest and highest scores on each latent; None where rows have no scores."""
    found, names = _scores(aligned), row_names(aligned)
    if found is None:
        return None
    scores, spread = found
    names = np.arange(len(scores)) if names is None or len(names) != len(scores) else names
    rows = []
    for k in np.flatnonzero(np.ptp(scores, axis=0)):  # a latent that has vanished has no ends
        order = np.argsort(scores[:, k], kind="stable")
        count = min(asked.num_rows, len(order) // 2)
        for end, places in (("low", order[:count]), ("high", order[::-1][:count])):
            for rank, n in enumerate(places, start=1):
                key = {"latent": k, "end": end, "rank": rank}
                rows.append(key | {"row": names[n], "score": scores[n, k], "sd": spread[n, k]})
    table = ranked(rows, ("latent", "end", "rank"), ("row", "score", "sd"))
    note = "score: posterior mean on the latent; sd: its deviation"
    if not model_of(aligned).roles.loadings and kind_of(aligned) != "point":
        note += "; both on the scale of the kernel's Gram matrix, where a point estimate has standard scores"
    table.attrs |= {"title": "Most extreme rows", "note": note}
    return table


def _correlations(tree: xr.DataTree, asked: Asked) -> pd.DataFrame:
    """Canonical correlations of two views."""
    values = flat_draws(canonical_correlations(tree)["correlations"])
    found = intervals(values, kind_of(tree), asked.probability)
    table = pd.DataFrame(found, index=pd.RangeIndex(1, values.shape[1] + 1, name="rank"))
    note = "of the two views, given the loadings: of natural parameters with the noise of their cells"
    if not all(_is_linear(model_of(tree), place) for place in (0, 1)):
        note += ", by the information that a cell has (yes/no: 1 / (p (1 - p)); a count: 1 / mean)"
    note += f"; {kind_in_words(tree)}"
    if _has_point_latents(tree):
        note += f"; {_OF_POINTS}"
    table.attrs |= {"title": "Canonical correlations", "note": note, "bias": _bias(tree)}
    return table
