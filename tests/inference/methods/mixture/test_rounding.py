"""Cells recorded in steps: the interval's density, its augmentation by Gibbs, and who refuses it.

Densities and conditionals are compared with the program and with SciPy, without false alarms; a posterior
with quadrature, four standard errors (one of 16 000 fails by chance); the sweep by `geweke`, 1 % of false
alarms.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import special, stats

from inference import fit, log_density, predict, prediction, transform
from inference.calibration import conditional_check, geweke
from inference.diagnostics import leave_one_out, prior_sensitivity, summary
from inference.methods.mixture import gibbs, powers
from inference.numerics import weighted_rows
from inference.numerics.programs import joint_draws
from inference.precision import in_precision
from inference.symmetry import relabel
from tests.support.log_joint import log_joint
from zoo.conjugate import (
    GaussianKnownCovariance,
    GaussianKnownMean,
    GaussianWishart,
    NormalGamma,
    Product,
    SharedGaussianWishart,
    SphericalNormalGamma,
)
from zoo.conjugate.mixture_rows import ERRORS, log_joint_rows
from zoo.conjugate.rounded import RoundedRows, log_normal_within, normal_within
from zoo.mixture import Mixture
from zoo.model import in_current_precision

FAMILIES = {
    GaussianWishart: ("mean_precision", "scale_matrix", "degrees_of_freedom"),
    SharedGaussianWishart: ("mean_precision", "scale_matrix", "degrees_of_freedom"),
    GaussianKnownMean: ("scale_matrix", "degrees_of_freedom"),
    GaussianKnownCovariance: ("mean_precision", "covariance"),
    NormalGamma: ("mean_precision", "shape", "rate"),
    SphericalNormalGamma: ("mean_precision", "shape", "rate"),
}


def mixture(steps, num_components=3, family=GaussianWishart):
    d = len(steps)
    fields = {"mean_precision": 0.5, "degrees_of_freedom": 5.0, "shape": 2.5, "rate": 2.5}
    fields |= {"scale_matrix": np.eye(d) / 5, "covariance": 0.5 * np.eye(d) + 0.5}
    own = {name: fields[name] for name in FAMILIES[family]}
    components = family(loc=np.zeros(d), rounding=steps, **own)
    return Mixture(components, num_components, 1.0, weight_prior="dirichlet")


def rows_under(covariance, steps, x):
    with in_precision():
        exact = dist.MultivariateNormal(jnp.zeros(len(steps)), jnp.asarray(covariance))
        return np.asarray(RoundedRows(exact, np.array(steps)).log_prob(jnp.asarray(x)))


CORRELATED = np.array([[1.0, 0.8], [0.8, 2.0]])


@pytest.mark.parametrize("step", [0.1, 1.0, 4.0])
def test_the_density_is_the_probability_of_the_box_over_its_volume(step):
    x = np.array([[0.0, 0.0], [1.0, -1.0], [-2.0, -2.5], [0.3, 3.0]])
    normal = stats.multivariate_normal(np.zeros(2), CORRELATED)
    mass = [normal.cdf(row + step / 2, lower_limit=row - step / 2) for row in x]
    assert rows_under(CORRELATED, [step, step], x) == pytest.approx(np.log(mass) - 2 * np.log(step), abs=0.02)


def test_independent_columns_have_no_error_and_exact_cells_their_density():
    x = np.array([[0.4, -1.0, 2.0], [7.0, 0.0, -30.0]])
    scale, step = np.array([1.0, 0.5, 2.0]), np.array([1.0, 0.0, 3.0])
    low, high = (x - step / 2) / scale, (x + step / 2) / scale
    wanted = stats.norm.logpdf(x[:, 1], scale=0.5)
    for column in (0, 2):
        a, b = np.where(
            low[:, column] > 0, [-high[:, column], -low[:, column]], [low[:, column], high[:, column]]
        )
        wanted = wanted + np.log(special.ndtr(b) - special.ndtr(a)) - np.log(step[column])
    assert rows_under(np.diag(scale**2), step, x) == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize(("num_features", "step", "most"), [(3, 0.1, 0.005), (3, 1.0, 0.06), (6, 1.0, 0.2)])
def test_the_lattice_is_as_good_as_it_says(num_features, step, most):
    """Beside the same integral at 4096 Sobol points, which two scrambles know to a tenth of that."""
    covariance = 0.1 * np.eye(num_features) + 0.9
    x = np.random.default_rng(0).multivariate_normal(np.zeros(num_features), covariance, 40)
    x = np.round(x / step) * step
    ours = rows_under(covariance, np.full(num_features, step), x)
    first, second = (_integral(covariance, step, x, seed) for seed in (0, 1))
    assert np.abs(first - second).max() < most / 10
    assert np.abs(ours - (first + second) / 2).max() < most


def _integral(covariance, step, x, seed):
    """The log density of rows by the method of Genz, in NumPy."""
    factor, size = np.linalg.cholesky(covariance), x.shape[1]
    place, total, standard = stats.qmc.Sobol(size, seed=seed).random(4096), 0.0, []
    for d in range(size):
        before = sum(factor[d, j] * z for j, z in enumerate(standard))
        low, high = ((x[:, d] + side * step / 2 - before) / factor[d, d] for side in (-1, 1))
        mass = special.ndtr(high) - special.ndtr(low)
        total = total + np.log(np.maximum(mass, 1e-300))
        inside = special.ndtr(low) + place[:, [d]] * mass
        standard.append(special.ndtri(np.clip(inside, 1e-300, 1 - 1e-16)))
    return special.logsumexp(total, axis=0) - np.log(4096) - size * np.log(step)


def test_rows_under_each_component_have_the_probability_of_their_cells():
    """Of columns that are independent given the component, beside SciPy."""
    x, step = np.array([[0.0, -2.0], [1.0, 2.0], [3.0, 0.0]]), np.array([1.0, 2.0])
    values = {"weights": np.array([0.3, 0.7]), "locs": np.array([[0.2, -1.0], [1.5, 2.0]])}
    values["precisions"] = np.array([[1.0, 4.0], [0.25, 2.0]])
    with in_precision():
        model = in_current_precision(mixture(step, 2, NormalGamma))
        found = log_joint_rows(model, in_current_precision(values), in_current_precision(x))
    scale = values["precisions"] ** -0.5
    low, high = (stats.norm.cdf(x[:, None] + side * step / 2, values["locs"], scale) for side in (-1, 1))
    wanted = np.log((high - low) / step).sum(-1) + np.log(values["weights"])
    assert np.asarray(found) == pytest.approx(wanted, rel=1e-9)


def test_as_the_step_goes_to_zero_the_density_is_that_of_exact_cells():
    x = np.random.default_rng(0).normal(size=(20, 2)) * 2
    exact = stats.multivariate_normal(np.zeros(2), CORRELATED).logpdf(x)
    far, near = (np.abs(rows_under(CORRELATED, [h, h], x) - exact).max() for h in (1e-1, 1e-5))
    assert near < 1e-6 < far


def test_no_density_exceeds_one_over_the_step_and_far_rows_have_a_gradient():
    assert rows_under(CORRELATED * 1e-12, [0.1, 0.5], np.zeros((1, 2))) == pytest.approx(-np.log(0.05))
    with in_precision():
        grad = jax.grad(
            lambda at: RoundedRows(dist.MultivariateNormal(at, CORRELATED), np.ones(2)).log_prob(
                jnp.array([60.0, -80.0])
            )
        )(jnp.zeros(2))
    assert np.isfinite(np.asarray(grad)).all()


@pytest.mark.parametrize(("low", "high"), [(-1.0, 2.0), (5.0, 9.0), (-40.0, -30.0), (20.0, 20.001)])
def test_quantiles_lie_where_they_leave_so_much_below(low, high):
    with in_precision():
        place = jnp.linspace(0.05, 0.95, 7)
        at = normal_within(place, jnp.float64(low), jnp.float64(high))
        share = jnp.exp(log_normal_within(jnp.float64(low), at) - log_normal_within(low, jnp.float64(high)))
    assert np.asarray(share) == pytest.approx(np.asarray(place), abs=1e-4 if abs(low) > 6 else 1e-9)


# The blocks against the log joint of the explicit program


@pytest.fixture(scope="module")
def joint():
    return joint_of(GaussianWishart)


def joint_of(family):
    """A draw of everything: the model, values of the latent sites, and the data."""
    model = mixture([0.8, 0.0, 2.0], family=family)
    with in_precision():
        draw = joint_draws(jax.random.split(jax.random.key(1), 1), model.explicit, 25, 1)
        values = {name: np.asarray(value[0]) for name, value in draw.items()}
    return model, values, (values.pop("x"),)


@pytest.mark.parametrize("block", [gibbs.component_parameters, gibbs.labels])
def test_the_blocks_are_those_of_the_rows_less_their_errors(joint, block):
    model, values, data = joint
    assert conditional_check(model, gibbs.of_exact_rows(block), values, data).passed
    assert not conditional_check(model, block_of_recorded(block), values, data).passed


def block_of_recorded(block):
    """Planted: the rows as recorded in the place of the rows."""

    def wrong(values, model, x):
        return block(values, model.replaced(components=model.components.exact()), x)

    return wrong


def misfit(joint, conditional):
    """The largest difference of log ratios of a column's conditional and of the program, over two values."""
    model, values, (x,) = joint
    worst = 0.0
    with in_precision():
        for column in range(3):
            rng = np.random.default_rng(column)
            joints, own = [], []
            for _ in range(2):
                moved = values[ERRORS].copy()
                moved[:, column] = rng.uniform(-0.5, 0.5, len(x))
                at = {**values, ERRORS: jnp.asarray(moved)}
                program = in_current_precision(model).explicit
                joints.append(log_joint(program, at, x))
                own.append(
                    conditional({**values, ERRORS: jnp.asarray(values[ERRORS])}, model, x, column)
                    .log_prob(jnp.asarray(moved[:, column]))
                    .sum()
                )
            worst = max(worst, abs(float(joints[0] - joints[1] - own[0] + own[1])))
    return worst


@pytest.mark.parametrize("family", FAMILIES)
def test_errors_of_a_column_are_drawn_from_their_conditional(family):
    assert misfit(joint_of(family), gibbs.error_given_others) < 1e-6


def test_errors_of_missing_cells_are_drawn_from_their_prior():
    model, values, (x,) = joint_of(NormalGamma)
    x = x.copy()
    x[0, 0] = np.nan
    with in_precision():
        own = gibbs.error_given_others(values, model, x, 0)
        log_probs = np.asarray(own.log_prob(np.linspace(-0.4, 0.4, 5)[:, None]))
    assert log_probs[:, 0] == pytest.approx(0.0, abs=1e-6)
    assert np.ptp(log_probs[:, 1:], axis=0).min() > 0


def test_errors_that_ignore_the_other_columns_are_noticed(joint):
    """Planted: the marginal of the column in the place of its conditional."""

    def wrong(values, model, x, column):
        own = gibbs.error_given_others(values, model, x, column)
        covariance = np.linalg.inv(values["precisions"])[values["assignments"], column, column]
        step = model.components.rounding[column] or 1.0
        loc = (x[:, column] - values["locs"][values["assignments"], column]) / step
        return dist.TruncatedNormal(loc, np.sqrt(covariance) / step, low=own.low, high=own.high)

    assert misfit(joint, wrong) > 1e-2


# A posterior and an evidence by quadrature


def _grid():
    """Means, precisions and log prior weights of one component in one column."""
    mean, log_precision = np.linspace(-6, 6, 241), np.linspace(-6, 6, 241)
    m, p = np.meshgrid(mean, np.exp(log_precision), indexing="ij")
    log_prior = stats.wishart(5.0, 1 / 5).logpdf(p.ravel()).reshape(p.shape) + np.log(p)
    log_prior += stats.norm.logpdf(m, scale=1 / np.sqrt(0.5 * p))
    return m, p, log_prior + np.log((mean[1] - mean[0]) * (log_precision[1] - log_precision[0]))


def _log_weights(x, step):
    m, p, found = _grid()
    for cell in x:
        low, high = ((cell + side * step / 2 - m) * np.sqrt(p) for side in (-1, 1))
        found = found + np.log(np.maximum(special.ndtr(high) - special.ndtr(low), 1e-300)) - np.log(step)
    return m, p, found


FEW = np.array([0.0, 0.0, 0.0, 1.0, 2.0])
SAMPLERS = [
    ("gibbs", GaussianWishart),
    pytest.param("nuts", GaussianWishart, marks=pytest.mark.slow),
    pytest.param("gibbs", NormalGamma, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("method", "family"), SAMPLERS)
def test_samplers_find_the_posterior_of_quadrature(method, family):
    m, p, weights = _log_weights(FEW, 1.0)
    weights = np.exp(weights - special.logsumexp(weights))
    model = mixture([1.0], num_components=1, family=family)
    options = {"num_warmup": 200, "num_samples": 3000, "progress": False}
    tree = fit(model, FEW[:, None], method=method, **options)
    draws = tree.fit.values("posterior")
    for value, found in ((m, draws["locs"]), (np.log(p), np.log(draws["precisions"]))):
        found = found.reshape(4, 3000)
        error = np.sqrt(found.reshape(4, 30, 100).mean(-1).var() / 120)  # means of batches
        assert abs(found.mean() - (weights * value).sum()) < 4 * error
    assert ERRORS not in draws
    at_zero = special.ndtr(0.5 * np.sqrt(p) - m * np.sqrt(p)) - special.ndtr(
        -0.5 * np.sqrt(p) - m * np.sqrt(p)
    )
    assert float(log_density(tree, np.zeros((1, 1)))[0]) == pytest.approx(
        np.log((weights * at_zero).sum()), abs=0.05
    )


def test_the_evidence_of_small_steps_is_that_of_exact_cells():
    """Probabilities of intervals, less the log of the step for each cell."""
    x = FEW + np.array([0.1, -0.3, 0.2, 0.0, 0.4])
    components = mixture([1.0]).components
    with in_precision():
        statistics = components.features(jnp.asarray(x[:, None])).sum(0)
        exact = float(components.log_evidence(statistics))
    fine, coarse = (special.logsumexp(_log_weights(x, step)[2]) for step in (1e-3, 1.0))
    assert fine == pytest.approx(exact, abs=1e-3)
    assert abs(coarse - exact) > 0.05


def tempered_error(kernel, family, **options):
    """Error of the log evidence by tempering beside quadrature, and its standard error."""
    call = {"num_chains": 16, "num_warmup": 200, "num_samples": 400, "num_temperatures": 6, "progress": False}
    model = mixture([1.0], num_components=1, family=family)
    told = fit(model, FEW[:, None], method="tempered", kernel=kernel, **call | options).attrs
    assert told["why_no_evidence"] == ""
    return told["log_evidence"] - special.logsumexp(_log_weights(FEW, 1.0)[2]), told["log_evidence_se"]


@pytest.mark.parametrize(("kernel", "family"), SAMPLERS)
def test_tempering_finds_the_evidence_of_quadrature(kernel, family):
    """By Student's t of 15 degrees, false alarms one in a thousand."""
    error, standard_error = tempered_error(kernel, family)
    assert abs(error) < stats.t.isf(5e-4, 15) * standard_error and standard_error < 0.03


@pytest.mark.slow
def test_errors_drawn_without_the_power_are_noticed(monkeypatch):
    """Planted: the errors drawn at every temperature from what they are at the last."""

    def wrong(family, *given):
        return family.family.cell_given_others(*given)

    monkeypatch.setattr(powers.OfLikelihood, "cell_given_others", wrong)
    error, standard_error = tempered_error("gibbs", GaussianWishart, split_merge=1)  # compiled anew
    assert abs(error) > stats.t.isf(5e-4, 15) * standard_error


# Who takes it


def test_methods_that_sum_up_rows_refuse_it():
    x = np.round(np.random.default_rng(0).normal(size=(20, 2)))
    for method in ("vb", "em", "collapsed_gibbs", "svi"):
        with pytest.raises(
            ValueError,
            match=f"method '{method}' takes cells for exact.* use 'gibbs', .* or 'tempered'",
        ):
            fit(mixture([1.0, 1.0]), x, method=method)
    x[0, 0] = np.nan
    with pytest.raises(ValueError, match="GaussianWishart takes rounding with complete rows only"):
        fit(mixture([1.0, 1.0]), x, method="gibbs")


def test_components_that_take_cells_for_exact_refuse_it():
    with pytest.raises(ValueError, match="rounding"):
        mixture([1.0, -1.0])
    groups = (mixture([1.0, 1.0]).components, mixture([1.0]).components.exact())
    with pytest.raises(ValueError, match="family 0 has rounding, and cells of a Product are taken for exact"):
        Product(families=groups, columns=((0, 1), (2,)))


@pytest.mark.slow
def test_a_change_of_units_changes_nothing_but_units():
    x = np.round(np.random.default_rng(0).normal(size=(30, 2)) * 3)
    found = []
    for unit in (1.0, 1000.0):
        components = GaussianWishart(rounding=[unit, unit])
        model = Mixture(components, 2, 1.0, weight_prior="dirichlet")
        call = {"method": "gibbs", "num_warmup": 5, "num_samples": 5, "num_chains": 1, "progress": False}
        with pytest.warns(UserWarning, match="converged"):
            found.append(fit(model, x * unit, seed=0, **call))
    one, other = (tree.fit.values("posterior") for tree in found)
    assert (one["assignments"] == other["assignments"]).all()
    assert other["locs"] == pytest.approx(one["locs"] * 1000, rel=1e-6)
    rows = [tree.fit.values("log_likelihood")["log_likelihood"] for tree in found]
    assert rows[1] == pytest.approx(rows[0] - 2 * np.log(1000), rel=1e-6)


@pytest.mark.slow
def test_the_sampler_leaves_the_joint_invariant():
    verdict = geweke(mixture([4.0, 0.0]), gibbs.ALGORITHM, 5, key=jax.random.key(0), num_draws=4000)
    assert verdict.passed, str(verdict)


@pytest.mark.slow
def test_errors_drawn_from_their_prior_are_noticed(monkeypatch):
    """Planted: the errors drawn uniformly, as if rows and components said nothing of them."""

    def wrong(key, values, model, x):
        return {**values, ERRORS: jax.random.uniform(key, x.shape, x.dtype) - 0.5}

    monkeypatch.setattr(gibbs, "draw_errors", wrong)
    algorithm = gibbs.algorithm_of(lambda model: gibbs.blocks_of(model))  # none that was compiled before
    verdict = geweke(mixture([4.0, 0.0]), algorithm, 5, key=jax.random.key(0), num_draws=1000)
    assert not verdict.passed


@pytest.mark.filterwarnings("ignore:mixture by gibbs has not converged")
def test_densities_of_all_draws_are_made_where_they_are_asked_for(monkeypatch):
    """Each point of the lattice passes over the rows; independent columns need no lattice."""
    x = np.round(np.random.default_rng(0).normal(size=(20, 2)), 1)
    call = {"method": "gibbs", "num_samples": 4, "num_warmup": 2, "num_chains": 1, "progress": False}
    monkeypatch.setattr(weighted_rows, "ROW_OPERATIONS", 4 * len(x) * 3)
    lean = fit(mixture([0.1, 0.1]), x, **call)
    assert lean.attrs["left_out"] == "log_likelihood" and "mean_log_likelihood" not in summary(lean).index
    for ask in (leave_one_out, partial(prior_sensitivity, force=True)):
        with pytest.raises(ValueError, match=r"make it by inference.extend\(tree, 'log_likelihood'\)"):
            ask(lean)
    asked = fit(mixture([0.1, 0.1]), x, keep=("log_likelihood",), **call)
    assert "mean_log_likelihood" in summary(asked).index
    assert fit(mixture([0.1, 0.1], family=NormalGamma), x, **call).attrs["left_out"] == ""


@pytest.mark.parametrize("in_steps", [True, False])
def test_shares_of_cells_in_steps_are_averaged_over_few_draws_of_all_chains(in_steps, monkeypatch):
    """Four of twelve here, the first and the last among them; of exact cells all of them."""
    x = np.round(np.random.default_rng(0).normal(size=(8, 2)) * 2) / 2
    components = mixture([0.5, 0.5]).components
    model = Mixture(components if in_steps else components.exact(), 2, 1.0, weight_prior="dirichlet")
    options = dict(method="gibbs", num_chains=2, num_warmup=2, num_samples=6, progress=False)
    with pytest.warns(UserWarning, match="has not converged"):
        tree = fit(model, x, **options)
    whole = predict(tree, x, what="probabilities")
    seen, averaged = [], prediction._mean_over_draws

    def noted(function, draws, *rest):
        seen.append(np.asarray(draws["weights"]))
        return averaged(function, draws, *rest)

    monkeypatch.setattr(prediction, "MOST_SCORED", 4)
    monkeypatch.setattr(prediction, "_mean_over_draws", noted)
    found = predict(tree, x, what="probabilities")
    np.testing.assert_allclose(transform(tree.copy(), x), found, atol=1e-12)
    every = relabel(tree)["posterior"]["weights"].to_numpy().reshape(12, 2)
    for draws in seen:
        np.testing.assert_array_equal(draws, every[[0, 4, 7, 11]] if in_steps else every)
    assert len(seen) == 2 and np.allclose(whole, found) != in_steps
