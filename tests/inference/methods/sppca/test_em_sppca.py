"""EM and closed form of SPPCA and S2PPCA: the theorem, the thesis's sweep, speed, gradients, floors."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inference import fit, log_density, predict, transform
from inference.methods.sppca.closed_form import loadings_given_noise
from inference.methods.sppca.floors import warn_of_floors
from inference.precision import in_precision
from inference.symmetry import identify
from tests.support.supervised_toys import angle, best, dual_scores, scaled_loadings, toy
from zoo import SPPCA

MODEL = SPPCA(num_latents=3)


@pytest.fixture(scope="module")
def theorem():
    """All rows labelled, by theorem 7.3.1 alternated with the noise."""
    x, y, _ = toy(0)
    return fit(MODEL, x, y, method="closed_form", tolerance=1e-13)


@pytest.fixture(scope="module")
def partly():
    """S2PPCA: 45 of 150 rows labelled, to the end."""
    x, _, y = toy(0)
    return fit(MODEL, x, y, tolerance=1e-13, init="random")


def thesis_em(x, y, loadings, noise, sweeps, *, printed=False):
    """Algorithm 7.2 with loops, corrected or with (7.12) as printed: log likelihood after every sweep."""
    w_x, w_y = loadings
    sx2, sy2 = noise
    labelled = ~np.isnan(y[:, 0])
    x, y1 = x - x.mean(axis=0), y[labelled] - y[labelled].mean(axis=0)
    (n, m), (n1, num_outputs), k = x.shape, y1.shape, w_x.shape[1]
    trace = []
    for _ in range(sweeps):
        z, second = np.zeros((n, k)), np.zeros((n, k, k))
        labels = iter(y1)
        for i in range(n):
            if labelled[i]:
                a = np.linalg.inv(w_x.T @ w_x / sx2 + w_y.T @ w_y / sy2 + np.eye(k))
                z[i] = a @ (w_x.T @ x[i] / sx2 + w_y.T @ next(labels) / sy2)
            else:
                inverse = np.linalg.inv(w_x.T @ w_x + sx2 * np.eye(k))
                z[i], a = inverse @ w_x.T @ x[i], (1.0 if printed else sx2) * inverse
            second[i] = a + np.outer(z[i], z[i])
        c, c1, z1 = second.sum(axis=0), second[labelled].sum(axis=0), z[labelled]
        w_x, w_y = x.T @ z @ np.linalg.inv(c), y1.T @ z1 @ np.linalg.inv(c1)
        sx2 = ((x**2).sum() - np.trace(w_x.T @ x.T @ z)) / (m * n)
        sy2 = ((y1**2).sum() - np.trace(w_y.T @ y1.T @ z1)) / (num_outputs * n1)
        w = np.concatenate([w_x, w_y])
        covariance = w @ w.T + np.diag([sx2] * m + [sy2] * num_outputs)
        total = 0.0
        for rows, cov in (
            (np.concatenate([x[labelled], y1], axis=1), covariance),
            (x[~labelled], covariance[:m, :m]),
        ):
            quadratic = np.sum((rows @ np.linalg.inv(cov)) * rows)
            total -= 0.5 * (quadratic + len(rows) * np.linalg.slogdet(2 * np.pi * cov)[1])
        trace.append(total)
    return np.array(trace)


@pytest.mark.slow
def test_plain_em_with_the_plugged_in_mean_is_the_thesis_corrected():
    x, _, y = toy(1)
    rng = np.random.default_rng(0)
    loadings = rng.normal(size=(12, 3)), rng.normal(size=(3, 3))
    start = {
        "loadings_x": loadings[0],
        "loadings_y": loadings[1],
        "loc_x": x.mean(axis=0),
        "loc_y": np.nanmean(y, axis=0),
        "noise_variance_x": 0.7,
        "noise_variance_y": 0.9,
    }
    model = SPPCA(num_latents=3, center="plugin")
    options = {"acceleration": "none", "max_iterations": 25, "tolerance": 0, "init": start}
    tree = fit(model, x, y, method="em", **options)
    expected = thesis_em(x, y, loadings, (0.7, 0.9), 25)
    np.testing.assert_allclose(tree["trace"]["objective"], expected, rtol=1e-11)
    printed = thesis_em(x, y, loadings, (0.7, 0.9), 25, printed=True)
    assert np.diff(printed).min() < -0.1  # (7.12) as printed: the likelihood falls


def test_six_random_starts_end_at_the_theorem(theorem):
    x, y, _ = toy(0)
    tree = fit(MODEL, x, y, method="em", init="random", num_restarts=6, tolerance=1e-13)
    ends = tree["trace"]["objective_at_end"]
    np.testing.assert_allclose(ends, best(theorem), atol=1e-8)
    assert angle(scaled_loadings(tree), scaled_loadings(theorem)) < 1e-6
    for name in ("noise_variance_x", "noise_variance_y"):
        np.testing.assert_allclose(tree["variational"][name], theorem["variational"][name], rtol=1e-5)
    for name in ("loadings_x", "loadings_y", "latents"):  # both in the canonical rotation, signs frozen
        np.testing.assert_allclose(tree["variational"][name], theorem["variational"][name], atol=1e-5)


def test_scores_of_new_rows_are_both_theorems(theorem):
    """7.3.1 (ii) as printed, and 7.3.2 (ii) corrected; as printed it is another answer."""
    x, y, _ = toy(0)
    new = toy(5)[0][:20]
    v = theorem["variational"]
    sx2, sy2 = float(v["noise_variance_x"]), float(v["noise_variance_y"])
    scores = transform(theorem, new).to_numpy()
    centred, outputs, moved = x - x.mean(axis=0), y - y.mean(axis=0), new - x.mean(axis=0)
    joint = np.concatenate([centred / sx2**0.5, outputs / sy2**0.5], axis=1)
    values, vectors = np.linalg.eigh(joint.T @ joint / len(x))
    u, strength = vectors[:12, ::-1][:, :3], values[::-1][:3] - 1
    inner = np.linalg.inv(u.T @ u + np.diag(1 / strength))
    primal = moved @ u @ inner / np.sqrt(strength) / sx2**0.5
    np.testing.assert_allclose(primal @ primal.T, scores @ scores.T, atol=1e-10)
    with in_precision():
        arguments = centred @ centred.T, outputs, moved @ centred.T, (sx2, sy2), 3
        dual = np.asarray(dual_scores(*arguments))
    np.testing.assert_allclose(dual @ dual.T, scores @ scores.T, atol=1e-10)
    gram = arguments[0]
    values, vectors = np.linalg.eigh(gram / sx2 + outputs @ outputs.T / sy2)
    v_k, d = vectors[:, ::-1][:, :3], 1 - len(x) / values[::-1][:3]
    printed = len(x) ** 0.5 * np.linalg.solve(v_k.T @ gram @ v_k + np.diag(d), v_k.T @ arguments[2].T)
    printed = (printed.T / np.sqrt(d)) @ (printed.T / np.sqrt(d)).T
    assert np.abs(printed - scores @ scores.T).max() > 0.01


def test_without_outputs_the_theorem_is_ppca():
    x = toy(0)[0] - toy(0)[0].mean(axis=0)
    values, vectors = np.linalg.eigh(x.T @ x / len(x))
    noise = values[:-3].mean()
    expected = vectors[:, -3:] * np.sqrt(values[-3:] - noise)
    with in_precision():
        loadings, _ = loadings_given_noise(jnp.asarray(x.T @ x / len(x)), jnp.full(12, noise), 3)
        np.testing.assert_allclose(loadings @ loadings.T, expected @ expected.T, atol=1e-12)
        pruned, _ = loadings_given_noise(jnp.asarray(x.T @ x / len(x)), jnp.full(12, 100.0), 3)
        assert not np.any(pruned)  # a direction with less variance than the noise is left out


@pytest.mark.slow
def test_wide_inputs_are_turned_into_the_space_of_their_rows():
    """More columns than rows: closed form and EM agree with each other and with a dense normal."""
    x, y, _ = toy(2, num_rows=15, num_features=40, num_outputs=2)
    trees = [fit(MODEL, x, y, method=method, tolerance=1e-12) for method in ("closed_form", "em")]
    np.testing.assert_allclose(best(trees[0]), best(trees[1]), atol=1e-6)
    for tree in trees:
        np.testing.assert_allclose(log_density(tree, x, y).sum(), best(tree), rtol=1e-11)
    assert angle(*map(scaled_loadings, trees)) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("center", "acceleration"),
    [
        ("joint", "px"),
        pytest.param("joint", "none", marks=pytest.mark.slow),
        pytest.param("plugin", "px", marks=pytest.mark.slow),
        pytest.param("plugin", "none", marks=pytest.mark.slow),
    ],
)
def test_likelihood_never_falls_and_is_that_of_the_estimate(center, acceleration):
    x, _, y = toy(0)
    model = SPPCA(num_latents=3, center=center)
    options = {"acceleration": acceleration, "max_iterations": 60, "tolerance": 0, "init": "random"}
    tree = fit(model, x, y, method="em", **options)
    objective = tree["trace"]["objective"].to_numpy()
    assert np.diff(objective).min() >= -1e-12 * np.abs(objective).max()
    np.testing.assert_allclose(log_density(tree, x, y).sum(), objective[-1], rtol=1e-12)


def slopes_at(tree, x, y, **fields):
    """Largest derivative of the log likelihood in each block."""
    names = ("loadings_x", "loadings_y", "loc_x", "loc_y", "noise_variance_x", "noise_variance_y")
    with in_precision():
        values = {name: jnp.asarray(tree["variational"][name].to_numpy()) for name in names}
        model = SPPCA.from_data(x, y, num_latents=3, **fields)
        data = jnp.asarray(x), jnp.asarray(y)
        slopes = jax.jit(jax.grad(lambda v: model.log_likelihood(v, *data).sum()))(values)
        return {name: float(jnp.abs(slope).max()) for name, slope in slopes.items()}


@pytest.mark.slow
def test_joint_mean_is_stationary_and_the_plugged_in_one_is_not(partly):
    x, _, y = toy(0)
    joint = slopes_at(partly, x, y)
    assert max(joint.values()) < 1e-3
    plugin = fit(SPPCA(num_latents=3, center="plugin"), x, y, tolerance=1e-13)
    assert slopes_at(plugin, x, y)["loc_y"] > 0.1 and best(plugin) < best(partly) - 0.01
    moved = partly["variational"]["loc_y"].to_numpy() - np.nanmean(y, axis=0)
    assert np.abs(moved).max() > 0.01
    np.testing.assert_allclose(plugin["variational"]["loc_y"], np.nanmean(y, axis=0), atol=1e-10)


@pytest.mark.slow
def test_holes_anywhere_and_a_noise_for_each_output():
    """At the optimum with holes in x and y every block is stationary; outputs differ in their noise."""
    x, _, y = toy(3)
    y[:, 2] *= 3.0
    rng = np.random.default_rng(0)
    x[rng.uniform(size=x.shape) < 0.1] = np.nan
    y[3, 0] = y[8, 2] = np.nan
    model = SPPCA(num_latents=3, output_noise="per_output", noise_floor=(1e-6, 1e-9))
    tree = fit(model, x, y, tolerance=1e-11)
    noise = tree["variational"]["noise_variance_y"]
    assert noise.dims == ("output",) and len(set(noise.to_numpy())) == 3
    np.testing.assert_allclose(log_density(tree, x, y).sum(), best(tree), rtol=1e-11)
    assert max(slopes_at(tree, x, y, output_noise="per_output").values()) < 0.05
    same = identify(tree)["posterior"]  # the estimate stands in the theorem's axes, and identify finds them
    for name in ("loadings_x", "loadings_y"):
        np.testing.assert_allclose(np.abs(same[name]), np.abs(tree["posterior"][name]), atol=1e-9)


@pytest.mark.slow
def test_log_posterior_is_that_of_the_program():
    """With Gaussian loadings the objective is log joint less the latents, and shrinks the loadings."""
    from numpyro.infer.util import log_density as program_density

    x, _, y = toy(0)
    model = SPPCA(num_latents=3, loading_prior="gaussian", loading_variance=0.1, noise_rate=0.1)
    tree = fit(model, x, y, max_iterations=40, tolerance=1e-9)
    names = ("loadings_x", "loadings_y", "loc_x", "loc_y", "noise_variance_x", "noise_variance_y")
    with in_precision():
        values = {name: jnp.asarray(tree["variational"][name].to_numpy()) for name in names}
        filled = model.with_sizes_from(x, y)
        total, _ = program_density(filled, (jnp.asarray(x), jnp.asarray(y)), {}, values)
    np.testing.assert_allclose(best(tree), float(total), rtol=1e-10)
    flat = fit(MODEL, x, y, tolerance=1e-9)["variational"]["loadings_x"]
    assert (tree["variational"]["loadings_x"] ** 2).sum() < 0.9 * (flat**2).sum()


@pytest.mark.slow
def test_given_noise_of_x_stays():
    x, _, y = toy(0)
    tree = fit(SPPCA(num_latents=3, noise_variance_x=0.1), x, y, max_iterations=200)
    assert float(tree["variational"]["noise_variance_x"]) == 0.1


@pytest.mark.slow
def test_with_unlabelled_rows_there_are_local_maxima():
    """One latent for the labelled outputs alone: a point 342 nats down to which a jittered start returns."""
    x, _, y = toy(7)
    options = {"tolerance": 0, "max_iterations": 300}
    low = fit(MODEL, x, y, init="random", seed=1, **options)
    assert best(low) < best(fit(MODEL, x, y, **options)) - 340
    assert max(slopes_at(low, x, y).values()) < 1e-3
    rng, moved = np.random.default_rng(0), {}
    for name, value in low["variational"].data_vars.items():
        step = 1e-3 * rng.normal(size=value.shape) if name.startswith("loadings") else 0.0
        moved[name] = value.to_numpy() + step
    np.testing.assert_allclose(best(fit(MODEL, x, y, init=moved, **options)), best(low), atol=1e-8)


# Warnings and errors


def test_a_noise_variance_at_its_floor_is_told_from_one_above():
    """Held to rounding, of x and of y; a thousandth above it is none."""
    x, y, _ = toy(0)
    model = MODEL.encoded(x, y)[0]
    floors = {
        "noise_variance_x": model.noise_floor[0] * x.var(axis=0).mean(),
        "noise_variance_y": model.noise_floor[1] * y.var(axis=0).mean(),
    }
    above = {name: np.asarray(1.001 * floor) for name, floor in floors.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_floors(above, model, y, x.var(axis=0).mean())
    for name, floor in floors.items():
        with pytest.warns(UserWarning, match=f"{name} is at its floor"):
            warn_of_floors(above | {name: np.asarray((1 + 1e-12) * floor)}, model, y, x.var(axis=0).mean())


@pytest.mark.parametrize("classes", [None, ("a", "b", "c")])
def test_label_coding_is_advised_only_where_the_outputs_are_labels(classes):
    model = SPPCA(num_latents=3, num_features=4, num_outputs=3, classes=classes)
    y = np.eye(3)[np.arange(30) % 3]
    values = {"noise_variance_y": np.asarray(0.0)}
    with pytest.warns(UserWarning) as caught:
        warn_of_floors(values, model, y, None)
    said = " ".join(str(warning.message) for warning in caught)
    assert "at its floor" in said and "have rank 2" in said
    assert ("label_coding" in said) == (classes is not None)


@pytest.mark.slow
def test_floor_and_rank_are_warned_of():
    x, _, _ = toy(0)
    labels = np.array(["a", "b", "c"] * 50, dtype=object)
    labels[10:] = None
    with (
        pytest.warns(UserWarning, match="noise_variance_y is at its floor, 0.001 of the variance"),
        pytest.warns(UserWarning, match="3 outputs have rank 2 and there are 8 latents"),
    ):
        tree = fit(SPPCA(num_latents=8), x, labels, max_iterations=400)
    np.testing.assert_allclose(tree["variational"]["noise_variance_y"], 1e-3 * 0.22, rtol=1e-12)
    assert float(predict(tree, x[:1], what="classes").sum()) == pytest.approx(1.0)
    few = np.full((150, 3), np.nan)
    few[:9] = toy(0)[1][:9]
    with pytest.warns(UserWarning, match="8 latents and only 9 labelled rows"):
        fit(SPPCA(num_latents=8), x, few, max_iterations=20, tolerance=0.1)


def test_closed_form_and_options_that_do_not_go():
    x, _, y = toy(0)
    with pytest.raises(ValueError, match="closed_form needs every cell.*row 45, column 0 of y is missing"):
        fit(MODEL, x, y, method="closed_form")
    with pytest.raises(ValueError, match="acceleration must be one of px, none"):
        fit(MODEL, x, y, method="em", acceleration="fast")
    with pytest.raises(ValueError, match="use 'joint'"):
        fit(SPPCA(num_latents=3, loading_prior="gaussian", center="plugin"), x, y)
    for method, model in (("em", MODEL), ("vb", SPPCA(num_latents=3, loading_prior="gaussian"))):
        with pytest.raises(
            ValueError, match="missing: loadings_y, loc_y, noise_variance_x, noise_variance_y"
        ):
            fit(model, x, y, method=method, init={"loadings_x": np.ones((12, 3)), "loc_x": np.ones(12)})


def test_the_warning_of_a_floor_tells_the_share_of_its_own_part():
    y = np.random.default_rng(0).normal(size=(20, 2))
    model = SPPCA(num_latents=1, noise_floor=(1e-6, 1e-3))
    with pytest.warns(UserWarning, match="noise_variance_x is at its floor, 1e-06 of"):
        warn_of_floors({"noise_variance_x": 1e-6, "noise_variance_y": 1.0}, model, y, 1.0)
    with pytest.warns(UserWarning, match="noise_variance_y is at its floor, 0.001 of"):
        warn_of_floors({"noise_variance_x": 1.0, "noise_variance_y": 1e-6}, model, y, 1.0)
