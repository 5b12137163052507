"""Scores, predictions and log densities of new rows from any fit, and its guide as a NumPyro program."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import xarray as xr
from scipy.special import softmax

from inference.algorithm import TEXT_COLUMN, Ascent, Direct, FitRequest, Fitted, Method
from inference.batched_answers import answered, is_asked_in_batches
from inference.convergence.identifiable import kind_of
from inference.convergence.numbering import cluster_dim, in_program_order, in_shown_order
from inference.convergence.partitions import cluster_sizes, clusters_found, memberships
from inference.fitting.models_of_others import check_gaps
from inference.inputs.sources import as_passed
from inference.inputs.tables import (
    as_arrays,
    check_common_columns,
    check_parts,
    encoded_parts,
    joined_rows,
    label_parts,
    matching_columns,
    paired_rows,
)
from inference.inputs.text import matching_words, warn_of_unseen
from inference.methods import advised, method_of
from inference.numerics.compiled import compiled, for_work
from inference.numerics.weighted_rows import beside_others, bucket, power_of_two, shares_shapes
from inference.precision import check_count_sizes, check_scales, double_precision
from inference.results.files import Labels, model_of
from inference.results.groups import (
    ROW_DIMS,
    flat_draws,
    group_of,
    group_or_empty,
    labels_along,
    labels_of,
    observed_tables,
    restored_data,
)
from inference.symmetry import align_rotation, relabel
from inference.symmetry.rotation import orientation
from zoo.answers import answer_of, completion_of, completions_of, has_answer
from zoo.checks import check_choice, check_complete, check_flag, first_of, warn
from zoo.intake import Columns
from zoo.intake.families import for_data
from zoo.intake.tables import num_needed, tables_of, takes_missing
from zoo.model import Model
from zoo.shapes import Shape
from zoo.sparse import SparseCounts

_PROBABLE = 0.5  # probability of no fitted cluster, from which on a row is named
_Scores = Annotated[xr.DataArray, Shape("num_observations num_scores")]
_Predictions = Annotated[xr.DataArray, Shape("num_observations *columns", "Shaped")]
_PerRow = Annotated[xr.DataArray, Shape("num_observations")]
_OUTSIDE = 0.01  # of the fitted cells of a column, on each side, that are not counted as usual
_FEWEST_FITTED, _FEWEST_NEW = 20, 10  # cells of a column, to judge whether new ones are like the fitted ones
_FEWEST_VALUES = 10  # changes between sorted cells; a column of fewer holds levels or codes
_FEW_WITHIN = 0.1


@double_precision
def transform(
    tree: xr.DataTree,
    *new_data: Any,
    scores: str = "latent",
    covariance: bool = False,
    out: str | os.PathLike | None = None,
    batch_size: int | None = None,
) -> _Scores | xr.Dataset | Path:
    """Posterior mean scores of new rows: a mixture's shares in its components, a projection's latents.

    From VB they are those of q (of `zoo.EPCA` and `zoo.Paired` given the means of the loadings under q: the
    latents of the fitted rows, which tables have, know the loadings' spread, and are nearer to zero), from
    MAP those of the joint maximum. From draws they are averaged over draws
    that were first brought to one labelling or orientation, of a model with clusters by the row's density
    under each draw; of cells that are not Gaussian each draw's are a
    mean to the order after Laplace's (`zoo.exponential_family.natural_params.row_means`). Of cells recorded
    in steps 400 draws are averaged, spread evenly over the chains, for each takes many passes. Latents have
    the numbers, axes and signs of the tables, pictures and reports: the orientation of
    `inference.symmetry.align_rotation`, whatever axes a method has ended with.

    Args:
        tree: a fit.
        *new_data: rows with the columns of the fit; a DataFrame is matched by name.
        scores: of projections: ``"latent"``, E[z | x], which is whitened and shrunk, or ``"orthonormal"``,
            the coordinates of the (completed) row in an orthonormal basis of the loadings, as PCA's scores
            are.
        covariance: of projections: also give the posterior covariance of the latents.
        out: a ``.parquet``, ``.csv``, ``.tsv`` or ``.npy`` file that the answers are written to batch by
            batch, in place of one that is there; None: they are returned.
        batch_size: rows that are scored at once; None: all rows in memory at once, and 100 000 (texts: 1000)
            of rows that lie elsewhere: in files, folders, Zarr or Dask (`inference.inputs.sources`), or in
            chunks.

    Returns:
        Dims (observation, component), summing to one, or (observation, latent). With ``covariance`` a Dataset
        of ``scores`` and ``covariance``, dims (observation, latent, latent_2). With ``out`` its path.

    Raises:
        ValueError: other columns, cells that the model cannot miss, or scores that it does not have.

    Example:
        >>> import numpy as np, inference, zoo
        >>> x = np.random.default_rng(0).normal(size=(20, 3))
        >>> tree = inference.fit(zoo.PPCA(num_latents=1), x, method="closed_form")
        >>> inference.transform(tree, x[:2]).dims
        ('observation', 'latent')
    """
    check_choice("scores", scores, _SCORES)
    check_flag("covariance", covariance)
    if covariance and scores != "latent":
        raise ValueError(f"covariance=True goes with scores='latent'; got scores={scores!r}")
    if covariance and out is not None:
        raise ValueError("covariance=True gives no table to write: leave out covariance=True, or out=")
    if is_asked_in_batches(model := model_of(tree), new_data, out, batch_size):
        ask = partial(transform, tree, scores=scores, covariance=covariance)
        return answered(ask, tree, model, new_data, out, batch_size)
    model, arrays, coords = prepared(tree, new_data)
    method = method_of(model, tree.attrs["method"])
    if not tree.attrs.get("generative", 1):  # nothing says what a missing cell may be
        remedy = "fill missing cells, or fit with method='em'"
        check_complete(f"a fit by {tree.attrs['method']}", remedy, x=np.asarray(arrays[0]))
    if has_estimate(method):
        wanted = () if scores == "latent" else (("kind", scores),)
        values = _apply(method.transform or _scores, *_of_estimate(tree, model, method), arrays, wanted)
        values = np.asarray(values)[:, : len(labels_along(tree, model.roles.scores[-1]))]
        if scores == "latent" and (turn := tree.fit.kept(orientation)) is not None:
            values = values @ turn
    else:
        draws = tree.fit.kept(_aligned_draws)
        values = _mean_over_draws(_scores_of_draw, draws, model, arrays, (("kind", scores),))
    dim = model.roles.scores[-1]
    values = in_shown_order(values, tree, model) if dim == cluster_dim(model) else values
    labels = Labels({**coords, dim: labels_along(tree, dim)})
    _warn_of_lost_rows(values, coords, model.roles.scores[0])
    means = _labelled(values, model.roles.scores, labels)
    if not covariance:
        return means
    dims = (*model.roles.scores, f"{dim}_2")
    spread = _covariance(tree, model, arrays)
    return xr.Dataset({"scores": means, "covariance": _labelled(spread, dims, labels)})


def _covariance(tree: xr.DataTree, model: Model, arrays: tuple) -> jax.Array:
    """The posterior covariance of the latents; from draws the mean covariance plus that of the means."""
    method = method_of(model, tree.attrs["method"])
    if has_estimate(method):
        function = method.covariance or _scores_covariance
        spread = _apply(function, stored_variables(tree, model), model, arrays)
        return spread if (turn := tree.fit.kept(orientation)) is None else turn.T @ spread @ turn
    draws = tree.fit.kept(_aligned_draws)
    mean = _mean_over_draws(_scores_of_draw, draws, model, arrays)
    return _mean_over_draws(_covariance_about, draws, model, (mean, *arrays))


@double_precision
def predict(
    tree: xr.DataTree,
    *new_data: Any,
    what: str | None = None,
    out: str | os.PathLike | None = None,
    batch_size: int | None = None,
) -> _Predictions | Path:
    """Predict the cluster of new rows, or their missing part.

    A model with clusters of rows: the most probable one, by its number in the tables of the fit, dims
    (observation,), or (document,) of texts. A row is taken as a new one: of a fitted row the tables have q's
    ``responsibilities`` or the draws' labels, to which it has contributed itself. A draw counts by the row's
    density under it: of tables with hundreds of columns few draws do (1 to 15 of 200, of 60 rows by 400
    columns). Of cells recorded in steps 400 draws are averaged, spread evenly over the chains. Where the fit
    has clusters without fitted rows, the coordinate ``new_cluster`` is the probability of these together,
    that the row is in none of the others; rows where it is above a half are warned of.

    A projection: its rows with missing cells at their expectation given the observed ones, dims
    (observation, feature), and as the coordinate ``standard_deviation`` how uncertain that is (0 in a cell
    that was observed). A supervised projection: its outputs, dims (observation, output), likewise; fitted to
    class labels, the probability of each class by its name, dims (observation, class).

    Args:
        tree: a fit.
        *new_data: rows with the columns of the fit; outputs may be left out.
        what: of a model with clusters: ``"clusters"``, ``"probabilities"`` (of each cluster, dims
            (observation, component), or (document, cluster)) or, if it projects rows, ``"cells"``. Of a
            supervised projection: ``"outputs"``, ``"classes"`` (probabilities of the class labels it was
            fitted to, dims (observation, class)) or ``"cells"`` (of x). Of paired views: ``"y_0"``,
            ``"y_1"``, ...; left out, the view that is missing, or else the only one with missing cells. Of
            `zoo.DEPCAM` also ``"reconstruction"``, the expectation of observed cells too.
        out: a ``.parquet``, ``.csv``, ``.tsv`` or ``.npy`` file that the answers are written to batch by
            batch, in place of one that is there; None: they are returned.
        batch_size: rows that are scored at once; None: all rows in memory at once, and 100 000 (texts: 1000)
            of rows that lie elsewhere: in files, folders, Zarr or Dask (`inference.inputs.sources`), or in
            chunks.

    Returns:
        Dims as above. With ``out`` its path; the standard deviations of cells are columns of the file named
        ``*_sd``.

    Raises:
        ValueError: something that the model does not predict.

    Example:
        >>> import numpy as np, inference, zoo
        >>> x = np.random.default_rng(0).normal(size=(20, 3))
        >>> tree = inference.fit(zoo.PPCA(num_latents=1), x, method="closed_form")
        >>> gap = np.where(np.eye(3) > 0, np.nan, x[:3])
        >>> filled = inference.predict(tree, gap)
        >>> bool((filled.standard_deviation > 0).values.sum() == 3)
        True
    """
    model = model_of(tree)
    known = completions_of(model)
    if not known:
        but = " but its scores: use inference.transform" if has_answer(model, "scores") else ""
        raise ValueError(f"{type(model).__name__} predicts nothing{but}")
    if what is not None and what not in known:
        cells = what == "cells" and takes_missing(model)
        of_fitted = "; inference.diagnostics.profiles(tree)['filled_cells'] has those of the fitted rows"
        raise ValueError(f"this fit predicts {', '.join(known)}; got {what!r}{of_fitted if cells else ''}")
    if is_asked_in_batches(model, new_data, out, batch_size):
        return answered(partial(predict, tree, what=what), tree, model, new_data, out, batch_size)
    model, arrays, coords = prepared(tree, new_data)
    what = answer_of(model, "default_completion", *arrays) if what is None else what
    if what in ("clusters", "probabilities"):
        shares = _probabilities(tree, model, arrays, coords)
        return most_probable(shares).rename("assignments") if what == "clusters" else shares
    own = answer_of(model, "completions")
    chosen = (("what", what),) if len(own) > 1 else ()
    predicted_dims, part, fills = completion_of(model, what)
    completed = part if fills else None
    rows = None if completed is None else _incomplete_rows(arrays, model.data_names.index(completed))
    parts = arrays if rows is None else tuple(np.asarray(part)[rows] for part in arrays)
    method = method_of(model, tree.attrs["method"])
    if has_estimate(method):
        variables = stored_variables(tree, model)
        model = answer_of(model, "resolving", variables)
        mean, variance = _apply(method.predict or _predicted, variables, model, parts, chosen)
        if method.guide is None:
            far = _apply(_rests_on_tail, variables, model, (mean, variance, *parts), chosen)
            _warn_of_tails(far, model, variance, tree, predicted_dims[-1])
    else:
        draws = draws_without_rows(tree)
        model = answer_of(model, "resolving", draws)
        mean, variance = _moments_over_draws(draws, model, parts, chosen)
        probs = _class_probs(draws, model, parts, chosen)
        if probs is not None:  # of classes, the probabilities are averaged and not their numbers
            top = jnp.max(probs, axis=-1)
            is_class = (top > 0) & jnp.isnan(parts[model.data_names.index(completed)])
            mean = jnp.where(is_class, jnp.argmax(probs, axis=-1), mean)
            variance = jnp.where(is_class, top * (1.0 - top), variance)
    if rows is not None:
        whole = arrays[model.data_names.index(completed)]
        of_rows, mean, variance = (mean, variance), np.array(whole), np.zeros(whole.shape)
        mean[rows], variance[rows] = of_rows
    _warn_of_lost_rows(mean, coords, predicted_dims[0])
    dim = predicted_dims[-1]
    columns = list(model.classes) if dim == "class" else labels_along(tree, dim)
    predicted = _labelled(mean, predicted_dims, Labels({**coords, dim: columns}))
    deviation = np.sqrt(np.maximum(np.asarray(variance), 0.0))
    if completed is not None:
        own = tree.fit.columns[model.data_names.index(completed)]
        if own is not None and own.level_numbers:
            predicted.attrs["levels"] = json.dumps(own.level_numbers)
    return predicted.assign_coords(standard_deviation=(predicted_dims, deviation)).rename("predicted")


def most_probable(shares: xr.DataArray) -> xr.DataArray:
    """The most probable cluster of each row, dims those of rows; -1 where a row has no answer.

    Args:
        shares: probabilities of the clusters, clusters last.
    """
    dim = shares.dims[-1]
    found = shares[dim][shares.fillna(0.0).argmax(dim)].drop_vars(dim)
    return found.where(shares.notnull().all(dim), -1)


def _probabilities(tree: xr.DataTree, model: Model, arrays: tuple, coords: dict[str, Any]) -> xr.DataArray:
    """Probability of each cluster for each row, labels and latents of the others summed out."""
    method = method_of(model, tree.attrs["method"])
    if has_estimate(method):
        function = method.log_joint or _log_joint
        values = softmax(_apply(function, stored_variables(tree, model), model, arrays), axis=-1)
    else:
        draws = draws_without_rows(relabel(tree), _num_scored(model))
        values = _mean_over_draws(_shares_in_draw, draws, model, arrays)
    dims = completions_of(model)["probabilities"].dims
    _warn_of_lost_rows(values, coords, dims[0])
    labels = Labels({**coords, dims[-1]: labels_along(tree, dims[-1])})
    shares = _labelled(in_shown_order(values, tree, model), dims, labels).rename("probabilities")
    found = tree.fit.kept(_clusters_found)
    if found is None or len(found) == shares.shape[-1]:
        return shares
    new = np.minimum(np.delete(shares.to_numpy(), found, axis=-1).sum(-1), 1.0)
    _warn_of_new_clusters(new, shares[dims[0]].to_numpy())
    return shares.assign_coords(new_cluster=(dims[:1], new))


def _clusters_found(tree: xr.DataTree) -> np.ndarray | None:
    """The numbers of the clusters that the tables of a fit tell of; None: it cannot tell."""
    is_drawn = kind_of(tree) == "sampling"
    aligned = relabel(tree) if is_drawn else tree
    probs, drawn = memberships(aligned), labels_of(aligned)
    if probs is None:  # clusters are numbered by size
        occupied = group_or_empty(tree, "variational").get(model_of(tree).roles.occupied)
        return None if occupied is None else np.arange(int(occupied))
    is_drawn = is_drawn and drawn is not None
    sizes = cluster_sizes(flat_draws(drawn), probs.shape[1]) if is_drawn else probs.sum(0)[None]
    return np.flatnonzero(clusters_found(probs, sizes))


def _warn_of_new_clusters(new: np.ndarray, names: np.ndarray) -> None:
    """Warn of rows that are probably in no cluster that holds fitted rows."""
    lost = np.flatnonzero(new > _PROBABLE)
    if lost.size:
        least = np.floor(100 * new[lost].min()) / 100
        warn(
            f"{lost.size} of {len(new)} rows {'belongs' if lost.size == 1 else 'belong'} to none of the "
            f"fitted clusters: {first_of(names[lost], 10)}; their new_cluster, the probability of all "
            f"components without fitted rows, is at least {least:g}, and the number of such a component "
            "says nothing: look for typing errors, or fit with such rows"
        )


@double_precision
def log_density(
    tree: xr.DataTree,
    *new_data: Any,
    out: str | os.PathLike | None = None,
    batch_size: int | None = None,
) -> _PerRow | Path:
    """Log posterior predictive density of each new row, in nats, local latents integrated out.

    From VB it is the log of the density's expectation under q: of mixtures in closed form; of PPCA and SPPCA,
    whose loadings are random under q, by a rule without random numbers
    (`inference.methods.linear_gaussian.vb`), good to about .02 nats and, far outside, 3e-4 of its size
    (with one latent, against quadrature; with more, rows like the fitted ones were compared); of `zoo.LDA`
    with the spread of topics to second order (`zoo.documents.shares.log_topic_spread`), exact with one topic,
    and topic shares by importance sampling (`inference.diagnostics.heldout` gives its error). Of `zoo.PCP` it
    is the density at the parameters' means under q, without their spread, which is worth nats in documents
    that repeat rare words, and of `zoo.DEPCAM`, whose q has points for parameters, the density at these. Of
    `zoo.PLSI`, whose documents have shares without a prior, it is at those that suit the document best: no
    density but its maximum, which `inference.diagnostics.heldout` replaces by a fair score (``protocol``).
    Other models from VB, and samplers: the log of the mean density over draws. The dims are (observation,),
    or of text (document,) with the coordinate ``num_tokens``.

    Args:
        tree: a fit.
        *new_data: rows with the columns of the fit.
        out: a ``.parquet``, ``.csv``, ``.tsv`` or ``.npy`` file that the answers are written to batch by
            batch, in place of one that is there; None: they are returned.
        batch_size: rows that are scored at once; None: all rows in memory at once, and 100 000 (texts: 1000)
            of rows that lie elsewhere: in files, folders, Zarr or Dask (`inference.inputs.sources`), or in
            chunks.

    Returns:
        Shape (num_observations,). With ``out`` its path.

    Raises:
        ValueError: other columns, cells that the model cannot miss, or a missing cell for which the program
            of another author's model has no density.

    Example:
        >>> import numpy as np, inference, zoo
        >>> x = np.random.default_rng(0).normal(size=(20, 3))
        >>> tree = inference.fit(zoo.PPCA(num_latents=1), x, method="closed_form")
        >>> inference.log_density(tree, x[:2]).shape
        (2,)
    """
    if is_asked_in_batches(model := model_of(tree), new_data, out, batch_size):
        return answered(partial(log_density, tree), tree, model, new_data, out, batch_size)
    model, arrays, coords = prepared(tree, new_data)
    method = method_of(model, tree.attrs["method"])
    if method.log_density is not None:
        values = _apply(method.log_density, *_of_estimate(tree, model, method), arrays)
    else:
        values = _log_mean_density(draws_without_rows(tree), model, arrays)
    check_gaps(model, arrays, np.asarray(values))
    _warn_of_lost_rows(values, coords, model.roles.scores[0])
    scores = _labelled(values, (model.roles.scores[0],), Labels(coords)).rename("log_density")
    if not model.data[0].holds_documents:
        return scores
    warn_of_impossible(tree, model, scores.to_numpy(), arrays[0], coords.get(scores.dims[0]))
    return scores.assign_coords(num_tokens=(scores.dims, _tokens_of(arrays[0])))


def _tokens_of(counts: Any) -> np.ndarray:
    """Tokens of each document, shape (num_documents,)."""
    return np.bincount(counts.document, counts.count, counts.shape[0])


def warn_of_impossible(
    tree: xr.DataTree, model: Model, scores: np.ndarray, counts: Any, labels: np.ndarray | None = None
) -> None:
    """Warn of documents of density zero, and name them and the words that no topic of the fit gives.

    Args:
        tree: a fit of a model of documents.
        model: its model.
        scores: log densities of the documents, shape (num_documents,).
        counts: the documents.
        labels: their labels, if they have any.
    """
    rows = np.flatnonzero(np.isneginf(scores))
    if not rows.size:
        return
    document, word = np.asarray(counts.document), np.asarray(counts.word)
    held = np.isin(document, rows) & (np.asarray(counts.count) > 0)
    topics = group_of(tree, "posterior")[model.roles.topic]
    highest = topics.max([dim for dim in topics.dims if dim != "word"]).to_numpy()
    never = np.unique(word[held & (highest[word] <= 0)])
    names = [str(name) for name in labels_along(tree, "word")[never[:5]]]
    of_words = f" to {', '.join(names)}{', ...' if never.size > 5 else ''}" if names else " to their words"
    some = [str(row if labels is None else labels[row]) for row in rows[:5]]
    of_rows = f"rows {', '.join(some)}{', ...' if rows.size > 5 else ''}"
    is_field = hasattr(model, "word_smoothing")
    remedy = "with a larger word_smoothing" if is_field else "by em with smoothing=0.1"
    warn(
        f"{rows.size} of {scores.size} documents have density zero ({of_rows}): the fit gives probability "
        f"zero{of_words}; fit {remedy}, tokens added to every word of every topic"
    )


def prepared(tree: xr.DataTree, new_data: tuple) -> tuple[Model, tuple, dict[str, Any]]:
    """The fitted model, new data as it takes them, and their coords.

    Raises:
        TypeError: too few or too many parts of data, or a ``tree`` that is none.
        ValueError: no rows, or rows that do not suit the model.
    """
    model = model_of(tree)
    given = new_data[:-1] if len(new_data) > 1 and new_data[-1] is None else new_data
    columns = tree.fit.columns
    texts = tree.attrs.get(TEXT_COLUMN)
    given = tuple(as_passed(_one_row(part, columns), model, texts) for part in given)
    check_parts(model, given, least=num_needed(model))
    label = next((own.label for own in columns if own is not None), None)
    given = paired_rows(joined_rows(given, model.data_names, label), model.data_names)
    if model.data[0].holds_documents:
        warn_of_unseen(given[0], columns[0])
    else:
        check_common_columns(given, columns, model)
    given = encoded_parts(given, columns)
    given = label_parts(model, given, id=label, asks=False)
    model, given = model.encoded(*given)
    dims = [model.variable_dims[name][1] for name in model.data_names[: len(given)]]
    if model.data[0].holds_documents:
        return _checked(model, tuple(matching_words(part, labels_along(tree, dims[0])) for part in given))
    gaps = [takes_missing(model), *(bool(table.missing) for table in tables_of(model)[1:])]
    parts = zip(given, dims, gaps, strict=False)
    found = _checked(model, tuple(matching_columns(x, labels_along(tree, dim), gap) for x, dim, gap in parts))
    _warn_of_other_units(tree, dict(zip(model.data_names, found[1], strict=False)))
    return found


def _warn_of_other_units(tree: xr.DataTree, arrays: Mapping[str, Any]) -> None:
    """Warn of columns where fewer than one new cell in ten lies where nearly all fitted ones do.

    Rows of the fitted population are so, in a column, in at most 4 of 10 million tables: where 20 rows were
    fitted and 10 are new, all new ones lie outside the fitted ones with probability 11 / C(30, 10).
    """
    told, known = [], tree.fit.kept(_bounds_of_columns)
    for name, x in arrays.items():
        bounds = known.get(name)
        if bounds is None or not isinstance(x, jax.Array) or x.shape[1:] != (len(bounds),):
            continue  # sparse, or of another width, which is refused by what takes it
        x = np.asarray(x)
        seen, (low, high) = (~np.isnan(x)).sum(axis=0), bounds.to_numpy().T
        within = ((x >= low) & (x <= high)).sum(axis=0)
        far = np.flatnonzero((seen >= _FEWEST_NEW) & (within < _FEW_WITHIN * seen))
        told += [
            f"{bounds.index[i]} (median {np.nanmedian(x[:, i]):.3g}; fitted: {low[i]:.3g} to {high[i]:.3g})"
            for i in far
        ]
    if told:
        warn(
            f"the new rows are unlike the fitted ones in {', '.join(told[:5])}"
            f"{f' and {len(told) - 5} more columns' if len(told) > 5 else ''}: nine in ten of them lie "
            "outside; give these columns in the unit of the fit, or take answers as extrapolation"
        )


def _bounds_of_columns(tree: xr.DataTree) -> dict[str, pd.DataFrame]:
    """Bounds of nearly all fitted cells in the measured columns of each table, as ``low`` and ``high``."""
    found = {}
    for name, own in observed_tables(tree).items() if "observed_data" in tree.children else ():
        read = dict(zip(tree.fit.model.data_names, tree.fit.columns, strict=True))[name]
        others = () if read is None else [column.name for column in read.kept if not column.is_as_numbered]
        labels = own.get_index(own.dims[1])
        cells = np.sort(own.to_numpy().astype(np.float64), axis=0)  # missing ones last
        last = (~np.isnan(cells)).sum(axis=0) - 1
        ranks = np.floor(_OUTSIDE * last), np.ceil((1.0 - _OUTSIDE) * last)
        low, high = (cells[rank.astype(int), np.arange(len(last))] for rank in ranks)
        varies = (np.diff(cells, axis=0) > 0).sum(axis=0) >= _FEWEST_VALUES
        is_measured = varies & (last + 1 >= _FEWEST_FITTED) & ~labels.isin(others)
        bounds = {"low": np.where(is_measured, low, -np.inf), "high": np.where(is_measured, high, np.inf)}
        found[name] = pd.DataFrame(bounds, index=labels)
    return found


def _checked(model: Model, parts: tuple) -> tuple[Model, tuple, dict[str, Any]]:
    """The model, new rows that have its columns as it takes them, and their coords."""
    arrays, coords = as_arrays(model, parts)
    if not arrays[0].shape[0]:
        raise ValueError(f"{model.data_names[0]} has no rows: there is nothing to score or predict")
    check_scales(model, arrays, coords, is_whole=False)
    model.check_new(*arrays)
    check_count_sizes(model, arrays, coords)
    model = for_data(model, *arrays)
    return model, jax.tree.map(jax.device_put, arrays), coords


@double_precision
def scored(new_data: tuple, request: FitRequest, fitted: Fitted) -> xr.DataTree | None:
    """`log_density` of new rows as ``log_density`` in a tree, without the tree of the fit.

    Args:
        new_data: rows that have been read with the fitted ones, tables as arrays and outputs as they were
            passed; none where none are asked for.
        request: the call.
        fitted: the finished run.

    Returns:
        The tree; None where the density takes more than a few variables of the estimate.
    """
    outcome, back = fitted.outcome, request.back
    model = request.model if outcome.model is None else outcome.model
    dims = dict(model.variable_dims) | dict(outcome.dims)
    model = model if back is None else back.model(outcome.model)
    method = method_of(model, request.name)
    if not new_data or model.data[0].holds_documents or method.log_density is None:
        return None
    if answer_of(model, "needs_fitted_rows"):
        return None
    found = outcome.variational if back is None else back.variables(outcome.variational)
    stored = {
        name: _in_double(np.asarray(value))
        for name, value in found.items()
        if not ROW_DIMS & set(dims.get(name, ()))
    }
    model, arrays, coords = _checked(*model.encoded(*new_data))
    values = _apply(method.log_density, *_sized(stored, model, method), arrays)
    _warn_of_lost_rows(values, coords, model.roles.scores[0])
    return xr.DataTree(xr.Dataset({"log_density": (model.roles.scores[:1], np.asarray(values))}))


def _one_row(part: Any, columns: Sequence[Columns | None]) -> Any:
    """A row by the names of its columns, a mapping or a Series, as a list of one such row."""
    if isinstance(part, pd.Series):
        known = {column.name for own in columns if own is not None for column in own.kept}
        return [part.to_dict()] if known and known <= set(part.index) else part
    is_row = isinstance(part, Mapping) and all(np.isscalar(cell) or cell is None for cell in part.values())
    return [part] if is_row else part


def stored_variables(tree: xr.DataTree, model: Model) -> dict[str, jax.Array]:
    """The stored estimate or q; values per row only where new rows are compared with the fitted ones.

    Raises:
        ValueError: the fit does not hold the rows that new ones are compared with.
    """
    stored = {
        name: _in_double(value.to_numpy())
        for name, value in in_program_order(group_of(tree, "variational"), model).data_vars.items()
        if answer_of(model, "needs_fitted_rows") or not ROW_DIMS & set(value.dims)
    }
    if not answer_of(model, "needs_fitted_rows"):
        return stored
    name = model.data_names[0]
    return stored | {f"fitted_{name}": _in_double(group_of(tree, "observed_data")[name].to_numpy())}


def _of_estimate(tree: xr.DataTree, model: Model, method: Method) -> tuple[dict[str, jax.Array], Any]:
    """The stored variables and the model, or what stands for it, as answers of a method take them."""
    return _sized(stored_variables(tree, model), model, method)


def _sized(stored: dict[str, jax.Array], model: Model, method: Method) -> tuple[dict[str, jax.Array], Any]:
    sized = getattr(method, "for_new", None)
    return (stored, model) if sized is None else sized(stored, model)


def _in_double(values: np.ndarray) -> jax.Array:
    """The values of a fit; in single precision it is scored in double, and loops want one type throughout."""
    return jax.device_put(values.astype(float) if values.dtype.kind == "f" else values)


def draws_without_rows(tree: xr.DataTree, most: int | None = None) -> dict[str, jax.Array]:
    """Draws of everything but rows, chains laid end to end; at most so many, evenly spread."""
    posterior = group_of(tree, "posterior")
    if "stick" in posterior.dims:
        posterior = in_program_order(posterior, model_of(tree))
    size = posterior.sizes["chain"] * posterior.sizes["draw"]
    chosen = np.linspace(0, size - 1, size if most is None else min(most, size)).round().astype(int)
    return {
        name: _in_double(flat_draws(value) if most is None else flat_draws(value)[chosen])
        for name, value in posterior.items()
        if not ROW_DIMS & set(value.dims)
    }


def _labelled(values: jax.Array, dims: tuple[str, ...], labels: Labels) -> xr.DataArray:
    coords = {dim: labels.of(dim, size) for dim, size in zip(dims, values.shape, strict=True)}
    return xr.DataArray(np.asarray(values), dims=dims, coords=coords)


def _warn_of_lost_rows(values: jax.Array, coords: dict[str, Any], dim: str) -> None:
    """Warn of rows without an answer: the mode of their latents was not found, or they are outside a domain.

    The values of such rows are NaN; the rows are named by their labels.
    """
    lost = np.flatnonzero(np.isnan(np.asarray(values)).reshape(len(values), -1).any(axis=1))
    if not lost.size:
        return
    labels = coords.get(dim, np.arange(len(values)))
    named = ", ".join(str(labels[row]) for row in lost[:10]) + (", ..." if lost.size > 10 else "")
    warn(
        f"{lost.size} of {len(values)} rows have NaN as their answer (-1 as their cluster), because the mode "
        f"of their latents was not found: rows {named}; look for cells that are far outside the fitted ones"
    )


def _warn_of_tails(
    far: jax.Array | None, model: Model, variance: jax.Array, tree: xr.DataTree, dim: str
) -> None:
    """Warn of cells whose expectation at a point estimate rests on the tail of the latents' posterior."""
    if far is None or not (cells := np.asarray(far)).any():
        return
    held, columns = np.flatnonzero(cells.any(axis=0)), labels_along(tree, dim)
    named = ", ".join(str(columns[place]) for place in held[:5]) + (", ..." if held.size > 5 else "")
    num_missing = int(np.sum(np.asarray(variance) != 0))
    has_bound = not any("other" in family.log_partition_forms for family in model.part_families)
    better = "vb or nuts" if has_bound else "nuts"
    warn(
        f"the expectations of {cells.sum()} of {num_missing} missing cells (columns {named}) come to more "
        "than a tenth from beyond three standard deviations of their rows' latents: at a point estimate, "
        f"whose loadings tend to be too long, they may be too large by orders of magnitude; fit by {better}"
    )


def _incomplete_rows(arrays: tuple, place: int) -> np.ndarray | None:
    """The rows of a part with a cell to fill in, or the first row where none has; None for sparse parts."""
    if not all(isinstance(part, jax.Array) for part in arrays):
        return None
    lacks = np.isnan(np.asarray(arrays[place])).any(axis=1)
    return np.flatnonzero(lacks) if lacks.any() else np.arange(1)


def _class_probs(draws: dict[str, jax.Array], model: Model, data: tuple, options: tuple) -> jax.Array | None:
    """Class probabilities of cells averaged over draws; None where no cells are classes."""
    if not any(getattr(family, "has_classes", False) for family in model.part_families):
        return None
    first = jax.tree.map(lambda leaf: leaf[0], draws)
    if jax.eval_shape(lambda values: _probs(values, model, *data, **dict(options)), first) is None:
        return None
    return _mean_over_draws(_probs, draws, model, data, options)


def _probs(values: dict[str, jax.Array], model: Model, *data: jax.Array, **options: str) -> jax.Array | None:
    return answer_of(model, "class_probs", values, *data, **options)


def has_estimate(method: Method) -> bool:
    """Whether new rows are scored by the stored estimate (or q), not draw by draw."""
    return method.transform is not None or isinstance(method, Ascent | Direct)


def log_joint(tree: xr.DataTree, *arrays: Any) -> np.ndarray:
    """Log joint density of rows and their clusters at the estimate, whose shares `transform` gives.

    Args:
        tree: a fit with an estimate or q, whose labels are summed out.
        *arrays: parts of the rows as the fit stores them.

    Returns:
        Shape (num_observations, num_clusters) in the numbering of the tree, nats, up to a term of each row.
    """
    model = model_of(tree)
    model = for_data(model, *arrays)
    function = method_of(model, tree.attrs["method"]).log_joint or _log_joint
    values = _apply(function, stored_variables(tree, model), model, tuple(map(jnp.asarray, arrays)))
    return np.asarray(in_shown_order(values, tree, model))


def _log_joint(values: dict[str, jax.Array], model: Model, *data: jax.Array) -> jax.Array:
    return answer_of(model, "conditionals", values, *data)[model.roles.cluster].logits


def _aligned_draws(tree: xr.DataTree) -> dict[str, jax.Array]:
    """Draws of everything but rows, in one labelling or orientation of what rows are scored by."""
    model = model_of(tree)
    if "rotation" in model.symmetries and model.roles.scores[-1] == "latent":
        tree = align_rotation(tree)
    elif "labels" in model.symmetries:
        tree = relabel(tree)
    return draws_without_rows(tree, _num_scored(model))


def _num_scored(model: Model) -> int | None:
    """Of how many draws shares are averaged; None: of all."""
    return MOST_SCORED if answer_of(model, "density_passes") > 1 else None


def _shares_in_draw(values: dict[str, jax.Array], model: Model, *data: jax.Array) -> jax.Array:
    return jax.nn.softmax(_log_joint(values, model, *data), axis=-1)


_SCORES = ("latent", "orthonormal")


MOST_SCORED = 400  # draws, as tables are made of, where cells recorded in steps take many passes each
FEWEST_NEW = 64  # documents of a bucket of new ones; rows, up to which their number is a power of two
PASSES = 100  # over the cells of new documents, about as many


def _in_a_bucket(answer: Callable, place: int) -> Callable:
    """An answer for each row of dense parts, asked beside copies of the first, which are cut off again.

    So that few programs answer for all numbers of rows. Documents have empty ones beside them.

    Args:
        answer: its results have a leading axis over rows.
        place: of its argument that holds the parts.
    """

    @wraps(answer)
    def asked(*args: Any) -> Any:
        if not shares_shapes():
            return answer(*args)
        data, num_rows = args[place], args[place][0].shape[0]
        is_text = all(isinstance(part, SparseCounts) for part in data)
        few = num_rows <= FEWEST_NEW and not is_text  # a row may take an ascent in each draw
        size = power_of_two(num_rows, 1) if few else bucket(num_rows, FEWEST_NEW)
        model, padded = beside_others(args[place - 1], data, size)
        cells = PASSES * padded[0].num_nonzeros if is_text else 0
        with for_work(cells, cells) if is_text else nullcontext():
            found = answer(*args[: place - 1], model, padded, *args[place + 1 :])
        return jax.tree.map(lambda leaf: np.asarray(leaf)[:num_rows], found)

    return asked


@partial(_in_a_bucket, place=3)
@partial(compiled, once=True, static_argnums=(0, 4))
def _apply(
    function: Callable, variables: dict[str, jax.Array], model: Model, data: tuple, options: tuple = ()
) -> Any:
    return function(variables, model, *data, **dict(options))


def _scores(values: dict[str, jax.Array], model: Model, *data: jax.Array, kind: str = "latent") -> jax.Array:
    return model.scores(values, *data, kind=kind)


def _scores_of_draw(values: dict[str, jax.Array], model: Model, *data: jax.Array, **kind: str) -> jax.Array:
    return answer_of(model, "scores_of_draw", values, *data, **kind)


def _scores_covariance(values: dict[str, jax.Array], model: Model, *data: jax.Array) -> jax.Array:
    return answer_of(model, "scores_covariance", values, *data)


def _predicted(
    values: dict[str, jax.Array], model: Model, *data: jax.Array, **options: str
) -> tuple[jax.Array, jax.Array]:
    return model.predicted(values, *data, **options)


def _rests_on_tail(
    values: dict[str, jax.Array],
    model: Model,
    mean: jax.Array,
    variance: jax.Array,
    *data: Any,
    **options: str,
) -> jax.Array | None:
    return answer_of(model, "rests_on_tail", values, mean, variance, *data, **options)


# Of one draw, to be averaged over draws


def _covariance_about(
    values: dict[str, jax.Array], model: Model, mean: jax.Array, *data: jax.Array
) -> jax.Array:
    away = _scores_of_draw(values, model, *data) - mean
    return answer_of(model, "scores_covariance", values, *data) + away[:, :, None] * away[:, None, :]


def _weighed(values: dict[str, jax.Array], model: Model, data: tuple, log_total: jax.Array) -> tuple:
    """The share of a draw among those so far in the answers for each row, and the new log total weight.

    Of a model with clusters a draw counts by the row's density under it, as Bayes' rule has it: where no
    fitted cluster is near a row, the few draws whose clusters without rows are near tell where it belongs.
    Latents and outputs are averaged plainly: there a row says little of the parameters, and weights of wide
    rows leave few draws.
    """
    log_weight = (
        model.log_likelihood(values, *data[-1:]) if model.roles.cluster else jnp.zeros_like(log_total)
    )
    log_total = jnp.logaddexp(log_total, log_weight)
    return jnp.where(jnp.isneginf(log_weight), 0.0, jnp.exp(log_weight - log_total)), log_total


def _towards(mean: jax.Array, value: jax.Array, share: jax.Array) -> jax.Array:
    """A mean of rows moved by its distance to another value, so that one alike in all draws stays exact."""
    share = share.reshape(-1, *[1] * (value.ndim - 1))
    return jnp.where(share == 0, mean, mean + share * (value - mean))


@partial(_in_a_bucket, place=3)
@partial(compiled, once=True, static_argnums=(0, 4))
def _mean_over_draws(
    function: Callable, draws: dict[str, jax.Array], model: Model, data: tuple, options: tuple = ()
) -> jax.Array:
    """Mean of a function over draws, one at a time, so that no draw's matrix is kept."""

    def of_one(values: dict[str, jax.Array]) -> jax.Array:
        return function(values, model, *data, **dict(options))

    def add(carry: tuple, values: dict[str, jax.Array]) -> tuple[tuple, None]:
        mean, log_total = carry
        share, log_total = _weighed(values, model, data, log_total)
        return (_towards(mean, of_one(values), share), log_total), None

    mean = jax.eval_shape(of_one, jax.tree.map(lambda leaf: leaf[0], draws))
    start = jnp.zeros(mean.shape, mean.dtype), jnp.full(mean.shape[:1], -jnp.inf)
    return _where_dense(*jax.lax.scan(add, start, draws)[0])[0]


@partial(_in_a_bucket, place=2)
@partial(compiled, once=True, static_argnums=3)
def _moments_over_draws(
    draws: dict[str, jax.Array], model: Model, data: tuple, options: tuple = ()
) -> tuple[jax.Array, jax.Array]:
    """Mean and variance of predicted cells over draws, each with a variance of its own."""

    def of_one(values: dict[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
        return model.predicted(values, *data, **dict(options))

    def add(carry: tuple, values: dict[str, jax.Array]) -> tuple[tuple, None]:
        mean, variance, log_total = carry
        share, log_total = _weighed(values, model, data, log_total)
        predicted, own = of_one(values)
        moved = _towards(mean, predicted, share)
        added = own + (predicted - mean) * (predicted - moved)
        return (moved, _towards(variance, added, share), log_total), None

    shapes = jax.eval_shape(of_one, jax.tree.map(lambda leaf: leaf[0], draws))
    mean, variance = (jnp.zeros(shape.shape, shape.dtype) for shape in shapes)
    start = mean, variance, jnp.full(mean.shape[:1], -jnp.inf)
    return _where_dense(*jax.lax.scan(add, start, draws)[0])


def _where_dense(*answers_and_log_total: jax.Array) -> tuple[jax.Array, ...]:
    """The answers, NaN for rows that have a density under no draw."""
    *answers, log_total = answers_and_log_total
    lost = ~jnp.isfinite(log_total)
    return tuple(jnp.where(lost.reshape(-1, *[1] * (x.ndim - 1)), jnp.nan, x) for x in answers)


@partial(_in_a_bucket, place=2)
@partial(compiled, once=True)
def _log_mean_density(draws: dict[str, jax.Array], model: Model, data: tuple) -> jax.Array:
    """Log of the mean density of each row over draws."""
    count = jax.tree.leaves(draws)[0].shape[0]

    def add(total: jax.Array, values: dict[str, jax.Array]) -> tuple[jax.Array, None]:
        return jnp.logaddexp(total, model.log_likelihood(values, *data)), None

    start = jnp.full(data[0].shape[0], -jnp.inf)
    return jax.lax.scan(add, start, draws)[0] - jnp.log(count)


def guide(tree: xr.DataTree) -> Callable:
    """The variational posterior as a NumPyro program with exactly the sites of ``model.explicit``.

    ``numpyro.infer.Predictive(guide(tree), num_samples=S)(key, x)`` draws from it,
    `inference.calibration.elbo_check` measures its bound, and
    ``numpyro.infer.SVI(model.explicit, guide(tree), ...)`` goes on from it: q's parameters are
    ``numpyro.param`` sites.

    Args:
        tree: a fit by a variational method.

    Returns:
        A program that takes the fitted data.

    Raises:
        ValueError: the fit has no variational posterior.
    """
    model = model_of(tree)
    program = method_of(model, tree.attrs["method"]).guide
    if program is None:
        others = advised(model, (name for name in model.methods if method_of(model, name).guide is not None))
        raise ValueError(
            f"a fit by {tree.attrs['method']!r} has no variational posterior"
            f"{f': fit with {others}' if others else ''}"
        )
    if "observed_data" in tree.children and not model.data[0].holds_documents:
        model = for_data(model, *restored_data(group_of(tree, "observed_data"), model))
    held = in_program_order(group_of(tree, "variational"), model)
    stored = {name: value.to_numpy() for name, value in held.data_vars.items()}
    options = json.loads(tree.attrs["options"])
    family = {"family": options["guide"]} if "guide" in options else {}
    return partial(program, stored, model, **family)
