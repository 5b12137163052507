r"""Quantities that no symmetry of the model can change, and the kind of draws that a fit holds.

The likelihood of a mixture is the same for all :math:`K!` orders of its components, that of a projection for
all rotations of its latent space. A sampler that explores the posterior therefore wanders between equivalent
modes, and the average, the effective sample size or the PSRF of a raw labelled parameter describes that
wandering, not the posterior (Stephens 2000, "Dealing with label switching in mixture models", JRSS B 62,
section 1). Functions of the draws that are invariant have none of this trouble, so they carry the verdict on
convergence:

* labels: number of occupied components, log joint, concentration, weights in descending order, the
  probability that two rows share a component, the predictive log density of the rows;
* rotation and sign: the marginal covariance :math:`W W^T + \Sigma`, the singular values of :math:`W`, the
  predictive log density; where latents are drawn too, natural parameters
  (`inference.convergence.identifiable`).

Natural parameters
------------------
:math:`\Theta = U V^T + 1\mu^T` is identified; U and V alone turn, swap and change signs from draw to
draw. Reported are a few fixed cells of every table, means included, and the singular values of
:math:`U V^T`, of shared latents also separately, :math:`\Theta_S = U_S V_S^T` with the loadings of all
views one above the other (Virtanen 2010, section 6.2.2; the singular values themselves, not their squares,
belong to orthonormal factors, and only as many as there are latents are not zero).

Topics
------
Topics are known only up to their order, but the word probabilities :math:`\theta_d^T \beta` of documents are
identified. A few fixed cells are reported: of documents that have shares of their own, else (clusters of
documents) of a document whose cluster is not known.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from inference.convergence.partitions import cluster_sizes
from inference.results.files import SAMPLE_DIMS, first_number, model_of
from inference.results.groups import (
    ROW_DIMS,
    group_of,
    group_or_empty,
    labels_of,
    loadings_of,
    mean_over_rows,
    sample_weight_of,
)
from zoo.answers import answer_of
from zoo.coordinates.of_models import noise_factors
from zoo.model import Model

_LABEL_DIMS = {"component", "stick", "topic", "cluster"}
_ROTATED_DIMS = {"latent"}
_ROW_DIMS = {"observation", "document", "nonzero"}
#: Ranks whose posterior mean weight is below it hold no more than stray rows and are not tabulated.
_SMALLEST_WEIGHT = 0.01
#: An indicator rarer than this carries next to no information on mixing and has a heavy-tailed ESS.
_RARE = 0.05
_FIXED_CELLS = 3  # rows and columns of each table that are summarised
_LARGEST_COVARIANCE = 10  # features; above it the covariance is summarised by singular values alone


def symmetries_of(tree: xr.DataTree) -> tuple[str, ...]:
    """The symmetries ("labels", "rotation", "sign") of the model that a fit was made with."""
    return tuple(model_of(tree).symmetries)


def _draws_latents(tree: xr.DataTree) -> bool:
    """Whether the program has its latents as sites, so that draws of Theta follow from those of both."""
    model = model_of(tree)
    return (
        model.roles.latent in draws_of(tree)
        and bool(loadings_of(tree))
        and not answer_of(model, "sums_out_locals")
    )


def kind_of(tree: xr.DataTree) -> str:
    """Kind of the draws: ``"sampling"`` (Markov chains), ``"variational"`` (from q) or ``"point"`` (one)."""
    sizes = draws_of(tree).sizes
    if "variational" not in tree.children or ("trace" in tree.children and "chain" in tree["trace"].dims):
        return "sampling"
    return "point" if sizes["chain"] == 1 and sizes["draw"] == 1 else "variational"


def has_point_parameters(tree: xr.DataTree) -> bool:
    """Whether the parameters, all that is not of single rows, are one estimate."""
    parameters = [value for value in draws_of(tree).data_vars.values() if not ROW_DIMS & set(value.dims)]
    first = (value.isel(chain=0, draw=0, drop=True) for value in parameters)
    return bool(parameters) and all(bool((v == own).all()) for v, own in zip(parameters, first, strict=True))


def draws_of(tree: xr.DataTree) -> xr.Dataset:
    """The group ``posterior`` of a fit.

    Raises:
        TypeError: ``tree`` is not a DataTree.
        ValueError: it has no draws.
    """
    return group_of(tree, "posterior")


def feature_names(data: xr.DataArray, noun: str = "feature") -> list[str]:
    """Names of the features of a matrix of data; "feature 0", ... where they are only numbered.

    Args:
        data: with the dim ``feature``.
        noun: the word for numbered ones.
    """
    names = data["feature"].values
    return [f"{noun} {name}" if isinstance(name, int | np.integer) else str(name) for name in names]


def hidden_variables(tree: xr.DataTree) -> dict[str, str]:
    """Variables of the posterior that a symmetry makes meaningless one by one: name to symmetry."""
    model = model_of(tree)
    symmetries = model.symmetries
    hidden = {}
    for name, variable in draws_of(tree).data_vars.items():
        dims = _plain(variable.dims)
        if "labels" in symmetries and (dims & _LABEL_DIMS or name == model.roles.cluster):
            hidden[name] = "labels"
        elif {"rotation", "sign"} & set(symmetries) and dims & _ROTATED_DIMS:
            hidden[name] = "rotation"
    return hidden


def invariants(tree: xr.DataTree) -> xr.Dataset:
    """Quantities of a fit that no symmetry of its model can change, draw by draw.

    Args:
        tree: a fit.

    Returns:
        A Dataset with dims (chain, draw) and, by variable, more. Models with the symmetry "labels":
        ``num_occupied`` (components with at least one row), ``lp`` (log joint, nats), ``mean_log_likelihood``
        (nats per row, by their weights), every unlabelled parameter (``concentration``), ``sorted_weights``
        (weight_rank: descending, posterior mean share at least 0.01), ``same_cluster`` (the probability that
        two different rows, drawn at random from the data, share a component) and ``pair_together`` (pair:
        whether two given rows do, for a few fixed pairs along the first principal component of the data whose
        answer is uncertain);
        of topics ``word_probs``, a few cells of the documents' word probabilities.
        Models with "rotation" or "sign": ``singular_values`` of the loadings and, up to 10 features,
        ``marginal_covariance`` = W W' + noise, or ``explained_covariance`` = W W' where no variance of the
        noise is known, and between views ``cross_covariance`` = W_1 W_2'; where the latents are sites of the
        program, instead ``theta_singular_values`` and ``natural_params``
        (`inference.convergence.identifiable`). Models without a symmetry: every variable.

    Raises:
        TypeError: ``tree`` is not a DataTree.
        ValueError: it has no draws.
    """
    posterior = draws_of(tree)
    model = model_of(tree)
    symmetries = model.symmetries
    hidden = hidden_variables(tree)
    found: dict[str, xr.DataArray] = {}
    if model.roles.occupied in posterior:
        found["num_occupied"] = posterior[model.roles.occupied]
    if "lp" in group_or_empty(tree, "sample_stats"):
        found["lp"] = tree["sample_stats"]["lp"]
    if "log_likelihood" in tree.children and symmetries:
        rows = tree["log_likelihood"]["log_likelihood"]
        found["mean_log_likelihood"] = mean_over_rows(rows, sample_weight_of(tree))
    for name, variable in posterior.data_vars.items():
        if name not in hidden and not (symmetries and _plain(variable.dims) & _ROW_DIMS):
            found.setdefault(name, variable)
    if "labels" in symmetries:
        found |= word_probs(tree) | _label_free(tree, posterior)
    if {"rotation", "sign"} & set(symmetries):
        found |= natural_invariants(tree) if _draws_latents(tree) else _rotation_free(tree)
    if not found and "trace" in tree.children:  # a point estimate of labelled parameters alone
        reached = float(tree["trace"]["objective"].max())
        found["objective"] = xr.DataArray([[reached]], dims=("chain", "draw"))
    return xr.Dataset({name: variable.reset_coords(drop=True) for name, variable in found.items()})


def scalars(values: xr.Dataset) -> list[tuple[str, np.ndarray]]:
    """Every scalar quantity in a Dataset of draws: (name with its coordinates, draws of shape (chain, draw)).

    Of a symmetric matrix (dims d and d_2) only the upper triangle is listed. Names are the coords, which
    count from 0 where they are numbers; ranks, dims called ``rank`` or ``..._rank``, count from 1.
    """
    found = []
    for name, variable in values.data_vars.items():
        variable = variable.transpose("chain", "draw", ...)
        inner = variable.dims[2:]
        symmetric = len(inner) == 2 and inner[1] == f"{inner[0]}_2"
        for index in np.ndindex(variable.shape[2:]):
            if symmetric and index[0] > index[1]:
                continue
            places = [_place(variable, str(dim), i) for dim, i in zip(inner, index, strict=True)]
            label = f"{name}[{', '.join(places)}]" if places else name
            found.append((label, variable.values[(slice(None), slice(None), *index)].astype(float)))
    return found


def _place(variable: xr.DataArray, dim: str, place: int) -> str:
    """The label of a place along a dim."""
    if dim in variable.coords:
        return str(variable[dim].values[place])
    return str(place + first_number(dim))


def _plain(dims: tuple) -> set[str]:
    """Names of dims without the number of a second axis or a view: feature_2 -> feature."""
    return {str(dim).rsplit("_", 1)[0] if str(dim).rsplit("_", 1)[-1].isdigit() else str(dim) for dim in dims}


def _label_free(tree: xr.DataTree, posterior: xr.Dataset) -> dict[str, xr.DataArray]:
    found, model = {}, model_of(tree)
    if model.roles.weight in posterior and posterior[model.roles.weight].dims == (*SAMPLE_DIMS, "component"):
        ranked = -np.sort(-posterior[model.roles.weight].values, axis=-1)
        kept = ranked[..., ranked.mean((0, 1)) >= _SMALLEST_WEIGHT]
        found["sorted_weights"] = _of_draws(kept, weight_rank=np.arange(1, kept.shape[-1] + 1))
    assignments = labels_of(tree)
    if assignments is None:
        return found
    sizes = cluster_sizes(assignments.values)
    if model.roles.occupied not in posterior:
        found["num_occupied"] = _of_draws((sizes > 0).sum(-1))
    num_rows = assignments.shape[2]
    if num_rows > 1:  # the mean of the off-diagonal co-clustering indicators
        found["same_cluster"] = _of_draws((sizes * (sizes - 1.0)).sum(-1) / (num_rows * (num_rows - 1.0)))
    pairs = _representative_pairs(tree)
    if pairs is not None:
        same = assignments.values[..., pairs[:, 0]] == assignments.values[..., pairs[:, 1]]
        uncertain = np.abs(same.mean((0, 1)) - 0.5) <= 0.5 - _RARE
        if uncertain.any():
            names = assignments[assignments.dims[-1]].values
            named = [f"{names[i]}~{names[j]}" for i, j in pairs[uncertain]]
            found["pair_together"] = _of_draws(same[..., uncertain].astype(float), pair=named)
    return found


def named_variables(
    tree: xr.DataTree, var_names: Sequence[str] | None, posterior: xr.Dataset | None = None
) -> xr.Dataset:
    """The named invariants or variables of the posterior (or of one like it), all invariants by default.

    Raises:
        ValueError: a name is unknown.
    """
    values = invariants(tree)
    if var_names is None:
        return values
    posterior = draws_of(tree) if posterior is None else posterior
    names = [var_names] if isinstance(var_names, str) else var_names
    unknown = [name for name in names if name not in values and name not in posterior]
    if unknown:
        known = sorted(values.data_vars) + sorted(hidden_variables(tree))
        raise ValueError(f"no variable {unknown[0]!r} in this fit; it has {known}")
    return xr.Dataset({name: values[name] if name in values else posterior[name] for name in names})


def _representative_pairs(tree: xr.DataTree) -> np.ndarray | None:
    """Neighbours, (pairs, 2), among nine rows along the first principal component of the data."""
    name = model_of(tree).data_names[0]
    if name not in group_or_empty(tree, "observed_data"):
        return None
    x = np.asarray(tree["observed_data"][name].values, dtype=float)
    if x.ndim != 2 or len(x) < 2 or not np.isfinite(x).all():
        return None
    centred = x - x.mean(0)
    score = centred @ np.linalg.svd(centred, full_matrices=False)[2][0]
    spread = np.unique(np.linspace(0, len(x) - 1, 11).round().astype(int)[1:-1])
    chosen = np.argsort(score, kind="stable")[spread]
    pairs = np.stack([chosen[:-1], chosen[1:]], axis=1)
    return pairs if len(pairs) else None


def _rotation_free(tree: xr.DataTree) -> dict[str, xr.DataArray]:
    model = model_of(tree)
    found, views, posterior, factors = {}, {}, draws_of(tree), noise_factors(model)
    held = loadings_of(tree)
    standard = in_standard_units(model, {suffix: own.values for suffix, own in held.items()})
    for suffix, loadings in held.items():
        feature, w = loadings.dims[2], loadings.values
        spectrum = np.linalg.svd(standard[suffix], compute_uv=False)
        found[f"singular_values{suffix}"] = xr.DataArray(spectrum, dims=(*SAMPLE_DIMS, f"rank{suffix}"))
        if w.shape[2] > _LARGEST_COVARIANCE:
            continue
        names = loadings[feature].values
        covariance = w @ np.swapaxes(w, -1, -2)
        name, both = f"noise_variance{suffix}", {feature: names, f"{feature}_2": names}
        drawn, given = posterior.get(name), getattr(model, name, None)
        if drawn is None and given is None:
            found[f"explained_covariance{suffix}"] = _of_draws(covariance, **both)
        else:
            noise = given if drawn is None else drawn.values.reshape(*w.shape[:2], -1)
            diagonal = np.broadcast_to(noise * factors.get(suffix, 1.0), w.shape[:3])
            covariance = covariance + diagonal[..., None] * np.eye(w.shape[2])
            found[f"marginal_covariance{suffix}"] = _of_draws(covariance, **both)
        for other, (other_w, other_names) in views.items():
            crossed = _of_draws(other_w @ np.swapaxes(w, -1, -2), **other_names, **{feature: names})
            found[f"cross_covariance{other}{suffix}"] = crossed
        views[suffix] = (w, {feature: names})
    return found


def factors_of(tree: xr.DataTree) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Draws of the latents (chain, draw, observation, latent), and of each table's loadings by suffix."""
    latents = group_of(tree, "posterior")[model_of(tree).roles.latent]
    u = latents.transpose("chain", "draw", "observation", "latent").values
    return u, {suffix: value.values for suffix, value in loadings_of(tree).items()}


def in_standard_units(model: Model, loadings: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Loadings by suffix, those of columns that the model measures in units of their own in these units."""
    factors = noise_factors(model)
    return {
        suffix: value / np.sqrt(factors[suffix])[:, None] if suffix in factors else value
        for suffix, value in loadings.items()
    }


def shared_latents(loadings: dict[str, np.ndarray]) -> np.ndarray:
    """Places of the latents that no table has zero loadings for."""
    seen = [~(value == 0).all((0, 1, 2)) for value in loadings.values()]
    return np.flatnonzero(np.all(seen, axis=0))


def natural_invariants(tree: xr.DataTree) -> dict[str, xr.DataArray]:
    """Cells of the natural parameters and their spectrum, draw by draw."""
    posterior = group_of(tree, "posterior")
    u, loadings = factors_of(tree)
    standard = in_standard_units(model_of(tree), loadings)
    found = {"theta_singular_values": _spectrum(u, np.concatenate(list(standard.values()), axis=2))}
    shared = shared_latents(loadings)
    if 0 < len(shared) < u.shape[-1]:
        tall = np.concatenate([value[..., shared] for value in standard.values()], axis=2)
        found["theta_shared_singular_values"] = _spectrum(u[..., shared], tall).rename(rank="shared_rank")
    rows = _spread(u.shape[2])
    row_labels = _labels(posterior[model_of(tree).roles.latent], "observation", rows)
    views = loadings_of(tree)
    for suffix, value in loadings.items():
        columns = _spread(value.shape[2])
        if f"natural_params{suffix}" in posterior:  # noisy ones, drawn
            cells = posterior[f"natural_params{suffix}"].values[:, :, rows[:, None], columns]
        else:
            cells = u[..., rows, :] @ np.swapaxes(value[..., columns, :], -1, -2)
            if f"loc{suffix}" in posterior:
                cells = cells + posterior[f"loc{suffix}"].values[..., None, columns]
        labels = _labels(views[suffix], str(views[suffix].dims[2]), columns)
        found[f"natural_params{suffix}"] = _of_draws(cells, row=row_labels, **{f"column{suffix}": labels})
    return found


def word_probs(tree: xr.DataTree) -> dict[str, xr.DataArray]:
    """A few cells of the word probabilities of documents, draw by draw; empty without topics."""
    model, posterior = model_of(tree), group_of(tree, "posterior")
    if model.roles.topic not in posterior or any(site not in posterior for site in model.share_sites):
        return {}
    values = {
        site: posterior[site].transpose("chain", "draw", *model.variable_dims[site]).values
        for site in (model.roles.topic, *model.share_sites)
    }
    topics = values[model.roles.topic]
    columns = _spread(topics.shape[3])
    words = _labels(posterior[model.roles.topic], "word", columns)
    if model.roles.document_topic is not None:
        shares = values[model.roles.document_topic]
        rows = _spread(shares.shape[2])
        cells = shares[:, :, rows] @ topics[..., columns]
        documents = _labels(posterior[model.roles.document_topic], "document", rows)
        return {"word_probs": _of_draws(cells, document=documents, word=words)}
    centres = model.centres(values)
    centres = np.broadcast_to(centres, (*topics.shape[:2], *centres.shape[-2:]))
    weights = values[model.roles.weight]
    cells = np.einsum("cdm,cdmk,cdkw->cdw", weights, centres, topics[..., columns], optimize=True)
    return {"word_probs": _of_draws(cells, word=words)}


def _of_draws(values: np.ndarray, **coords: Any) -> xr.DataArray:
    """Values with the dims (chain, draw) and those of the coords, in this order."""
    return xr.DataArray(values, coords, (*SAMPLE_DIMS, *coords))


def _spectrum(u: np.ndarray, v: np.ndarray) -> xr.DataArray:
    """Singular values of U V' of every draw, largest first."""
    if u.shape[2] > u.shape[3]:
        u = np.linalg.qr(u, mode="r")
    if v.shape[2] > v.shape[3]:
        v = np.linalg.qr(v, mode="r")
    spectrum = np.linalg.svd(u @ np.swapaxes(v, -1, -2), compute_uv=False)
    return xr.DataArray(spectrum, dims=("chain", "draw", "rank"))


def _labels(variable: xr.DataArray, dim: str, places: np.ndarray) -> np.ndarray:
    """Labels of some places along a dim; their numbers where it has none."""
    return variable[dim].values[places]


def _spread(size: int) -> np.ndarray:
    return np.unique(np.linspace(0, size - 1, _FIXED_CELLS).astype(int))
