"""Pictures: what is drawn, that it is labelled, and that nothing of pyplot's state is touched."""

import subprocess
import sys

import numpy as np
import pytest
import xarray as xr
from matplotlib.collections import EllipseCollection
from matplotlib.figure import Figure
from matplotlib.transforms import Affine2D
from scipy.stats import chi2, multivariate_normal

import inference
import zoo
from inference.convergence.partitions import co_clustering, point_partition
from inference.plots import COLOURS, plot_co_clustering, plot_mixture, plot_objective, plot_psrf_path
from inference.plots.mixtures import _density, occupied_components
from tests.support.planted import (
    planted_mixture,
    planted_regression,
    planted_zoo,
    replaced,
    switch_labels,
    variational_mixture,
)


@pytest.fixture(autouse=True)
def of_planted_models():
    with planted_zoo():
        yield


@pytest.fixture(scope="module")
def switched():
    return switch_labels(planted_mixture())


ALL = (plot_mixture, plot_objective, plot_co_clustering, plot_psrf_path)


@pytest.mark.parametrize("plot", ALL)
def test_a_figure_with_labelled_axes_that_pyplot_does_not_know(plot, switched, tmp_path):
    import matplotlib.pyplot as plt

    before, copy = plt.get_fignums(), switched.copy(deep=True)
    figure = plot(switched)
    figure.savefig(tmp_path / "picture.png", dpi=40)
    assert isinstance(figure, Figure) and plt.get_fignums() == before
    assert switched.identical(copy)
    assert (tmp_path / "picture.png").stat().st_size > 5000
    for axis in figure.axes:
        labels = axis.get_xlabel() + axis.get_ylabel()
        shared = axis.get_shared_x_axes().get_siblings(axis)
        assert labels and (axis.get_xlabel() or len(shared) > 1 or axis.get_label() == "<colorbar>")


def _legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def _ellipses(axis):
    return [each for each in axis.collections if isinstance(each, EllipseCollection)]


def test_ellipses_of_the_mixture_are_where_the_clusters_are(switched):
    figure = plot_mixture(switched, num_draws=0, content=0.9)
    axis = figure.axes[0]
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("width", "height")
    (ellipses,) = [each for each in _ellipses(axis) if each.get_linewidth()[0] < 3]
    np.testing.assert_allclose(ellipses.get_offsets(), [[0, 0], [4, 0.5], [1, 5]], atol=0.3)
    diameter = 2 * np.sqrt(chi2.ppf(0.9, 2))  # unit covariance
    np.testing.assert_allclose([ellipses.get_widths(), ellipses.get_heights()], diameter, rtol=0.05)
    rows = [c.get_offsets() for c in axis.collections if not isinstance(c, EllipseCollection)]
    assert sum(len(each) for each in rows if len(each) > 1) == 60
    assert [line for line in _legend(figure) if line.startswith("component 0, 49 %")]


def test_single_draws_are_thin_ellipses(switched):
    axis = plot_mixture(switched, num_draws=7).axes[0]
    (thin,) = [each for each in _ellipses(axis) if each.get_linewidth()[0] < 1]
    assert len(thin.get_offsets()) >= 7 * 3


def test_a_tilted_ellipse_holds_its_share_of_draws():
    from inference.plots.mixtures import _add_ellipses

    covariance = np.array([[2.0, 1.2], [1.2, 1.0]])
    axis = Figure().subplots()
    axis.set(xlim=(-5, 7), ylim=(-5, 3))
    _add_ellipses(axis, np.array([[1.0, -1.0]]), covariance[None], np.sqrt(chi2.ppf(0.8, 2)))
    axis.figure.draw_without_rendering()
    (ellipse,) = _ellipses(axis)
    outline = ellipse.get_paths()[0].transformed(Affine2D(ellipse.get_transforms()[0]))  # about its centre
    draws = np.random.default_rng(0).multivariate_normal([1.0, -1.0], covariance, size=4000)
    inside = outline.contains_points(draws - [1.0, -1.0])
    assert inside.mean() == pytest.approx(0.8, abs=4 * np.sqrt(0.16 / 4000))


def test_density_is_the_mixture_averaged_over_draws():
    rng = np.random.default_rng(0)
    weights = rng.dirichlet([1, 1, 1], size=4)
    locs = rng.normal(size=(4, 3, 2))
    roots = rng.normal(size=(4, 3, 2, 2))
    covariances = roots @ np.swapaxes(roots, -1, -2) + np.eye(2)
    at = rng.normal(size=(5, 2))
    expected = np.mean(
        [
            sum(weights[s, k] * multivariate_normal(locs[s, k], covariances[s, k]).pdf(at) for k in range(3))
            for s in range(4)
        ],
        axis=0,
    )
    np.testing.assert_allclose(_density(at, weights, locs, covariances), expected, rtol=1e-12)


def _with_features(tree, extra):
    """The planted mixture with further features of pure noise, independent in every component."""
    rng = np.random.default_rng(2)
    posterior, data = tree["posterior"].to_dataset(), tree["observed_data"]["x"]
    locs = posterior["locs"].values
    wide = np.concatenate([locs, np.zeros((*locs.shape[:3], extra))], axis=-1)
    covariances = np.broadcast_to(np.eye(2 + extra), (*locs.shape[:3], 2 + extra, 2 + extra))
    kept = posterior[["weights", "assignments", "num_occupied"]]
    dims = ("chain", "draw", "component", "feature")
    posterior = kept.assign(locs=(dims, wide), covariances=((*dims, "feature_2"), covariances))
    x = np.concatenate([data.values, rng.normal(size=(len(data), extra))], axis=1)
    return replaced(
        tree, posterior=posterior, observed_data=xr.Dataset({"x": (("observation", "feature"), x)})
    )


def test_more_than_two_features_are_seen_along_principal_components_or_as_a_chosen_pair(switched):
    tree = _with_features(switched, 2)
    figure = plot_mixture(tree, num_draws=0)
    assert "principal component 1" in figure.axes[0].get_xlabel()
    assert "principal components" in figure.axes[0].get_title(loc="left")
    pair = plot_mixture(tree, features=(1, 3), num_draws=0)
    assert pair.axes[0].get_xlabel() == "feature 1"
    assert "2 other features are not shown" in pair.axes[0].get_title(loc="left")
    with pytest.raises(ValueError, match="no feature 'depth'"):
        plot_mixture(tree, features=("depth", 1))


def test_one_feature_is_a_histogram_with_densities_of_the_right_mass(switched):
    posterior = switched["posterior"].to_dataset().isel(feature=[0], feature_2=[0]).drop_vars("precisions")
    data = switched["observed_data"].to_dataset().isel(feature=[0])
    figure = plot_mixture(replaced(switched, posterior=posterior, observed_data=data))
    whole, *parts = figure.axes[0].lines
    mass = [np.trapezoid(line.get_ydata(), line.get_xdata()) for line in (whole, *parts)]
    assert mass[0] == pytest.approx(1.0, abs=0.02) and len(parts) == 3
    assert sum(mass[1:]) == pytest.approx(1.0, abs=0.03)


def test_components_of_vb_are_owned_by_responsibilities():
    tree = variational_mixture()
    components = occupied_components(tree)
    soft = tree["variational"]["responsibilities"].values
    np.testing.assert_allclose(sorted(components.share), sorted(soft.mean(0))[-3:])
    assert len(components.index) == 3 and len(np.unique(components.owner)) == 3


def test_without_assignments_rows_are_drawn_in_one_colour(switched):
    tree = replaced(switched, posterior=switched["posterior"].to_dataset().drop_vars("assignments"))
    assert not [line for line in _legend(plot_mixture(tree)) if line.startswith("component ")]


def test_plot_mixture_refuses(switched):
    with pytest.raises(ValueError, match="Gaussian components"):
        plot_mixture(planted_regression())
    with pytest.raises(ValueError, match="keep"):
        plot_mixture(replaced(switched, observed_data=None))
    with pytest.raises(ValueError, match="content"):
        plot_mixture(switched, content=90)


def test_objective_lines_are_chains_with_the_warm_up_shaded(switched):
    figure = plot_objective(switched)
    objective, occupied = figure.axes
    assert len(objective.lines) == 4 and len(occupied.lines) == 4
    np.testing.assert_array_equal(objective.lines[2].get_ydata(), switched["trace"]["objective"][2])
    (shade,) = [p for p in objective.patches if p.get_label() == "warm-up"]
    assert shade.get_x() + shade.get_width() == 30.5
    assert "below the axis" in objective.get_title(loc="left")


def test_objective_lines_are_restarts_with_the_best_in_front():
    tree = variational_mixture()
    tree.attrs["best_restart"] = 1
    lines = {line.get_label(): line for line in plot_objective(tree).axes[0].lines}
    best = lines["best restart (1 of 3)"]
    np.testing.assert_array_equal(
        best.get_ydata(), tree["trace"]["objective_by_restart"].values[:9, 1]
    )  # NaN padding is not drawn
    assert "other restarts" in lines and lines["other restarts"].get_color() != best.get_color()


def test_objective_without_occupied_components_is_one_panel():
    tree = variational_mixture()
    trace = tree["trace"].to_dataset()[["objective"]]
    assert len(plot_objective(replaced(tree, trace=trace)).axes) == 1
    with pytest.raises(ValueError, match="trace"):
        plot_objective(replaced(tree, trace=None))


def test_co_clustering_picture_puts_clusters_side_by_side(switched):
    figure = plot_co_clustering(switched)
    shown = figure.axes[0].images[0].get_array()
    assert shown.shape == (60, 60)
    np.testing.assert_allclose(np.sort(shown, axis=None), np.sort(co_clustering(switched), axis=None))
    labels = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    sizes = np.bincount(point_partition(switched))
    assert sorted(labels) == sorted(f"{size} rows" for size in sizes)
    beside = np.mean(shown[np.arange(59), np.arange(1, 60)])
    assert beside > 0.9 > np.mean(shown) + 0.3  # neighbours belong together, rows in general do not


def test_blocks_within_a_cluster_are_kept_together():
    from inference.plots.co_clustering import _order

    label, half = np.arange(24) // 12, np.arange(24) % 2  # two clusters, each of two interleaved halves
    together = np.where(label[:, None] == label, np.where(half[:, None] == half, 1.0, 0.7), 0.0)
    order = _order(together, label)
    assert np.count_nonzero(np.diff(2 * label[order] + half[order])) == 3


def test_many_rows_are_thinned(switched, monkeypatch):
    monkeypatch.setattr("inference.plots.co_clustering._MOST_ROWS", 20)
    figure = plot_co_clustering(switched)
    assert figure.axes[0].images[0].get_array().shape == (20, 20)
    assert "20 of 60 rows" in figure.axes[0].get_title()


def test_psrf_path_picture_shows_the_bars_and_every_invariant():
    figure = plot_psrf_path(planted_regression(num_draws=300, shift=1.0))
    axis = figure.axes[0]
    lines = {line.get_label(): line for line in axis.lines}
    assert {"slope[a]", "slope[b]", "lp"} <= set(lines)
    assert lines["slope[a]"].get_ydata()[-1] > 0.01  # the excess over 1
    assert [line for line in lines if line.startswith("1.01")] and [
        line for line in lines if line.startswith("1.1")
    ]
    assert list(lines).index("lp") > list(lines).index("slope[a]")  # the worst is named first
    with pytest.raises(ValueError, match="independent draws"):
        plot_psrf_path(variational_mixture())


def test_an_objective_at_rest_is_seen_below_the_top_of_its_axis():
    """Steps of a millionth of a nat are no staircase, and the axis ends just above them."""
    tree = variational_mixture()
    steps = -100.0 * 0.1 ** np.arange(12)
    trace = xr.Dataset({"objective": ("iteration", -5000.0 + steps)})
    axis = plot_objective(replaced(tree, trace=trace)).axes[0]
    low, high = axis.get_ylim()
    assert -5001.0 < low < -5000.5 + 0.1 and -5000.0 < high < -4999.5
    assert not axis.yaxis.get_major_formatter().get_useOffset()


def test_the_style_of_the_course_has_the_colours_of_the_palette():
    """`style.use` finds the file in the package, as the notebooks call it, and changes what they rely on."""
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    with plt.style.context("inference.plots.course"):
        assert mpl.rcParams["axes.prop_cycle"].by_key()["color"] == list(COLOURS)
        figure, axes = plt.subplots()
        shown = {place: spine.get_visible() for place, spine in axes.spines.items()}
        assert shown == {"left": True, "bottom": True, "top": False, "right": False}
        assert type(figure.get_layout_engine()).__name__ == "ConstrainedLayoutEngine"
        plt.close(figure)


@pytest.mark.slow
def test_a_notebook_shows_a_figure_without_pyplot():
    """IPython draws Matplotlib's own figures only once pyplot is loaded; in a process without it."""
    code = (
        "import sys\n"
        "from IPython.core.formatters import DisplayFormatter\n"
        "from inference.plots.palette import figure_with_axes\n"
        "figure, _ = figure_with_axes(3.0, 2.0)\n"
        "data, _ = DisplayFormatter(active_types=['text/plain', 'image/png']).format(figure)\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
        "print(data['image/png'][:4])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == repr(b"\x89PNG")


def test_a_mixture_of_rows_with_missing_cells_is_drawn():
    """Rows that lack a cell have no place on the plane, and the others their density."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2)) + 8 * (np.arange(60) % 2)[:, None]
    x[3, 0], x[8, 1] = np.nan, np.nan
    tree = inference.fit(zoo.Mixture.from_data(x, num_components=2), x, seed=0, progress=False)
    axis = plot_mixture(tree).axes[0]
    low, high = axis.get_xlim()
    assert low < np.nanmin(x[:, 0]) and high > np.nanmax(x[:, 0])
