"""Pictures of projections and of labels: what is drawn is what was planted, however the axes were turned."""

import numpy as np
import pytest
import xarray as xr

import inference
import zoo
from inference.convergence.partitions import central_draw
from inference.plots.projections import plot_biplot, plot_loadings
from inference.results.groups import thinned
from tests.support.planted import planted_projection, planted_zoo
from tests.support.report_cases import fitted


@pytest.fixture(autouse=True)
def of_planted_models():
    with planted_zoo():
        yield


@pytest.fixture(scope="module")
def turned():
    """Draws whose axes are turned at random, and the loadings that they were made of."""
    tree, straight = planted_projection()
    return tree, straight["loadings"].reshape(-1, 4, 2).mean(0)


def test_intervals_of_loadings_hold_what_was_planted(turned):
    """Raw draws, turned at random, have intervals around zero; aligned ones are as tight as planted."""
    tree, truth = turned
    panels = plot_loadings(tree).axes
    spans = np.array(
        [[c.get_segments()[0][:, 0] for c in panel.collections] for panel in panels]
    )  # latent, feature
    widths = spans[..., 1] - spans[..., 0]
    assert spans.shape == (2, 4, 2) and (widths > 0.02).all() and (widths < 0.2).all()
    drawn = spans.mean(-1).T
    np.testing.assert_allclose(drawn @ drawn.T, truth @ truth.T, atol=0.1)
    raw = tree["posterior"]["loadings"].quantile([0.05, 0.95], ("chain", "draw"))
    assert float(raw.diff("quantile").min()) > 1.0
    with pytest.raises(ValueError, match="between 0 and 1"):
        plot_loadings(tree, prob=1.0)


def test_the_biplot_keeps_inner_products_of_rows_and_features(turned):
    tree, truth = turned
    axis = plot_biplot(tree).axes[0]
    rows = next(c for c in axis.collections if c.get_label() == "rows").get_offsets()
    arrows = np.array([note.xy for note in axis.texts if hasattr(note, "xy")])
    posterior = tree["posterior"].to_dataset()
    planted = np.einsum("cdnk,cdfk->nf", posterior["latents"].values, posterior["loadings"].values) / 600
    products = np.asarray(rows) @ arrows.T
    order = np.argsort(-np.linalg.norm(truth, axis=1))  # the longest arrow is drawn first
    scale = (products * planted[:, order]).sum() / (products**2).sum()
    np.testing.assert_allclose(scale * products, planted[:, order], atol=0.1)
    with pytest.raises(ValueError, match="two different ones of 0 to 1"):
        plot_biplot(tree, (0, 2))


def test_the_central_draw_has_the_least_expected_loss_of_all_draws():
    """Against pairs of rows counted one by one; labels of a draw are free, the last one is far from all."""
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=40)
    draws = np.stack(
        [np.where(rng.random(40) < share, rng.integers(4, size=40), truth) for share in (0.2, 0.1, 0.3)]
    )
    draws = np.stack([rng.permutation(4)[z] for z in draws] + [rng.integers(4, size=40)])
    posterior = xr.Dataset({"assignments": (("chain", "draw", "observation"), draws[None])})
    attrs = {"model": "plantedmixture", "model_fields": "{}"}
    tree = xr.DataTree.from_dict({"/": xr.Dataset(attrs=attrs), "posterior": posterior})
    pairs = draws[:, :, None] == draws[:, None, :]
    loss = (pairs[:, None] != pairs).sum((1, 2, 3))
    found = central_draw(tree)
    assert np.sort(loss)[0] < np.sort(loss)[1] and loss.argmax() == 3
    np.testing.assert_array_equal(found[:, None] == found, pairs[loss.argmin()])


def test_thinning_keeps_an_even_selection(turned):
    tree, _ = turned
    few = thinned(tree, 100)
    assert dict(few["posterior"].sizes)["draw"] == 25 and thinned(tree, 10_000) is tree
    assert few.attrs == tree.attrs
    last = few["posterior"]["loadings"].values[:, -1]
    np.testing.assert_array_equal(last, tree["posterior"]["loadings"].values[:, 144])  # every sixth of 150


def test_names_of_arrows_do_not_cover_each_other(turned):
    """Arrows all but equal: their names stand apart."""
    tree, _ = turned
    loadings = tree["posterior"]["loadings"]
    alike = xr.zeros_like(loadings) + np.array([1.0, 0.2]) + 0.02 * loadings
    held = tree.copy()
    held["posterior"] = xr.DataTree(tree["posterior"].to_dataset().assign(loadings=alike))
    figure = plot_biplot(held)
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in figure.axes[0].texts if text.get_text()]
    assert len(boxes) == 4
    overlaps = [a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i]]
    assert not any(overlaps)


def test_rows_of_a_model_with_clusters_have_their_colours():
    """Without other colours: a word of the legend for each cluster that holds rows."""
    tree = fitted("mcfa")
    shares = tree["variational"]["responsibilities"].to_numpy()
    figure = plot_biplot(tree)
    words = {text.get_text() for legend in figure.legends for text in legend.get_texts()}
    assert words == {f"cluster: {k}" for k in np.unique(shares.argmax(axis=1))}


@pytest.mark.parametrize(
    ("fields", "method"), [({"standardize": True}, "closed_form"), ({"noise": "diagonal"}, "em")]
)
def test_no_unit_of_a_column_makes_its_arrow_long(fields, method):
    """Of a model that measures columns in their standard deviations, or gives each noise of its own."""
    random, found = np.random.default_rng(0), []
    rows = random.normal(size=(40, 2)) @ random.normal(size=(2, 6)) + 0.5 * random.normal(size=(40, 6))
    for units in (np.ones(6), np.array([1.0, 1000.0, 1.0, 0.01, 1.0, 1.0])):
        tree = inference.fit(zoo.PPCA(num_latents=2, **fields), rows * units, method=method)
        axis = plot_biplot(tree).axes[0]
        assert axis.get_title(loc="left") == "Rows and features (features in their standard deviations)"
        arrows = np.array([note.xy for note in axis.texts if hasattr(note, "xy")])
        dots = [line.get_xdata() for line in plot_loadings(tree).axes[0].lines if line.get_marker() == "o"]
        found.append((arrows, np.ravel(dots)))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-6, atol=1e-8)
