"""EM of repulsive mixtures of PCAs: objective, gradients, monotone sweeps, simpler models inside."""

import itertools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer.util import compute_log_probs
from scipy import stats

import inference
import zoo
from inference import fit, predict
from inference.driver.ascent import ascend
from inference.driver.checkpoint import Checkpoint
from inference.fitting.in_memory import progress_line
from inference.fitting.verdict import five_small_gains
from inference.methods.depcam import em
from inference.methods.depcam.em import (
    evaluate,
    log_prior,
    moved_scales,
    repulsion_gradient,
    stiefel_gradient,
    update_latents,
    update_weights,
)
from inference.precision import in_precision
from tests.support.interruptions import cut_short
from tests.support.log_joint import log_joint
from zoo.answers import answer_of, start_of
from zoo.exponential_family import Binomial, GammaWithShape, Gaussian, NegativeBinomial
from zoo.exponential_family.local_pca import components_of, orthonormal

SIZES = dict(num_components=3, num_latents=2)


@pytest.fixture(scope="module")
def table():
    """Three groups of 20 binary rows about prototypes, one cell in ten turned, one in fifty missing."""
    rng = np.random.default_rng(0)
    prototypes = np.repeat([rng.uniform(size=8) < share for share in (0.9, 0.5, 0.1)], 20, axis=0)
    turned = rng.uniform(size=prototypes.shape) < 0.1
    x = np.where(turned, ~prototypes, prototypes).astype(float)
    return np.where(rng.uniform(size=x.shape) < 0.02, np.nan, x)


def values_of(model, x, seed=0):
    """Everything at random, bases in the place of carriers; latents of Gaussian cells integrated."""
    rng = np.random.default_rng(seed)
    values = jax.jit(lambda *given: start_of(model, *given))(jax.random.key(seed), jnp.asarray(x))
    values["bases"] = values.pop("carriers")
    values["scales"] = jnp.asarray(rng.normal(size=values["scales"].shape))
    values["weights"] = jnp.asarray(rng.dirichlet(np.ones(model.num_components)))
    return values


def joint_of(model, values, x):
    sites = {name: value for name, value in values.items() if name != "bases"}
    return log_joint(model, sites | {"carriers": values["bases"]}, x)


@pytest.mark.parametrize(
    ("family", "latents"), [("bernoulli", "shared"), ("bernoulli", "component"), ("gaussian", "component")]
)
def test_objective_is_the_program_s_density(table, family, latents):
    """Up to the carriers' normal density, which is the same for all bases.

    With latents of each component: labels summed over the program that draws them, the latents of the
    components not taken integrated out (their prior divided away).
    """
    model = zoo.DEPCAM.from_data(table, family=family, latents=latents, repulsion=2.0, **SIZES)
    with in_precision():
        values, x = values_of(model, table), jnp.asarray(table)
        objective = jax.jit(evaluate)(values, model, x, jnp.zeros((1, 1))).objective
        carriers = stats.norm.logpdf(values["bases"]).sum()
        if latents == "shared" or family == "gaussian":
            expected = jax.jit(lambda values: joint_of(model, values, x))(values)
        else:
            rows = []
            for k in range(3):
                sites = values | {"carriers": values["bases"], "assignments": np.full(len(table), k)}
                terms, _ = compute_log_probs(model.explicit, (x,), {}, sites, sum_log_prob=False)
                own = sum(terms.pop(name) for name in ("x", "assignments", "latents"))
                rows.append(own - stats.norm.logpdf(np.delete(values["latents"], k, axis=1)).sum((1, 2)))
            expected = sum(jnp.sum(term) for term in terms.values())
            expected += jnp.sum(jax.nn.logsumexp(jnp.stack(rows), axis=0))
        np.testing.assert_allclose(objective + carriers, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("family", "latents", "kernel"),
    [
        ("bernoulli", "component", "angular"),
        ("poisson", "shared", "subspace"),
        ("gaussian", "component", "angular"),
    ],
)
def test_gradients_by_hand_are_those_of_autodiff(table, family, latents, kernel):
    """In loadings and offsets of the likelihood, and of the repulsion along the manifold."""
    model = zoo.DEPCAM.from_data(
        table, family=family, latents=latents, kernel=kernel, repulsion=5.0, sparsity=0.0, **SIZES
    )
    with in_precision():
        values, x, zero = values_of(model, table), jnp.asarray(table), jnp.zeros((1, 1))

        @jax.jit
        def by_hand_and_by_autodiff(values):
            sums = evaluate(values, model, x, zero).sums
            changed = {name: values[name] for name in ("offsets", "scales", "bases")}
            auto = jax.grad(lambda v: evaluate(values | v, model, x, zero).objective)(changed)
            bases = sums.loadings * values["scales"][:, None, :] + repulsion_gradient(values, model)
            own = {
                "offsets": sums.offsets - values["offsets"] / 100.0,
                "scales": jnp.einsum("kfi,kfi->ki", values["bases"], sums.loadings),
                "bases": stiefel_gradient(values["bases"], bases),
            }
            return own, auto | {"bases": stiefel_gradient(values["bases"], auto["bases"])}

        own, auto = by_hand_and_by_autodiff(values)
        for name in own:
            np.testing.assert_allclose(own[name], auto[name], rtol=1e-9, atol=1e-10, err_msg=name)


def climbs(tree):
    trace = tree["trace"]
    objective = trace.get("objective_by_restart", trace["objective"]).to_numpy()
    gains = np.diff(objective, axis=0)
    return np.nanmin(gains) > -1e-8 * np.nanmax(np.abs(objective))


@pytest.mark.slow
@pytest.mark.parametrize("latents", ["component", pytest.param("shared", marks=pytest.mark.slow)])
def test_no_sweep_lowers_the_objective(table, latents):
    """And bases stay orthonormal; at most 8 visits to the rows a sweep, in the median."""
    for repulsion in (0.0, 1.0, 10.0, 100.0):
        model = zoo.DEPCAM(latents=latents, repulsion=repulsion, sparsity=0.5, **SIZES)
        tree = fit(model, table, method="em", max_iterations=80, tolerance=0, num_restarts=2)
        assert climbs(tree)
        bases = tree["variational"]["bases"].to_numpy()
        inner = np.swapaxes(bases, -1, -2) @ bases
        np.testing.assert_allclose(inner, np.broadcast_to(np.eye(2), inner.shape), atol=1e-8)
        assert np.nanmedian(tree["trace"]["num_evaluations"]) <= 8
    filled, seen = inference.predict(tree, table, what="cells").to_numpy(), ~np.isnan(table)
    np.testing.assert_array_equal(filled[seen], table[seen])
    assert ((filled >= 0) & (filled <= 1)).all()


@pytest.mark.slow
def test_scales_drift_at_zero_sparsity_and_a_warning_says_so(table):
    """The objective climbs for ever: further sweeps from where the first stopped make the scales larger."""
    model = zoo.DEPCAM(latents="component", repulsion=1.0, sparsity=0.0, **SIZES)
    options = dict(method="em", max_iterations=80, tolerance=0, num_restarts=2)
    with pytest.warns(UserWarning, match="sparsity=0 has no optimum"):
        tree = fit(model, table, **options)
    with pytest.warns(UserWarning, match="sparsity=0 has no optimum"):
        later = fit(model, table, init=tree, **options)
    before, after = (np.abs(t["variational"]["scales"]).max() for t in (tree, later))
    assert after > 1.05 * before and climbs(tree) and climbs(later)


@pytest.mark.slow
def test_a_fit_is_kept_continued_and_used(table, tmp_path):
    with pytest.warns(UserWarning, match="has not converged"):
        tree = fit(zoo.DEPCAM(sparsity=0.5, **SIZES), table, max_iterations=80, num_restarts=2)
    assert tree.attrs["method"] == "em" and "log_likelihood" not in tree.children
    inference.save(tree, tmp_path / "depcam.nc")
    back = inference.load(tmp_path / "depcam.nc")
    again = fit(inference.model_of(back), table, init=back, max_iterations=80, tolerance=0, num_restarts=2)
    best = np.nanmax(tree["trace"]["objective"].to_numpy())
    assert again["trace"]["objective"].to_numpy().min() > best - 1e-8 * abs(best)
    shares = inference.transform(back, table)
    assert shares.dims == ("observation", "component")
    np.testing.assert_allclose(shares.sum("component"), 1.0)
    filled = inference.predict(back, table, what="cells")
    seen = ~np.isnan(table)
    np.testing.assert_array_equal(filled.to_numpy()[seen], table[seen])
    assert ((filled >= 0) & (filled <= 1)).all()
    whole = inference.predict(back, table, what="reconstruction").to_numpy()
    assert (np.abs(whole[seen] - table[seen]) < 0.5).mean() > 0.85
    assert inference.log_density(back, table[:4]).shape == (4,)


@pytest.mark.slow
def test_laplace_density_against_quadrature(table):
    """One latent: log density of rows by the trapezoidal rule; Laplace is within a tenth of a nat a row."""
    model = zoo.DEPCAM.from_data(table, num_components=2, num_latents=1)
    grid = np.linspace(-9.0, 9.0, 2001)
    with in_precision():
        values = values_of(model, table)
        del values["latents"]
        local = components_of(model, values)
        theta = grid[:, None, None] * local.loadings[None, :, :, 0] + local.offsets
        seen = ~np.isnan(table)
        cells = model.family.log_density(theta[None], np.nan_to_num(table)[:, None, None])
        rows = jnp.sum(jnp.where(seen[:, None, None], cells, 0.0), -1)
        rows += stats.norm.logpdf(grid)[None, :, None] + np.log(grid[1] - grid[0])
        exact = jax.nn.logsumexp(jax.nn.logsumexp(rows, axis=1) + jnp.log(values["weights"]), axis=-1)
        np.testing.assert_allclose(model.log_likelihood(values, jnp.asarray(table)), exact, atol=0.1)
        shares = jnp.exp(jax.nn.logsumexp(rows, axis=1) + jnp.log(values["weights"]) - exact[:, None])
        np.testing.assert_allclose(model.scores(values, jnp.asarray(table)), shares, atol=0.05)


def closed_form_mixture_of_ppca(x, labels, num_latents, variance, concentration=None, num_steps=3000):
    """Tipping and Bishop (1999), appendix C, with the noise variance given.

    With a concentration the two weights are the most probable ones of a stick-breaking prior, Beta(1, alpha).
    """
    shares = np.eye(labels.max() + 1)[labels]
    for _ in range(num_steps):
        weights, log_rows, products = shares.mean(0), np.empty(shares.shape), []
        if concentration is not None:
            first = shares[:, 0].sum() / (len(x) + concentration - 1.0)
            weights = np.array([first, 1.0 - first])
        for k, r in enumerate(shares.T):
            mean = r @ x / r.sum()
            away = x - mean
            values, vectors = np.linalg.eigh((r[:, None] * away).T @ away / r.sum())
            kept = np.maximum(values[-num_latents:] - variance, 0.0)
            products.append(vectors[:, -num_latents:] * kept @ vectors[:, -num_latents:].T)
            covariance = products[-1] + variance * np.eye(x.shape[1])
            log_rows[:, k] = np.log(weights[k]) + stats.multivariate_normal.logpdf(x, mean, covariance)
        total = np.logaddexp.reduce(log_rows, axis=1)
        shares = np.exp(log_rows - total[:, None])
    return total.sum(), np.array(products), weights


@pytest.mark.slow
@pytest.mark.parametrize("concentration", [None, 5.0], ids=["dirichlet", "dirichlet process"])
def test_gaussian_cells_are_the_mixture_of_ppcas(concentration):
    """Overlapping clusters; EM with eigenvectors in closed form ends at the same likelihood and products."""
    rng = np.random.default_rng(3)
    labels = np.repeat([0, 1], 60)
    loadings = rng.normal(size=(2, 5, 2)) * [2.0, 1.0]
    centres = 1.5 * rng.normal(size=(2, 5))
    x = np.einsum("nfi,ni->nf", loadings[labels], rng.normal(size=(120, 2))) + centres[labels]
    x += 0.7 * rng.normal(size=x.shape)
    expected, products, weights = closed_form_mixture_of_ppca(x, labels, 2, 0.5, concentration)
    model = zoo.DEPCAM(
        family=Gaussian(noise_variance=0.5),
        num_components=2,
        num_latents=2,
        repulsion=0.0,
        sparsity=0.0,
        offset_variance=1e12,
        concentration=concentration,
        weight_prior="dirichlet" if concentration is None else "stick_breaking",
    )
    tree = fit(model, x, method="em", init={"assignments": labels}, max_iterations=4000, tolerance=1e-13)
    objective = tree["trace"]["objective"].to_numpy()
    assert np.diff(objective).min() > -1e-8 * np.abs(objective).max()
    found = tree["variational"]["bases"] * tree["variational"]["scales"]
    found = found.transpose("component", "feature", "latent").to_numpy()
    density = float(inference.log_density(tree, x).sum())
    np.testing.assert_allclose(density, expected, rtol=1e-8)
    np.testing.assert_allclose(found @ np.swapaxes(found, -1, -2), products, atol=1e-3)
    np.testing.assert_allclose(tree["variational"]["weights"], weights, atol=1e-4)


def test_one_component_is_epca(table):
    """With scales of precision one the penalty is EPCA's: half the squares of both factors of Theta."""
    x = np.nan_to_num(table[:30])
    pca = fit(zoo.EPCA(num_latents=2), x, method="map", tolerance=1e-12, num_restarts=2)
    theta = pca["variational"]["latents"].to_numpy() @ pca["variational"]["loadings"].to_numpy().T
    theta += pca["variational"]["loc"].to_numpy()
    precise = dict(scale_prior="ard", ard_concentration=1e7, ard_rate=1e7)
    model = zoo.DEPCAM(num_components=1, num_latents=2, **precise)
    tree = fit(model, x, method="em", tolerance=1e-12, max_iterations=3000, num_restarts=2)
    q = {name: value.to_numpy() for name, value in tree["variational"].data_vars.items()}
    own = q["latents"][:, 0] @ (q["bases"][0] * q["scales"][0]).T + q["offsets"][0]
    np.testing.assert_allclose(own, theta, atol=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("latents", ["component", "shared"])
@pytest.mark.parametrize(
    "family",
    [
        "gaussian",
        Gaussian(noise_variance=None),
        Binomial(3),
        "poisson",
        "exponential",
        GammaWithShape(2.0),
        NegativeBinomial(2.0),
    ],
    ids=lambda family: family if isinstance(family, str) else type(family).__name__,
)
def test_no_sweep_lowers_the_objective_of_any_family(family, latents):
    rng = np.random.default_rng(1)
    rates = np.exp(rng.normal(size=(3, 6)))[np.repeat([0, 1, 2], 15)]
    positive = family == "exponential" or isinstance(family, GammaWithShape)
    x = rng.exponential(1 / rates) if positive else rng.poisson(rates)
    x = np.minimum(x, 3.0) if isinstance(family, Binomial) else x.astype(float)
    x[4, 2] = np.nan
    for repulsion in (0.0, 1.0, 10.0, 100.0):
        model = zoo.DEPCAM(family=family, latents=latents, repulsion=repulsion, kernel="subspace", **SIZES)
        assert climbs(fit(model, x, method="em", max_iterations=60, tolerance=0, num_restarts=2))


@pytest.mark.slow
def test_dirichlet_process_weights_and_learnt_precisions_climb(table):
    model = zoo.DEPCAM(weight_prior="stick_breaking", concentration=2.0, scale_prior="ard", **SIZES)
    tree = fit(model, table, method="em", max_iterations=60, tolerance=0, num_restarts=2)
    assert climbs(tree)
    np.testing.assert_allclose(tree["posterior"]["weights"].sum(), 1.0)


@pytest.mark.slow
def test_a_component_without_rows_keeps_the_objective_finite(table):
    """Its weight underflowed, and zero times minus infinity made the objective not a number."""
    model = zoo.DEPCAM.from_data(table, **SIZES)
    with in_precision():
        values, zero = values_of(model, table), jnp.zeros((1, 1))
        now = evaluate(values, model, jnp.asarray(table), zero)
        r = now.responsibilities.at[:, 0].set(0.0)
        now = now._replace(responsibilities=r / jnp.sum(r, axis=1, keepdims=True))
        values, now = update_weights(values, model, now, zero)
        objective, weight = float(now.objective), float(values["weights"][0])
    assert np.isfinite(objective) and weight < 1e-15


@pytest.mark.parametrize("prior", ["dirichlet", "stick_breaking"])
def test_weights_are_the_most_probable_given_responsibilities(prior):
    """Their expected log density, by scipy's beta and Dirichlet densities, falls on either side."""
    counts, alpha = np.array([4.0, 1.5, 0.7, 2.8]), 9.0
    model = zoo.DEPCAM(num_components=4, num_latents=1, weight_prior=prior, concentration=alpha)
    r = jnp.asarray(counts)[None]  # one row: what counts is their sum

    def height(weights):
        left = 1.0 - np.append(0.0, np.cumsum(weights)[:2])
        if prior == "dirichlet":
            own = stats.dirichlet.logpdf(weights / weights.sum(), np.full(4, alpha / 4))
        else:
            own = stats.beta.logpdf(weights[:3] / left, 1.0, alpha).sum()
        return counts @ np.log(weights) + own

    with in_precision(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(em, "objective_of", lambda *_: (jnp.zeros(()), r))
        values = {"weights": jnp.full(4, 0.25)}
        values |= {"stick_fractions": jnp.asarray([1 / 4, 1 / 3, 1 / 2])} if prior == "stick_breaking" else {}
        before = SimpleNamespace(responsibilities=r, log_rows=None, _replace=lambda **_: None)
        values, _ = update_weights(values, model, before, jnp.zeros((1, 1)))
    weights = np.asarray(values["weights"])
    assert weights.sum() == pytest.approx(1.0, abs=1e-12)
    best = height(weights)
    for away in 1e-3 * np.vstack([np.eye(4)[:3] - np.eye(4)[1:], np.eye(4)[1:] - np.eye(4)[:3]]):
        assert height(weights + away) < best


def test_latents_never_lower_the_objective_and_overshot_ones_do(table):
    """At random values; eight times the bounded step must fall somewhere, or the test sees nothing."""
    model = zoo.DEPCAM.from_data(table, sparsity=0.5, **SIZES)
    with in_precision():
        x, zero, gains = jnp.asarray(table), jnp.zeros((1, 1)), []
        for seed in range(5):
            values = values_of(model, table, seed)
            moved, _ = update_latents(values, model, x, zero)
            far = values["latents"] + 8.0 * (moved["latents"] - values["latents"])
            before, after, overshot = (
                float(evaluate(v, model, x, zero).objective)
                for v in (values, moved, moved | {"latents": far})
            )
            gains.append((after - before, overshot - before))
    true, planted = np.min(gains, axis=0)
    assert true > 0 > planted


def test_m_steps_under_priors_are_stationary(table):
    """Of the noise, whose fixed point is where the objective's gradient vanishes; of precisions in one step.

    Planted: a noise and precisions five per cent off have a gradient.
    """
    model = zoo.DEPCAM.from_data(
        table,
        family=Gaussian(noise_variance=None),
        noise_rate=3.0,
        scale_prior="ard",
        ard_concentration=2.5,
        ard_rate=0.7,
        **SIZES,
    )
    with in_precision():
        x, zero = jnp.asarray(table), jnp.zeros((1, 1))
        values = values_of(model, table) | {"noise_variance": jnp.asarray(1.0)}
        step = jax.jit(lambda values: update_latents(values, model, x, zero)[0])
        for _ in range(400):
            values = step(values)

        def slope(name, objective, factor=1.0):
            """Change of the objective by relative changes of the values, in nats."""
            at = factor * values[name]
            gradient = jax.jit(jax.grad(lambda own, others: objective(others | {name: own})))
            return np.abs(at * gradient(at, values)).max()

        def of_rows(values):
            return evaluate(values, model, x, zero).objective

        assert slope("noise_variance", of_rows) < 1e-7 < 1.0 < slope("noise_variance", of_rows, 1.05)
        values = moved_scales(jnp.asarray(1.0), values, model, evaluate(values, model, x, zero))

        def of_prior(values):
            return log_prior(values, model)

        assert slope("scales_precision", of_prior) < 1e-10
        assert slope("scales_precision", of_prior, 1.05) > 0.05


@pytest.mark.parametrize("latents", ["shared", "component"])
@pytest.mark.parametrize("scale_prior", ["laplace", "ard"])
def test_one_rescaling_is_the_best_of_one_component(table, scale_prior, latents):
    """Scales times c and latents over c, for c a thousandth off one, latent by latent; Poisson cells."""
    sizes = SIZES | {"num_components": 1, "scale_prior": scale_prior, "sparsity": 0.7}
    model = zoo.DEPCAM.from_data(2 * table, family="poisson", latents=latents, **sizes)
    with in_precision():
        values, x, clamp = values_of(model, table), jnp.asarray(2 * table), jnp.zeros((1, 1))
        judge = jax.jit(evaluate)
        values, _ = em.rescale(values, model, judge(values, model, x, clamp), clamp)
        best = judge(values, model, x, clamp).objective
        for latent, factor in itertools.product(range(2), (0.999, 1.001)):
            c = jnp.ones(2).at[latent].set(factor)
            moved = values | {"scales": values["scales"] * c, "latents": values["latents"] / c}
            assert judge(moved, model, x, clamp).objective < best


def test_bad_options_are_refused(table):
    with pytest.raises(ValueError, match="clamped_sweeps must be at least 0; got -1"):
        fit(zoo.DEPCAM(**SIZES), table, method="em", clamped_sweeps=-1)
    with pytest.raises(TypeError, match="clamped_sweeps must be a whole number; got 1.5"):
        fit(zoo.DEPCAM(**SIZES), table, method="em", clamped_sweeps=1.5)
    with pytest.raises(ValueError, match="border of the simplex with concentration below 3; got 1.0"):
        fit(zoo.DEPCAM(concentration=1.0, **SIZES), table, method="em")
    with pytest.raises(ValueError, match="ard_concentration of at most 0.5; got 0.5"):
        fit(zoo.DEPCAM(scale_prior="ard", ard_concentration=0.5, **SIZES), table, method="em")
    with pytest.raises(ValueError, match="init must hold responsibilities, assignments, or all of"):
        fit(zoo.DEPCAM(**SIZES), table, method="em", init={"scales": np.ones((3, 2))})


def test_a_basis_of_its_own_stays():
    with in_precision():
        bases = orthonormal(jax.random.normal(jax.random.key(1), (2, 4, 3)))
        assert np.abs(stiefel_gradient(bases, bases)).max() < 1e-12  # scaling is not along the manifold


# Costly: a run and its steps one by one, two large programs.
def test_sweeps_with_labels_held_are_steps_of_the_same_program(table):
    """Neither recorded nor judged; the run is that of single steps. Planted: a start that holds no labels."""
    model = zoo.DEPCAM.from_data(table, **SIZES)
    algorithm, traced = em.build("kmeans", 6), []

    def counted(*args):
        traced.append(1)
        return em.step(*args)

    with in_precision():
        x, key = jnp.asarray(table), jax.random.key(0)
        found = ascend(
            counted,
            lambda key, variables, *args: algorithm.init(key, *args),
            model,
            (x,),
            keys=jax.random.fold_in(key, 0)[None],
            variables={},
            num_rows=len(table),
            num_restarts=1,
            max_iterations=4,
            tolerance=0.0,
            must_rise=True,
            rule=five_small_gains,
            checkpoint=Checkpoint(None, {}),
            open_bar=progress_line(False),
            settling_steps=algorithm.settling_steps,
        )
        state = jax.jit(algorithm.init)(jax.random.fold_in(key, 0), model, x)
        free = state._replace(num_clamped=jnp.array(0))
        one, objectives = jax.jit(em.step), []
        for _ in range(10):
            state, info = one(key, state, model, x)
            free, of_free = one(key, free, model, x)
            objectives.append((float(info.objective), float(of_free.objective)))
    assert len(traced) == 1 and int(found.state.num_sweeps) == 10
    held, without = np.transpose(objectives)
    np.testing.assert_allclose(found.trace["objective"], held[None, 6:], rtol=1e-10)
    assert np.abs(without - held)[0] > 1e-3


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:depcam by .* has not converged")
def test_a_resumed_run_does_not_hold_labels_again(table, tmp_path, monkeypatch):
    call = dict(method="em", max_iterations=20, tolerance=0, clamped_sweeps=6, num_restarts=2, seed=1)
    model, path = zoo.DEPCAM.from_data(table, **SIZES), tmp_path / "run"
    whole = fit(model, table, **call)["trace"]["objective"]
    with monkeypatch.context() as patch:
        cut_short(patch, 1)
        part = fit(model, table, checkpoint=path, **call)
    assert 0 < part.attrs["num_iterations"] < 20
    again = fit(model, table, checkpoint=path, **call)["trace"]["objective"]
    np.testing.assert_allclose(again, whole, rtol=1e-12)


def test_signs_are_fair_and_independent():
    """Four signs on both sides of the end of a key, of 4096 splits: chi-squared of 16 patterns at 1e-5."""

    def draw(key):
        return em.signs(jax.random.split(key, 3)[1:], (5, 1, 8))

    found = np.asarray(jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(0), 4096)))
    assert found.shape == (4096, 5, 1, 8) and set(np.unique(found)) == {-1.0, 1.0}
    flat = found.reshape(4096, 40)[:, [0, 31, 32, 39]] > 0
    assert stats.chisquare(np.bincount(flat @ [1, 2, 4, 8], minlength=16)).pvalue > 1e-5


# Single steps by hand


def test_scales_make_the_best_step_of_their_model():
    """The proximal step is the best of g d - c d^2 / (2 step) - sparsity |s + d| among 40 001 scales."""
    model = zoo.DEPCAM(num_features=3, num_components=1, num_latents=3, sparsity=0.8, scale_prior="laplace")
    gradient, curvature, scales = (
        np.array([2.0, -0.3, 0.1]),
        np.array([1.5, 2.0, 4.0]),
        np.array([0.4, 0.1, -0.02]),
    )
    with in_precision():
        sums = SimpleNamespace(
            loadings=jnp.diag(jnp.asarray(gradient))[None], moments=jnp.diag(jnp.asarray(curvature))[None]
        )
        values = {"scales": jnp.asarray(scales)[None], "bases": jnp.eye(3)[None]}
        for step in (1.0, 0.25):
            now = SimpleNamespace(sums=sums)
            found = np.asarray(moved_scales(jnp.asarray(step), values, model, now)["scales"])[0]
            tried = np.linspace(-2.0, 2.0, 40_001)[:, None]
            away = tried - scales
            height = gradient * away - curvature * away**2 / (2 * step) - 0.8 * np.abs(tried)
            np.testing.assert_allclose(found, tried[height.argmax(axis=0), 0], atol=1e-4)


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_column_is_dead_by_its_share_of_the_variance(factor):
    """Mean curvature over the component's rows times the squared scale, beside a column far from it."""
    rows, curvature = np.array([40.0, 5.0]), np.array([0.25, 0.1])
    small = np.sqrt(factor * em.DEAD / curvature)
    responsibilities = np.repeat(np.eye(2), rows.astype(int), axis=0)
    heights = jnp.asarray((rows * curvature)[:, None] * np.ones((2, 3)))
    with in_precision():
        now = SimpleNamespace(
            responsibilities=jnp.asarray(responsibilities), sums=SimpleNamespace(offsets_curvature=heights)
        )
        values = {
            "scales": jnp.asarray(np.stack([[3.0, 3.0], small], axis=1)),
            "bases": jnp.eye(3)[None, :, :2],
        }
        values["bases"] = jnp.repeat(values["bases"], 2, axis=0)
        column, weak = em.dead_columns(values, now)
    np.testing.assert_array_equal(weak, [[False, factor < 1]] * 2)
    np.testing.assert_array_equal(column, weak)


def test_a_raised_column_has_the_scale_of_the_data():
    """Gaussian rows along one direction: in units a thousand times larger it is raised a thousand times."""
    rng = np.random.default_rng(0)
    x = np.outer(2.0 * rng.normal(size=60), [0.6, 0.8, 0.0]) + 0.3 * rng.normal(size=(60, 3))
    raised_to = []
    for unit in (1.0, 1e3):
        model = zoo.DEPCAM(
            family=Gaussian(noise_variance=(0.3 * unit) ** 2),
            num_features=3,
            num_components=1,
            num_latents=1,
            sparsity=0.0,
        )
        with in_precision():
            values = {
                "bases": jnp.eye(3)[None, :, 2:],
                "scales": jnp.zeros((1, 1)),
                "offsets": jnp.zeros((1, 3)),
                "weights": jnp.ones(1),
            }
            everything = jnp.ones((1, 1), bool)
            lift = em.lift_of(values, model, jnp.asarray(unit * x), jnp.ones((60, 1)), everything, everything)
            assert bool(lift.moves.all())
            np.testing.assert_allclose(np.abs(lift.bases[0, :, 0]), [0.6, 0.8, 0.0], atol=0.05)
            raised_to.append(float(lift.scales[0]) / unit)
    np.testing.assert_allclose(raised_to[1], raised_to[0], rtol=1e-9)
    assert 1.0 < raised_to[0] < 3.5  # the deviation is two, on a grid of a quarter of a power of ten


def test_shared_latents_of_a_raised_column_are_at_their_best():
    """The mode of -y^2 / 2 + sum_k r_k (s_k f_k y - s_k^2 h_k y^2 / 2), by a grid."""
    rng = np.random.default_rng(0)
    r, force, stiff = rng.dirichlet(np.ones(2), 4), rng.normal(size=(4, 2)), rng.uniform(0.5, 2.0, (4, 2))
    scales, best = np.array([1.3, 0.4]), 0.5
    model = zoo.DEPCAM(num_features=3, num_components=2, num_latents=1, latents="shared")
    with in_precision():
        values = {"latents": jnp.zeros((4, 1)), "scales": jnp.zeros((2, 1)), "bases": jnp.zeros((2, 3, 1))}
        moves = jnp.ones((2, 1), bool)
        lift = em.Lift(moves, moves, values["bases"], *map(jnp.asarray, (scales, force, stiff)))
        now = SimpleNamespace(responsibilities=jnp.asarray(r))
        found = np.asarray(
            em.raised(jnp.asarray(best), values, model, now, lift, jnp.zeros((4, 3)))["latents"]
        )
    tried, s = np.linspace(-3.0, 3.0, 60_001)[:, None, None], best * scales
    height = -0.5 * tried[..., 0] ** 2 + (r * (s * force * tried - 0.5 * s**2 * stiff * tried**2)).sum(
        axis=-1
    )
    np.testing.assert_allclose(found[:, 0], tried[height.argmax(axis=0), 0, 0], atol=1e-4)


@pytest.mark.filterwarnings("ignore:depcam by .* has not converged")
@pytest.mark.parametrize("method", ["em", "map"])
@pytest.mark.parametrize("family", ["bernoulli", "poisson"])
def test_fitted_rows_have_the_clusters_that_new_ones_have(family, method):
    """Their latents are integrated out in both; planted: labels at the best latents of each row."""
    rng = np.random.default_rng(0)
    x = (rng.random((80, 5)) < rng.choice([0.2, 0.8], (80, 1))).astype(float) * (1 + (family == "poisson"))
    model = zoo.DEPCAM(family=family, num_components=2, num_latents=1)
    tree = fit(model, x, method=method, seed=0, max_iterations=40, num_restarts=1, progress=False)
    stored = tree["variational"]["responsibilities"].values
    np.testing.assert_allclose(stored, predict(tree, x, what="probabilities").values, atol=1e-9)
    held = {name: own.values[0, 0] for name, own in tree["posterior"].data_vars.items()}
    with jax.enable_x64(True):
        given = answer_of(inference.model_of(tree), "conditionals", held, jnp.asarray(x))["assignments"].probs
    assert "latents" in held and np.abs(stored - np.asarray(given)).max() > 1e-3
