"""Components of mixtures of PCAs: what tables and pictures say does not depend on what is arbitrary."""

from itertools import product

import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from inference.component_subspaces import (
    component_shares,
    component_similarity,
    effective_directions,
    loading_products,
    responsibility_overlap,
)
from inference.plots import plot_component_similarity, plot_hinton, plot_loading_products, plot_overlap
from inference.report.results import local_pca_blocks

COMPONENTS, FEATURES, LATENTS, ROWS, RHO = 3, 5, 2, 40, 0.3
ATTRS = {"model": "depcam", "model_fields": f'{{"similarity_scale": {RHO}}}'}
SHARES = np.array([0.2, 0.5, 0.3])  # not in order: the largest is to come first


def bases_and_scales():
    rng = np.random.default_rng(0)
    bases = np.linalg.qr(rng.normal(size=(COMPONENTS, FEATURES, LATENTS)))[0]
    return bases, np.array([[2.0, 0.5], [3.0, 1.0], [1.5, 0.0]])


def chains(seed=None, num_draws=30):
    """Draws of one posterior mode; with a seed each has its own numbering, order of columns and signs."""
    bases, scales = bases_and_scales()
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(COMPONENTS), (SHARES * ROWS).astype(int))
    drawn = {"bases": [], "scales": [], "weights": [], "assignments": []}
    noise = np.random.default_rng(1)
    for _ in range(2 * num_draws):
        u, phi, z = bases, scales * np.exp(0.1 * noise.normal(size=scales.shape)), labels.copy()
        z[noise.integers(ROWS)] = noise.integers(COMPONENTS)
        order = np.arange(COMPONENTS)
        if seed is not None:
            columns, flip = rng.permutation(LATENTS), rng.choice([-1.0, 1.0], (COMPONENTS, LATENTS))
            u, phi = (u * flip[:, None])[..., columns], phi[:, columns]  # the sign of a scale stays
            order = rng.permutation(COMPONENTS)
        place = np.argsort(order)
        for name, value in zip(drawn, (u[order], phi[order], SHARES[order], place[z]), strict=True):
            drawn[name].append(value)
    dims = {
        "bases": ("component", "feature", "latent"),
        "scales": ("component", "latent"),
        "weights": ("component",),
        "assignments": ("observation",),
    }
    posterior = xr.Dataset(
        {
            name: (("chain", "draw", *dims[name]), np.reshape(values, (2, num_draws, *np.shape(values)[1:])))
            for name, values in drawn.items()
        },
        coords={"feature": list("abcde")},
    )
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs=ATTRS), "posterior": posterior})


def estimate():
    """A point with responsibilities."""
    bases, scales = bases_and_scales()
    r = np.random.default_rng(3).dirichlet(SHARES * 3, size=ROWS)
    own = {"bases": bases, "scales": scales}
    dims = {"bases": ("component", "feature", "latent"), "scales": ("component", "latent")}
    posterior = xr.Dataset({n: (("chain", "draw", *dims[n]), v[None, None]) for n, v in own.items()})
    stored = xr.Dataset(
        {n: (dims[n], v) for n, v in own.items()} | {"responsibilities": (("observation", "component"), r)}
    )
    groups = {"posterior": posterior, "variational": stored}
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs=ATTRS)} | groups), r


def test_tables_do_not_depend_on_numbers_signs_or_order_of_columns():
    plain, turned = chains(), chains(seed=5)
    np.testing.assert_allclose(loading_products(turned), loading_products(plain), atol=1e-12)
    np.testing.assert_allclose(effective_directions(turned), effective_directions(plain), atol=1e-12)
    np.testing.assert_allclose(responsibility_overlap(turned), responsibility_overlap(plain), atol=1e-12)
    one, other = component_similarity(turned), component_similarity(plain)
    for name in ("subspace", "products", "angular_least", "angular_most"):
        np.testing.assert_allclose(one[name], other[name], atol=1e-12)
    assert np.abs(one["angular"] - other["angular"]).max() > 0.01  # the paper's kernel does


def test_products_and_directions_are_those_of_the_draws():
    tree, r = estimate()
    bases, scales = bases_and_scales()
    order = np.argsort(-r.sum(0))
    w = (bases * scales[:, None])[order]
    products = loading_products(tree)
    np.testing.assert_allclose(products, w @ np.swapaxes(w, -1, -2), atol=1e-14)
    np.testing.assert_allclose(products["share"], r.mean(0)[order])
    of_chains, drawn = loading_products(chains()), chains()["posterior"]
    assert of_chains["feature"].values.tolist() == list("abcde")
    w = drawn["bases"].values * drawn["scales"].values[..., None, :]
    of_draws = np.einsum("cdkfi,cdkgi->cdfg", w, w).mean((0, 1))  # of all components, whatever their order
    np.testing.assert_allclose(of_chains.sum("component"), of_draws, atol=1e-12)
    table = effective_directions(tree)
    np.testing.assert_array_equal(table["num_active"], (scales != 0).sum(1)[order])
    assert effective_directions(chains())["share"].sum() == pytest.approx(1.0, rel=1e-12)
    np.testing.assert_allclose(table[["direction_1", "direction_2"]], scales[order])
    largest = np.array([4 / 4.25, 9 / 10, 1.0])[order]
    np.testing.assert_allclose(table["effective"], 1 / (largest**2 + (1 - largest) ** 2))
    np.testing.assert_allclose(component_shares(tree), r[:, order])


def test_angular_range_is_that_over_all_signs():
    tree, _ = estimate()
    found = component_similarity(tree)
    bases = tree["posterior"]["bases"].values[0, 0][np.argsort(-estimate()[1].sum(0))]
    sums = bases.sum(-1)
    np.testing.assert_allclose(found["angular"], np.exp(RHO * (sums @ sums.T - LATENTS)), rtol=1e-12)
    values = []
    for flips in product([-1.0, 1.0], repeat=COMPONENTS * LATENTS):
        sums = (bases * np.reshape(flips, (COMPONENTS, 1, LATENTS))).sum(-1)
        values.append(np.exp(RHO * (sums @ sums.T - LATENTS)))
    np.testing.assert_allclose(found["angular_least"], np.min(values, axis=0), rtol=1e-12)
    np.testing.assert_allclose(found["angular_most"], np.max(values, axis=0), rtol=1e-12)
    projections = bases @ np.swapaxes(bases, -1, -2)
    apart = ((projections[:, None] - projections[None]) ** 2).sum((-1, -2))
    np.testing.assert_allclose(found["subspace"], np.exp(-RHO / 2 * apart), rtol=1e-12)
    products = loading_products(tree).values.reshape(COMPONENTS, -1)
    products /= np.linalg.norm(products, axis=1)[:, None]
    np.testing.assert_allclose(found["products"], products @ products.T, rtol=1e-12)


def test_overlap_is_the_chance_of_another_label():
    tree, r = estimate()
    r = r[:, np.argsort(-r.sum(0))]
    by_hand = [
        [sum(r[n, k] * r[n, m] for n in range(ROWS)) / r[:, k].sum() for m in range(3)] for k in range(3)
    ]
    overlap = responsibility_overlap(tree)
    np.testing.assert_allclose(overlap, by_hand)
    np.testing.assert_allclose(overlap.sum(axis=1), 1.0)


def test_hinton_squares_have_areas_of_the_sizes():
    tree, r = estimate()
    axes = plot_hinton(tree).axes[0]
    squares = [p for p in axes.patches if isinstance(p, Rectangle)]
    scales = bases_and_scales()[1][np.argsort(-r.sum(0))]
    assert len(squares) == 5  # the scale of zero has none
    for square in squares:
        column, row = (round(c + square.get_width() / 2) for c in square.get_xy())
        area = square.get_width() * square.get_height()
        np.testing.assert_allclose(area, 0.92**2 * scales[row, column] / scales.max())
    assert axes.get_yticklabels()[0].get_text() == f"component 0, {r.mean(0).max():.0%}"


@pytest.mark.parametrize(
    ("plot", "panels"),
    [(plot_component_similarity, 4), (plot_overlap, 2), (plot_loading_products, 4), (plot_hinton, 1)],
)
def test_pictures_are_labelled_and_leave_pyplot_alone(plot, panels, tmp_path):
    import matplotlib.pyplot as plt

    tree, before = chains(), plt.get_fignums()
    figure = plot(tree)
    figure.savefig(tmp_path / "picture.png", dpi=40)
    assert isinstance(figure, Figure) and plt.get_fignums() == before and len(figure.axes) == panels
    assert all(axis.get_xlabel() or axis.get_ylabel() or axis.get_title(loc="left") for axis in figure.axes)


def test_matrices_drawn_are_the_tables():
    tree, _ = estimate()
    found = component_similarity(tree)
    panels = plot_component_similarity(tree).axes[:3]
    for axes, name in zip(panels, ("angular", "subspace", "products"), strict=True):
        np.testing.assert_allclose(axes.images[0].get_array(), found[name])
    np.testing.assert_allclose(plot_overlap(tree).axes[0].images[0].get_array(), responsibility_overlap(tree))
    drawn = [axes.images[0].get_array() for axes in plot_loading_products(tree).axes[:3]]
    np.testing.assert_allclose(drawn, loading_products(tree))


def test_report_has_tables_pictures_and_what_is_identified():
    blocks = local_pca_blocks(chains())
    assert "mean nothing" in blocks[0].text
    named = [block.name for block in blocks if hasattr(block, "figure")]
    assert named == ["hinton", "component-similarity", "overlap", "loading-products"]
    unlabelled = chains()
    unlabelled["posterior"] = unlabelled["posterior"].to_dataset().drop_vars("assignments")
    assert "labels are matched by the assignments" in local_pca_blocks(unlabelled)[0].text


def test_other_fits_are_refused():
    tree, _ = estimate()
    tree["posterior"] = tree["posterior"].to_dataset().drop_vars("bases")
    with pytest.raises(ValueError, match="expected a fit whose components have bases and scales"):
        loading_products(tree)
    with pytest.raises(TypeError, match="DataTree"):
        loading_products({})
    with pytest.raises(ValueError, match="num_columns must be at least 1; got 0"):
        plot_loading_products(estimate()[0], num_columns=0)
    bare, _ = estimate()
    bare["variational"] = bare["variational"].to_dataset().drop_vars("responsibilities")
    with pytest.raises(ValueError, match="neither responsibilities, labels nor its rows"):
        effective_directions(bare)
