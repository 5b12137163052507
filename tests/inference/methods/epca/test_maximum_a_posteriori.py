"""MAP by L-BFGS: a convex case solved another way, monotone, restarted, resumed, used."""

import numpy as np
import pytest

import inference
import zoo
from inference import fit


def nuclear_norm_solution(x, threshold, loc_variance):
    """The maximum by block coordinate descent: singular values less a threshold, then the shrunken mean."""
    loc, low_rank = x.mean(0), np.zeros_like(x)
    for _ in range(5000):
        left, singular, right = np.linalg.svd(x - loc, full_matrices=False)
        low_rank = left @ (np.maximum(singular - threshold, 0)[:, None] * right)
        loc = (x - low_rank).sum(0) / (len(x) + 1 / loc_variance)
    return low_rank, loc


@pytest.fixture(scope="module")
def gaussian():
    rng = np.random.default_rng(0)
    return 1.0 + 2 * rng.normal(size=(30, 2)) @ rng.normal(size=(2, 5)) + 0.5 * rng.normal(size=(30, 5))


@pytest.mark.slow
def test_gaussian_cells_have_the_nuclear_norm_solution(gaussian):
    """With beta = 0 the penalty is the nuclear norm of U V' over sigma_U sigma_V, whatever the two are alone.

    The problem in Theta and the mean is convex, and K = 4 is more than the rank of its solution.
    """
    low_rank, loc = nuclear_norm_solution(gaussian, 1 / (0.5 * 2.0) ** 0.5 / 0.25, 100.0)
    model = zoo.EPCA(family="gaussian", num_latents=4, latent_variance=0.5 / 4, loading_variance=2.0 / 4)
    tree = fit(model, gaussian, method="map", tolerance=1e-13, num_restarts=2)
    found = tree["variational"]["latents"].to_numpy() @ tree["variational"]["loadings"].to_numpy().T
    np.testing.assert_allclose(tree["variational"]["loc"], loc, atol=1e-4)
    np.testing.assert_allclose(found, low_rank, atol=1e-3)
    objective = tree["trace"]["objective_by_restart"].to_numpy()
    assert np.nanmin(np.diff(objective, axis=0)) > -1e-8 * np.nanmax(np.abs(objective))
    ends = tree["trace"]["objective_at_end"]
    np.testing.assert_allclose(ends, ends.max(), rtol=1e-7)


@pytest.mark.slow
def test_binary_table_with_holes_is_fitted_imputed_and_kept(tmp_path):
    rng = np.random.default_rng(1)
    theta = 3 * rng.normal(size=(60, 1)) @ rng.normal(size=(1, 12))
    whole = (rng.uniform(size=theta.shape) < 1 / (1 + np.exp(-theta))).astype(float)
    hidden = rng.uniform(size=whole.shape) < 0.1
    x = np.where(hidden, np.nan, whole)
    tree = fit(zoo.EPCA(num_latents=1, beta=0.4), x, method="map", num_restarts=3)
    assert tree.attrs["converged"] == 1 and "log_likelihood" not in tree.children
    inference.save(tree, tmp_path / "epca.nc")
    back = inference.load(tmp_path / "epca.nc")
    imputed = inference.predict(back, x).to_numpy()
    np.testing.assert_array_equal(imputed[~hidden], whole[~hidden])
    score = np.log(np.where(whole[hidden] == 1, imputed[hidden], 1 - imputed[hidden])).mean()
    columns = np.nanmean(x, axis=0)[np.nonzero(hidden)[1]]
    by_means = np.log(np.where(whole[hidden] == 1, columns, 1 - columns)).mean()
    assert score > by_means + 0.05  # nats a hidden cell
    assert inference.transform(back, x).dims == ("observation", "latent")
    density = inference.log_density(back, x[:5])
    assert density.dims == ("observation",) and (density < 0).all()
    further = fit(zoo.EPCA(num_latents=1, beta=0.4), x, method="map", init=tree)
    assert float(further["trace"]["objective"][0]) > float(np.nanmax(tree["trace"]["objective"])) - 1e-6


@pytest.mark.slow
def test_negative_natural_parameters_are_kept_inside():
    x = np.random.default_rng(2).exponential(size=(20, 4))
    tree = fit(zoo.EPCA(family="exponential", num_latents=1), x, method="map")
    values = tree["variational"]
    theta = values["latents"].to_numpy() @ values["loadings"].to_numpy().T + values["loc"].to_numpy()
    assert (theta < 0).all() and np.isfinite(tree["trace"]["objective"]).all()


@pytest.mark.slow
def test_beta_of_one_gives_theta_alone(gaussian):
    """A point estimate warns and has the Theta of kernel and likelihood; what samples or draws is refused."""
    model = zoo.EPCA(family="gaussian", num_latents=2, beta=1.0, conjugate=(0.0, 0.5))
    with pytest.warns(UserWarning, match="beta=1 makes prior and posterior of .U, V. improper"):
        tree = fit(model, gaussian, method="map", tolerance=1e-12)
    u, v = (tree["variational"][name].to_numpy() for name in ("latents", "loadings"))
    # kernel and likelihood together are Normal cells with mean x / 1.5 and precision 1.5: the best of rank 2
    theta = u @ v.T + tree["variational"]["loc"].to_numpy()
    centred = gaussian / 1.5 - gaussian.mean(0) / 1.5
    left, singular, right = np.linalg.svd(centred, full_matrices=False)
    best = (left[:, :2] * singular[:2]) @ right[:2] + gaussian.mean(0) / 1.5
    np.testing.assert_allclose(theta, best, atol=0.02)
    with pytest.raises(
        ValueError, match="beta=1 makes prior and posterior of .U, V. improper, and method 'nuts'"
    ):
        fit(model, gaussian, method="nuts")
    assert inference.model_of(tree).prior == "improper"
    nothing = "the prior of EPCA is improper and draws nothing: give x to condition on, or choose beta=0$"
    with pytest.raises(ValueError, match=nothing):
        inference.model_of(tree)(num_observations=3)
    with pytest.raises(ValueError, match="improper and draws nothing; choose beta=0$"):
        inference.extend(tree, "prior")  # which takes no data to condition on


@pytest.mark.slow
def test_nuts_from_the_maximum_has_invariants_that_mix():
    """Offsets, tied to the level of theta by the kernel, mix ten times as slowly: the verdict is theirs."""
    rng = np.random.default_rng(3)
    theta = 2 * rng.normal(size=(40, 1)) @ rng.normal(size=(1, 10))
    x = rng.poisson(np.exp(0.5 * theta)).astype(float)
    model = zoo.EPCA(family="poisson", num_latents=1, beta=0.4)
    with pytest.warns(UserWarning, match=r"has not converged: .* smallest bulk ESS .* \(loc"):
        tree = fit(model, x, method="nuts", num_chains=4, num_warmup=500, num_samples=500)
    assert int(tree["sample_stats"]["diverging"].sum()) == 0
    table = inference.diagnostics.summary(tree)
    rows = [name for name in table.index if name.startswith(("theta_singular", "natural_params"))]
    assert rows and (table.loc[rows, "r_hat"] < 1.02).all()
