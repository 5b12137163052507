"""The Gibbs sampler of the mixture of factor analysers: its conditionals, its moves, the whole sweep."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.linalg import subspace_angles

import inference
import zoo
from inference.calibration import conditional_check, geweke, sbc
from inference.methods.gibbs_sweep import Move
from inference.methods.mcfa import gibbs
from inference.numerics.programs import log_densities
from inference.precision import in_precision
from tests.support.mcfa_cases import planted, with_holes
from zoo.answers import answer_of
from zoo.linear_gaussian.clustered import ClusteredRows

FORMS = {
    "sticks, ard": {
        "weight_prior": "stick_breaking",
        "loading_prior": "ard",
        "ard_concentration": 2.0,
        "ard_rate": 1.0,
        "concentration": dist.Gamma(2.0, 1.0),
    },
    "dirichlet, diagonal": {"noise": "diagonal", "degrees_of_freedom": 5.0},
}


def _model(form="dirichlet, diagonal", num_rows=7):
    x = with_holes(planted(num_rows, 4)[0])
    fields = {"noise_concentration": 3.0, "noise_rate": 2.0, "loc_variance": 2.0, "mean_precision": 0.5}
    fields |= {"loading_variance": 1.0, "loc_mean": np.linspace(-1, 1, 4)}
    fields |= {"num_components": 3, "num_latents": 2}
    return zoo.MCFA.from_data(x, **fields | FORMS[form]), x


def _values(model, x, seed=0):
    rng = np.random.default_rng(seed)
    with in_precision():
        values = dict(gibbs.init(jax.random.key(seed), model, jnp.asarray(x)).values)
        values["assignments"] = jnp.arange(len(x)) % 2  # the third cluster has no rows
        values["raw_latents"] = jnp.asarray(rng.normal(size=(len(x), 2)))
        values["noise_variance"] = values["noise_variance"] * 0 + jnp.asarray(0.7)
        roots = rng.normal(size=(3, 2, 4))
        values["precisions"] = jnp.asarray(roots @ np.swapaxes(roots, 1, 2))
        return jax.tree.map(np.asarray, values)


@pytest.mark.cases_by_default(1)
@pytest.mark.parametrize("form", FORMS)
def test_every_conditional_is_the_one_of_the_program(form):
    model, x = _model(form)
    for block in gibbs.blocks_with(0, moves=False)(model):
        if not isinstance(block, Move):
            verdict = conditional_check(model, block, _values(model, x), (x,))
            assert verdict.passed, f"{block.__name__}: {verdict}"


def _forgets_the_loading_prior(values, model, x):
    return gibbs.columns(values, model.replaced(loading_variance=2 * model.loading_variance), x)


def _counts_missing_cells(values, model, x):
    return gibbs.noise(values, model, jnp.nan_to_num(x))


def _leaves_out_the_cluster(values, model, x):
    own = answer_of(model, "conditionals", values | {"locs": 0 * values["locs"]}, x)
    return {"raw_latents": own["raw_latents"]}


@pytest.mark.slow
@pytest.mark.parametrize("bug", [_forgets_the_loading_prior, _counts_missing_cells, _leaves_out_the_cluster])
def test_a_planted_bug_fails_the_conditional_check(bug):
    model, x = _model()
    assert not conditional_check(model, bug, _values(model, x), (x,)).passed


@pytest.mark.parametrize("form", FORMS)
def test_moves_leave_the_density_of_rows_as_it_is(form):
    """Both change latents, clusters and columns, and no cell."""
    model, x = _model(form)
    with in_precision():
        values = jax.tree.map(jnp.asarray, _values(model, x))
        before = log_densities(model.explicit, (jnp.asarray(x),), values)["x"]
        for move in (gibbs.shift, gibbs.scale):
            moved = move(jax.random.key(1), values, model, jnp.asarray(x))
            assert set(moved) == set(values)
            assert float(jnp.abs(moved["raw_latents"] - values["raw_latents"]).max()) > 0.01
            after = log_densities(model.explicit, (jnp.asarray(x),), moved)["x"]
            np.testing.assert_allclose(after, before, rtol=1e-10)


GEWEKE = {"key": jax.random.key(2), "num_draws": 1000, "num_rounds": 4}


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_the_sweep_leaves_the_joint_distribution_as_it_is(form):
    """Split-merge moves and those along flat directions among its blocks (false alarm rate 1 %)."""
    model, _ = _model(form)
    verdict = geweke(model, gibbs.build("random", 0, 2, True), 5, **GEWEKE)
    assert verdict.passed, verdict


def _wrong_scale(key, values, model, x):
    """Without half of what the prior of the clusters says."""
    return gibbs.scale(key, values, model.replaced(degrees_of_freedom=model.degrees_of_freedom / 2), x)


def _wrong_shift(key, values, model, x):
    """With a prior of the mean that is too wide."""
    return gibbs.shift(key, values, model.replaced(loc_variance=4 * model.loc_variance), x)


@pytest.mark.slow
@pytest.mark.parametrize("move", [_wrong_scale, _wrong_shift])
def test_a_planted_bug_in_a_move_fails_geweke(move):
    model, _ = _model()
    blocks = (*gibbs.blocks_with(0, False)(model), Move(move))
    algorithm = gibbs.Algorithm(gibbs.init, gibbs.partial(gibbs._step, blocks_of=lambda model: blocks))
    assert not geweke(model, algorithm, 5, **GEWEKE).passed


def test_planted_clusters_are_found_and_invariants_agree():
    """Two chains of a table whose clusters lie apart: labels and plane, and latents of covariance one."""
    x, labels, loadings = planted(90)
    model = zoo.MCFA(num_components=5, num_latents=2)
    options = {"num_chains": 2, "num_warmup": 150, "num_samples": 150, "progress": False, "seed": 0}
    with pytest.warns(UserWarning, match="has not converged"):  # short chains
        tree = inference.fit(model, x, method="gibbs", **options)
    draws = tree["posterior"]
    assert "raw_latents" not in draws and draws["latents"].shape == (2, 150, 90, 2)
    assert float(draws["num_occupied"].median()) == 3
    same = draws["assignments"].to_numpy()[0, -1]
    pairs = np.unique(np.column_stack([labels, same]), axis=0, return_counts=True)[1]
    assert np.sort(pairs)[-3:].sum() >= 88
    together = draws["loadings"].to_numpy() @ np.swapaxes(draws["loadings"].to_numpy(), -1, -2)
    bases = np.linalg.eigh(together.mean((0, 1)))[1][:, -2:]
    assert np.degrees(subspace_angles(bases, loadings)).max() < 3
    rows = draws["latents"].to_numpy()  # standard: mean 0 and covariance 1 over rows, about
    assert np.abs(rows.mean(axis=(0, 1, 2))).max() < 0.3
    assert np.abs(np.cov(rows.reshape(-1, 2).T) - np.eye(2)).max() < 0.3


def test_a_start_without_sites_is_refused():
    x, _, _ = planted(20, 5)
    with pytest.raises(ValueError, match="init must hold sites, such as locs, .*; got responsibilities"):
        start = {"responsibilities": np.full((20, 2), 0.5)}
        inference.fit(zoo.MCFA(num_components=2, num_latents=2), x, method="gibbs", init=start)


def test_scores_are_averaged_over_draws_in_one_orientation():
    """Half of the draws turned by a right angle, which no density sees: scores stay as they were."""
    x, labels, _ = planted(60, 5)
    options = {"num_chains": 1, "num_warmup": 40, "num_samples": 20, "progress": False}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*has not converged")
        tree = inference.fit(zoo.MCFA(num_components=3, num_latents=2), x, method="gibbs", **options)
    posterior, turn = tree["posterior"].to_dataset(), np.array([[0.0, -1.0], [1.0, 0.0]])
    turned = {
        name: value.values @ turn
        for name in ("locs", "raw_loadings", "loadings")
        for value in (posterior[name],)
    }
    turned["precisions"] = turn.T @ posterior["precisions"].values @ turn
    half = np.arange(posterior.sizes["draw"]) % 2 == 1
    for name, values in turned.items():
        posterior[name] = posterior[name].copy(deep=True)
        posterior[name].values[:, half] = values[:, half]
    other = tree.copy()
    other["posterior"] = posterior
    np.testing.assert_allclose(inference.log_density(other, x), inference.log_density(tree, x), rtol=1e-8)
    one, two = inference.transform(tree, x).values, inference.transform(other, x).values
    np.testing.assert_allclose(one @ one.T, two @ two.T, atol=1e-6)
    np.testing.assert_array_equal(inference.predict(other, x), inference.predict(tree, x))
    assert len(np.unique(inference.predict(tree, x))) == len(np.unique(labels))


def _rows_can_tell(values):
    """Scalars of clusters and columns of rows that no order of the clusters and no map of latents changes."""
    names = ("locs", "precisions", "raw_loadings", "raw_loc", "noise_variance")
    row = ClusteredRows(jnp.log(values["weights"]), *(values[name] for name in names))
    return {
        "squared weights": jnp.sum(values["weights"] ** 2),
        "first mean": row.standard.loc[0],
        "variance by the latents": jnp.sum(row.standard.loadings**2),
        "noise": values["noise_variance"],
        "density": jnp.sum(row.log_prob(values["x"])),
    }


SBC = {"key": jax.random.key(5), "num_replicates": 60, "num_samples": 63, "functionals": _rows_can_tell}


def _small():
    fields = {"noise_concentration": 3.0, "noise_rate": 2.0, "loc_mean": np.zeros(3), "loc_variance": 1.0}
    fields |= {"loading_variance": 1.0, "mean_precision": 0.5, "num_features": 3}
    return zoo.MCFA(num_components=2, num_latents=1, **fields)


@pytest.mark.slow
def test_fits_are_calibrated():
    """Ranks of five invariants in 60 tables of six rows are uniform (false alarm rate 1 %)."""
    chain = {"num_chains": 1, "num_warmup": 200, "thinning": 5}
    verdict = sbc(_small(), "gibbs", 6, **SBC, **chain)
    assert verdict.passed, verdict


@pytest.mark.slow
def test_mean_field_variances_are_caught():
    """The negative control: VB factorises latents and loadings, and its draws are too narrow."""
    assert not sbc(_small(), "vb", 6, **SBC).passed
