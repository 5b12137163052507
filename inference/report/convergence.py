"""The section of a report on convergence: judgements, pictures of the worst invariants, and their table."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import xarray as xr

from inference.convergence.identifiable import draws_of, kind_of
from inference.convergence.partitions import modes
from inference.convergence.r_hat import mixing
from inference.diagnostics.summaries import summary, summary_cells
from inference.fitting.verdict import Judgement
from inference.plots.draws import plot_rank, plot_trace
from inference.plots.fits import plot_objective, plot_psrf_path
from inference.report.page import Paragraph, Picture, Section, ShownTable
from inference.results.files import model_of

_FEWEST_DRAWS = 40  # per chain, of a picture of chains
_MOST_DRAWN = 3  # invariants whose trace and ranks are drawn
_MOST_OF_A_VARIABLE = 6
_DECISIVE = ("r_hat", "ess_bulk")
_MOST_SIZES = 8  # clusters of a mode whose rows are counted
_END = {"_lb": "5", "_ub": "95"}  # of an interval of 90 %


def convergence_section(tree: xr.DataTree, own: Sequence[Judgement]) -> Section:
    """Return the section on convergence: judgements, pictures and the table of invariants."""
    table = summary(tree)
    cells = summary_cells(table, _MOST_OF_A_VARIABLE)
    ends = {name: f"{_END[name[-3:]]} %" for name in cells.columns if name[-3:] in _END}
    numbered = cells.index.str.contains("[", regex=False).any()
    rule = "Labels and axes are numbered from 0, ranks from 1." if numbered else ""
    said = " ".join(filter(None, (cells.attrs["not_shown"], table.attrs["note"], rule)))
    cells = cells.rename(columns=ends).rename_axis("quantity")
    sizes = draws_of(tree).sizes
    blocks: list = list(own)
    if kind_of(tree) == "sampling" and sizes["chain"] > 1 and sizes["draw"] >= _FEWEST_DRAWS:
        blocks += _of_chains(tree, table)
    elif "trace" in tree.children and tree["trace"].sizes["iteration"] > 1:
        blocks.append(_of_objective(tree))
    blocks += _of_modes(tree)
    caption = "Invariants: no quantity in this table depends on labels or axes"
    return Section("Convergence", [*blocks, ShownTable(caption, cells, _DECISIVE), Paragraph(said)])


def _of_modes(tree: xr.DataTree) -> list[ShownTable | Paragraph]:
    """The partitions that the modes of the posterior are, where there are several."""
    found = modes(tree)
    if len(found) < 2:
        return []
    sizes = [np.sort(np.bincount(mode.partition))[::-1] for mode in found]
    shares = np.stack([mode.shares for mode in found])
    table = pd.DataFrame(
        {
            "share of the draws": shares.mean(1),
            "by chain": [", ".join(f"{share:.2f}" for share in own) for own in shares],
            "clusters": [len(own) for own in sizes],
            "their rows": [", ".join(map(str, own[:_MOST_SIZES])) for own in sizes],
        },
        index=pd.Index(range(1, len(found) + 1), name="mode"),
    )
    travels = tree.attrs.get("why_no_evidence") == "" or bool(tree.attrs.get("converged", 0))
    if travels:
        error = shares.std(1, ddof=1) / np.sqrt(shares.shape[1]) if shares.shape[1] > 1 else np.nan
        table.insert(1, "standard error", error)
        table = table.rename(columns={"share of the draws": "weight"})
    rest = 1 - shares.mean(1).sum()
    said = f"{rest:.0%} of the draws are near none of them. " if rest >= 0.005 else ""
    said += (
        "The chains go from mode to mode, so that shares of the draws are weights of the modes."
        if travels
        else "The chains do not go from mode to mode: a share of the draws is no weight of a mode."
    )
    caption = "Modes: partitions about which draws lie, nine pairs of rows in ten being as in them"
    return [ShownTable(caption, table, tuple(table)[:1]), Paragraph(said)]


def _of_chains(tree: xr.DataTree, table: pd.DataFrame) -> list[Picture]:
    """Pictures of the invariants on which the chains agree least."""
    mixed, pictures = mixing(tree), []
    if mixed.factors and not mixed.broken:
        worst = mixed.worst[:_MOST_DRAWN]
        named = ", ".join(f"{name} (R-hat {mixed.factors[name]:.3f})" for name in worst)
        alt = f"Draws of each chain in their order, for {named}."
        caption = (
            "Traces of the invariants that agree least: chains should lie on top of each other and not drift."
        )
        pictures.append(Picture("trace", caption, alt, plot_trace(tree, worst)))
        alt = f"Counts of the ranks of each chain's draws among all draws, for {named}."
        caption = "Ranks of the same draws: chains that agree have lines near the dashed one."
        pictures.append(Picture("rank", caption, alt, plot_rank(tree, worst)))
    alt = f"Line plot of the PSRF against draws per chain. {_extremes(table)}"
    caption = "PSRF of the invariants as draws accumulate: all should fall below the dashed line."
    return [*pictures, Picture("psrf", caption, alt, plot_psrf_path(tree))]


def _extremes(table: pd.DataFrame) -> str:
    if "r_hat" not in table:
        return "No PSRF is known: some draws are not finite."
    factors = pd.to_numeric(table["r_hat"], errors="coerce")
    if factors.isna().all():
        return "All quantities are constant."
    return f"At the end the largest is {factors.max():.3f}, for {factors.idxmax()}."


def _of_objective(tree: xr.DataTree) -> Picture:
    objective = tree["trace"]["objective"].values
    final = objective[np.isfinite(objective)].max()
    occupation = model_of(tree).roles.occupied in tree["trace"]
    counted = " and the number of occupied components" if occupation else ""
    caption = f"The objective (higher is better){counted} by iteration."
    alt = f"Line plot of the objective, whose best value is {final:.2f} nats."
    return Picture("objective", caption, alt, plot_objective(tree))
