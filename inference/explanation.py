r"""Why a row is where a fit puts it: what each of its cells contributes.

**Clusters**, at an estimate or under q. With :math:`\ell_k(S)` the log joint density of cluster k and of the
cells S of the row, all others missing, a the most probable cluster of the row and b the next that holds rows,
the game is :math:`v(S) = \ell_a(S) - \ell_b(S)`. The entry of the weights is :math:`v(\emptyset)`, that of a
cell its Shapley value

.. math::
    \phi_j = \sum_{S \not\ni j} \frac{1}{m \binom{m-1}{|S|}} \{v(S \cup j) - v(S)\}

among the m observed cells; together they are :math:`v` of the whole row,
:math:`\log P(a \mid x) / P(b \mid x)`. Where groups of columns are independent given the cluster, v is a sum
over groups and each group is a game of its own. Of a group with more than `MOST_PLAYERS` observed cells those
that say most by themselves play alone and the others as one.

**Scores** that are affine in the observed cells: what is lost when a cell is moved to the mean of its column,
beside the score of a row of means. That is exact, whatever the reference.

**Everything else**: the change when a cell is left out, which adds up to nothing in particular.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from inference.convergence.numbering import cluster_dim
from inference.methods import method_of
from inference.precision import double_precision
from inference.prediction import has_estimate, log_joint, predict, transform
from inference.results.files import model_of
from inference.results.groups import group_of, labels_along, responsibilities_of, restored_data
from zoo.answers import answer_of, completions_of
from zoo.conjugate.component_prior import ComponentPrior
from zoo.intake.tables import takes_missing
from zoo.model import Model
from zoo.naming import did_you_mean
from zoo.sparse import SparseCounts, SparseMatrix

MOST_PLAYERS = 12
_ENTRIES = 2**22  # numbers of rows by clusters by squared columns that are scored at once
_MOST_NAMES = 10_000  # of rows among which a near one is sought
_EMPTY = 0.5  # expected rows of a cluster, below which it holds none


@double_precision
def explain(tree: xr.DataTree, row: Any) -> pd.DataFrame:
    """Why a fitted row is in its cluster, or has its scores: what each of its cells contributes.

    Clusters by VB, EM or another estimate: Shapley values of the marginal densities, which add up to the log
    of the ratio of the probabilities of this cluster and the next; beyond 12 columns that depend on each
    other the least telling ones are one entry. PPCA and SPPCA without a kernel: exact contributions to each
    score (of SPPCA, given the inputs alone). Other fits: how much the scores or probabilities change when the
    cell, or the word of a document, is left out. Cells that are missing contribute nothing.

    Args:
        tree: a fit that holds its rows.
        row: label of a row; where no row is called so, its number, counted from 0.

    Returns:
        Index ``entry``: ``weights`` or ``mean row``, and the columns, the largest contribution first.
        ``cell`` is what the row has there; ``contribution`` is in nats, or a column for each score has what
        it contributes, or how it changes. In ``attrs``: ``said``, the row in a sentence, ``note``, what the
        numbers are, ``kind`` (``"shapley"``, ``"contributions"`` or ``"left out"``) and ``total``, what the
        entries of a column sum to (not of cells that are left out).

    Raises:
        ValueError: no row or several of this name, a fit without its rows or with one cluster, or cells that
            the model cannot miss.

    Example:
        >>> import numpy as np, inference, zoo
        >>> x = np.random.default_rng(0).normal(size=(20, 3))
        >>> tree = inference.fit(zoo.PPCA(num_latents=1), x, method="closed_form")
        >>> table = inference.explain(tree, 4)
        >>> bool(np.isclose(table["latent_0"].sum(), inference.transform(tree, x[4:5])[0, 0]))
        True
    """
    model = model_of(tree)
    data = restored_data(group_of(tree, "observed_data"), model)
    place, name = _place_of(tree, model, data[0].shape[0], row)
    parts = tuple(_row_of(part, place) for part in data)
    is_cluster = "clusters" in completions_of(model)
    if is_cluster and takes_missing(model) and has_estimate(method_of(model, tree.attrs["method"])):
        found = _by_shapley(tree, model, parts[0])
    elif answer_of(model, "scores_are_linear"):
        found = _by_score(tree, model, data[0], parts[0])
    else:
        found = _left_out(tree, model, parts, is_cluster)
    found.attrs["said"] = f"row {name} {found.attrs['said']}"
    return found


# The row


def _place_of(tree: xr.DataTree, model: Model, size: int, row: Any) -> tuple[int, Any]:
    """The number of a row and what it is called; ValueError for none, or several of the name."""
    labels = _labels(tree, model.roles.scores[0], size)
    names = [str(label) for label in labels]
    places = [place for place, name in enumerate(names) if name == str(row)]
    if len(places) > 1:
        raise ValueError(
            f"{len(places)} rows of the fit are called {row!r}: rows {', '.join(map(str, places[:5]))}"
            f"{', ...' if len(places) > 5 else ''}, counted from 0; fit with labels that differ"
        )
    if places:
        return places[0], labels[places[0]]
    is_number = str(row).isdecimal() and not np.issubdtype(np.asarray(labels).dtype, np.number)
    if is_number and int(row) < size:
        return int(row), labels[int(row)]
    hint = did_you_mean(str(row), names[:_MOST_NAMES])
    raise ValueError(
        f"the fit has no row {row!r}: its {size} rows are called {names[0]!r} to {names[-1]!r}{hint}"
    )


def _labels(tree: xr.DataTree, dim: str, size: int) -> Any:
    labels = labels_along(tree, dim)
    return np.arange(size) if labels is None else labels


def _row_of(part: Any, place: int) -> np.ndarray:
    """One row, dense."""
    if isinstance(part, SparseMatrix):
        return part.to_scipy()[[place]].toarray()
    return part.rows(np.array([place])).to_dense() if isinstance(part, SparseCounts) else part[[place]]


def _in_words(tree: xr.DataTree, part: int, places: Sequence[int], cells: np.ndarray) -> list[Any]:
    """Cells as the table had them; a missing one is None."""
    own = tree.fit.columns[part]
    read = {column.name: column for column in own.kept} if own is not None else {}
    names = _columns(tree, part)
    return [
        None
        if np.isnan(cells[j])
        else read[names[j]].cell_in_words(cells[j])
        if names[j] in read
        else float(cells[j])
        for j in places
    ]


def _columns(tree: xr.DataTree, part: int) -> list[Any]:
    model = model_of(tree)
    dim = model.variable_dims[model.data_names[part]][-1]
    return list(_labels(tree, dim, 0))


def _table(
    entries: Sequence[Any], cells: Sequence[Any], values: dict[str, np.ndarray], num_first: int, **attrs: Any
) -> pd.DataFrame:
    """The entries, after the first ones by their largest contribution."""
    table = pd.DataFrame({"cell": pd.Series(list(cells), dtype=object), **values})
    largest = np.abs(table.iloc[:, 1:].to_numpy(float)).max(axis=1)
    largest[:num_first] = np.inf
    table = table.set_index(pd.Index(entries, name="entry", dtype=object))
    table = table.iloc[np.argsort(-largest, kind="stable")]
    table.attrs |= attrs
    return table


# Clusters


def _by_shapley(tree: xr.DataTree, model: Model, row: np.ndarray) -> pd.DataFrame:
    scores = log_joint(tree, row)[0]
    if len(scores) < 2:
        raise ValueError("the fit has one cluster: there is no other that the row could be in")
    held = responsibilities_of(tree)
    holds = np.full(len(scores), True) if held is None else held.to_numpy().sum(0) > _EMPTY
    order = np.argsort(-scores, kind="stable")
    own, other = order[0], next((k for k in order[1:] if holds[k]), order[1])
    observed, num_columns = ~np.isnan(row[0]), row.shape[1]

    def value(coalitions: np.ndarray) -> np.ndarray:
        parts = [
            log_joint(tree, np.where(held, row, np.nan))
            for held in _batches(coalitions, len(scores) * num_columns**2)
        ]
        both = np.concatenate(parts)[: len(coalitions)]
        return both[:, own] - both[:, other]

    family = model.part_families[0]
    groups = family.independent_columns if isinstance(family, ComponentPrior) else [tuple(range(num_columns))]
    base = float(value(np.zeros((1, num_columns), bool))[0])
    seen = [[j for j in group if observed[j]] for group in groups]
    names, dim = _columns(tree, 0), cluster_dim(model)
    joined = {
        tuple(players): float(share) for players, share in _shapley_by_group(seen, value, base, observed)
    }
    joined |= {(int(j),): 0.0 for j in np.flatnonzero(~observed)}
    labels = _labels(tree, dim, len(scores))
    shares = np.exp(scores - np.logaddexp.reduce(scores))
    cells = _in_words(tree, 0, range(num_columns), row[0])
    said = f"is in cluster {labels[own]} with probability {shares[own]:.3g}; the next that holds rows is "
    said += f"{labels[other]} with {shares[other]:.3g}"
    note = (
        f"contribution: nats for cluster {labels[own]} over {labels[other]} (negative: against it), by "
        "Shapley values; their sum is the log of the ratio of the two probabilities"
    )
    return _table(
        ["weights", *(_entry(names, players) for players in joined)],
        [None, *(cells[players[0]] if len(players) == 1 else None for players in joined)],
        {"contribution": np.array([base, *joined.values()])},
        1,
        said=said,
        note=note,
        kind="shapley",
        total={"contribution": float(scores[own] - scores[other])},
    )


def _entry(names: Sequence[Any], players: Sequence[int]) -> Any:
    if len(players) == 1:
        return names[players[0]]
    return f"{len(players)} other columns, together"


def _batches(coalitions: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """Coalitions in batches of one length, the last filled up with the whole of the first."""
    length = 2 ** int(np.clip(math.log2(_ENTRIES / size), 4, MOST_PLAYERS))
    if len(coalitions) <= length:
        yield coalitions
        return
    for begin in range(0, len(coalitions), length):
        batch = coalitions[begin : begin + length]
        yield np.concatenate([batch, coalitions[: length - len(batch)]])


def _shapley_by_group(
    groups: Sequence[Sequence[int]], value: Callable, base: float, observed: np.ndarray
) -> Iterator[tuple[Sequence[int], float]]:
    """Players, each some columns, and their Shapley values; groups of columns are games of their own."""
    alone = np.eye(len(observed), dtype=bool)[observed]
    single = np.full(len(observed), base)
    if len(alone):
        single[observed] = value(alone)
    for group in groups:
        if len(group) == 1:
            yield group, single[group[0]] - base
            continue
        players = _players(group, np.abs(single - base))
        if players:
            yield from zip(players, _shapley(players, value, len(observed)), strict=True)


def _players(group: Sequence[int], telling: np.ndarray) -> list[list[int]]:
    """Each column alone, or the last one all that say least by themselves."""
    if len(group) <= MOST_PLAYERS:
        return [[j] for j in group]
    order = sorted(group, key=lambda j: -telling[j])
    return [*([j] for j in order[: MOST_PLAYERS - 1]), sorted(order[MOST_PLAYERS - 1 :])]


def _shapley(players: Sequence[Sequence[int]], value: Callable, num_columns: int) -> np.ndarray:
    """Shapley values by all coalitions; bit j of the number of a coalition is player j."""
    m = len(players)
    bits = np.arange(2**m)[:, None] >> np.arange(m) & 1
    held = np.zeros((2**m, num_columns), bool)
    for j, columns in enumerate(players):
        held[:, columns] = bits[:, [j]] == 1
    v, sizes = value(held), bits.sum(1)
    found = np.empty(m)
    for j in range(m):
        without = np.flatnonzero(bits[:, j] == 0)
        weight = np.array([1.0 / (m * math.comb(m - 1, size)) for size in range(m)])[sizes[without]]
        found[j] = weight @ (v[without | 1 << j] - v[without])
    return found


# Scores, and cells that are left out


def _by_score(tree: xr.DataTree, model: Model, fitted: Any, row: np.ndarray) -> pd.DataFrame:
    if isinstance(fitted, SparseMatrix):
        means = np.asarray(fitted.to_scipy().mean(axis=0)).ravel()
    else:
        means = np.nanmean(fitted, axis=0)
    observed = np.flatnonzero(~np.isnan(row[0]))
    moved = np.repeat(row, len(observed) + 2, axis=0)
    moved[1, observed] = means[observed]
    moved[np.arange(len(observed)) + 2, observed] = means[observed]
    scores = transform(tree, moved)
    dim, found = scores.dims[-1], scores.to_numpy()
    shares = np.zeros((row.shape[1] + 1, found.shape[1]))
    shares[0] = found[1]
    shares[observed + 1] = found[0] - found[2:]
    shares[np.abs(shares) < 1e-12 * np.abs(found).max()] = 0.0  # rounding: the mean row has no scores
    labels = [f"{dim}_{label}" for label in scores[dim].to_numpy()]
    own = ", ".join(f"{label} {score:.3g}" for label, score in zip(labels, found[0], strict=True))
    return _table(
        ["mean row", *_columns(tree, 0)],
        [None, *_in_words(tree, 0, range(row.shape[1]), row[0])],
        dict(zip(labels, shares.T, strict=True)),
        1,
        said=f"has the scores {own}",
        note="what each cell contributes to a score, against the mean of its column in the fitted rows; "
        f"their sum is the score{' given the inputs alone' if len(model.data_names) > 1 else ''}",
        kind="contributions",
        total=dict(zip(labels, map(float, found[0]), strict=True)),
    )


def _left_out(tree: xr.DataTree, model: Model, parts: tuple, is_cluster: bool) -> pd.DataFrame:
    if model.data[0].holds_documents:
        entries, cells, asked = _without_words(tree, parts[0])
    elif takes_missing(model):
        entries, cells, asked = _without_cells(tree, model, parts)
    else:
        raise ValueError(
            f"{tree.attrs['model']} cannot miss cells of these rows, so none can be left out to see what it "
            "contributes"
        )
    scores = predict(tree, *asked, what="probabilities") if is_cluster else transform(tree, *asked)
    dim, found = scores.dims[-1], scores.to_numpy()
    shown = np.argsort(-found[0], kind="stable")[:2] if is_cluster else np.arange(found.shape[1])
    names, values = scores[dim].to_numpy()[shown], [f"{value:.3g}" for value in found[0, shown]]
    labels = [f"{'cluster' if is_cluster else dim}_{name}" for name in names]
    if is_cluster:
        kind = "probabilities"
        said = f"is in cluster {names[0]} with probability {values[0]}"
        said += f"; the next is {names[1]} with {values[1]}" if len(names) > 1 else ""
    else:
        kind = "scores"
        said = f"has the scores {', '.join(map(' '.join, zip(labels, values, strict=True)))}"
    changes = np.zeros((len(entries), len(shown)))
    present = [place for place, cell in enumerate(cells) if cell is not None]
    changes[present] = (found[0] - found[1:])[:, shown]
    return _table(
        entries,
        cells,
        dict(zip(labels, changes.T, strict=True)),
        0,
        said=said,
        note=f"the change when the cell is left out: {kind} of the row less those without it; these do not "
        "add up",
        kind="left out",
    )


def _without_words(tree: xr.DataTree, document: np.ndarray) -> tuple[list[Any], list[Any], tuple]:
    """The words of a document with their counts, and it before copies that lack one each."""
    counts = document[0]
    words = np.flatnonzero(counts)
    rows = np.repeat(counts[None], len(words) + 1, axis=0)
    rows[np.arange(len(words)) + 1, words] = 0
    names = _columns(tree, 0)
    return [names[word] for word in words], [float(counts[word]) for word in words], (rows,)


def _without_cells(
    tree: xr.DataTree, model: Model, parts: tuple
) -> tuple[list[Any], list[Any], tuple[np.ndarray, ...]]:
    """The columns of all parts with the row's cells, and it before copies that lack one each."""
    held = [np.flatnonzero(~np.isnan(part[0])) for part in parts]
    asked = [np.repeat(part, sum(map(len, held)) + 1, axis=0) for part in parts]
    entries, cells, begin = [], [], 1
    for number, (rows, own) in enumerate(zip(asked, held, strict=True)):
        rows[np.arange(len(own)) + begin, own] = np.nan
        begin += len(own)
        prefix = f"{model.data_names[number]}: " if len(parts) > 1 else ""
        entries += [f"{prefix}{name}" if prefix else name for name in _columns(tree, number)]
        cells += _in_words(tree, number, range(rows.shape[1]), parts[number][0])
    return entries, cells, tuple(asked)
