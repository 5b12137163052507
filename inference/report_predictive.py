"""What a report says of data drawn from a fit: posterior predictive checks of rows, or of documents."""

import numpy as np
import pandas as pd
import xarray as xr

from inference.extension import extend
from inference.identifiable import draws_of, kind_of, symmetries_of
from inference.page import Paragraph, Picture, Table, Verdict
from inference.predictive_checks import check_features
from inference.report_documents import document_blocks
from inference.results import model_of
from inference.tree_groups import thinned

__all__ = ["predictive_blocks"]

_MOST_REPLICATIONS, _FEWEST_REPLICATIONS = 500, 50
_OF_AN_ESTIMATE = 200
_MOST_CELLS = 2**26  # of all replications, 512 MiB
_MOST_LINES = 24
_SUSPECT = 0.01  # a posterior predictive p-value nearer than this to 0 or 1 is named


def predictive_blocks(tree: xr.DataTree) -> list[Paragraph | Picture | Table | Verdict]:
    """Verdict and table of statistics of the data, observed and replicated.

    Args:
        tree: a fit.

    Returns:
        Blocks of a section; a sentence where nothing can be drawn from the fit, and nothing where it does not
            hold its data.
    """
    if model_of(tree).topic_site in draws_of(tree):
        return document_blocks(tree)
    if "observed_data" not in tree.children or not tree.attrs.get("generative", 1):
        return []
    observed = {
        str(name): values
        for name, values in tree["observed_data"].data_vars.items()
        if values.ndim == 2 and "observation" in values.dims
    }
    if not observed:
        return [Paragraph("No data were drawn from the fit: its rows are a sparse matrix.")]
    cells = sum(values.size for values in observed.values())
    most = min(_MOST_REPLICATIONS, _MOST_CELLS // cells)
    if most < _FEWEST_REPLICATIONS:
        return [Paragraph(f"No data were drawn from the fit: there are {cells} cells. Fit a part of them.")]
    few = _repeated(tree, min(most, _OF_AN_ESTIMATE)) if kind_of(tree) == "point" else thinned(tree, most)
    try:
        drawn = extend(few, "posterior_predictive")["posterior_predictive"]
    except ValueError as why_not:
        return [Paragraph(f"No data were drawn from the fit: {why_not}.")]
    parts, nouns = [], [_noun(values) for values in observed.values()]
    for name, values in observed.items():
        view = f"{name} " if nouns.count(_noun(values)) > 1 else ""
        parts.append(check_features(values, drawn[name]).rename(index=lambda own, view=view: view + own))
    table = pd.concat(parts)
    said = f"{drawn.sizes['chain'] * drawn.sizes['draw']} replications of the data."
    if kind_of(tree) == "point":
        said += " The parameters are one estimate: replications vary less than they should."
    return [_verdict(tree, table), Paragraph(said), _table(table)]


def _noun(table: xr.DataArray) -> str:
    """The word for a column of a table, the same for all views of one kind."""
    return str(table.dims[-1]).rstrip("_0123456789")


def _repeated(tree: xr.DataTree, times: int) -> xr.DataTree:
    """The estimate as so many equal draws."""
    groups = {name: child.to_dataset() for name, child in tree.children.items()}
    groups["posterior"] = (
        groups["posterior"].isel(draw=np.zeros(times, int)).assign_coords(draw=np.arange(times))
    )
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs=dict(tree.attrs))} | groups)


def _verdict(tree: xr.DataTree, table: pd.DataFrame) -> Verdict:
    suspect = table.index[(table["p"] - 0.5).abs() > 0.5 - _SUSPECT]
    if not len(suspect):
        return Verdict(
            True,
            "Data drawn from the fit look like the data",
            f"none of {len(table)} means, spreads and extremes is out of the ordinary "
            f"(p between {_SUSPECT} and {1 - _SUSPECT})",
            "check what your question depends on in the same way",
        )
    more = "components" if "labels" in symmetries_of(tree) else "latents"
    return Verdict(
        False,
        f"Data drawn from the fit differ from the data in {len(suspect)} of {len(table)} statistics",
        "; ".join(suspect[:8]) + ("; ..." if len(suspect) > 8 else ""),
        f"look at these features in the pictures; another likelihood, or more {more}, may be needed",
    )


def _table(table: pd.DataFrame) -> Table:
    caption = (
        "Posterior predictive check: 90 % interval of each statistic in replicated data; "
        "p is the share of replications that are larger"
    )
    if len(table) <= _MOST_LINES:
        return Table(caption, table)
    distance = (table["p"] - 0.5).abs().sort_values(ascending=False, kind="stable")
    return Table(f"{caption}; the {_MOST_LINES} furthest out", table.loc[distance.index[:_MOST_LINES]])
