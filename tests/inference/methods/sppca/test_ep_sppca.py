"""EM with expectation propagation for SPPCA's probit outputs: against quadrature, exact special cases."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from inference import extend, fit, log_density, predict
from inference.diagnostics.model_criticism import check_predictions, to_replicate
from inference.methods.linear_gaussian import em as linear_gaussian
from inference.methods.sppca import ep as ep_sppca
from inference.methods.sppca.ep import propagate
from inference.precision import in_precision
from zoo import SPPCA
from zoo.linear_gaussian.probit import orthant_moments


def rows_of(kind, num_rows=40, seed=0):
    """Rows of two latents, the last third unlabelled, one cell of x missing."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(num_rows, 2))
    x = z @ rng.normal(size=(2, 4)) + 0.7 * rng.normal(size=(num_rows, 4))
    x[1, 2] = np.nan
    u = z @ np.array([[1.2, -0.5, -0.7], [0.0, 1.0, -1.0]]) + rng.normal(size=(num_rows, 3))
    cut = num_rows * 2 // 3
    if kind == "classes":
        return x, [*np.array(["a", "b", "c"])[u[:cut].argmax(axis=1)].tolist(), *[None] * (num_rows - cut)]
    y = (u[:, : 1 if kind == "binary" else 2] > 0).astype(float)
    y[cut:] = np.nan
    return x, y


@pytest.mark.cases_by_default(1)
@pytest.mark.parametrize("size", [1, 2])
def test_propagation_against_quadrature(size):
    """One entry: exact. Two: the normalising constant within 0.01 nats and the moments within 0.02."""
    rng = np.random.default_rng(size)
    root = rng.normal(size=(20, size, size))
    covariance, mean = root @ np.swapaxes(root, 1, 2) + np.eye(size), rng.normal(size=(20, size))
    with in_precision():
        given = jnp.asarray(mean), jnp.asarray(covariance)
        got = jax.tree.map(np.asarray, jax.jit(jax.vmap(propagate))(*given))
        exact = jax.tree.map(np.asarray, jax.jit(jax.vmap(orthant_moments))(*given))
    within = (1e-12, 1e-12) if size == 1 else (0.01, 0.02)
    np.testing.assert_allclose(got.log_probability, exact.log_probability, atol=within[0])
    np.testing.assert_allclose(got.mean, exact.mean, atol=within[1])
    np.testing.assert_allclose(got.covariance, exact.covariance, atol=5 * within[1])


def test_gradient_of_the_constant_is_that_of_the_moments():
    """d log Z / d mu = Sigma^-1 (E d - mu): what makes the fixed points of EM stationary points."""
    mean, covariance = (
        np.array([-0.5, 0.7, 0.2]),
        np.array([[2.0, 0.8, 0.3], [0.8, 1.5, -0.2], [0.3, -0.2, 1.2]]),
    )
    with in_precision():
        spread = jnp.asarray(covariance)
        steps = 1e-4 * np.eye(3)
        constants = jax.jit(jax.vmap(lambda m: propagate(m, spread).log_probability))
        up, down = (np.asarray(constants(jnp.asarray(mean + s * steps))) for s in (1, -1))
        moment = np.asarray(propagate(jnp.asarray(mean), spread).mean)
    np.testing.assert_allclose((up - down) / 2e-4, np.linalg.solve(covariance, moment - mean), atol=1e-6)


@pytest.fixture(scope="module")
def binary():
    """A fit of one binary output with the flat prior."""
    x, y = rows_of("binary", 60)
    model = SPPCA(num_latents=2, output_likelihood="probit")
    return fit(model, x, y, tolerance=1e-9, max_iterations=3000), x, y


# Costly: a fit to its last digit, the only proof that EP's M-step is exact.
def test_one_output_is_exact_em(binary):
    """The objective never falls, is the likelihood of the fit, and the gradient at the end vanishes."""
    tree, x, y = binary
    objective = tree["trace"]["objective"].to_numpy()
    assert tree.attrs["method"] == "ep" and tree.attrs["converged"]
    assert (np.diff(objective) > -1e-12 * np.abs(objective[1:])).all()
    np.testing.assert_allclose(float(log_density(tree, x, y).sum()), objective[-1], rtol=1e-11)
    model = SPPCA.from_data(x, y, num_latents=2, output_likelihood="probit")
    names = ("loadings_x", "loadings_y", "loc_x", "loc_y", "noise_variance_x")
    with in_precision():
        values = {name: jnp.asarray(tree["variational"][name].to_numpy()) for name in names}
        data = jnp.asarray(x), jnp.asarray(y)
        slopes = jax.jit(jax.grad(lambda v: jnp.sum(model.log_likelihood(v, *data))))(values)
        largest = max(float(jnp.abs(slope).max()) for slope in slopes.values())
    assert largest < 0.02, largest


def test_labels_move_the_probabilities(binary):
    tree, x, y = binary
    known = ~np.isnan(y[:, 0])
    shares = np.asarray(predict(tree, x))[:, 0]
    assert ((shares > 0.5) == (y[:, 0] == 1))[known].mean() > 0.7
    np.testing.assert_array_equal(np.asarray(predict(tree, x, y))[known, 0], y[known, 0])


@pytest.mark.filterwarnings("ignore:.*has not converged")
@pytest.mark.parametrize("kind", ["binaries", "classes"])
def test_rows_are_replicated_with_latents_of_their_own(kind):
    """The posterior holds none: columns of x and y vary together as loadings say, not about fixed latents."""
    x, y = rows_of(kind, 18)
    tree = fit(SPPCA(2, output_likelihood="probit"), x, y, max_iterations=3)
    assert "latents" not in tree["posterior"] and check_predictions(tree).table.index.size
    many = extend(to_replicate(tree, 400), "posterior_predictive", seed=1)["posterior_predictive"]
    drawn = many["x"].to_numpy().reshape(-1, 4)
    at = {name: value.to_numpy()[0, 0] for name, value in tree["posterior"].items()}
    wanted = at["loadings_x"] @ at["loadings_x"].T + at["noise_variance_x"] * np.eye(4)
    deviation = np.sqrt(np.diag(wanted))
    error = 5 * np.outer(deviation, deviation) * np.sqrt(2 / len(drawn))  # false alarms below 1e-5
    assert (np.abs(np.cov(drawn.T) - wanted) < error).all()
    of_rows = many["x"].mean(("chain", "draw")).to_numpy() - at["loc_x"]  # planted: latents that stay
    assert (np.abs(of_rows) < 5 * deviation / np.sqrt(400)).all()
    assert set(np.unique(many["y"])) == {0.0, 1.0}


@pytest.mark.slow
def test_class_labels_are_fitted_and_predicted():
    """The whole way; probabilities of new rows sum to one and follow the labels."""
    x, y = rows_of("classes", 36)
    model = SPPCA(num_latents=2, output_likelihood="probit", loading_prior="gaussian")
    tree = fit(model, x, y, tolerance=1e-3)
    shares = predict(tree, x, what="classes")
    labelled = [i for i, label in enumerate(y) if label is not None]
    guess = shares["class"].to_numpy()[np.asarray(shares).argmax(axis=1)]
    np.testing.assert_allclose(shares.sum("class"), 1.0)
    assert np.mean([guess[i] == y[i] for i in labelled]) > 0.6
    assert tree["variational"]["latents"].shape == (36, 2)


@pytest.mark.slow
def test_the_evidence_of_class_labels_is_close_to_the_integral():
    """At the start, within 0.01 nats a row; planted: labels that are exchanged are not."""
    x, y = rows_of("classes", 18)
    model, data = SPPCA(num_latents=2, output_likelihood="probit", loading_prior="gaussian").encoded(x, y)
    data = tuple(np.asarray(part, float) for part in data)
    model = model.with_sizes_from(*data)
    rows = ep_sppca.prepare(model, data, None)
    with in_precision():
        from zoo.model import in_current_precision

        inner, rows = in_current_precision(model), in_current_precision(rows)

        @jax.jit
        def evidence_and_integrals(rows):
            state = ep_sppca.init(jax.random.key(0), inner, *rows)
            values = ep_sppca._values(state.parameters, inner)
            alone = inner.log_likelihood(values, rows[0])
            outputs = jnp.stack([rows[1], jnp.roll(rows[1], 1, axis=1)])
            whole = jax.lax.map(lambda y: inner.log_likelihood(values, rows[0], y), outputs)
            return state.moments.log_evidence, whole - alone

        found, (own, exchanged) = map(np.asarray, evidence_and_integrals(rows))
    assert np.abs(found - own).max() < 0.01 < np.abs(found - exchanged).max()


def test_the_m_step_is_stationary_under_priors():
    """Gradients of the expected log joint, cell by cell, at moments held, with missing cells of x and y.

    Loadings and means at the noise before, the noise at the new loadings: each is a maximum of its own.
    """
    x, y = rows_of("binaries", 18)
    model = SPPCA(num_latents=2, output_likelihood="probit", loading_prior="gaussian", loading_variance=0.3)
    model = model.replaced(loc_variance=0.5, noise_concentration=4.0, noise_rate=2.0)
    model = model.with_sizes_from(x, y)
    rows = ep_sppca.prepare(model, (x, y), None)
    known = ~np.isnan(np.concatenate([x, y], axis=1))
    with in_precision():
        from zoo.model import in_current_precision

        inner, rows = in_current_precision(model), in_current_precision(rows)
        state = ep_sppca.init(jax.random.key(0), inner, *rows)
        new, at_floor = ep_sppca._m_step(state, inner, *rows)
        z, spread, u, cross = map(jnp.asarray, state.moments[:4])
        cells = jnp.where(known, jnp.concatenate([jnp.nan_to_num(x), u], axis=1), 0.0)
        cross = jnp.concatenate([jnp.zeros((*x.shape, 2)), cross], axis=1)  # Cov[cell, z]

        def expected(parameters):
            loadings, loc, noise = parameters
            variance = jnp.concatenate([jnp.broadcast_to(noise, x.shape[1]), jnp.ones(y.shape[1])])
            away = (cells - z @ loadings.T - loc) ** 2 - 2 * jnp.einsum("ndk,dk->nd", cross, loadings)
            away += jnp.einsum("dk,nkl,dl->nd", loadings, spread, loadings)
            data = -0.5 * jnp.sum(known * (away / variance + jnp.log(variance)))
            return data + linear_gaussian.log_prior(parameters, ep_sppca._prior(inner))

        slope = jax.jit(jax.grad(expected))
        of_columns = slope(new._replace(noise_variance=state.parameters.noise_variance))
        of_noise = slope(new).noise_variance
        before = jax.tree.map(np.asarray, slope(state.parameters))
    assert not at_floor
    assert max(np.abs(part).max() for part in before) > 1
    for part in (of_columns.loadings, of_columns.loc, of_noise):
        np.testing.assert_allclose(part, 0.0, atol=1e-8)


def test_the_floor_of_the_noise_is_a_share_of_the_columns_variance():
    """In any unit of x: a floor above what the latents leave is taken as it is."""
    x, y = rows_of("binaries", 18)
    floors = []
    for unit in (1.0, 10.0):
        model = SPPCA(2, output_likelihood="probit", noise_floor=(0.9, 0.0)).with_sizes_from(unit * x, y)
        rows = ep_sppca.prepare(model, (unit * x, y), None)
        with in_precision():
            from zoo.model import in_current_precision

            inner, rows = in_current_precision(model), in_current_precision(rows)
            state = ep_sppca.init(jax.random.key(0), inner, *rows)
            new, at_floor = ep_sppca._m_step(state, inner, *rows)
        assert at_floor
        floors.append(new.noise_variance.item())
    variance = np.nanvar(x, axis=0).mean()
    np.testing.assert_allclose(floors, [0.9 * variance, 90.0 * variance], rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["binaries", "classes"])
def test_several_outputs_are_close_to_the_integral(kind):
    """The objective less the log prior is within 0.01 nats a labelled row of the integrated likelihood."""
    x, y = rows_of(kind)
    model = SPPCA(num_latents=2, output_likelihood="probit", loading_prior="gaussian")
    model, data = model.encoded(x, y)
    data = tuple(np.asarray(part, float) for part in data)
    model = model.with_sizes_from(*data)
    state, rows = None, ep_sppca.prepare(model, data, None)
    with in_precision():
        from zoo.model import in_current_precision

        inner, rows = in_current_precision(model), in_current_precision(rows)
        state = ep_sppca.init(jax.random.key(0), inner, *rows)
        run = jax.jit(ep_sppca.step)
        objectives = [float(state.objective)]
        for _ in range(15):
            state, info = run(jax.random.key(0), state, inner, *rows)
            objectives.append(float(info.objective))
        values = ep_sppca._values(state.parameters, inner)
        own = np.asarray(inner.log_likelihood(values, *rows[:2]) - inner.log_likelihood(values, rows[0]))
    assert (np.diff(objectives) >= 0).all() and objectives[-1] > objectives[0] + 0.1
    assert np.abs(np.asarray(state.moments.log_evidence) - own).max() < 0.01


@pytest.mark.slow
def test_separated_outputs_are_warned_of():
    """A column of x that decides the output: with a flat prior the loadings grow for ever."""
    rng = np.random.default_rng(0)
    z = np.concatenate([rng.normal(-4, 0.3, 15), rng.normal(4, 0.3, 15)])[:, None]
    x = z @ np.ones((1, 4)) + 0.1 * rng.normal(size=(30, 4))
    model = SPPCA(num_latents=1, output_likelihood="probit")
    with pytest.warns(UserWarning, match="the latents separate the outputs"):
        fit(model, x, (z > 0).astype(float), max_iterations=400, tolerance=1e-4)


@pytest.mark.parametrize("kind", ["binary", "two classes"])
def test_moments_of_rows_are_sums_over_a_grid_of_utilities(kind):
    """Of z and u given x and one decision, where propagation is exact; an unlabelled row keeps those given x.

    The grid's points on the boundary between the classes count half: its error is about 1e-4.
    """
    w = np.array([[1.1, -0.6]]) if kind == "binary" else np.array([[1.1, -0.6], [-0.4, 0.9]])
    size, loc = len(w), np.array([0.3, -0.5])[: len(w)]
    y = np.array([[1.0, 0.0], [0.0, 1.0], [np.nan, np.nan]])[:, :size]
    mean = np.array([[0.2, -0.7], [0.8, 0.5], [-0.3, 0.4]])
    covariance = np.array([[[0.9, 0.3], [0.3, 0.6]], [[0.5, -0.2], [-0.2, 0.8]], [[0.4, 0.1], [0.1, 0.7]]])
    model = SimpleNamespace(is_classes=size == 2)
    with in_precision():
        given = map(jnp.asarray, (mean, covariance, w, loc))
        found = jax.tree.map(np.asarray, ep_sppca._cut_moments(*given, model, jnp.asarray(y)))
    axis = np.arange(-400, 401) / 50
    u = np.stack(np.meshgrid(*[axis] * size, indexing="ij"), axis=-1).reshape(-1, size)
    for row, outputs in enumerate(y):
        m, s = mean[row], covariance[row]
        centre, spread = loc + w @ m, w @ s @ w.T + np.eye(size)
        sign = 2 * outputs[0] - 1
        decision = sign * (u[:, 0] if size == 1 else u[:, 0] - u[:, 1])
        share = stats.multivariate_normal(centre, spread).pdf(u) * 0.02**size
        share *= np.where(np.isnan(decision), 1.0, np.heaviside(decision, 0.5))
        total = share.sum()
        gain = s @ w.T @ np.linalg.inv(spread)
        z = m + (u - centre) @ gain.T  # E[z | u], about which z has a covariance that no u changes
        share /= total
        np.testing.assert_allclose(found.log_evidence[row], np.log(total), atol=3e-4)
        mean_u, mean_z = share @ u, share @ z
        np.testing.assert_allclose(found.utilities[row], mean_u, atol=3e-4)
        np.testing.assert_allclose(found.mean[row], mean_z, atol=3e-4)
        away = share[:, None] * (z - mean_z)
        np.testing.assert_allclose(found.cross[row], (u - mean_u).T @ away, atol=1e-3)
        inner = s - gain @ w @ s + (z - mean_z).T @ away
        np.testing.assert_allclose(found.covariance[row], inner, atol=1e-3)


def test_the_objective_is_the_density_of_x_the_evidence_of_y_and_the_log_prior(monkeypatch):
    """Each by SciPy; the flat prior has none. One cell of x is missing."""
    rng = np.random.default_rng(3)
    x, evidence = rng.normal(size=(4, 3)), np.array([-0.3, -0.9, -0.1, 0.0])
    x[1, 2] = np.nan
    loadings, loc, noise = rng.normal(size=(5, 2)), rng.normal(size=5), 0.4
    covariance, density = loadings[:3] @ loadings[:3].T + noise * np.eye(3), 0.0
    for row in x:
        seen = ~np.isnan(row)
        own = stats.multivariate_normal(loc[:3][seen], covariance[np.ix_(seen, seen)])
        density += own.logpdf(row[seen])
    prior = stats.norm(0, np.sqrt([[0.5], [0.5], [0.5], [2.0], [2.0]])).logpdf(loadings).sum()
    prior += stats.norm(0.2, np.sqrt([3.0, 3.0, 3.0, 4.0, 4.0])).logpdf(loc).sum()
    prior += stats.invgamma(2.5, scale=1.5).logpdf(noise)
    monkeypatch.setattr(ep_sppca, "row_moments", lambda *_: SimpleNamespace(log_evidence=evidence))
    of_prior = {"loading_variance": (0.5, 2.0), "loc_mean": 0.2, "loc_variance": (3.0, 4.0)}
    of_prior |= {"noise_concentration": 2.5, "noise_rate": 1.5, "loading_prior": "gaussian"}
    for fields, wanted in (({}, density + evidence.sum()), (of_prior, density + evidence.sum() + prior)):
        model = SPPCA(2, num_features=3, num_outputs=2, output_likelihood="probit", **fields)
        with in_precision():
            at = linear_gaussian.Parameters(jnp.asarray(loadings), jnp.asarray(loc), jnp.full(1, noise))
            state = ep_sppca._begin(at, model, jnp.asarray(x), None, None)
        assert float(state.objective) == pytest.approx(wanted, rel=1e-10)
        assert state.parameters is at and not state.at_floor


@pytest.mark.parametrize("kernel", [None, "linear"])
@pytest.mark.parametrize("acceleration", ["px", "none"])
def test_a_step_is_the_expanded_one_if_asked_for_and_is_shortened_until_it_lowers_nothing(
    kernel, acceleration, monkeypatch
):
    """Of one number, from 1: expanded to 9, plain to 5, half and a quarter of that; or none of them."""

    def at(number):
        value = jnp.reshape(jnp.asarray(number, float), 1)
        return linear_gaussian.Parameters(value, value, value)

    def begun(parameters, most):
        objective = jnp.where(parameters.loadings[0] <= most, 1.0, -1.0)
        return ep_sppca.EPState(parameters, jnp.zeros(1), objective, jnp.zeros((), bool))

    monkeypatch.setattr(ep_sppca, "_feature_m_step", lambda *_: (at(9), at(5), jnp.ones((), bool)))
    monkeypatch.setattr(ep_sppca, "_m_step", lambda *_: (at(5), jnp.ones((), bool)))
    monkeypatch.setattr(ep_sppca, "_expanded", lambda plain, *_: at(9))
    model = SimpleNamespace(kernel=kernel)
    first = 9.0 if acceleration == "px" else 5.0
    ends = ((9.5, first, 1), (5.5, 5.0, 1 + (first == 9)), (3.5, 3.0, 3), (2.5, 2.0, 4), (0.5, 1.0, 10))
    with in_precision():
        for most, wanted, trials in ends:
            monkeypatch.setattr(ep_sppca, "_begin", lambda proposed, *_, most=most: begun(proposed, most))
            before = begun(at(1), 1.5)._replace(objective=jnp.zeros(()))
            new, info = ep_sppca.step(None, before, model, None, None, acceleration=acceleration)
            assert [float(part[0]) for part in new.parameters] == [wanted] * 3
            assert int(info.num_trials) == trials and float(info.noise_variance_x) == wanted
            assert float(new.objective) == float(info.objective) == (wanted > 1)
            assert new.at_floor
