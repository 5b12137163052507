"""Gibbs for SPPCA: its conditionals against the program, joint invariance, agreement with NUTS, its draws."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from numpyro.handlers import seed, trace

from inference import fit, predict
from inference.calibration import conditional_check, geweke
from inference.methods.epca import gibbs as projections
from inference.methods.sppca import gibbs
from inference.methods.sppca.gibbs import algorithm_of, blocks_of, positive_normal
from inference.precision import in_precision
from tests.tools.recording import add_part_to_record
from zoo import SPPCA
from zoo.linear_gaussian.supervised import block_prior

KINDS = ("gaussian", "binaries", "classes")
COMMAND = "python -m pytest -m slow tests/inference/methods/sppca/test_gibbs_sppca.py -k"


def model_of_kind(kind):
    """A model with a prior strong enough for prior and posterior to be alike."""
    shared = {
        "num_latents": 2,
        "num_features": 4,
        "loading_prior": "gaussian",
        "loading_variance": (1.0, 0.6),  # of x and of y
        "loc_mean": 0.4,
        "loc_variance": (2.0, 1.5),
        "noise_concentration": 3.0,
        "noise_rate": 2.0,
    }
    if kind == "gaussian":
        return SPPCA(num_outputs=2, output_noise="per_output", **shared)
    if kind == "binaries":
        return SPPCA(num_outputs=2, output_likelihood="probit", **shared)
    return SPPCA(num_outputs=3, classes=("a", "b", "c"), output_likelihood="probit", **shared)


def draw_of(model, num_rows=6):
    """Values of all sites, and data with holes that agree with them."""
    with in_precision():
        sites = trace(seed(model.explicit, 3)).get_trace(num_observations=num_rows)
        values = {name: np.asarray(s["value"]) for name, s in sites.items() if s["type"] == "sample"}
    x, y = np.array(values.pop("x")), np.array(values.pop("y"))
    x[1, 2] = x[4, 0] = y[3] = np.nan
    if not model.classes:
        y[0, 1] = np.nan
    return values, (x, y)


# One of the ten slowest: a program a block, and nothing else proves the sampler's blocks.
@pytest.mark.cases_by_default(1)
@pytest.mark.parametrize("kind", KINDS)
def test_conditionals_are_those_of_the_program(kind):
    model = model_of_kind(kind)
    values, data = draw_of(model)
    for block in gibbs.plain_blocks_of(model):
        verdict = conditional_check(model, block, values, data, num_draws=4)
        assert verdict.passed, (block.__name__, verdict)


def test_a_wrong_conditional_is_found():
    """Planted: the latents' posterior takes the utilities' noise for 2, as in the difference of two."""
    model = model_of_kind("binaries")
    values, data = draw_of(model)

    def wrong(values, model, x, y):
        given = gibbs.latents(values, model, x, y)["latents"]
        noise = given.noise_variance.at[-2:].set(2.0)
        return {"latents": type(given)(given.x, given.loadings, given.loc, noise)}

    assert not conditional_check(model, wrong, values, data, num_draws=4).passed


def test_utilities_have_the_signs_of_their_outputs():
    """The truncated density by hand: normal where every observed output has its sign, else zero."""
    y = jnp.array([[1.0, 0.0], [1.0, np.nan], [np.nan, 0.0]])
    predictor = jnp.array([[0.5, -1.0], [0.0, 3.0], [2.0, 0.3]])
    with in_precision():
        density = gibbs.SignedUtilities(predictor, y)
        right = jnp.array([[0.1, -0.2], [0.4, -1.0], [-2.0, -0.1]])
        known = np.where(np.isnan(y), 0.0, predictor)
        by_hand = -0.5 * ((np.asarray(right) - known) ** 2).sum(axis=1)
        np.testing.assert_allclose(density.log_prob(right), by_hand, rtol=1e-12)
        assert np.isneginf(density.log_prob(-right)).all()
        assert (np.isneginf(density.log_prob(right.at[0, 1].set(0.2))) == [True, False, False]).all()
        assert np.isfinite(density.log_prob(density.sample(jax.random.key(0)))).all()


@pytest.mark.parametrize("kind", KINDS)
def test_missing_outputs_are_no_data_whatever_their_utilities(kind):
    """Loadings and means of the outputs by NumPy's regression over the rows where each is observed.

    The latents are given the observed cells alone.
    """
    model, rng = model_of_kind(kind), np.random.default_rng(0)
    size = model.num_outputs
    z, y = rng.normal(size=(6, 2)), np.arange(6 * size).reshape(6, size) % 2.0
    x = rng.normal(size=(6, 4))
    y[3], y[0, 1] = np.nan, np.nan
    utilities = np.where(np.isnan(y), 1e3, rng.normal(size=y.shape))
    values = {"latents": z, "loadings_x": rng.normal(size=(4, 2)), "loc_x": np.zeros(4)}
    values |= {"loadings_y": rng.normal(size=(size, 2)), "loc_y": rng.normal(size=size)}
    values |= {"noise_variance_x": np.array(0.5)}
    noise, cells = np.ones(size), np.where(np.isnan(y), np.nan, utilities)
    if kind == "gaussian":
        noise = np.array([0.3, 0.9])
        values, cells = values | {"noise_variance_y": noise}, y
    else:
        values |= {"utilities": utilities}
    with in_precision():
        values = jax.tree.map(jnp.asarray, values)
        found = jax.jit(partial(gibbs.outputs, model=model))(values, x=jnp.asarray(x), y=jnp.asarray(y))
        rows = gibbs.latents(values, model, jnp.asarray(x), jnp.asarray(y))["latents"].x
        prior = jax.tree.map(np.asarray, block_prior(model, "y"))
    np.testing.assert_array_equal(rows, np.c_[x, cells])
    own_prior = np.diag([1 / prior.loading_variance] * 2 + [1 / prior.loc_variance])
    loadings, loc = found["loadings_y"].base_dist, found["loc_y"].base_dist
    spread = np.asarray(loadings.scale_tril) @ np.asarray(loadings.scale_tril).transpose(0, 2, 1)
    for own in range(size):
        seen = ~np.isnan(cells[:, own])
        design = np.c_[z, np.ones(6)][seen]
        precision = design.T @ design / noise[own] + own_prior
        target = design.T @ cells[seen, own] / noise[own] + own_prior[2] * prior.loc_mean
        mean, covariance = np.linalg.solve(precision, target), np.linalg.inv(precision)
        np.testing.assert_allclose(loadings.loc[own], mean[:2], rtol=1e-8)
        np.testing.assert_allclose(spread[own], covariance[:2, :2], rtol=1e-8)
        given = np.asarray(values["loadings_y"])[own]  # the mean given these
        np.testing.assert_allclose(loc.loc[own], (target[2] - precision[2, :2] @ given) / precision[2, 2])
        np.testing.assert_allclose(loc.scale[own], precision[2, 2] ** -0.5)


def test_what_no_label_identifies_is_drawn_from_its_prior():
    """The common part of classes' means and loadings: moments of 20 000 draws, five errors (1e-6)."""
    model = model_of_kind("classes")
    values, (x, y) = draw_of(model)
    num_draws = 20_000
    with in_precision():
        values = jax.tree.map(jnp.asarray, values)
        x, y = jnp.asarray(x), jnp.asarray(y)
        values["utilities"] = values.get("utilities", jnp.ones((len(x), 3)))
        draws = jax.vmap(lambda key: gibbs.shift_utilities(key, values, model, x, y))(
            jax.random.split(jax.random.key(0), num_draws)
        )
        values, draws = jax.tree.map(np.asarray, (values, draws))
    loc, w = np.asarray(draws["loc_y"]), np.asarray(draws["loadings_y"])
    prior = block_prior(model, "y")
    for common, mean, variance in (
        (loc.mean(axis=1), np.mean(prior.loc_mean), prior.loc_variance / 3),
        (w.mean(axis=1)[:, 0], 0.0, prior.loading_variance / 3),
        (w.mean(axis=1)[:, 1], 0.0, prior.loading_variance / 3),
    ):
        assert abs(common.mean() - mean) < 5 * np.sqrt(variance / num_draws)
        assert abs(common.var() - variance) < 5 * variance * np.sqrt(2 / num_draws)
    for own, before in ((loc, values["loc_y"]), (w, values["loadings_y"])):
        kept = own - own.mean(axis=1, keepdims=True) - (before - np.mean(before, axis=0))
        np.testing.assert_allclose(kept, 0.0, atol=1e-12)
    predictor = loc[:, None] + np.einsum("nk,sjk->snj", values["latents"], w)
    before = values["loc_y"] + values["latents"] @ values["loadings_y"].T
    away = np.asarray(draws["utilities"]) - predictor - np.asarray(values["utilities"] - before)
    np.testing.assert_allclose(away[:, ~np.isnan(y).any(axis=1)], 0.0, atol=1e-10)


@pytest.mark.slow
def test_truncated_normals_in_both_tails():
    """Kolmogorov-Smirnov on 20 000 draws at each mean; false alarm 1e-6 each."""
    with in_precision():
        means = jnp.array([-60.0, -31.0, -29.0, -5.0, 0.0, 6.0])
        draws = np.asarray(positive_normal(jax.random.key(0), jnp.tile(means, (20_000, 1))))
    for mean, own in zip(np.asarray(means), draws.T, strict=True):
        share = 1 - np.exp(scipy.stats.norm.logsf(own - mean) - scipy.stats.norm.logsf(-mean))
        assert scipy.stats.kstest(share, "uniform").pvalue > 1e-6, mean


def _slack_of(model):
    """Planted: the mean of the utilities is drawn with 1.5 times its deviation."""

    def unshrunk(values, model, x, y):
        drawn = gibbs.outputs(values, model, x, y)
        drawn["loc_y"] = type(drawn["loc_y"].base_dist)(
            drawn["loc_y"].base_dist.loc, 1.5 * drawn["loc_y"].base_dist.scale
        ).to_event(1)
        return drawn

    return tuple(unshrunk if block is gibbs.outputs else block for block in blocks_of(model))


def _shrink(key, values, model, x, y):
    """Planted: a move that draws the latents a little towards their prior mean."""
    return {**values, "latents": values["latents"] * 0.97}


def _shrinking_of(model):
    from inference.methods.gibbs_sweep import Move

    return (*gibbs.plain_blocks_of(model), Move(_shrink))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_sampler_leaves_the_joint_distribution_invariant(kind):
    verdict = geweke(
        model_of_kind(kind), algorithm_of(), 6, key=jax.random.key(11), num_draws=4000, num_rounds=5
    )
    add_part_to_record(
        "gibbs_sppca",
        f"joint invariance, {kind}",
        f"{COMMAND} 'leaves or planted'",
        num_draws=4000,
        num_rounds=5,
        smallest_p_value=float(f"{min(verdict.p_values.values()):.3g}"),
        threshold=float(f"{verdict.threshold:.3g}"),
    )
    assert verdict.passed, verdict


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "bug"), [("binaries", _slack_of), ("gaussian", _shrinking_of)])
def test_planted_bugs_fail(kind, bug):
    verdict = geweke(
        model_of_kind(kind), algorithm_of(bug), 6, key=jax.random.key(12), num_draws=4000, num_rounds=5
    )
    smallest = float(f"{min(verdict.p_values.values()):.3g}")
    planted = f"planted bug, {kind}"
    add_part_to_record("gibbs_sppca", planted, f"{COMMAND} 'leaves or planted'", smallest_p_value=smallest)
    assert not verdict.passed


def labelled_rows(kind, num_rows=60, seed_=0):
    """Rows of two latents, a third unlabelled; outputs: real, two binary ones, or labels of three classes."""
    rng = np.random.default_rng(seed_)
    z = rng.normal(size=(num_rows, 2))
    x = z @ rng.normal(size=(2, 4)) + 0.5 * rng.normal(size=(num_rows, 4))
    u = z @ np.array([[1.5, -0.5, -1.0], [0.0, 1.2, -1.2]]) + rng.normal(size=(num_rows, 3))
    if kind == "classes":
        labels = np.array(["a", "b", "c"], object)[u.argmax(axis=1)]
        labels[num_rows * 2 // 3 :] = None
        return x, list(labels)
    y = (u[:, :2] > 0).astype(float) if kind != "gaussian" else u[:, :2]
    y[num_rows * 2 // 3 :] = np.nan
    return x, y


@pytest.mark.slow
def test_draws_predict_probabilities():
    x, y = labelled_rows("classes", 24)
    model = SPPCA(num_latents=2, output_likelihood="probit", loading_prior="gaussian")
    with pytest.warns(UserWarning, match="has not converged"):
        tree = fit(model, x, y, method="gibbs", num_chains=2, num_warmup=20, num_samples=20)
    shares = predict(tree, x[:5], what="classes")
    assert shares.dims == ("observation", "class") and list(shares["class"].values) == ["a", "b", "c"]
    np.testing.assert_allclose(shares.sum("class"), 1.0)
    assert tree["posterior"]["loadings_y"].dims == ("chain", "draw", "output", "latent")
    assert "utilities" not in tree["posterior"] and "noise_variance_y" not in tree["posterior"]
    known = np.asarray(predict(tree, x[:5], y[:5], what="classes"))
    np.testing.assert_array_equal(known.argmax(axis=1), ["abc".index(label) for label in y[:5]])
    with pytest.raises(TypeError, match="moves must be True or False"):
        fit(model, x, y, method="gibbs", moves=1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_gibbs_and_nuts_agree_on_invariants(kind):
    """Means of x's covariance, W_x W_y', class or output means; false alarm below 1e-4 by 5 errors each.

    Labels of classes have fewer rows and draws: each gradient of NUTS integrates over an orthant a row.
    """
    from arviz_stats.base import array_stats

    many = {"num_chains": 4, "num_warmup": 500}
    num_rows, gibbs_run, nuts_run = 60, many | {"num_samples": 10_000}, many | {"num_samples": 3000}
    if kind == "classes":
        few = {"num_chains": 2, "num_warmup": 500}
        num_rows, gibbs_run, nuts_run = 24, few | {"num_samples": 4000}, few | {"num_samples": 1500}
    x, y = labelled_rows(kind, num_rows)
    likelihood = "gaussian" if kind == "gaussian" else "probit"
    model = SPPCA(
        num_latents=2, output_likelihood=likelihood, loading_prior="gaussian", noise_concentration=1.0
    )
    trees = [
        fit(model, x, y, method=method, seed=seed_, **run)
        for method, run, seed_ in (("gibbs", gibbs_run, 1), ("nuts", nuts_run, 2))
    ]
    summaries = []
    for tree in trees:
        p = tree["posterior"]
        wx, wy = p["loadings_x"].to_numpy(), p["loadings_y"].to_numpy()
        both = np.concatenate([wx @ np.swapaxes(wx, -1, -2), wx @ np.swapaxes(wy, -1, -2)], axis=-1)
        loc_y = p["loc_y"].to_numpy()
        flat = [both.reshape(*both.shape[:2], -1), loc_y, p["noise_variance_x"].to_numpy()[..., None]]
        flat = np.concatenate(flat, axis=-1)
        ess = np.array(
            [array_stats.ess(flat[..., i], chain_axis=0, draw_axis=1) for i in range(flat.shape[-1])]
        )
        summaries.append((flat.mean((0, 1)), flat.std((0, 1)) / np.sqrt(ess), ess))
    (a, error_a, ess), (b, error_b, _) = summaries
    distance = np.abs(a - b) / np.hypot(error_a, error_b)
    add_part_to_record(
        "gibbs_sppca",
        f"agreement with NUTS, {kind}",
        f"{COMMAND} 'agree and {kind}'",
        rows=num_rows,
        largest_distance_in_standard_errors=round(float(distance.max()), 2),
        bar=5,
        smallest_ess_of_gibbs=round(float(ess.min())),
        seconds_of_gibbs_and_nuts=[round(float(tree.attrs["sampling_time"])) for tree in trees],
    )
    assert distance.max() < 5 and ess.min() > 400


@pytest.fixture
def standing():
    """The model with binary outputs, and values of its latents, loadings and means."""
    model = model_of_kind("binaries")
    rng, shapes = (
        np.random.default_rng(1),
        {"loadings_x": (4, 2), "loc_x": 4, "loadings_y": (2, 2), "loc_y": 2},
    )
    return model, {name: rng.normal(size=shape) for name, shape in ({"latents": (6, 2)} | shapes).items()}


def _predictor(values):
    return {b: values["latents"] @ values[f"loadings_{b}"].T + values[f"loc_{b}"] for b in "xy"}


def test_latents_are_shifted_as_their_and_the_means_priors_say(standing, monkeypatch):
    """No predictor moves; delta has the mean of a regression and the covariance of its normal equations.

    Its standard normals are set to zero and to unit vectors: no draw is left to chance.
    """
    model, values = standing
    with in_precision():
        priors, given = {b: block_prior(model, b) for b in "xy"}, jax.tree.map(jnp.asarray, values)
        found = []
        for normal in jnp.concatenate([jnp.zeros((1, 2)), jnp.eye(2)]):
            monkeypatch.setattr(jax.random, "normal", lambda *_, own=normal: own)
            found.append(jax.tree.map(np.asarray, gibbs.shift_latents(None, given, model, None, None)))
    for moved in found:
        for b in "xy":
            np.testing.assert_allclose(_predictor(moved)[b], _predictor(values)[b], atol=1e-12)
            np.testing.assert_array_equal(moved[f"loadings_{b}"], values[f"loadings_{b}"])
    deltas = np.array([(moved["latents"] - values["latents"])[0] for moved in found])
    rows, right = [np.tile(np.eye(2), (6, 1))], [-values["latents"].ravel()]
    for b in "xy":
        root = float(priors[b].loc_variance) ** 0.5
        rows.append(values[f"loadings_{b}"] / root)
        right.append((values[f"loc_{b}"] - np.asarray(priors[b].loc_mean)) / root)
    design = np.vstack(rows)
    np.testing.assert_allclose(deltas[0], np.linalg.lstsq(design, np.concatenate(right))[0], rtol=1e-9)
    away = deltas[1:] - deltas[0]
    np.testing.assert_allclose(away.T @ away, np.linalg.inv(design.T @ design), rtol=1e-9)


def test_latents_are_rescaled_by_the_density_of_the_moved_program(standing, monkeypatch):
    """The slice sampler has the log prior at z g and w / g, with the Jacobian of the move and dg / g.

    In place of a draw it gives the gain of its log density from g = 1 to g = 2.
    """
    model, values = standing

    class Gain:
        def __init__(self, log_density, current, width):
            self.log_density = log_density

        def sample(self, key):
            return self.log_density(jnp.asarray(2.0)) - self.log_density(jnp.asarray(1.0))

    monkeypatch.setattr(projections, "PositiveSlice", Gain)
    with in_precision():
        given = jax.tree.map(jnp.asarray, values)
        moved = gibbs.rescale_latents(jax.random.key(0), given, model, None, None)
        moved = jax.tree.map(np.asarray, moved)
        deviations = {b: float(block_prior(model, b).loading_variance) ** 0.5 for b in "xy"}

    def log_prior(g):
        whole = scipy.stats.norm.logpdf(g * values["latents"]).sum(axis=0)
        for b in "xy":
            whole += scipy.stats.norm(0, deviations[b]).logpdf(values[f"loadings_{b}"] / g).sum(axis=0)
        return whole + (6 - 4 - 2) * np.log(g) - np.log(g)

    scale = moved["latents"] / values["latents"]
    np.testing.assert_allclose(scale, np.tile(log_prior(2.0) - log_prior(1.0), (6, 1)), rtol=1e-9)
    for b in "xy":
        np.testing.assert_allclose(_predictor(moved)[b], _predictor(values)[b], atol=1e-12)
        np.testing.assert_array_equal(moved[f"loc_{b}"], values[f"loc_{b}"])


@pytest.mark.parametrize("classes", [False, True], ids=["binaries", "classes"])
def test_utilities_are_quantiles_of_the_normals_that_their_outputs_cut(classes):
    """With the same key, whatever the means: the same share of what is allowed lies beyond the utility.

    Each utility has a share of its own, and without an output it is the same standard normal.
    """
    y = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [np.nan] * 3])
    current = np.array([[0.9, 0.2, -0.4], [-1.0, 0.3, 0.5], [0.0, 0.0, 0.0]])
    rng, shares, free = np.random.default_rng(2), [], []
    norm = scipy.stats.norm
    for _ in range(2):
        predictor = rng.normal(size=(3, 3))
        with in_precision():
            given = jnp.asarray(predictor), jnp.asarray(y)
            own = (
                gibbs.ClassUtilities(*given, jnp.asarray(current))
                if classes
                else gibbs.SignedUtilities(*given)
            )
            drawn = np.asarray(own.sample(jax.random.key(0)))
            assert np.isfinite(own.log_prob(drawn)).all()
        free.append(drawn[2])
        is_class, drawn, predictor = y[:2] == 1, drawn[:2], predictor[:2]
        least, most = np.zeros((2, 1)), np.zeros((2, 1))
        if classes:
            most = current[:2][is_class][:, None]
            least = np.where(is_class, -np.inf, drawn).max(axis=1, keepdims=True)
        above = norm.sf(drawn - predictor) / norm.sf(least - predictor)
        below = norm.cdf(drawn - predictor) / norm.cdf(most - predictor)
        shares.append(np.where(is_class, above, below))
    np.testing.assert_allclose(shares[1], shares[0], rtol=1e-7)
    assert len(np.unique(shares[0].round(6))) == 6 and ((shares[0] > 0) & (shares[0] < 1)).all()
    np.testing.assert_array_equal(free[1], free[0])
