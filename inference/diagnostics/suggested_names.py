"""Names of clusters, topics and latents in words: the columns that set each apart, and nothing else.

A name repeats what the tables of a fit say, in the order of their size, so that nothing in it is invented:
``high eruptions and waiting``, ``mostly plan: basic, late joined``.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from zoo.checks import listed

_LEAST_APART = 0.5  # standard deviations from the other clusters, below which a column says nothing
_BESIDE = 1 / 3  # of the largest difference or loading, below which another is not named beside it
_SURE = 0.95  # probability of a sign that is named
_LIKE_ALL = "like all the others"
_BEYOND = {  # where several clusters lie on one side, the one that is farthest out
    "high": "highest",
    "low": "lowest",
    "late": "latest",
    "early": "earliest",
    "often": "most often",
    "more often": "most often",
    "rarely": "most rarely",
    "less often": "least often",
}
_MOST = 3  # columns or words of a name, or of an end of a latent


def with_namesakes(names: Mapping[int, str], noun: str) -> dict[int, str]:
    """Names by number, those that several have with the numbers of the others: no name tells them apart.

    Args:
        names: number to name.
        noun: what is named, such as ``"cluster"``.
    """
    found = {}
    for number, name in names.items():
        others = [f"{noun} {other}" for other in names if other != number and names[other] == name]
        found[number] = f"{name} (like {listed(others)})" if others and name != _LIKE_ALL else name
    return found


def name_of_cluster(found: Sequence[Mapping[str, Any]]) -> str:
    """Name a cluster.

    Args:
        found: its quantities, those that set it most apart first, with ``column``, ``quantity``, ``mean``,
            ``difference`` and ``probability`` as in the table ``"cluster_differences"``, and ``is_extreme``,
            of `are_extreme`.

    Returns:
        The name; that it is like the others where no column sets it apart.
    """
    parts: dict[str, list[str]] = {}
    named: set[str] = set()
    for row in found:
        size, sure = abs(row["difference"]), row["probability"]
        is_clear = size >= max(_LEAST_APART, _BESIDE * abs(found[0]["difference"])) and not sure < _SURE
        if is_clear and row["column"] not in named and len(named) < _MOST:
            named.add(row["column"])
            word, what = _in_words(row)
            word = _BEYOND.get(word, word) if row["is_extreme"] else word
            parts.setdefault(word, []).append(what)
    return ", ".join(f"{word} {listed(names)}" for word, names in parts.items()) or _LIKE_ALL


def are_extreme(draws: np.ndarray, differences: np.ndarray) -> np.ndarray:
    """Whether a cluster is clearly and surely beyond all others while another lies on its side, too.

    Args:
        draws: means of clusters in standard deviations within clusters, NaN without rows, shape
            (num_draws, num_clusters, num_columns).
        differences: of each from the others, in the same unit, shape (num_clusters, num_columns).
    """
    found = np.zeros(differences.shape, bool)
    for k, side in enumerate(np.sign(differences)):
        others, apart = (np.delete(own, k, axis=-2) for own in (draws, differences))
        lead = side * draws[:, k] - np.fmax.reduce(side * others, axis=1, initial=-np.inf)
        is_beyond = (np.median(lead, axis=0) >= _LEAST_APART) & ((lead > 0).mean(axis=0) >= _SURE)
        found[k] = is_beyond & (side * apart >= _LEAST_APART).any(axis=0)
    return found


def _in_words(row: Mapping[str, Any]) -> tuple[str, str]:
    """How a quantity of a cluster differs from that of the others, and what it is of."""
    is_more, column, quantity = row["difference"] > 0, row["column"], row["quantity"]
    if quantity.startswith("probability of "):
        often = "mostly" if row["mean"] >= 0.5 else "more often"
        return (often if is_more else "rarely" if row["mean"] < 0.2 else "less often"), (
            f"{column}: {quantity.removeprefix('probability of ')}"
        )
    if ", days since " in quantity:
        return ("late" if is_more else "early"), column
    if quantity.startswith("share"):
        return ("often" if is_more else "rarely"), column
    return ("high" if is_more else "low"), column


def name_of_topic(words: pd.DataFrame) -> str:
    """Name a topic by those of its probable words that it uses most beyond their frequency.

    Args:
        words: its part of the table ``"topic_words"``: columns ``word``, ``mean`` and ``lift``.
    """
    beyond = words["mean"] * np.log(np.maximum(words["lift"].fillna(np.e), 1.0))
    return ", ".join(words["word"].iloc[np.argsort(-beyond.to_numpy(), kind="stable")[:_MOST]])


def name_of_latent(columns: Sequence[str], loadings: np.ndarray, sure: np.ndarray) -> str:
    """Name a latent by its largest loadings, those of one sign against those of the other.

    Args:
        columns: their names, shape (num_columns,).
        loadings: in the standard deviations of the columns, shape (num_columns,).
        sure: probability of each sign, NaN where it is not known, shape (num_columns,).
    """
    sizes = np.abs(loadings)
    order = np.argsort(-sizes, kind="stable")
    kept = [
        d for d in order if sizes[d] >= _BESIDE * sizes[order[0]] and sizes[d] > 0 and not sure[d] < _SURE
    ]
    ends = [[columns[d] for d in kept if bool(loadings[d] > 0) is up][:_MOST] for up in (True, False)]
    return " against ".join(listed(end) for end in ends if end)
