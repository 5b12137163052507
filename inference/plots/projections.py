"""Pictures of projections: loadings with intervals, rows and features on one plane, loadings as images.

All are drawn after `inference.symmetry.align_rotation`: the axes of every draw are turned to a common mean,
so that the remaining spread is the posterior's and not the rotation's. The axes themselves are those in
which the mean loadings are orthogonal in units of the noise, the strongest first; their signs are a
convention. Features that the model measures in their standard deviations (``standardize=True``), or that have
noise of their own, are drawn in them: their units may differ.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from inference.convergence.identifiable import draws_of, kind_of
from inference.convergence.partitions import central_draw
from inference.diagnostics.projection_profiles import column_factors
from inference.plots.palette import COLOURS, MARKERS, figure_with_axes, figure_with_grid, legend_of, literal
from inference.results.files import model_of
from inference.results.groups import group_or_empty, labels_of, loadings_of, responsibilities_of
from inference.symmetry.rotation import aligned_draws

_MOST_DRAWS = 400
_MOST_FEATURES = 30
_MOST_LATENTS = 6
_MOST_ARROWS = 12
_MOST_ROWS = 2000
_MOST_CLASSES = 12  # told apart by colour and marker
_STANDARD = "features in their standard deviations"
_MOST_BARS = 150  # rows with bars; above it they would cover each other


def plot_loadings(tree: xr.DataTree, prob: float = 0.9) -> Figure:
    """Plot mean loadings with central intervals, one panel per latent, one line per feature, views by colour.

    Args:
        tree: a fit of a projection with loadings.
        prob: probability of the intervals. A filled point has an interval without zero.

    Returns:
        The figure; of more than 30 features those with the largest loadings, of more than 6 latents the
        first.

    Raises:
        ValueError: the model has no rotation symmetry or the fit no loadings, or ``prob`` is out of range.
    """
    if not 0 < prob < 1:
        raise ValueError(f"prob must lie between 0 and 1; got {prob}")
    draws, names, view = stacked_loadings(aligned_draws(tree, _MOST_DRAWS))
    size = np.sqrt((draws**2).mean(0)).max(1)
    kept = np.sort(np.argsort(-size, kind="stable")[:_MOST_FEATURES])
    count = min(draws.shape[2], _MOST_LATENTS)
    low, high = np.quantile(draws[:, kept], [(1 - prob) / 2, (1 + prob) / 2], axis=0)
    mean, height = draws[:, kept].mean(0), np.arange(len(kept))[::-1]
    sure = (low > 0) | (high < 0) | (kind_of(tree) == "point")
    size = (1.9, 0.24 * len(kept))
    figure, panels = figure_with_grid(count, count, (2.4, 1.2), size, sharey=True)
    for latent, axis in enumerate(panels):
        for row, y in enumerate(height):
            colour = COLOURS[view[kept[row]] % len(COLOURS)]
            axis.hlines(y, low[row, latent], high[row, latent], colour, linewidth=1.6)
            face = colour if sure[row, latent] else "white"
            axis.plot(mean[row, latent], y, "o", color=colour, markerfacecolor=face, markersize=4.5)
        axis.axvline(0.0, color="0.6", linewidth=0.8, zorder=0)
        axis.set_title(f"latent {latent}", fontsize=9)
        axis.set_xlabel("loading")
    panels[0].set_yticks(height, [literal(names[i]) for i in kept], fontsize=8)
    panels[0].set_ylim(-0.7, len(kept) - 0.3)
    notes = [] if kind_of(tree) == "point" else [f"{prob:.0%} intervals; filled: without zero"]
    notes += [f"{len(kept)} of {len(names)} features"] if len(kept) < len(names) else []
    notes += [f"{count} of {draws.shape[2]} latents"] if count < draws.shape[2] else []
    notes += [_STANDARD] if column_factors(tree) else []
    figure.suptitle("Loadings, axes aligned" + (f" ({'; '.join(notes)})" if notes else ""), fontsize=9)
    return figure


def plot_biplot(
    tree: xr.DataTree,
    latents: Sequence[int] = (0, 1),
    *,
    colour_by: str | Sequence[Any] | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Plot rows as points and features as arrows on the plane of two latents.

    Bars are one posterior standard deviation of a row's scores, where there are few enough rows to see them;
    the small points at an arrow's tip are posterior draws of it.

    Args:
        tree: a fit of a projection with latents; without loadings (kernel PCA) only the rows are drawn.
        latents: the two latents.
        colour_by: what the colours of the rows show: a column of the fitted data by its name, or a value for
            each fitted row; None: their clusters, of a model that has any. Words, and numbers of at most
            eight values, get a colour and a marker each, other numbers a scale; rows without a value are
            hollow.
        ax: axes to draw into; None: a new figure.

    Returns:
        The figure. Arrows are scaled to the scores; the twelve longest are named. Above 2000 rows an even
        selection is drawn.

    Raises:
        ValueError: no such two latents, the fit holds no latents, no such column, or another number of values
            than of rows.
    """
    aligned = aligned_draws(tree, _MOST_DRAWS)
    mean, sd = _scores(aligned)
    first, second = _two_of(latents, mean.shape[1])
    draws, names, view = np.zeros((1, 0, mean.shape[1])), [], np.zeros(0, int)
    if loadings_of(aligned):
        draws, names, view = stacked_loadings(aligned)
    num_rows = len(mean)
    rows = np.unique(np.linspace(0, num_rows - 1, min(num_rows, _MOST_ROWS)).astype(int))
    mean, sd = mean[rows][:, [first, second]], None if sd is None else sd[rows][:, [first, second]]
    tips = draws[:, :, [first, second]]
    centre = tips.mean(0)
    longest = np.linalg.norm(centre, axis=1).max(initial=1e-12)
    scale = 0.9 * np.quantile(np.linalg.norm(mean, axis=1), 0.95) / longest
    figure, axis = figure_with_axes(7.4, 6.4, ax)
    colour_by = _clusters_of_rows(tree) if colour_by is None else colour_by
    if sd is not None and len(mean) <= _MOST_BARS:
        style = {"fmt": "none", "ecolor": "0.8", "linewidth": 0.7, "zorder": 1}
        axis.errorbar(*mean.T, xerr=sd[:, 0], yerr=sd[:, 1], **style)
    size = float(np.clip(3000 / len(mean), 3, 18))
    if colour_by is None:
        axis.scatter(*mean.T, s=size, color="0.45", zorder=2, label="rows")
    else:
        name, values = _values_of_rows(tree, colour_by, num_rows)
        _draw_coloured(axis, mean, values[rows], name, size)
        if values.dtype == object:
            legend_of(figure, axis, ax, "outside lower center", ncols=4)
    named = np.argsort(-np.linalg.norm(centre, axis=1), kind="stable")[:_MOST_ARROWS]
    some = tips[np.linspace(0, len(tips) - 1, min(len(tips), 60)).astype(int)]
    for i in named:
        colour = COLOURS[view[i] % len(COLOURS)]
        end = scale * centre[i]
        if len(some) > 1:
            axis.scatter(*(scale * some[:, i]).T, s=2, color=colour, alpha=0.35, zorder=3, linewidths=0)
        arrow = {"arrowstyle": "-|>", "color": colour, "linewidth": 1.3, "shrinkA": 0, "shrinkB": 0}
        axis.plot(*(1.2 * end), alpha=0.0)  # arrows and words do not widen the axes by themselves
        axis.annotate("", end, (0.0, 0.0), arrowprops=arrow, zorder=4)
    _name_arrows(axis, scale * centre[named], [(names[i], COLOURS[view[i] % len(COLOURS)]) for i in named])
    axis.set(xlabel=f"latent {first}", ylabel=f"latent {second}")
    notes = [f"{len(rows)} rows shown"] if len(rows) == _MOST_ROWS else []
    notes += [f"{len(named)} of {len(names)} features"] if len(named) < len(names) else []
    notes += [_STANDARD] if names and column_factors(tree) else []
    title = ("Rows and features" if names else "Rows") + (f" ({'; '.join(notes)})" if notes else "")
    axis.set_title(title, fontsize=9, loc="left")
    return figure


def _clusters_of_rows(tree: xr.DataTree) -> pd.Series | None:
    """The most probable cluster of each row, or that in the drawn partition nearest to the others."""
    if responsibilities_of(tree) is None and labels_of(tree) is None:
        return None
    return pd.Series(central_draw(tree), name="cluster")


def _values_of_rows(tree: xr.DataTree, colour_by: Any, num_rows: int) -> tuple[str, np.ndarray]:
    """The name and the values of what colours the rows: floats for a scale, words (objects) for classes."""
    name = ""
    if isinstance(colour_by, str):
        name, values = colour_by, _column(tree, colour_by)
    else:
        values = pd.Series(colour_by)
        name, values = str(values.name or ""), values.to_numpy()
    if values.shape != (num_rows,):
        raise ValueError(
            f"colour_by must have a value for each of {num_rows} fitted rows; got {values.shape}"
        )
    known = pd.Series(values).dropna()
    if pd.api.types.is_numeric_dtype(known) and known.nunique() > len(COLOURS):
        return name, values.astype(float)
    words = pd.Series(values).map(lambda value: f"{value:g}" if isinstance(value, float) else str(value))
    words[pd.isna(values)] = None
    if words.nunique() > _MOST_CLASSES:
        raise ValueError(
            f"colour_by has {words.nunique()} different values, too many to tell apart by colour: merge "
            f"them into at most {_MOST_CLASSES} classes"
        )
    return name, words.astype(object).to_numpy()


def _column(tree: xr.DataTree, column: str) -> np.ndarray:
    """A column of the fitted data by its name, words where it held words."""
    model, known = model_of(tree), []
    held = group_or_empty(tree, "observed_data")
    for part, read in zip(model.data_names, tree.fit.columns, strict=True):
        if part not in held or held[part].ndim != 2:
            continue
        labels = held[part][held[part].dims[1]].values.tolist() if held[part].dims[1] in held.coords else []
        known += labels
        if column in map(str, labels):
            values = held[part].to_numpy()[:, [str(label) for label in labels].index(column)]
            levels = {} if read is None else read.level_numbers.get(column, {})
            names = {float(number): level for level, number in levels.items()}
            return np.array([names.get(value) for value in values], object) if names else values
    raise ValueError(
        f"colour_by names {column!r}, which is no column of the data that this fit holds"
        + (f": there are {', '.join(map(str, known[:20]))}" if known else "")
    )


def _draw_coloured(axis: Axes, points: np.ndarray, values: np.ndarray, name: str, size: float) -> None:
    """Draw rows as points in the colours of their values, hollow where there is none."""
    style = {"s": size, "zorder": 2}
    none = pd.isna(values)
    axis.scatter(*points[none].T, facecolors="none", edgecolors="0.45", **style)
    if values.dtype != object:
        drawn = axis.scatter(*points[~none].T, c=values[~none].astype(float), cmap="viridis", **style)
        axis.figure.colorbar(drawn, ax=axis, label=literal(name), shrink=0.8)
        return
    for place, word in enumerate(sorted(set(values[~none]))):
        own, colour = values == word, COLOURS[place % len(COLOURS)]
        label = literal(f"{name}: {word}" if name else word)
        axis.scatter(*points[own].T, color=colour, marker=MARKERS[place % len(MARKERS)], label=label, **style)


def _name_arrows(axis: Axes, tips: np.ndarray, names: list[tuple[str, str]]) -> None:
    """Write words beside the tips of arrows; one that would cover another moves up or down.

    Args:
        axis: with its points drawn.
        tips: shape (arrows, 2), the longest first.
        names: word and colour of each.
    """
    wide, high = (abs(np.subtract(*limits)) for limits in (axis.get_xlim(), axis.get_ylim()))
    line, letter = 0.026 * high, 0.0125 * wide
    taken: list[tuple[float, float, float]] = []  # left, right, level
    for tip, (name, colour) in zip(tips, names, strict=True):
        x, y = tip * (1 + 0.035 * wide / max(np.linalg.norm(tip), 1e-12))
        left = x if tip[0] >= 0 else x - letter * len(name)
        right = left + letter * len(name)
        steps = sorted((sign * step for step in range(len(names)) for sign in (1, -1)), key=abs)
        free = (
            y + step * line
            for step in steps
            if all(right < a or left > b or abs(y + step * line - c) > 0.95 * line for a, b, c in taken)
        )
        level = next(free, y)
        taken.append((left, right, level))
        box = {"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 0.6}
        sideways = "left" if tip[0] >= 0 else "right"
        axis.text(
            x, level, literal(name), fontsize=8, color=colour, ha=sideways, va="center", bbox=box, zorder=5
        )


def stacked_loadings(tree: xr.DataTree) -> tuple[np.ndarray, list[str], np.ndarray]:
    """Stack the loadings of all views in units of their columns, with the features' names and views.

    Args:
        tree: a fit.

    Returns:
        Shapes (num_draws, num_features, num_latents), (num_features,) and (num_features,).

    Raises:
        ValueError: the fit has no loadings.
    """
    blocks, names, views, factors = [], [], [], column_factors(tree)
    for suffix, variable in loadings_of(tree).items():
        feature, values = str(variable.dims[2]), variable.values
        scale = np.sqrt(np.asarray(factors.get(suffix, 1.0))).reshape(-1, 1)
        blocks.append((values / scale).reshape(-1, *values.shape[2:]))
        labels = variable[feature].values if feature in variable.coords else np.arange(values.shape[2])
        numbered = labels.dtype.kind in "iu"
        names += [f"{feature} {label}" if numbered else str(label) for label in labels]
        views += [len(blocks) - 1] * len(labels)
    if not blocks:
        raise ValueError(f"this picture needs loadings; the fit holds {sorted(draws_of(tree).data_vars)}")
    return np.concatenate(blocks, axis=1), names, np.array(views)


def _scores(tree: xr.DataTree) -> tuple[np.ndarray, np.ndarray | None]:
    """Posterior means of the rows' latents, (rows, latents), and their standard deviations if known."""
    posterior, site = draws_of(tree), model_of(tree).roles.latent
    if site in posterior:
        values = posterior[site].transpose("chain", "draw", "observation", "latent").values
        values = values.reshape(-1, *values.shape[2:])
        return values.mean(0), values.std(0) if len(values) > 1 else None
    if site in group_or_empty(tree, "variational"):
        return tree["variational"][site].transpose("observation", "latent").values, None
    raise ValueError(
        "this picture needs the rows' latents, which this fit does not hold: transform computes them"
    )


def _two_of(latents: Sequence[int], count: int) -> tuple[int, int]:
    chosen = tuple(latents)
    if len(chosen) != 2 or len(set(chosen)) != 2 or not all(0 <= latent < count for latent in chosen):
        raise ValueError(f"latents must be two different ones of 0 to {count - 1}; got {chosen}")
    return chosen
