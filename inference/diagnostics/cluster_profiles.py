"""Profiles of clusters: sizes, numbers, typical cells, what sets them apart, and their most typical rows."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import xarray as xr

from inference.component_subspaces import effective_directions
from inference.convergence.identifiable import draws_of, kind_of
from inference.convergence.partitions import cluster_sizes, clusters_found, memberships
from inference.convergence.starts import CLOSE, starts_table
from inference.diagnostics.profile_parts import (
    MOST_DRAWS,
    Asked,
    column_names,
    fitted_data,
    held_in_draws,
    intervals,
    kind_in_words,
    mean_of_held,
    parameters_of,
    quantities_of,
    quantity_in_words,
    ranked,
    row_names,
    spread_of_logs,
)
from inference.diagnostics.suggested_names import are_extreme, name_of_cluster, with_namesakes
from inference.diagnostics.summaries import occupied
from inference.extension import extend
from inference.numerics.programs import over_draws
from inference.results.files import model_of
from inference.results.groups import flat_draws, labels_of, sample_weight_of, thinned
from inference.symmetry import relabel
from inference.symmetry.labels import given_rows
from inference.topics.topic_tables import nearest_documents
from zoo.answers import answer_of
from zoo.checks import first_of, listed
from zoo.coordinates.of_models import noise_factors
from zoo.intake import date_in_words
from zoo.intake.families import for_data
from zoo.intake.tables import takes_sparse_counts
from zoo.model import Model
from zoo.sparse import SparseCounts

SURE = 0.9  # largest probability of a row, below which its cluster is doubtful
_SCORED_ROWS = 50_000  # rows times draws at which densities by cluster are averaged
_SCORED_DRAWS = 50
_MOST_TOPICS = 3  # in the name of a cluster of documents


def aligned_clusters(tree: xr.DataTree) -> xr.DataTree:
    """The fit with one numbering of its clusters in at most 400 draws, and labels drawn if it has none."""
    few = thinned(tree, MOST_DRAWS)
    if "relabelled" in tree.attrs:
        return few
    if kind_of(tree) == "sampling" and labels_of(few) is None and "observed_data" in few.children:
        few = extend(few, "assignments")
    return relabel(few)


def seen_memberships(tree: xr.DataTree) -> np.ndarray:
    """Probability of each cluster for each fitted row, from all draws that hold labels with numbers."""
    probs = memberships(tree, numbered="relabelled" not in tree.attrs)
    return memberships(aligned_clusters(tree)) if probs is None else probs


def cluster_tables(tree: xr.DataTree, asked: Asked) -> dict[str, pd.DataFrame]:
    """Build the tables on clusters of rows or documents."""
    model, kind = model_of(tree), kind_of(tree)
    found = {"num_clusters": number_table(tree)}
    if kind == "sampling" and labels_of(tree) is None and "observed_data" not in tree.children:
        note = "clusters are not described: the fit holds neither labels nor data (keep=('assignments',))"
        for said in ("note", "said"):
            found["num_clusters"].attrs[said] += f"; {note}"
        return found
    aligned = aligned_clusters(tree)
    probs, by_draw = seen_memberships(tree), _shares(aligned)
    rows = probs.sum(0)
    kept = np.flatnonzero(clusters_found(probs, by_draw))
    clusters = intervals(by_draw, kind, asked.probability)
    table = pd.DataFrame(
        {
            "share": rows[kept] / len(probs),
            "lb": clusters["lb"][kept],
            "ub": clusters["ub"][kept],
            "rows": rows[kept],
        },
        index=pd.Index(kept, name="cluster"),
    )
    posterior = draws_of(aligned)
    if model.roles.weight in posterior:
        weights = flat_draws(posterior[model.roles.weight], *model.variable_dims[model.roles.weight])
        proportions = intervals(weights, kind, asked.probability)
        for name, end in (("proportion", "mean"), ("proportion_lb", "lb"), ("proportion_ub", "ub")):
            table[name] = proportions[end][kept]
    empty = by_draw.shape[1] - len(kept)
    noun = "documents" if model.data[0].holds_documents else "rows"
    note = f"share: of the fitted {noun}; rows: expected number of them; {kind_in_words(tree)}"
    note += (
        f"; proportion: probability that a new {noun[:-1]} is of the cluster" if "proportion" in table else ""
    )
    note += (
        f"; {empty} of {by_draw.shape[1]} clusters hold less than half a row or are mostly empty: left out"
        if empty
        else ""
    )
    doubtful = int((probs.max(1) < SURE).sum())
    note += f"; {doubtful} {noun} are doubtful: no cluster has a probability of {SURE:g} for them"
    table.attrs |= {"title": "Clusters by size", "note": note, "doubtful": doubtful, "of": len(probs)}
    cells, names = _cells(aligned, asked, _shares(aligned, sample_weight_of(tree)), kept)
    found = {"clusters": table} | found | cells
    typical = _typical_rows(aligned, asked, probs, kept)
    found |= {} if typical is None else {"cluster_rows": typical}
    if model.roles.subspaces:
        found["cluster_directions"] = _directions(tree, len(kept))
    if model.roles.cluster_topic is not None:
        found["cluster_topics"] = _topics_of_clusters(aligned, asked, kept)
        names = _names_by_topics(found["cluster_topics"])
    table["name"] = [names.get(int(k), "") for k in kept]
    return found


def number_table(tree: xr.DataTree) -> pd.DataFrame:
    """Tabulate the number of clusters under a fit, and how many its other starts found.

    Returns:
        Index ``num_clusters``; ``probability`` and ``mcse``, NaN of an estimate and of one q without other
        starts, or whose other starts found other numbers; of several starts ``starts`` and ``behind``.
    """
    kind, starts = kind_of(tree), starts_table(tree)
    table = occupied(tree).to_dataframe().rename_axis("num_clusters")[["probability", "mcse"]]
    by_number = None if starts is None or "occupied" not in starts else starts.groupby("occupied")["behind"]
    if kind == "point" or (kind == "variational" and (by_number is None or by_number.ngroups > 1)):
        table[:] = np.nan
    if by_number is not None:
        table = table.reindex(table.index.union(by_number.min().index))
        table["starts"] = by_number.size().reindex(table.index).fillna(0).astype(int)
        table["behind"] = by_number.min().reindex(table.index)
        table = table.sort_values("behind", kind="stable")
    table.index.name = "num_clusters"
    said = _number_in_words(tree)
    note = f"clusters that hold at least one row; {said}"
    note += "; behind: nats from the best start with so many to the best of all" if "behind" in table else ""
    table.attrs |= {"title": "How many clusters", "note": note, "said": said}
    return table


def _number_in_words(tree: xr.DataTree) -> str:
    """The number of clusters of a fit in a sentence that is honest about other starts."""
    counts, starts, kind = occupied(tree), starts_table(tree), kind_of(tree)
    support = counts["num_occupied"].to_numpy()[counts.to_numpy() > 0.0]
    if kind == "sampling":
        mode = counts.attrs["mode"]
        sure = float(counts.max())
        span = "" if len(support) == 1 else f", between {support.min()} and {support.max()} in all draws"
        return f"{mode} most probable ({sure:.0%} of the draws{span})"
    held = str(counts.attrs["mode"])
    if starts is None or "occupied" not in starts:
        return f"{held} from one start: other starts may find other numbers (num_restarts=10)"
    every = starts["occupied"]
    near = every[starts["behind"] <= CLOSE]
    listed = first_of(every, 10)
    if every.nunique() == 1:
        return f"{held}, as in all {len(every)} starts"
    if near.nunique() == 1:
        return (
            f"{held} in the best start and all within {CLOSE:g} nats of it; all starts, best first: {listed}"
        )
    span = f"between {near.min()} and {near.max()}"
    return f"not sure: {span} in starts within {CLOSE:g} nats of the best; all starts, best first: {listed}"


def _shares(aligned: xr.DataTree, weight: np.ndarray | None = None) -> np.ndarray:
    """Share of the fitted rows, or of their weights, in each cluster, draw by draw: (draws, clusters)."""
    labels, probs = labels_of(aligned), memberships(aligned)
    if labels is None or kind_of(aligned) == "point":
        return np.average(probs, axis=0, weights=weight)[None]
    drawn = flat_draws(labels).astype(int)
    sizes = cluster_sizes(drawn, probs.shape[1], weight)
    return sizes / sizes.sum(1, keepdims=True)


def _arrays(model: Model, values: Mapping[str, Any]) -> list[tuple[jax.Array, jax.Array | None]]:
    return [(jnp.asarray(part.values), part.spread) for part in answer_of(model, "typical_cells", values)]


def _cells(
    aligned: xr.DataTree, asked: Asked, by_draw: np.ndarray, kept: np.ndarray
) -> tuple[dict[str, pd.DataFrame], dict[int, str]]:
    """Typical cells of the clusters, what sets each apart, and names after that."""
    model, kind = model_of(aligned), kind_of(aligned)
    draws = parameters_of(aligned, MOST_DRAWS)
    parts = quantities_of(model, draws)
    if not parts:
        return {}, {}
    size = 1 + max(int(part.columns.max()) for part in parts if part.columns.size)
    names, (read, *_) = column_names(aligned, model.data_names[0], size), aligned.fit.columns
    read = {} if read is None else {column.name: column for column in read.kept}
    share = by_draw if len(by_draw) == draws[next(iter(draws))].shape[1] else by_draw.mean(0)[None]
    held = np.where(share > 0, 1.0, np.nan)[..., None]  # a cluster without rows is a draw from the prior
    values_of, apart = [], {int(k): [] for k in kept}
    for part, (values, spread) in zip(
        parts, over_draws(_arrays, draws, answer_of(model, "resolving", draws), ()), strict=True
    ):
        values = np.asarray(values)[0]  # (draws, clusters, columns)
        spread = None if spread is None else np.asarray(spread)[0]
        total = np.einsum("sk,skf->sf", np.broadcast_to(share, values.shape[:2]), values)[:, None]
        left = 1.0 - share[..., None]
        others = np.divide(
            total - share[..., None] * values, left, where=left > 1e-9, out=np.full(values.shape, np.nan)
        )
        unit = _unit(values, spread, share)
        effect = np.divide(values - others, unit, where=unit > 0, out=np.zeros_like(values)) * held
        own, far = (intervals(part, kind, asked.probability) for part in (values * held, effect))
        sure = mean_of_held(np.where(np.isnan(effect), np.nan, np.sign(effect) == np.sign(far["mean"])))
        in_units = np.divide(values, unit, where=unit > 0, out=np.zeros_like(values)) * held
        extreme = are_extreme(in_units[:, kept], far["mean"][kept])
        others, inside = mean_of_held(others * held), None if spread is None else mean_of_held(spread * held)
        if part.of_logs:
            own, others = {name: np.exp(ends) for name, ends in own.items()}, np.exp(others)
            inside = spread_of_logs(own["mean"], inside)
        for k, is_extreme in zip(kept, extreme, strict=True):
            for j, column in enumerate(part.columns):
                cell = {"mean": own["mean"][k, j], "others": others[k, j]}
                quantity = quantity_in_words(part.quantity, read.get(names[column]))
                key = {"cluster": int(k), "column": names[column], "quantity": quantity}
                inner = np.nan if inside is None else inside[k, j]
                bounds = {"lb": own["lb"][k, j], "ub": own["ub"][k, j], "spread": inner}
                values_of.append(key | cell | bounds | {"apart": far["mean"][k, j]})
                bounds = {"lb": far["lb"][k, j], "ub": far["ub"][k, j]}
                sign = np.nan if np.isnan(far["lb"][k, j]) else sure[k, j]
                far_off = {"difference": far["mean"][k, j], "probability": sign}
                apart[int(k)].append(key | cell | bounds | far_off | {"is_extreme": is_extreme[j]})
    index = ("cluster", "column", "quantity")
    columns = ("mean", "lb", "ub", "spread", "others", "apart")
    table = ranked(values_of, index, columns).loc[list(map(int, kept))]
    origins = {name: read[name].origin for name in names if name in read and read[name].origin is not None}
    note = (
        "in the units of the data; spread: standard deviation of cells within the cluster; others: the mean "
    )
    note += "over the other clusters; apart: from the others, in standard deviations within clusters; "
    note += kind_in_words(aligned)
    if any(part.of_logs for part in parts):
        note += "; median: of a column fitted by its logarithms, whose spread is half its central 68 %"
    if np.isnan(held).any():
        note += "; over the draws in which the cluster holds rows"
    table = _with_dates(table, origins)
    table.attrs |= {"title": "Typical values of each cluster", "note": note + _note_on(origins)}
    rows, named = [], {}
    for k, found in apart.items() if len(kept) > 1 else ():
        found = [row for row in found if np.isfinite(row["difference"])]
        order = sorted(found, key=lambda row: -abs(row["difference"]))
        named[k] = name_of_cluster(order)
        rows += [row | {"rank": rank} for rank, row in enumerate(order[: asked.num_rows], start=1)]
    columns = ("column", "quantity", "mean", "others", "difference", "lb", "ub", "probability")
    different = ranked(rows, ("cluster", "rank"), columns)
    note = "difference from the other clusters in standard deviations of the column within clusters; "
    note += "probability: that its sign is right"
    different = _with_dates(different, origins)
    different.attrs |= {"title": "What sets each cluster apart", "note": note + _note_on(origins)}
    return {"cluster_values": table, "cluster_differences": different}, with_namesakes(named, "cluster")


def _with_dates(table: pd.DataFrame, origins: dict[str, str]) -> pd.DataFrame:
    """The table with its means that are dates in words too, where the data have dates."""
    if not origins:
        return table
    held = table.reset_index()
    for name, values in (("date", "mean"), ("others_date", "others")):
        table[name] = [
            date_in_words(origins[column], value) if column in origins and np.isfinite(value) else None
            for column, value in zip(held["column"], held[values], strict=True)
        ]
    table.attrs["origins"] = origins
    return table


def _note_on(origins: dict[str, str]) -> str:
    """What the columns of `_with_dates` are, for the note of the table."""
    if not origins:
        return ""
    return "; date: the mean of a column of dates; others_date: that of the others"


def _unit(values: np.ndarray, spread: np.ndarray | None, share: np.ndarray) -> np.ndarray:
    """Standard deviation of a column within clusters, or of an indicator with the mean probability."""
    weights = np.broadcast_to(share, values.shape[:2])
    if spread is not None:
        return np.sqrt(np.einsum("sk,skf->sf", weights, np.nan_to_num(spread) ** 2))[:, None]
    mean = np.einsum("sk,skf->sf", weights, values)[:, None]
    return np.sqrt(np.maximum(mean * (1 - mean), 0.0))


def _directions(tree: xr.DataTree, count: int) -> pd.DataFrame:
    """Directions that each cluster uses."""
    table = effective_directions(tree).head(count).rename_axis("cluster").drop(columns="share")
    note = (
        "effective: number of directions, weighed by their size; direction_1, ...: sizes, the largest first"
    )
    note += "; columns are in their standard deviations" if noise_factors(model_of(tree)) else ""
    table.attrs |= {"title": "Directions within each cluster", "note": note}
    return table


def _topics_of_clusters(aligned: xr.DataTree, asked: Asked, kept: np.ndarray) -> pd.DataFrame:
    """Shares of the topics in each cluster of documents."""
    model, kind = model_of(aligned), kind_of(aligned)
    site = model.roles.cluster_topic
    values = flat_draws(given_rows(aligned)[site], *model.variable_dims[site])
    found = intervals(values, kind, asked.probability)
    rows = [
        {"cluster": int(k), "topic": topic} | {name: part[k, topic] for name, part in found.items()}
        for k in kept
        for topic in range(values.shape[2])
    ]
    table = ranked(rows, ("cluster", "topic"), ("mean", "lb", "ub"))
    note = f"share of the topic in the words of a document of the cluster; {kind_in_words(aligned)}"
    table.attrs |= {"title": "Topics of each cluster", "note": note}
    return table


def _names_by_topics(table: pd.DataFrame) -> dict[int, str]:
    """Names of clusters of documents: the topics that have most of their words."""
    names = {}
    for k, shares in table["mean"].groupby(level="cluster"):
        shares = shares.droplevel("cluster").sort_values(ascending=False, kind="stable")
        most = shares.index[(shares >= shares.iloc[0] / 2)][:_MOST_TOPICS]
        names[int(k)] = f"mostly topic{'s' if len(most) > 1 else ''} {listed([str(topic) for topic in most])}"
    return names


def _by_cluster(model: Model, values: Mapping[str, Any], *data: Any) -> jax.Array:
    return answer_of(model, "log_density_by_cluster", values, *data)


def _cells_of_rows(x: Any) -> np.ndarray:
    """Observed cells of each row, or counts of each document, shape (rows,)."""
    if isinstance(x, np.ndarray):
        return np.isfinite(x).sum(1)
    if isinstance(x, SparseCounts):
        return np.bincount(np.asarray(x.document), np.asarray(x.count), x.shape[0])
    return np.full(x.shape[0], x.shape[1])


def _typical_rows(
    aligned: xr.DataTree, asked: Asked, probs: np.ndarray, kept: np.ndarray
) -> pd.DataFrame | None:
    """The rows of each cluster at which its density is highest; None without the data."""
    data, model = fitted_data(aligned), model_of(aligned)
    if data is None:
        return None
    columns = ("row", "probability", "distance")
    note = "of the rows whose most probable cluster it is; distance: nats a {unit} below the most typical row"
    if model.roles.cluster_topic is not None:
        rows = []
        for k in kept:
            near = nearest_documents(aligned, int(k), asked.num_rows)
            first = near["divergence"].min()
            for rank, (name, row) in enumerate(near.iterrows(), start=1):
                cells = {"row": name, "probability": row["share"], "distance": row["divergence"] - first}
                rows.append({"cluster": int(k), "rank": rank} | cells)
        table = ranked(rows, ("cluster", "rank"), columns)
        note = note.replace("rows whose", "documents whose").replace("typical row", "typical document")
        table.attrs |= {"title": "Most typical documents", "note": note.format(unit="word")}
        return table
    most = int(np.clip(_SCORED_ROWS // len(probs), 1, _SCORED_DRAWS))
    try:
        of_rows = for_data(model, *data)
        scores = np.asarray(over_draws(_by_cluster, parameters_of(aligned, most), of_rows, data))[0]
    except ValueError as why_not:  # the model cannot tell: its labels are not summed out
        table = ranked([], ("cluster", "rank"), columns)
        table.attrs |= {"title": "Most typical rows", "note": f"not known: {why_not}"}
        return table
    cells = np.maximum(_cells_of_rows(data[0]), 1)
    held = np.where(held_in_draws(aligned, most)[0, :, None], 1.0, np.nan)
    scores, names, rows = mean_of_held(scores * held) / cells[:, None], row_names(aligned), []
    gaps = np.isnan(data[0]).sum(1) if isinstance(data[0], np.ndarray) else np.zeros(len(cells), int)
    note += "; rows with the fewest missing cells come first" if gaps.any() else ""
    for k in kept:
        members = np.flatnonzero(probs.argmax(1) == k)
        order = members[np.lexsort((-scores[members, k], gaps[members]))][: asked.num_rows]
        for rank, n in enumerate(order, start=1):
            alike = gaps[n] == gaps[order[0]]  # cells differ in unit and spread: only equal numbers compare
            far = scores[order[0], k] - scores[n, k] if alike else np.nan
            row = n if names is None else names[n]
            cell = {"row": row, "probability": probs[n, k], "distance": far}
            rows.append({"cluster": int(k), "rank": rank} | cell)
    table = ranked(rows, ("cluster", "rank"), columns)
    table.attrs |= {
        "title": "Most typical rows",
        "note": note.format(
            unit="word" if takes_sparse_counts(model) and not isinstance(data[0], np.ndarray) else "cell"
        ),
    }
    return table
