"""The section of a report that answers: a picture, cards of clusters, topics or latents, a time line."""

from textwrap import fill

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure

from inference.diagnostics.blocks import Cards
from inference.diagnostics.cluster_profiles import seen_memberships
from inference.diagnostics.profile_parts import row_names
from inference.diagnostics.profile_tables import answer_blocks
from inference.plots.palette import COLOURS, ShownFigure, literal
from inference.report.page import Paragraph, Picture, Section, ShownTable
from inference.results.files import model_of
from inference.topics.topic_tables import token_shares

_FAR = 3.0  # standard deviations from the other clusters at which a colour is full
_SHADES = (
    "colour: above (orange) or below (blue) the other clusters, in standard deviations of the column within "
    "clusters, full at 3"
)
_FEWEST_DATES = 3
_MOST_BINS = 30
_TITLE = 55  # letters in a line above a time line


def answers_section(tree: xr.DataTree, tables: dict[str, pd.DataFrame], results: Section) -> tuple:
    """The section that answers, and that on results without what this one shows: a picture, a coloured table.

    Args:
        tree: a fit.
        tables: the result of `inference.diagnostics.profiles`.
        results: the section of all its tables and pictures.
    """
    blocks: list = []
    for block in answer_blocks(tree, tables):
        if isinstance(block, Cards) and len(block.cards) > 1 and not block.apart.empty:
            blocks += [block._replace(note=""), _shaded(block)]
        else:
            blocks.append(Paragraph(block) if isinstance(block, str) else block)
    blocks += _over_time(tree, blocks)
    coloured = [block.frame for block in blocks if _is_shaded(block)]
    results = results._replace(blocks=[block for block in results.blocks if not _is_among(coloured, block)])
    pictures = [block for block in results.blocks if isinstance(block, Picture) and block.leads]
    lead = min(pictures, key=lambda picture: picture.leads, default=None)
    if lead is not None:
        results = results._replace(blocks=[block for block in results.blocks if block is not lead])
        blocks = [lead, *blocks]
    elif shown := [block for block in blocks if isinstance(block, Picture) or _is_shaded(block)]:
        blocks = [shown[-1], *(block for block in blocks if block is not shown[-1])]
    return Section("Answers", blocks), results


def _shaded(cards: Cards) -> ShownTable:
    """What the columns are in each cluster, coloured by how far that is from the others."""
    apart = cards.apart
    frame = cards.cells.loc[apart.index].rename_axis("column")
    note = "; ".join(filter(None, [cards.note, _SHADES]))
    return ShownTable("Clusters by column", frame, note=note, shades=(apart / _FAR).clip(-1, 1))


def _is_shaded(block: object) -> bool:
    return isinstance(block, ShownTable) and block.shades is not None


def _is_among(frames: list[pd.DataFrame], block: object) -> bool:
    """Whether one of these has the rows and columns of a table."""
    return isinstance(block, ShownTable) and any(
        {*block.frame.index} == {*frame.index} and {*block.frame.columns} == {*frame.columns}
        for frame in frames
    )


def _over_time(tree: xr.DataTree, blocks: list) -> list[Picture]:
    """A time line of the cards, where rows have dates."""
    cards = next((block for block in blocks if isinstance(block, Cards)), None)
    dates = _dates_of(tree)
    if cards is None or dates is None or dates[1].nunique() < _FEWEST_DATES:
        return []
    name, when = dates
    if model_of(tree).roles.cluster is not None:
        shares = seen_memberships(tree)
    elif model_of(tree).roles.topic is not None and "observed_data" in tree.children:
        shares = token_shares(tree).to_numpy()
    else:
        return []
    kept = [int(card.heading.split()[1]) for card in cards.cards]
    if len(shares) != len(when):
        return []
    seen = when.notna().to_numpy()
    times, weights = when[seen], shares[seen][:, kept]
    mean = [_day(times, weights[:, place]) for place in range(len(kept))]
    said = "; ".join(f"{card.heading} about {day}" for card, day in zip(cards.cards, mean, strict=True))
    caption = f"Rows of each {cards.cards[0].heading.split()[0]} over time, by {name}."
    figure = _time_line(times, weights, [f"{card.heading}: {card.name}" for card in cards.cards])
    return [Picture("time-line", caption, f"Bars of counts over time; weighted mean dates: {said}.", figure)]


def _day(times: pd.Series, weights: np.ndarray) -> str:
    """The weighted mean of dates."""
    first = times.min()
    days = (times - first) / pd.Timedelta(days=1)
    return str((first + pd.Timedelta(days=float(np.average(days, weights=weights + 1e-12)))).date())


def _dates_of(tree: xr.DataTree) -> tuple[str, pd.Series] | None:
    """The dates of rows: a column of them, else their labels; None where there are none."""
    read = tree.fit.columns[0] if "observed_data" in tree.children else None
    for column in () if read is None else read.kept:
        if column.origin is not None:
            cells = tree["observed_data"].to_dataset()[model_of(tree).data_names[0]]
            days = pd.Series(cells.sel({cells.dims[1]: column.name}).to_numpy())
            return column.name, pd.Timestamp(column.origin) + pd.to_timedelta(days, unit="D")
    names = row_names(tree)
    if names is None or names.dtype.kind not in "MUO":
        return None
    found = pd.Series(pd.to_datetime(pd.Series(names), format="ISO8601", errors="coerce"))
    return ("their labels", found) if found.notna().all() else None


def _time_line(times: pd.Series, weights: np.ndarray, names: list[str]) -> Figure:
    """Draw a line of bars for each card: rows, or their shares, in each stretch of time."""
    count = len(names)
    bins = int(np.clip(times.nunique(), _FEWEST_DATES, _MOST_BINS))
    titles = [literal(fill(name, _TITLE)) for name in names]
    height = 0.7 + 0.5 * count + 0.15 * sum(title.count("\n") + 1 for title in titles)
    figure = ShownFigure(figsize=(4.4, height), layout="constrained")  # narrow: a phone shows it at half size
    panels = figure.subplots(count, 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for place, (axes, title) in enumerate(zip(panels, titles, strict=True)):
        axes.hist(times, bins=bins, weights=weights[:, place], color=COLOURS[place % len(COLOURS)])
        axes.set_title(title, fontsize=9, loc="left", pad=2)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(labelsize=8)
        axes.set_yticks([])
    locator = AutoDateLocator()
    panels[-1].xaxis.set_major_locator(locator)
    panels[-1].xaxis.set_major_formatter(ConciseDateFormatter(locator))
    return figure
