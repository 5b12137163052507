"""The picture of a mixture of Gaussians: rows, component ellipses and predictive density.

The plane is that of two features, or of the first two principal components of the data; densities are exact
margins.
"""

from typing import NamedTuple

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Ellipse, Patch
from scipy.stats import chi2

from inference.convergence.invariants import draws_of, feature_names, kind_of
from inference.plots.palette import COLOURS, LINES, MARKERS
from inference.results.files import model_of
from inference.symmetry import relabel
from inference.results.groups import labels_of, responsibilities_of

__all__ = ["draw_mixture", "occupied_components"]

_GRID = 120
_MOST_DENSITY_DRAWS = 100
_REGIONS = (0.99, 0.9, 0.5)
_SHADES = ("0.95", "0.88", "0.79")
_NEGLIGIBLE_WEIGHT = 1e-5


class _Plane(NamedTuple):
    """A linear map from features to the axes of the picture.

    Attributes:
        origin: (num_features,).
        basis: (num_features, 1 or 2).
        labels: one label an axis.
        note: what the reader must know about the axes.
    """

    origin: np.ndarray
    basis: np.ndarray
    labels: list[str]
    note: str


class Components(NamedTuple):
    """Occupied components of a relabelled fit, the largest first.

    Attributes:
        index: (num_shown,) positions along the dim component.
        share: (num_shown,) posterior mean share of the rows.
        locs: (num_shown, num_features) posterior means over the draws in which the component is occupied.
        loc_sds: (num_shown, num_features) their posterior standard deviations, over the same draws.
        covariances: (num_shown, num_features, num_features), likewise.
        owner: (num_observations,) the position of each row's most probable component.
    """

    index: np.ndarray
    share: np.ndarray
    locs: np.ndarray
    loc_sds: np.ndarray
    covariances: np.ndarray
    owner: np.ndarray


def occupied_components(tree: xr.DataTree) -> Components | None:
    """Components with at least one per cent of the rows that are occupied in at least half of the draws.

    Args:
        tree: a fit of a mixture, relabelled here if it is not yet.

    Returns:
        The components, or None where the assignments were left out of a sampler's fit.
    """
    if kind_of(tree) == "sampling" and labels_of(tree) is None:
        return None
    tree = tree if "relabelled" in tree.attrs else relabel(tree)
    posterior = draws_of(tree)
    num_components = posterior.sizes["component"]
    stored = responsibilities_of(tree)
    if stored is not None:
        soft = stored.values
        share, owner = soft.mean(0), soft.argmax(1)
        present = np.broadcast_to(
            soft.sum(0) > 0.5, (posterior.sizes["chain"] * posterior.sizes["draw"], num_components)
        )
    else:
        drawn = labels_of(tree).values
        drawn = drawn.reshape(-1, drawn.shape[-1])
        counts = np.stack([(drawn == k).sum(0) for k in range(num_components)])  # component x observation
        share, owner = counts.mean(1) / len(drawn), counts.argmax(0)
        present = np.stack([(drawn == k).any(1) for k in range(num_components)], axis=1)
    index = np.flatnonzero((share >= 0.01) & (present.mean(0) >= 0.5))
    _, *sites = model_of(tree).gaussian_sites
    locs, covariances = (_flat(posterior[site], inner) for site, inner in zip(sites, (2, 3), strict=True))
    return Components(
        index,
        share[index],
        np.stack([locs[present[:, k], k].mean(0) for k in index]),
        np.stack([locs[present[:, k], k].std(0) for k in index]),
        np.stack([covariances[present[:, k], k].mean(0) for k in index]),
        owner,
    )


def draw_mixture(
    figure: Figure, tree: xr.DataTree, features: tuple | None, num_draws: int, content: float
) -> None:
    """Draw the picture that ``inference.plots.plot_mixture`` describes into an empty figure.

    Args:
        figure: the figure.
        tree: a fit of a mixture of Gaussians.
        features: two features, or None.
        num_draws: draws shown as thin ellipses.
        content: probability that an ellipse holds.

    Raises:
        ValueError: no Gaussian components, no data, or an unknown feature.
    """
    posterior, model = draws_of(tree), model_of(tree)
    missing = [name for name in model.gaussian_sites if name not in posterior]
    if missing or not model.gaussian_sites:
        raise ValueError(
            "plot_mixture draws Gaussian components; the posterior lacks "
            f"{missing or 'their weights, means and covariances'}"
        )
    if "observed_data" not in tree.children or model.data_names[0] not in tree["observed_data"]:
        raise ValueError(
            "plot_mixture draws the data, which this fit does not hold: fit again with "
            "keep=('observed_data',)"
        )
    x = tree["observed_data"][model.data_names[0]].transpose("observation", "feature")
    plane = _plane(x, features)
    axis = figure.subplots()
    if plane.basis.shape[1] == 1:
        _draw_line(axis, tree, posterior, x.values[:, 0], plane)
        return
    points = (x.values - plane.origin) @ plane.basis
    radius = np.sqrt(chi2.ppf(content, 2))
    weights, locs, covariances = _projected(posterior, model.gaussian_sites, plane)
    handles = _draw_density(axis, points, weights, locs, covariances)
    _draw_ellipses_of_draws(axis, weights, locs, covariances, num_draws, radius, len(points))
    components = occupied_components(tree)
    handles += _draw_components(axis, points, components, plane, radius)
    if num_draws:
        handles.append(Line2D([], [], color="0.45", linewidth=0.6, label="components of single draws"))
    axis.set_xlabel(plane.labels[0])
    axis.set_ylabel(plane.labels[1])
    method = tree.attrs.get("method", "fit")
    axis.set_title(
        f"{method}: ellipses hold {100 * content:.0f} % of a component{plane.note}",
        fontsize=10,
        loc="left",
    )
    figure.legend(handles=handles, loc="outside right upper", fontsize=8, frameon=False)


def _plane(x: xr.DataArray, features: tuple | None) -> _Plane:
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
        return _Plane(
            np.zeros(num_features), np.eye(num_features)[:, chosen], [names[i] for i in chosen], note
        )
    centre, sd = x.values.mean(0), x.values.std(0)
    sd = np.where(sd > 0, sd, 1.0)
    _, spread, directions = np.linalg.svd((x.values - centre) / sd, full_matrices=False)
    share = spread**2 / (spread**2).sum()
    labels = [f"principal component {i + 1} ({100 * share[i]:.0f} % of variance)" for i in range(2)]
    note = f"\nPlane: first two principal components of {num_features} standardised features."
    return _Plane(centre, (directions[:2] / sd).T, labels, note)


def _flat(variable: xr.DataArray, num_inner: int) -> np.ndarray:
    values = variable.transpose("chain", "draw", "component", ...).values
    return values.reshape(-1, *values.shape[-num_inner:])


def _projected(
    posterior: xr.Dataset, sites: tuple[str, ...], plane: _Plane
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights, locs and covariances of the margin in the plane, (draws, K, ...), of at most 100 draws."""
    weights, locs, covariances = (_flat(posterior[site], inner) for inner, site in enumerate(sites, 1))
    some = np.unique(np.linspace(0, len(weights) - 1, _MOST_DENSITY_DRAWS).astype(int))
    locs = (locs[some] - plane.origin) @ plane.basis
    covariances = plane.basis.T @ covariances[some] @ plane.basis
    return weights[some], locs, covariances


def _density(at: np.ndarray, weights: np.ndarray, locs: np.ndarray, covariances: np.ndarray) -> np.ndarray:
    """Posterior predictive density at the rows of ``at``: the mixture density averaged over the draws."""
    num_axes = at.shape[1]
    total = np.zeros(len(at))
    for w, m, c in zip(weights, locs, covariances, strict=True):
        used = np.flatnonzero(w > _NEGLIGIBLE_WEIGHT)
        whiten = np.linalg.inv(np.linalg.cholesky(c[used]))  # (K, axes, axes)
        scale = (
            w[used]
            * np.prod(np.diagonal(whiten, axis1=-2, axis2=-1), axis=-1)
            / (2 * np.pi) ** (num_axes / 2)
        )
        centres = np.einsum("kij,kj->ki", whiten, m[used])
        standard = at @ whiten.reshape(-1, num_axes).T - centres.ravel()
        total += np.exp(-0.5 * (standard**2).reshape(len(at), -1, num_axes).sum(-1)) @ scale
    return total / len(weights)


def _draw_density(axis: Axes, points: np.ndarray, *mixture: np.ndarray) -> list:
    low, high = points.min(0), points.max(0)
    margin = 0.2 * (high - low)
    sides = [np.linspace(a - m, b + m, _GRID) for a, b, m in zip(low, high, margin, strict=True)]
    grid = np.stack(np.meshgrid(*sides), axis=-1)
    density = _density(grid.reshape(-1, 2), *mixture).reshape(_GRID, _GRID)
    descending = np.sort(density.ravel())[::-1]
    mass = descending.cumsum() / descending.sum()
    levels = [descending[min(np.searchsorted(mass, region), len(mass) - 1)] for region in _REGIONS]
    axis.contourf(*sides, density, levels=[*levels, np.inf], colors=_SHADES, zorder=0)
    axis.set_xlim(sides[0][[0, -1]])
    axis.set_ylim(sides[1][[0, -1]])
    return [
        Patch(color=shade, label=f"{100 * region:.0f} % of the predictive density")
        for region, shade in zip(_REGIONS, _SHADES, strict=True)
    ]


def _ellipse(loc: np.ndarray, covariance: np.ndarray, radius: float, **style: object) -> Ellipse:
    variances, axes = np.linalg.eigh(covariance)
    angle = np.degrees(np.arctan2(axes[1, 1], axes[0, 1]))
    width, height = 2 * radius * np.sqrt(variances[::-1])
    return Ellipse(loc, width, height, angle=angle, fill=False, **style)


def _draw_ellipses_of_draws(
    axis: Axes,
    weights: np.ndarray,
    locs: np.ndarray,
    covariances: np.ndarray,
    num_draws: int,
    radius: float,
    num_rows: int,
) -> None:
    if num_draws:
        for draw in np.unique(np.linspace(0, len(weights) - 1, num_draws).astype(int)):
            for k in np.flatnonzero(weights[draw] >= max(0.01, 1.0 / num_rows)):
                axis.add_patch(
                    _ellipse(
                        locs[draw, k],
                        covariances[draw, k],
                        radius,
                        edgecolor="0.45",
                        linewidth=0.5,
                        alpha=0.5,
                        zorder=2,
                    )
                )


def _draw_components(
    axis: Axes, points: np.ndarray, components: Components | None, plane: _Plane, radius: float
) -> list:
    size = float(np.clip(4000 / len(points), 3, 22))
    if components is None:
        axis.scatter(*points.T, s=size, color="0.25", zorder=3)
        return []
    handles = []
    for i, k in enumerate(components.index):
        colour, marker = COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)]
        mine = components.owner == k
        axis.scatter(
            *points[mine].T, s=size, color=colour, marker=marker, edgecolors="white", linewidths=0.3, zorder=3
        )
        loc = (components.locs[i] - plane.origin) @ plane.basis
        covariance = plane.basis.T @ components.covariances[i] @ plane.basis
        line = LINES[(i // len(COLOURS)) % len(LINES)]
        axis.add_patch(_ellipse(loc, covariance, radius, edgecolor="white", linewidth=3.6, zorder=4))
        axis.add_patch(
            _ellipse(loc, covariance, radius, edgecolor=colour, linewidth=2.0, linestyle=line, zorder=5)
        )
        label = f"component {k}, {100 * components.share[i]:.0f} % of rows"
        handles.append(Line2D([], [], color=colour, marker=marker, linestyle=line, markersize=5, label=label))
    rest = ~np.isin(components.owner, components.index)
    if rest.any():
        axis.scatter(*points[rest].T, s=size, color="0.35", marker="x", linewidths=0.8, zorder=3)
        handles.append(
            Line2D(
                [], [], color="0.35", marker="x", linestyle="", markersize=5, label="rows of minor components"
            )
        )
    return handles


def _draw_line(axis: Axes, tree: xr.DataTree, posterior: xr.Dataset, x: np.ndarray, plane: _Plane) -> None:
    """One feature: histogram, predictive density, and the components' parts of it."""
    axis.hist(x, bins="auto", density=True, color="0.88", edgecolor="white", label="data")
    at = np.linspace(x.min() - 0.15 * np.ptp(x), x.max() + 0.15 * np.ptp(x), 400)[:, None]
    weights, locs, covariances = _projected(posterior, model_of(tree).gaussian_sites, plane)
    axis.plot(
        at[:, 0],
        _density(at, weights, locs, covariances),
        color="0.2",
        linewidth=2,
        label="predictive density",
    )
    components = occupied_components(tree)
    for i, k in enumerate(components.index if components is not None else ()):
        part = components.share[i] * _density(
            at, np.ones((1, 1)), components.locs[None, None, i], components.covariances[None, None, i]
        )
        label = f"component {k}, {100 * components.share[i]:.0f} % of rows"
        axis.plot(
            at[:, 0],
            part,
            color=COLOURS[i % len(COLOURS)],
            linestyle=LINES[(1 + i // 8) % len(LINES)],
            label=label,
        )
    axis.set_xlabel(plane.labels[0])
    axis.set_ylabel("density")
    axis.set_title(f"{tree.attrs.get('method', 'fit')}: one feature", fontsize=10, loc="left")
    axis.legend(fontsize=8, frameon=False)
