"""Fits of paired views: missing parts, prediction, components, structural facts, files, the CLI."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.stats import special_ortho_group

import inference
import zoo
from inference import extend, fit, log_density, predict, transform
from inference.cli import main
from inference.symmetry import align_rotation, identify
from inference.symmetry.identified import component_intervals, components

BINARY = ("bernoulli", "bernoulli")


def toy(seed=0, rows=40, sizes=(5, 6)):
    """Two binary views with one shared latent and one of each view."""
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=(rows, 1))
    views = []
    for d in sizes:
        theta = shared @ rng.normal(size=(1, d)) * 2 + rng.normal(size=(rows, 1)) @ rng.normal(size=(1, d))
        views.append((rng.uniform(size=theta.shape) < 1 / (1 + np.exp(-theta))).astype(float))
    return views


@pytest.fixture(scope="module")
def views():
    first, second = toy()
    first[3, 2] = np.nan
    second[7] = np.nan
    rows = [f"site {n}" for n in range(40)]
    return (
        pd.DataFrame(first, index=rows, columns=list("abcde")),
        pd.DataFrame(second, index=rows, columns=list("uvwxyz")),
    )


@pytest.fixture(scope="module")
def ecca(views):
    model = zoo.Paired.ecca(BINARY, num_shared=2, num_specific=(1, 1), beta=0.4)
    return fit(model, *views, method="map", num_restarts=2)


@pytest.fixture(scope="module")
def chains(views, ecca):
    model = zoo.Paired.ecca(BINARY, num_shared=2, num_specific=(1, 1), beta=0.4)
    with pytest.warns(UserWarning, match="has not converged"):
        return fit(model, *views, method="nuts", num_chains=2, num_warmup=100, num_samples=50, init=ecca)


def theta_of(tree):
    """Theta of both views side by side, means included, first chain and draw."""
    values = tree["posterior"].isel(chain=0, draw=0)
    parts = [
        values["latents"].values @ values[f"loadings_{v}"].values.T + values[f"loc_{v}"].values
        for v in (0, 1)
    ]
    return np.hstack(parts)


@pytest.mark.slow
def test_a_fit_keeps_names_zeros_and_itself(views, ecca, tmp_path):
    assert ecca.attrs["converged"] == 1 and "best_restart" in ecca.attrs
    assert list(ecca["posterior"]["loadings_1"]["feature_1"].values) == list("uvwxyz")
    assert ecca["observed_data"]["y_0"].dims == ("observation", "feature_0")
    assert (ecca["posterior"]["loadings_0"][..., 3] == 0).all()
    assert (ecca["posterior"]["loadings_1"][..., 2] == 0).all()
    inference.save(ecca, tmp_path / "ecca.nc")
    back = inference.load(tmp_path / "ecca.nc")
    assert inference.model_of(back).num_specific == (1, 1)
    np.testing.assert_array_equal(predict(back, views[0]), predict(ecca, views[0]))


@pytest.mark.slow
def test_what_is_missing_is_predicted(views, ecca):
    """Either view from the other, a cell from both, scores from any part, rows without a part included."""
    first, second = views
    other = predict(ecca, first)
    assert other.dims == ("observation", "feature_1") and ((other > 0) & (other < 1)).all()
    assert list(other["observation"].values[:2]) == ["site 0", "site 1"]
    assert predict(ecca, None, second).dims == ("observation", "feature_0")
    both = predict(ecca, first, second, what="y_0")
    assert both.values[0, 0] == first.iloc[0, 0] and 0 < both.values[3, 2] < 1
    np.testing.assert_array_equal(predict(ecca, first.iloc[:2]), predict(ecca, first.iloc[:2], None))
    accuracy = np.nanmean(np.where(second.isna(), np.nan, (other > 0.5) == second))
    assert accuracy > np.nanmean(np.where(second.isna(), np.nan, (second.mean() > 0.5) == second))
    assert transform(ecca, None, second).shape == (40, 4)
    nothing = first.iloc[:1] * np.nan
    assert float(log_density(ecca, nothing, second.iloc[[7]].to_numpy())[0]) == pytest.approx(0, abs=1e-6)
    with pytest.raises(ValueError, match="say which view to predict: what= one of y_0, y_1"):
        predict(ecca, first.fillna(0.0), second.fillna(0.0))
    with pytest.raises(ValueError, match="this fit predicts y_0, y_1; got 'y_2'"):
        predict(ecca, first, what="y_2")
    with pytest.raises(ValueError, match="the rows of y_1 are labelled otherwise than those of y_0"):
        predict(ecca, first, second.iloc[:3], what="y_0")
    with pytest.raises(ValueError, match="y_0 and y_1 must have the same rows"):
        predict(ecca, first.to_numpy(), second.iloc[:3].to_numpy(), what="y_0")
    with pytest.raises(ValueError, match="new data lack the columns a"):
        predict(ecca, first.drop(columns="a"))


@pytest.mark.slow
def test_held_out_cells_are_predicted_better_than_by_column_means():
    """15 % of 200 x 40 cells hidden; the mean gain is above two of its standard errors."""
    whole = toy(seed=4, rows=200, sizes=(20, 20))
    rng = np.random.default_rng(5)
    hidden = [rng.uniform(size=view.shape) < 0.15 for view in whole]
    views = [np.where(mask, np.nan, view) for mask, view in zip(hidden, whole, strict=True)]
    tree = fit(zoo.Paired.ecca(BINARY, 1, (1, 1), beta=0.4), *views, method="map", num_restarts=2)
    gains = []
    for v, (mask, view) in enumerate(zip(hidden, whole, strict=True)):
        cells = predict(tree, *views, what=f"y_{v}").values[mask]
        means = np.broadcast_to(np.nanmean(views[v], axis=0), mask.shape)[mask]
        truth = view[mask] == 1
        gains.append(np.log(np.where(truth, cells, 1 - cells)) - np.log(np.where(truth, means, 1 - means)))
    gains = np.concatenate(gains)
    assert gains.mean() > 2 * gains.std() / len(gains) ** 0.5


@pytest.mark.slow
@pytest.mark.parametrize("beta", [0.0, 0.4])
def test_epls_with_one_target_is_supervised_epca(beta):
    """EPLS(1 + 2) and SEPCA(3) have one MAP: rotate until the target lies on the first axis."""
    first, second = toy(seed=1, rows=50, sizes=(1, 12))
    fields = {"beta": beta, "conjugate": (0.1, 0.2) if beta else None}
    found = {}
    for name, model in (
        ("epls", zoo.Paired.epls(BINARY, 1, 2, **fields)),
        ("sepca", zoo.Paired.sepca(BINARY, 3, **fields)),
    ):
        found[name] = fit(
            model, first, second, method="map", num_restarts=4, tolerance=1e-10, max_iterations=3000
        )
    best = {name: float(np.nanmax(tree["trace"]["objective"])) for name, tree in found.items()}
    # The programs differ by the constant of the loading that EPLS fixes to zero: 2 entries at their mode.
    constant = 2 * -0.5 * np.log(2 * np.pi / (1 - beta))
    assert best["sepca"] == pytest.approx(best["epls"] + constant, abs=1e-4)
    np.testing.assert_allclose(theta_of(found["sepca"]), theta_of(found["epls"]), atol=1e-3)


@pytest.mark.slow
def test_epls_with_more_targets_than_shared_latents_is_a_real_restriction():
    first, second = toy(seed=1, rows=50, sizes=(3, 12))
    best = {}
    for name, model in (("epls", zoo.Paired.epls(BINARY, 1, 2)), ("sepca", zoo.Paired.sepca(BINARY, 3))):
        tree = fit(model, first, second, method="map", num_restarts=4, tolerance=1e-9)
        best[name] = float(np.nanmax(tree["trace"]["objective"]))
    constant = 3 * 2 * -0.5 * np.log(2 * np.pi)
    assert best["epls"] + constant < best["sepca"] - 0.5


@pytest.mark.slow
def test_only_the_product_of_the_prior_variances_matters():
    first, second = toy(seed=2, rows=30, sizes=(4, 5))
    theta = []
    for u, v in ((0.5, 2.0), (0.5e-3, 2.0e3)):
        model = zoo.Paired.ecca(BINARY, 1, (1, 1), latent_variance=u, loading_variance=v)
        theta.append(theta_of(fit(model, first, second, method="map", tolerance=1e-10, max_iterations=2000)))
    np.testing.assert_allclose(*theta, atol=1e-10)


@pytest.mark.slow
def test_draws_are_turned_extended_and_summarised(views, chains):
    """What a rotation cannot change stays, in every group that is made of the draws."""
    for turned in (align_rotation(chains), identify(chains)):
        for v in (0, 1):
            products = [
                t["posterior"]["latents"].values @ np.swapaxes(t["posterior"][f"loadings_{v}"].values, -1, -2)
                for t in (chains, turned)
            ]
            np.testing.assert_allclose(*products, atol=1e-10)
        assert (turned["posterior"]["loadings_0"][..., 3] == 0).all()
    table = inference.diagnostics.summary(chains)
    names = {name.split("[")[0] for name in table.index}
    assert {"theta_singular_values", "theta_shared_singular_values", "natural_params_1"} <= names
    assert not names & {"latents", "loadings_0", "singular_values_0"}
    more = extend(chains, "posterior_predictive", "log_prior", "log_likelihood")
    assert more["posterior_predictive"]["y_1"].dims == ("chain", "draw", "observation", "feature_1")
    np.testing.assert_allclose(
        more["log_likelihood"]["log_likelihood"].sum("observation") + more["log_prior"]["log_prior"],
        chains["sample_stats"]["lp"],
        rtol=1e-10,
    )
    assert np.isfinite(log_density(chains, *views)).all()


def spun(tree, wobble=0.0):
    """Eight draws of one fit, every block of latents turned at random: what components must see through."""
    rng, values = np.random.default_rng(0), tree["posterior"].isel(chain=0, draw=0).to_dataset()
    draws = []
    for _ in range(8):
        r = np.zeros((4, 4))
        r[:2, :2] = special_ortho_group(2).rvs(random_state=rng) @ np.diag([1, rng.choice([-1, 1])])
        r[2, 2], r[3, 3] = rng.choice([-1, 1], 2)
        draw = {name: value.copy() for name, value in values.data_vars.items()}
        for name in ("latents", "loadings_0", "loadings_1"):
            draw[name] = value = draw[name].copy(data=draw[name].values @ r)
            draw[name] = value + wobble * rng.normal(size=value.shape) * (value != 0)
        draws.append(xr.Dataset(draw))
    posterior = xr.concat(draws, dim="draw").expand_dims("chain")
    return with_posterior(tree, posterior)


def with_posterior(tree, posterior):
    """The fit with other draws."""
    groups = {name: child.to_dataset() for name, child in tree.children.items() if name != "variational"}
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs=tree.attrs)} | groups | {"posterior": posterior})


@pytest.mark.slow
def test_components_see_through_rotations_signs_and_order(ecca):
    """Draws that differ by rotations alone have one decomposition; the product is kept exactly."""
    tree = spun(ecca)
    for part, latents in (("all", slice(0, 4)), ("shared", slice(0, 2))):
        found = components(tree, part)
        for name in ("latents", "loadings_0", "loadings_1", "singular_values"):
            np.testing.assert_allclose(found[name] - found[name][:, 0], 0, atol=1e-8)
        scaled = found["latents"].values * found["singular_values"].values[..., None, :]
        for v in (0, 1):
            u = tree["posterior"]["latents"].values[..., latents]
            w = tree["posterior"][f"loadings_{v}"].values[..., latents]
            rebuilt = scaled @ np.swapaxes(found[f"loadings_{v}"].values, -1, -2)
            np.testing.assert_allclose(rebuilt, u @ np.swapaxes(w, -1, -2), atol=1e-9)
        tall = np.concatenate([found["loadings_0"].values, found["loadings_1"].values], axis=2)
        gram = np.swapaxes(tall, -1, -2) @ tall
        np.testing.assert_allclose(gram, np.broadcast_to(np.eye(gram.shape[-1]), gram.shape), atol=1e-9)
        assert not found["swapped"].any() and (found["separation"] == 1).all()
    for turned in (align_rotation(tree), identify(tree)):
        loadings = turned["posterior"]["loadings_0"]
        np.testing.assert_allclose(loadings - loadings[:, 0], 0, atol=1e-6)
        products = [
            t["posterior"]["latents"].values @ np.swapaxes(t["posterior"]["loadings_1"].values, -1, -2)
            for t in (tree, turned)
        ]
        np.testing.assert_allclose(*products, atol=1e-10)


@pytest.mark.slow
def test_signs_of_one_side_alone_break_the_product(ecca):
    """The planted bug: turning the sign of U without V, as two separate clusterings can (section 6.2.2)."""
    found = components(ecca)
    scaled = found["latents"].values * found["singular_values"].values[..., None, :]
    u, w = ecca["posterior"]["latents"].values, ecca["posterior"]["loadings_0"].values
    right = scaled @ np.swapaxes(found["loadings_0"].values, -1, -2)
    wrong = (scaled * np.array([1, -1, 1, 1])) @ np.swapaxes(found["loadings_0"].values, -1, -2)
    assert np.abs(right - u @ np.swapaxes(w, -1, -2)).max() < 1e-10 < 0.1 < np.abs(right - wrong).max()


def test_close_components_are_matched_and_said_to_be_close(ecca):
    """Swapped order is undone by matching to the mean product, and ``separation`` tells of it."""
    rng = np.random.default_rng(1)
    left, right = (np.linalg.qr(rng.normal(size=(size, 2)))[0] for size in (40, 11))
    posterior = ecca["posterior"].to_dataset().isel(draw=np.zeros(40, int), latent=[0, 1]).copy(deep=True)
    lengths = 5.0 + 0.3 * rng.normal(size=(40, 2))
    posterior["latents"].values[0] = left * lengths[:, None]
    posterior["loadings_0"].values[0], posterior["loadings_1"].values[0] = right[:5], right[5:]
    found = components(with_posterior(ecca, posterior))
    assert found["swapped"].any() and (found["separation"] < 0.9).all()
    agreement = np.abs(np.einsum("dnk,nj->dkj", found["latents"].values[0], left))
    assert (agreement.max(-1) > 0.99).all() and len(np.unique(agreement[:, 0].argmax(-1))) == 1


def test_intervals_hold_the_means(ecca):
    table = component_intervals(spun(ecca, wobble=0.1), "shared", prob=0.8)
    assert (table["low"] <= table["mean"]).all() and (table["mean"] <= table["high"]).all()
    assert len(table) == 2 + 2 * 11
    with pytest.raises(ValueError, match="prob must lie between 0 and 1; got 2"):
        component_intervals(ecca, prob=2)
    with pytest.raises(ValueError, match="part must be one of all, shared; got 'own'"):
        components(ecca, "own")


@pytest.mark.slow
def test_command_line_takes_views(views, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    pd.concat(views, axis=1).to_csv("pair.csv", index=False)
    call = ["fit", "ecca", "pair.csv", "--views", "a:e", "u:z", "--set", "num_specific=(1, 1)"]
    options = ["--set", "families=(bernoulli, Binomial(1))", "--max-iterations", "20"]
    assert main([*call, *options, "--method", "map", "--out", "pair.nc"]) == 0
    printed = capsys.readouterr().out
    assert "data       pair: 40 rows, 5 columns (a, b, c, d, e); 40 rows, 6 columns" in printed
    assert inference.model_of(inference.load("pair.nc")).families[1].total_count == 1
    assert main(["report", "pair.nc", "--out", "pair.html"]) == 0
    assert "loadings_0" in (tmp_path / "pair.html").read_text()
