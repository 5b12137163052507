"""Mixtures of full-covariance Gaussians with missing cells: EM, VB and Gibbs against what is exact."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from arviz_stats.base import array_stats
from numpyro import handlers
from scipy import stats
from scipy.special import gammaln, logsumexp

from inference import extend, fit, guide, load, log_density, model_of, predict, save
from inference.calibration import elbo_check
from inference.methods.mixture import vb_posterior
from tests.support.component_families import priors, rows
from zoo import Mixture
from zoo.conjugate import GaussianWishart, NormalGamma, Product
from zoo.intake.families import for_data

PRIOR = GaussianWishart(
    loc=[0.0, 0.5], mean_precision=0.5, scale_matrix=[[0.5, 0.1], [0.1, 0.8]], degrees_of_freedom=4.0
)
SMALL = np.array([[-1.0, -0.6], [-0.7, np.nan], [1.4, 2.1], [np.nan, 1.7]])


def clusters(per_cluster=40, missing=0.2, seed=0):
    """Rows of three clusters with correlated columns, and their clusters."""
    rng = np.random.default_rng(seed)
    covariance = [[1.0, 0.8, 0.3], [0.8, 1.0, 0.2], [0.3, 0.2, 1.0]]
    means = ([0, 0, 0], [6, 5, 0], [0, 7, 6])
    x = np.concatenate([rng.multivariate_normal(mean, covariance, per_cluster) for mean in means])
    x[rng.random(x.shape) < missing] = np.nan
    return x, np.repeat(np.arange(3), per_cluster)


def log_evidences_by_cell():
    """Log evidence of each labelling of the rows of SMALL into two components, by both cells' values.

    Returns:
        Labellings; log evidences by labelling and by the nodes of both missing cells; log weights of nodes.
    """
    nodes = np.linspace(-14.0, 16.0, 241)
    first, second = np.meshgrid(nodes, nodes, indexing="ij")
    filled = np.broadcast_to(SMALL, (first.size, *SMALL.shape)).copy()
    filled[:, 1, 1], filled[:, 3, 0] = first.ravel(), second.ravel()
    labellings = [labels for labels in itertools.product((0, 1), repeat=3)]
    labellings = [(0, *labels) for labels in labellings]  # the first row's label is free: both are alike
    found = []
    with jax.enable_x64(True):
        features = np.asarray(PRIOR.features(filled))
        for labels in labellings:
            member = np.eye(2)[list(labels)]
            statistics = np.einsum("ik,nif->nkf", member, features)
            found.append(np.asarray(PRIOR.log_evidence(statistics)).sum(axis=-1))
    return labellings, np.array(found), 2 * np.log(nodes[1] - nodes[0])


@pytest.fixture(scope="module")
def exact():
    """The labellings, their probabilities (concentration 1/2 of each component), and the log evidence."""
    labellings, by_cells, log_weight = log_evidences_by_cell()
    counts = np.array([np.bincount(labels, minlength=2) for labels in labellings])
    prior = (gammaln(0.5 + counts) - gammaln(0.5)).sum(axis=1) - gammaln(1.0 + 4) + gammaln(1.0)
    joint = prior + logsumexp(by_cells, axis=1) + log_weight
    return labellings, np.exp(joint - logsumexp(joint)), logsumexp(joint) + np.log(2.0)


def model():
    return Mixture(components=PRIOR, num_components=2, concentration=1.0)


@pytest.mark.slow
def test_gibbs_draws_labellings_as_often_as_they_are_probable(exact):
    """8 chains of 1500 draws, thinned; 8 labellings within 4.5 standard errors (false alarms below 1e-4).

    The planted law is that of rows whose missing cells are at the column means.
    """
    labellings, probability, _ = exact
    tree = fit(model(), SMALL, method="gibbs", num_chains=8, num_warmup=100, num_samples=1500, thinning=3)
    labels = tree["posterior"]["assignments"].values
    labels = np.where(labels[..., :1] == 1, 1 - labels, labels)  # the first row's cluster is called 0
    codes = labels[..., 1:] @ [4, 2, 1]
    shares = np.stack([(codes == code).mean(axis=1) for code in range(8)], axis=1)  # (chain, labelling)
    error = shares.std(axis=0, ddof=1) / np.sqrt(8) + 0.002
    assert np.abs((shares.mean(axis=0) - probability) / error).max() < 4.5
    filled = np.where(np.isnan(SMALL), np.nanmean(SMALL, axis=0), SMALL)
    with jax.enable_x64(True):
        features = np.asarray(PRIOR.features(filled))
        planted = [
            float(np.sum(PRIOR.log_evidence(np.einsum("ik,if->kf", np.eye(2)[list(own)], features))))
            for own in labellings
        ]
    counts = np.array([np.bincount(own, minlength=2) for own in labellings])
    planted = np.array(planted) + (gammaln(0.5 + counts) - gammaln(0.5)).sum(axis=1)
    planted = np.exp(planted - logsumexp(planted))
    assert np.abs((shares.mean(axis=0) - planted) / error).max() > 4.5


@pytest.mark.slow
def test_nuts_finds_labellings_as_probable_as_they_are(exact):
    """4 chains of 1500 draws: each labelling's mean probability given the draws, within 4.5 standard errors.

    False alarms below 1e-4 for 8 labellings. Planted: the draws' probabilities with missing cells at means.
    """
    labellings, probability, _ = exact
    tree = fit(model(), SMALL, method="nuts", num_chains=4, num_warmup=800, num_samples=1500)
    weights, locs, precisions = (tree["posterior"][name].values for name in ("weights", "locs", "precisions"))
    covariances = np.linalg.inv(precisions)

    def shares(x):
        """Probability of each labelling given each draw, the first row's cluster free."""
        terms = np.repeat(np.log(weights)[:, :, None, :], len(x), axis=2)  # chain, draw, row, component
        for row, cells in enumerate(x):
            seen = np.flatnonzero(~np.isnan(cells))
            gap = cells[seen] - locs[..., seen]
            own = covariances[..., seen[:, None], seen]
            squares = np.einsum("...i,...ij,...j->...", gap, np.linalg.inv(own), gap)
            terms[:, :, row] += -0.5 * (squares + np.linalg.slogdet(2 * np.pi * own)[1])
        probs = np.exp(terms - logsumexp(terms, axis=-1, keepdims=True))
        found = []
        for labels in labellings:
            both = (np.array(labels), 1 - np.array(labels))
            found.append(sum(np.prod(probs[:, :, np.arange(4), own], axis=-1) for own in both))
        return np.stack(found, axis=-1)

    def distance(draws):
        error = np.array([az_error(draws[..., place]) for place in range(8)])
        return np.abs((draws.mean(axis=(0, 1)) - probability) / (error + 1e-3)).max()

    assert distance(shares(SMALL)) < 4.5
    assert distance(shares(np.where(np.isnan(SMALL), np.nanmean(SMALL, axis=0), SMALL))) > 4.5


# --- every family with full matrices, against the program

FULL = ("GaussianWishart", "SharedGaussianWishart", "GaussianKnownCovariance", "GaussianKnownMean")


def incomplete(name, count):
    """Rows of a family, six cells of the two columns with real numbers missing, one row without either."""
    x = rows(name, count, seed=2)
    first, second = (0, 3) if name in ("Product", "LogGaussian") else (0, 1)
    x[[0, 2, 4], first], x[[0, 1, 7], second] = np.nan, np.nan
    return x


def with_drawn_cells(model, x):
    """The explicit program of complete rows, the missing cells a site with a flat density."""
    places = np.nonzero(np.isnan(x))
    complete = model.replaced(components=model.components.complete()).explicit

    def program(rows):
        law = dist.Normal(jnp.zeros(len(places[0])), 1.0).to_event(1)
        cells = numpyro.sample("cells", law)
        numpyro.factor("flat", -law.log_prob(cells))
        complete(jnp.asarray(rows).at[places].set(cells))

    return program


def guide_with_cells(tree, x, spread=1.0):
    """The fit's guide and q of each missing cell given its row's label, by one matrix a row.

    Its precision is that of the expected log density of a complete row; ``spread`` stretches its standard
    deviations, which is the planted fault.
    """
    model, stored = model_of(tree), {n: v.to_numpy() for n, v in tree["variational"].data_vars.items()}
    places, center = np.nonzero(np.isnan(x)), np.asarray(model.components.center)
    size = x.shape[1]

    def program(rows):
        drawn_labels = handlers.infer_config(guide(tree), lambda site: {"enumerate": None})
        labels = handlers.trace(drawn_labels).get_trace(rows)["assignments"]["value"]
        state = vb_posterior.q_from_variables(stored, model)
        coefficients = model.components.complete().expected_coefficients(state.components)
        row, column = np.triu_indices(size)
        halves = (
            jnp.zeros((len(coefficients), size, size)).at[:, row, column].set(coefficients[:, size + 1 :])
        )
        precision, linear = -(halves + jnp.swapaxes(halves, 1, 2)), coefficients[:, 1 : size + 1]
        loc, covariance = jnp.zeros(len(places[0])), jnp.zeros((len(places[0]), len(places[0])))
        for i in np.unique(places[0]):
            mine, lost, seen = np.flatnonzero(places[0] == i), np.isnan(x[i]), ~np.isnan(x[i])
            own, pull = precision[labels[i]], linear[labels[i]]
            inside = jnp.linalg.inv(own[lost][:, lost])
            mean = inside @ (pull[lost] - own[lost][:, seen] @ (x[i] - center)[seen]) + center[lost]
            loc = loc.at[mine].set(mean)
            covariance = covariance.at[np.ix_(mine, mine)].set(spread**2 * inside)
        numpyro.sample("cells", dist.MultivariateNormal(loc, covariance_matrix=covariance))

    return program


@pytest.mark.slow
@pytest.mark.parametrize("name", FULL)
def test_the_bound_is_the_monte_carlo_elbo_with_the_missing_cells_drawn(name):
    """False alarm rate 1e-4 a family. Planted: missing cells 1.5 times as wide."""
    x = incomplete(name, 9)
    model = Mixture(components=priors()[name], num_components=2, concentration=dist.Gamma(3.0, 1.0))
    tree = fit(model, x, tolerance=1e-11, num_samples=10)
    bound = float(tree["trace"]["objective"][-1])
    program = with_drawn_cells(model, x)
    call = {"key": jax.random.key(1), "num_particles": 20_000}
    check = elbo_check(program, guide_with_cells(tree, x), bound, (x,), **call)
    assert check.passed, check
    assert not elbo_check(program, guide_with_cells(tree, x, spread=1.5), bound, (x,), **call).passed


@pytest.mark.slow
@pytest.mark.parametrize("name", [*FULL, "Product", "LogNormal", "LogGaussian", "CategoricalDirichlet"])
@pytest.mark.parametrize("is_complete", [True, False])
def test_em_ends_where_the_program_has_its_likeliest_point(name, is_complete):
    """The gradient of the program's log likelihood is zero, and not where one component is 20 % off."""
    x = rows(name, 120, seed=2)
    if name == "Product":
        x[:60, [0, 3]] += 4.0  # clusters, else one binary column splits the rows and ends at its guard
    if name == "LogGaussian":
        x[:60, 0], x[:60, 3] = x[:60, 0] + 4.0, x[:60, 3] * np.exp(4.0)
    if not is_complete:
        numbers = (x != np.round(x)).any(axis=0) | (name == "CategoricalDirichlet")
        x[(np.random.default_rng(4).random(x.shape) < 0.2) & numbers] = np.nan
    model = Mixture(components=priors()[name], num_components=2)
    tree = fit(model, x, method="em", tolerance=1e-13, max_iterations=20_000, num_restarts=3)
    assert not tree.attrs["components_at_floor"]
    point = tree["posterior"].isel(chain=0, draw=0)
    fitted = for_data(model_of(tree), x)
    values = {site: point[site].to_numpy() for site in ("weights", *fitted.components.parameter_dims)}

    def moved_by(change):
        moved = {}
        for site, value in values.items():
            if site == "weights" or (site.startswith("probs") and "Dirichlet" in name):
                moved[site] = jax.nn.softmax(jnp.log(value) + change[site])
            elif "precision" in site and value.shape[-1] == value.shape[-2]:
                moved[site] = value + change[site] + jnp.swapaxes(change[site], -1, -2)
            else:
                moved[site] = value + change[site]
        return moved

    def log_likelihood(change):
        return jnp.sum(fitted.log_likelihood(moved_by(change), x))

    with jax.enable_x64(True):
        nowhere = jax.tree.map(jnp.zeros_like, values)
        best, slopes = jax.jit(jax.value_and_grad(log_likelihood))(nowhere)
        np.testing.assert_allclose(best, tree["trace"]["objective"][-1], rtol=1e-8)
        steepest = max(float(jnp.abs(s).max()) for s in jax.tree.leaves(slopes))
        first = next(iter(fitted.components.parameter_dims))
        off = nowhere | {first: nowhere[first].at[0].set(0.2 * jnp.abs(values[first][0]))}
        away = jax.jit(jax.grad(log_likelihood))(off)
        planted = max(float(jnp.abs(s).max()) for s in jax.tree.leaves(away))
    assert steepest < 1e-3 < 1e-1 < planted, (steepest, planted)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*has not converged")
@pytest.mark.parametrize("name", [*FULL[1:], "Product", "LogGaussian"])
def test_nuts_and_gibbs_agree_on_rows_with_missing_cells(name):
    """Mean log density of the observed cells of each row, by 4.5 errors (false alarms 1e-4 a family).

    Planted: Gibbs on the rows filled up with column means, whose rows with missing cells are further off.
    """
    x = incomplete(name, 14)
    model = Mixture(components=priors()[name], num_components=2, concentration=2.0)
    call = {"num_warmup": 500, "num_samples": 2000, "num_chains": 4, "seed": 5}
    filled = np.where(np.isnan(x), np.nanmean(x, axis=0), x)
    incomplete_model = model.replaced(components=model.components.with_patterns(x))

    def by_row(method, data):
        """Mean and error of the log density of each row's observed cells."""
        posterior = fit(model, data, method=method, **call)["posterior"]
        values = {site: posterior[site].to_numpy() for site in ("weights", *model.components.parameter_dims)}
        with jax.enable_x64(True):
            of_draw = jax.vmap(jax.vmap(lambda v: incomplete_model.log_likelihood(v, jnp.asarray(x))))
            draws = np.asarray(jax.jit(of_draw)(jax.tree.map(jnp.asarray, values)))
        return draws.mean(axis=(0, 1)), np.array([az_error(draws[..., place]) for place in range(len(x))])

    wanted, wanted_error = by_row("nuts", x)

    def distance(data):
        found, error = by_row("gibbs", data)
        return np.abs((found - wanted) / np.hypot(error, wanted_error)).max()

    right, planted = distance(x), distance(filled)
    assert right < 4.5 < planted, (right, planted)


def az_error(draws):
    """Monte Carlo standard error of the mean, from the effective sample size; draws by (chain, draw)."""
    return float(array_stats.mcse(draws, chain_axis=0, draw_axis=1, method="mean"))


@pytest.mark.slow
def test_the_bound_is_below_the_evidence_of_the_observed_cells(exact):
    """And not far; without the entropy of missing cells or their density it would lie elsewhere."""
    _, _, evidence = exact
    tree = fit(model(), SMALL, method="vb", tolerance=1e-10, num_samples=10)
    objective = tree["trace"]["objective"].values
    assert np.diff(objective).min() > -1e-9 * np.abs(objective).max()
    assert evidence - 3.0 < objective[-1] < evidence


def test_em_climbs_the_likelihood_of_the_observed_cells():
    x, truth = clusters()
    tree = fit(Mixture(num_components=3), x, method="em", tolerance=1e-9)
    objective, bound = (tree["trace"][name].values for name in ("objective", "bound"))
    slack = 1e-9 * np.abs(objective).max()
    assert np.diff(objective).min() > -slack
    assert (bound <= objective + slack).all() and (bound[1:] >= objective[:-1] - slack).all()
    point = tree["posterior"].isel(chain=0, draw=0)
    weights, locs, covariances = (point[name].values for name in ("weights", "locs", "covariances"))

    def log_likelihood(locs, covariances):
        total = 0.0
        for row in x:
            seen = ~np.isnan(row)
            if seen.any():
                parts = [
                    stats.multivariate_normal(m[seen], c[np.ix_(seen, seen)]).logpdf(row[seen])
                    for m, c in zip(locs, covariances, strict=True)
                ]
                total += logsumexp(np.log(weights) + parts)
        return total

    best = log_likelihood(locs, covariances)
    np.testing.assert_allclose(best, objective[-1], rtol=1e-8)
    for sign in (-1, 1):  # a maximum: it falls in every direction that is tried
        moved = locs + sign * 0.02 * np.array([[1.0, -1.0, 0.5]])
        assert log_likelihood(moved, covariances) < best
        assert log_likelihood(locs, covariances * (1 + sign * 0.02)) < best
    found = predict(tree, x).values
    assert max(np.mean(np.array(order)[found] == truth) for order in itertools.permutations(range(3))) > 0.9


@pytest.mark.slow
def test_complete_rows_take_the_same_path_as_ever():
    complete = clusters(missing=0.0)[0]
    fitted = fit(
        Mixture(num_components=3), complete, method="vb", num_samples=10, max_iterations=30, tolerance=0
    )
    almost = complete.copy()
    almost[0, 0] = np.nan
    other = fit(
        Mixture(num_components=3), almost, method="vb", num_samples=10, max_iterations=30, tolerance=0
    )
    gap = fitted["trace"]["objective"].values[-1] - other["trace"]["objective"].values[-1]
    assert 0 < abs(gap) < 6  # nats: one cell less
    assert "components_patterns" not in other["constant_data"]


@pytest.mark.slow
def test_a_fit_of_incomplete_rows_is_saved_and_asked(tmp_path):
    x, truth = clusters()
    components = Product((GaussianWishart(), NormalGamma()), ((0, 1), (2,)))
    tree = fit(Mixture(components=components, num_components=3), x, num_samples=20)
    save(tree, tmp_path / "fit.nc")
    again = load(tmp_path / "fit.nc")
    new = np.array([[0.1, np.nan, 0.2], [np.nan, np.nan, np.nan], [6.0, 5.0, 0.0]])
    assert np.isfinite(log_density(again, new)).all() and abs(float(log_density(again, new)[1])) < 1e-9
    known = predict(again, new)
    assert known[0] != known[2]
    replicated = extend(again, "posterior_predictive", "log_likelihood")
    assert np.isfinite(replicated["posterior_predictive"]["x"]).all()
    assert np.isfinite(replicated["log_likelihood"]["log_likelihood"]).all()


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"method": "collapsed_gibbs"}, r"use gibbs, or components=NormalGamma\(\)"),
        ({"moves": ("birth",)}, r"leave 'birth' out of moves, or take components=NormalGamma\(\)"),
        ({"batch_size": 20}, r"leave batch_size out, or take components=NormalGamma\(\)"),
    ],
)
def test_what_needs_complete_rows_says_what_to_do(keywords, message):
    x = clusters(10)[0]
    with pytest.raises(ValueError, match=message):
        fit(Mixture(num_components=3), x, **keywords)
