"""Pictures of mixtures, of their clusters against known labels, of EM, and of a Dirichlet process.

The picture of a mixture of Gaussians shows rows, component ellipses and the predictive density on the plane
of two features, or of the first two principal components of the data; densities are exact margins. EM is
drawn as a staircase: the bound that each M-step climbs, the likelihood that each E-step lifts it to. Draws
from a Dirichlet process are shown beside its base measure, as in Yu (2006), Figure 3.2.
"""

from typing import Any, NamedTuple

import jax
import numpy as np
import numpyro.distributions as dist
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.collections import EllipseCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from scipy.special import chdtri

from inference.convergence.identifiable import draws_of, feature_names, kind_of
from inference.plots.palette import COLOURS, LINES, MARKERS, ShownFigure, figure_with_axes, legend_of, literal
from inference.precision import double_precision
from inference.results.files import check_tree, model_of
from inference.results.groups import flat_draws, group_or_empty, labels_of, responsibilities_of, thinned
from inference.symmetry import relabel
from zoo.checks import check_seed, check_size
from zoo.dirichlet_process import polya_urn

_GRID = 120
_MOST_DENSITY_DRAWS = 100
_MOST_ELLIPSE_DRAWS = 400  # as in profiles
_REGIONS = (0.99, 0.9, 0.5)
_SHADES = ("0.95", "0.88", "0.79")
_NEGLIGIBLE_WEIGHT = 1e-5


class Plane(NamedTuple):
    """Linear map from features to the axes of the picture.

    Attributes:
        origin: (num_features,).
        basis: (num_features, 1 or 2).
        labels: one label an axis.
        note: a remark on the axes for the title.
    """

    origin: np.ndarray
    basis: np.ndarray
    labels: list[str]
    note: str


class ShownComponents(NamedTuple):
    """Occupied components of a relabelled fit, the largest first.

    Attributes:
        index: (num_shown,) positions along the dim component.
        share: (num_shown,) posterior mean share of the rows.
        locs: (num_shown, num_features) posterior means over the draws in which the component is occupied.
        covariances: (num_shown, num_features, num_features), likewise.
        owner: (num_observations,) the position of each row's most probable component.
    """

    index: np.ndarray
    share: np.ndarray
    locs: np.ndarray
    covariances: np.ndarray
    owner: np.ndarray


def occupied_components(tree: xr.DataTree) -> ShownComponents | None:
    """Select components that hold at least one per cent of the rows and are occupied in half of the draws.

    Returns:
        The components, or None where the assignments were left out of a sampler's fit.
    """
    if kind_of(tree) == "sampling" and labels_of(tree) is None:
        return None
    tree = thinned(tree, _MOST_ELLIPSE_DRAWS)
    tree = tree if "relabelled" in tree.attrs else relabel(tree)
    posterior = draws_of(tree)
    num_components = posterior.sizes["component"]
    stored = responsibilities_of(tree)
    if stored is not None:
        soft, num_draws = stored.values, posterior.sizes["chain"] * posterior.sizes["draw"]
        share, owner = soft.mean(0), soft.argmax(1)
        present = np.tile(soft.sum(0) > 0.5, (num_draws, 1))
    else:
        drawn = labels_of(tree).values
        drawn = drawn.reshape(-1, drawn.shape[-1])
        counts = np.stack([(drawn == k).sum(0) for k in range(num_components)])  # component x observation
        share, owner = counts.mean(1) / len(drawn), counts.argmax(0)
        present = np.stack([(drawn == k).any(1) for k in range(num_components)], axis=1)
    index = np.flatnonzero((share >= 0.01) & (present.mean(0) >= 0.5))
    _, *sites = model_of(tree).roles.gaussian
    locs, covariances = (flat_draws(posterior[site], "component", ...) for site in sites)
    return ShownComponents(
        index,
        share[index],
        np.stack([locs[present[:, k], k].mean(0) for k in index]),
        np.stack([covariances[present[:, k], k].mean(0) for k in index]),
        owner,
    )


def draw_mixture(
    figure: Figure,
    tree: xr.DataTree,
    features: tuple | None,
    num_draws: int,
    content: float,
    *,
    ax: Axes | None = None,
) -> None:
    """Draw the picture that ``inference.plots.plot_mixture`` describes into an empty figure.

    Args:
        figure: the figure.
        tree: a fit of a mixture of Gaussians.
        features: two features, or None.
        num_draws: draws shown as thin ellipses.
        content: probability that an ellipse holds.
        ax: axes of the figure to draw into; None: new ones.

    Raises:
        ValueError: no Gaussian components, no data, or an unknown feature.
    """
    posterior, model = draws_of(tree), model_of(tree)
    missing = [name for name in model.roles.gaussian if name not in posterior]
    if missing or not model.roles.gaussian:
        raise ValueError(
            "plot_mixture draws Gaussian components; the posterior lacks "
            f"{missing or 'their weights, means and covariances'}"
        )
    if model.data_names[0] not in group_or_empty(tree, "observed_data"):
        raise ValueError(
            "plot_mixture draws the data, which this fit does not hold: fit again with "
            "keep=('observed_data',)"
        )
    x = tree["observed_data"][model.data_names[0]].transpose("observation", "feature")
    plane = plane_of(x, features)
    axis = figure.subplots() if ax is None else ax
    weights, locs, covariances = mixture = _projected(posterior, model.roles.gaussian, plane)
    if plane.basis.shape[1] == 1:
        _draw_line(axis, tree, mixture, x.values[:, 0], plane)
        return
    points = (x.values - plane.origin) @ plane.basis
    radius = np.sqrt(chdtri(2, 1 - content))
    handles = _draw_density(axis, points, *mixture)
    handles += _draw_components(axis, points, occupied_components(tree), plane, radius)
    if num_draws:
        some = np.unique(np.linspace(0, len(weights) - 1, num_draws).astype(int))
        used = weights[some] >= max(0.01, 1.0 / len(points))
        style = {"edgecolors": "0.45", "linewidths": 0.5, "alpha": 0.5, "zorder": 2}
        _add_ellipses(axis, locs[some][used], covariances[some][used], radius, **style)
        handles.append(Line2D([], [], color="0.45", linewidth=0.6, label="components of single draws"))
    axis.set(xlabel=literal(plane.labels[0]), ylabel=literal(plane.labels[1]))
    title = f"ellipses hold {100 * content:.0f} % of a component{plane.note}"
    axis.set_title(f"{tree.attrs.get('method', 'fit')}: {title}", fontsize=10, loc="left")
    legend_of(figure, axis, ax, "outside right upper", handles=handles)


def plane_of(x: xr.DataArray, features: tuple | None) -> Plane:
    """The plane, or line, of named features, of the only ones, or of two principal components.

    Raises:
        ValueError: an unknown feature, or more than two.
    """
    names = feature_names(x)
    num_features = len(names)
    if features is None and num_features <= 2:
        features = tuple(range(num_features))
    if features is not None:
        if len(features) not in (1, 2) or (len(features) == 1 and num_features > 1):
            raise ValueError(f"features must be two names or positions of {names}; got {features!r}")
        chosen = []
        for feature in features:
            if str(feature) in names:
                chosen.append(names.index(str(feature)))
            elif isinstance(feature, int | np.integer) and 0 <= feature < num_features:
                chosen.append(int(feature))
            else:
                raise ValueError(f"no feature {feature!r}; the data have {names}")
        others = num_features - len(chosen)
        note = f"\n{others} other features are not shown." if others else ""
        return Plane(
            np.zeros(num_features), np.eye(num_features)[:, chosen], [names[i] for i in chosen], note
        )
    centre, sd = np.nanmean(x.values, axis=0), np.nanstd(x.values, axis=0)
    sd = np.where(sd > 0, sd, 1.0)
    standard = np.nan_to_num((x.values - centre) / sd)  # missing cells at their column's mean
    _, spread, directions = np.linalg.svd(standard, full_matrices=False)
    share = spread**2 / (spread**2).sum()
    labels = [f"principal component {i + 1} ({100 * share[i]:.0f} % of variance)" for i in range(2)]
    note = f"\nPlane: first two principal components of {num_features} standardised features."
    return Plane(centre, (directions[:2] / sd).T, labels, note)


def _projected(
    posterior: xr.Dataset, sites: tuple[str, ...], plane: Plane
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Project weights, locs and covariances of at most 100 draws to the plane, (draws, K, ...)."""
    weights, locs, covariances = (flat_draws(posterior[site], "component", ...) for site in sites)
    some = np.unique(np.linspace(0, len(weights) - 1, _MOST_DENSITY_DRAWS).astype(int))
    locs = (locs[some] - plane.origin) @ plane.basis
    covariances = plane.basis.T @ covariances[some] @ plane.basis
    return weights[some], locs, covariances


def _density(at: np.ndarray, weights: np.ndarray, locs: np.ndarray, covariances: np.ndarray) -> np.ndarray:
    """Posterior predictive density at the rows of ``at``: the mixture density averaged over draws.

    Log densities of components are linear in the points' coordinates and their products: one matrix product.
    """
    num_axes, middle = at.shape[1], at.mean(0)
    points = at - middle
    squares = (points[:, :, None] * points[:, None]).reshape(len(at), -1)
    features = np.concatenate([np.ones((len(at), 1)), points, squares], axis=1).T.copy()
    total = np.zeros(len(at))
    for w, m, c in zip(weights, locs, covariances, strict=True):
        used = np.flatnonzero(w > _NEGLIGIBLE_WEIGHT)
        precision, shift = np.linalg.inv(c[used]), m[used] - middle
        linear = np.einsum("kij,kj->ki", precision, shift)
        constant = np.log(w[used]) - 0.5 * np.linalg.slogdet(2 * np.pi * c[used])[1]
        constant -= 0.5 * np.einsum("ki,ki->k", linear, shift)
        by_component = np.concatenate(
            [constant[:, None], linear, -0.5 * precision.reshape(-1, num_axes**2)], axis=1
        )
        scores = np.einsum("kf,fp->kp", by_component, features)  # small: threads of BLAS would wait for long
        total += np.exp(scores, out=scores).sum(0)
    return total / len(weights)


def _draw_density(axis: Axes, points: np.ndarray, *mixture: np.ndarray) -> list:
    low, high = np.nanmin(points, axis=0), np.nanmax(points, axis=0)  # rows with missing cells have no place
    margin = 0.2 * (high - low)
    sides = [np.linspace(a - m, b + m, _GRID) for a, b, m in zip(low, high, margin, strict=True)]
    grid = np.stack(np.meshgrid(*sides), axis=-1)
    density = _density(grid.reshape(-1, 2), *mixture).reshape(_GRID, _GRID)
    descending = np.sort(density.ravel())[::-1]
    mass = descending.cumsum() / descending.sum()
    levels = [descending[min(np.searchsorted(mass, region), len(mass) - 1)] for region in _REGIONS]
    axis.contourf(*sides, density, levels=[*levels, np.inf], colors=_SHADES, zorder=0)
    axis.set(xlim=sides[0][[0, -1]], ylim=sides[1][[0, -1]])
    return [
        Patch(color=shade, label=f"{100 * region:.0f} % of the predictive density")
        for region, shade in zip(_REGIONS, _SHADES, strict=True)
    ]


def _add_ellipses(axis: Axes, locs: np.ndarray, covariances: np.ndarray, radius: float, **style: Any) -> None:
    """Ellipses in one artist: locs of shape (number, 2), covariances (number, 2, 2)."""
    variances, axes = np.linalg.eigh(covariances)
    angles = np.degrees(np.arctan2(axes[:, 1, 1], axes[:, 0, 1]))
    widths, heights = 2 * radius * np.sqrt(variances[:, ::-1].T)
    at = {"units": "xy", "offsets": locs, "offset_transform": axis.transData, "facecolors": "none"}
    axis.add_collection(EllipseCollection(widths, heights, angles, **at, **style), autolim=False)


def _draw_components(
    axis: Axes, points: np.ndarray, components: ShownComponents | None, plane: Plane, radius: float
) -> list:
    size = float(np.clip(4000 / len(points), 3, 22))
    if components is None:
        axis.scatter(*points.T, s=size, color="0.25", zorder=3)
        return []
    handles = []
    for i, k in enumerate(components.index):
        colour, marker = COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)]
        mine = points[components.owner == k].T
        style = {"color": colour, "marker": marker, "edgecolors": "white", "linewidths": 0.3}
        axis.scatter(*mine, s=size, zorder=3, **style)
        line = LINES[(i // len(COLOURS)) % len(LINES)]
        label = f"component {k}, {100 * components.share[i]:.0f} % of rows"
        handles.append(Line2D([], [], color=colour, marker=marker, linestyle=line, markersize=5, label=label))
    locs = (components.locs - plane.origin) @ plane.basis
    ellipses = locs, plane.basis.T @ components.covariances @ plane.basis, radius
    colours, lines = [each.get_color() for each in handles], [each.get_linestyle() for each in handles]
    _add_ellipses(axis, *ellipses, edgecolors="white", linewidths=3.6, zorder=4)
    _add_ellipses(axis, *ellipses, edgecolors=colours, linewidths=2.0, linestyles=lines, zorder=5)
    rest = ~np.isin(components.owner, components.index)
    if rest.any():
        style = {"color": "0.35", "marker": "x"}
        axis.scatter(*points[rest].T, s=size, linewidths=0.8, zorder=3, **style)
        label = "rows of minor components"
        handles.append(Line2D([], [], linestyle="", markersize=5, label=label, **style))
    return handles


def _draw_line(axis: Axes, tree: xr.DataTree, mixture: tuple, x: np.ndarray, plane: Plane) -> None:
    """Draw the histogram of one feature, the predictive density, and the part of each component in it."""
    axis.hist(x, bins="auto", density=True, color="0.88", edgecolor="white", label="data")
    at = np.linspace(x.min() - 0.15 * np.ptp(x), x.max() + 0.15 * np.ptp(x), 400)[:, None]
    axis.plot(at[:, 0], _density(at, *mixture), color="0.2", linewidth=2, label="predictive density")
    components = occupied_components(tree)
    for i, k in enumerate(components.index if components is not None else ()):
        alone = np.ones((1, 1)), components.locs[None, None, i], components.covariances[None, None, i]
        style = {"color": COLOURS[i % len(COLOURS)], "linestyle": LINES[(1 + i // 8) % len(LINES)]}
        label = f"component {k}, {100 * components.share[i]:.0f} % of rows"
        axis.plot(at[:, 0], components.share[i] * _density(at, *alone), label=label, **style)
    axis.set(xlabel=literal(plane.labels[0]), ylabel="density")
    axis.set_title(f"{tree.attrs.get('method', 'fit')}: one feature", fontsize=10, loc="left")
    axis.legend(fontsize=8, frameon=False)


@double_precision
def plot_dirichlet_process(
    concentrations: tuple[float, ...] = (10.0, 10_000.0),
    num_draws: int = 10_000,
    base: dist.Distribution | None = None,
    seed: int = 0,
) -> Figure:
    """Plot values drawn from DP(alpha, base), one panel for each alpha, over the density of the base measure.

    A small concentration repeats a few values many times; a large one comes close to the base measure.

    Args:
        concentrations: one panel each.
        num_draws: values per panel.
        base: the base measure; by default a standard normal, as in the figure.
        seed: of the draws.

    Returns:
        The figure.

    Raises:
        ValueError: no concentration, or one that is not positive, or fewer than one draw.
    """
    if not concentrations:
        raise ValueError("concentrations is empty: give at least one")
    check_seed(seed)
    base = dist.Normal(0.0, 1.0) if base is None else base
    figure = ShownFigure(figsize=(8.0, 2.3 * len(concentrations) + 0.6), layout="constrained")
    panels = figure.subplots(len(concentrations), 1, sharex=True, squeeze=False)[:, 0]
    for number, (axes, alpha) in enumerate(zip(panels, concentrations, strict=True)):
        key = jax.random.fold_in(jax.random.key(seed), number)
        values = np.asarray(polya_urn(key, alpha, num_draws, base))
        atoms, counts = np.unique(values, return_counts=True)
        spread = 4.2 * float(np.sqrt(base.variance))
        grid = np.linspace(float(base.mean) - spread, float(base.mean) + spread, 400)
        edges = np.linspace(grid[0], grid[-1], 151)
        label = f"{num_draws:,} draws, binned"
        axes.hist(values, edges, density=True, color=COLOURS[0], alpha=0.75, label=label)
        axes.plot(grid, np.exp(base.log_prob(grid)), color=COLOURS[1], lw=2, label="base measure")
        repeated = f"{len(atoms):,} distinct values, one drawn {counts.max():,} times"
        axes.set_title(f"concentration {alpha:g}: {repeated}", loc="left", fontsize=10)
        axes.set_ylabel("density")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=9)
    panels[-1].set_xlabel("value")
    return figure


def plot_em(tree: xr.DataTree, iterations: int = 15, *, ax: Axes | None = None) -> Figure:
    """Plot the log likelihood and the lower bound of the first iterations of EM (of the best restart).

    After an E-step the bound touches the log likelihood; the M-step raises the bound, and the log
    likelihood, which lies above it, rises at least as much.

    Args:
        tree: a fit by ``em``.
        iterations: how many are drawn.
        ax: axes to draw into; None: a new figure.

    Returns:
        The figure.

    Raises:
        ValueError: the fit has no bound in its trace, or ``iterations`` is below 2.
    """
    check_tree(tree)
    if "bound" not in group_or_empty(tree, "trace"):
        method = tree.attrs.get("method", "unknown")
        raise ValueError(f"plot_em draws a fit by method 'em'; this one is by {method!r}")
    check_size("iterations", iterations, 2)
    trace = tree["trace"].to_dataset()
    likelihood = trace["objective"].to_numpy()
    count = min(iterations, int(np.isfinite(likelihood).sum()))
    likelihood, bound = likelihood[:count], trace["bound"].to_numpy()[:count]
    place = np.arange(1, count + 1)
    figure, axis = figure_with_axes(8.0, 4.2, ax)
    steps = np.stack([likelihood[:-1], bound[1:], likelihood[1:]])
    for i in range(count - 1):
        axis.plot([place[i], place[i + 1]], steps[:2, i], color=COLOURS[1], lw=1.2, ls="--")
        axis.plot([place[i + 1]] * 2, steps[1:, i], color=COLOURS[0], lw=1.2, ls=":")
    axis.plot(place, likelihood, "o", color=COLOURS[0], label="log likelihood (the bound after an E-step)")
    axis.plot(place[1:], bound[1:], "^", color=COLOURS[1], label="lower bound after the M-step")
    axis.set(xlabel="iteration", ylabel="nats")
    axis.ticklabel_format(axis="y", useOffset=False)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.spines[["top", "right"]].set_visible(False)
    legend_of(figure, axis, ax, "outside upper left", ncols=2)
    return figure
