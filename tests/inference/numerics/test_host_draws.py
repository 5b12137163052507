"""Draws of q by NumPy against the distributions' own moments and densities; bugs planted in what makes them.

Kolmogorov-Smirnov at p = 1e-5 for each number of a draw: at most 60 tests, so a right sampler fails with
probability 6e-4. Seeds are fixed.
"""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import special, stats

from inference.numerics import gamma_draws, host_draws
from zoo.dirichlet_process import BetaDecay
from zoo.exponential_family.natural_params import padded

NUMBER, LEVEL = 4000, 1e-5
MATRIX = np.array([[2.0, 0.6], [0.6, 0.5]])


def rng():
    return host_draws.generator(jax.random.key(3))


def level_of(sample, cdf):
    return stats.kstest(np.asarray(sample, float), cdf).pvalue


def chain(concentration, matrix, factor):
    """Sites of every kind; the location's law depends on the precision drawn before it."""
    with numpyro.plate("rows", 3):
        numpyro.sample("shares", dist.Dirichlet(concentration))
    numpyro.sample("rate", dist.Gamma(concentration, 2.0).to_event(1))
    numpyro.sample("variance", dist.InverseGamma(concentration, 3.0).to_event(1))
    numpyro.sample("fraction", dist.Beta(concentration, 0.4))
    numpyro.sample("decay", BetaDecay(concentration, jnp.asarray(0.4)))
    numpyro.sample("positive", dist.LogNormal(0.3, 0.5))
    precision = numpyro.sample("precision", dist.Wishart(4.0, matrix))
    loc = dist.MultivariateNormal(jnp.ones(2), precision_matrix=factor * precision)
    numpyro.sample("loc", loc)
    numpyro.sample("spread", padded(dist.Normal(1.0, 2.0).expand([2]).to_event(1), (0, 2), 3))


@pytest.fixture(scope="module")
def drawn():
    with jax.enable_x64(True):
        args = (np.array([0.3, 1.0, 2.5]), MATRIX, np.asarray(3.0))
        return jax.tree.map(np.asarray, host_draws.site_draws(rng(), chain, NUMBER, *args))


def levels(drawn):
    """p-values of sites whose distributions are known in closed form, by name."""
    a, found = np.array([0.3, 1.0, 2.5]), {}
    for k in range(3):
        found[f"shares {k}"] = level_of(drawn["shares"][:, 1, k], stats.beta(a[k], a.sum() - a[k]).cdf)
        found[f"rate {k}"] = level_of(drawn["rate"][:, k], stats.gamma(a[k], scale=0.5).cdf)
        found[f"variance {k}"] = level_of(drawn["variance"][:, k], stats.invgamma(a[k], scale=3.0).cdf)
        found[f"fraction {k}"] = level_of(drawn["fraction"][:, k], stats.beta(a[k], 0.4).cdf)
        found[f"decay {k}"] = level_of(-np.expm1(-drawn["decay"][:, k]), stats.beta(a[k], 0.4).cdf)
    found["positive"] = level_of(drawn["positive"], stats.lognorm(0.5, scale=np.exp(0.3)).cdf)
    for i in range(2):
        ratio = drawn["precision"][:, i, i] / MATRIX[i, i]
        found[f"precision {i}"] = level_of(ratio, stats.chi2(4).cdf)
    across = np.array([1.0, -2.0])  # u'Wu is a scaled chi-squared variable too, and tells the correlation
    form = np.einsum("i,nij,j->n", across, drawn["precision"], across) / (across @ MATRIX @ across)
    found["precision across"] = level_of(form, stats.chi2(4).cdf)
    away = drawn["loc"] - 1
    form = 3 * np.einsum("ni,nij,nj->n", away, drawn["precision"], away)
    found["loc"] = level_of(form, stats.chi2(2).cdf)
    found["spread"] = level_of(drawn["spread"][:, 2], stats.norm(1, 2).cdf)
    return found


def test_every_site_has_its_distribution(drawn):
    found = levels(drawn)
    assert min(found.values()) > LEVEL, found
    assert (drawn["spread"][:, 1] == 0).all() and drawn["shares"].shape == (NUMBER, 3, 3)
    for name in ("shares", "fraction", "decay", "rate"):
        assert (drawn[name] > 0).all()


def with_bug(right, wrong):
    """The module with a piece of its source, or else of the one that makes values of gammas, replaced."""
    scopes = {module: {"__name__": "planted"} for module in (host_draws, gamma_draws)}
    sources = {module: inspect.getsource(module) for module in scopes}
    planted = next(module for module, source in sources.items() if source.count(right) == 1)
    sources[planted] = sources[planted].replace(right, wrong)
    for module, source in sources.items():
        exec(source, scopes[module])
    scopes[host_draws] |= {name: scopes[gamma_draws][name] for name in ("gamma_parameters", "made_of_gammas")}
    return scopes[host_draws]


@pytest.mark.parametrize(
    ("right", "wrong", "site"),
    [
        ("(shape) / concentration, 0)", "(shape), 0)", "rate 0"),
        ("if isinstance(base, dist.Gamma) else -logs", "if True else -logs", "variance 1"),
        ("jnp.sqrt(2.0) * jnp.exp(0.5 * logs)", "jnp.exp(0.5 * logs)", "precision 1"),
        ("jnp.tril(normal, -1)", "0.0 * jnp.tril(normal, -1)", "precision across"),
        ("(own, shape) for own in both]", "(own, shape) for own in both[::-1]]", "decay 2"),
        ("base.loc + base.scale * normal", "base.loc + base.scale**2 * normal", "spread"),
    ],
    ids=[
        "boost by u",
        "inverse forgotten",
        "root of the halves",
        "diagonal",
        "sticks reversed",
        "variance for deviation",
    ],
)
def test_planted_bugs_are_found(right, wrong, site):
    with jax.enable_x64(True):
        args = (np.array([0.3, 1.0, 2.5]), MATRIX, np.asarray(3.0))
        scope = with_bug(right, wrong)
        found = levels(scope["site_draws"](rng(), chain, NUMBER, *args))
    assert found[site] < LEVEL, found


def test_blocks_of_draws_have_the_same_distribution(monkeypatch):
    """Blocks of 1500 draws, the last one cut."""
    monkeypatch.setattr(host_draws, "BLOCK_NUMBERS", 50_000)
    with jax.enable_x64(True):
        args = (np.array([0.3, 1.0, 2.5]), MATRIX, np.asarray(3.0))
        drawn = host_draws.site_draws(rng(), chain, NUMBER, *args)
    assert all(isinstance(value, np.ndarray) and len(value) == NUMBER for value in drawn.values())
    found = levels(drawn)
    assert min(found.values()) > LEVEL, found
    assert len(np.unique(drawn["positive"])) == NUMBER


def of_each(given, factor):
    """Sites whose laws differ by draw, a normal one given a gamma one among them."""
    with numpyro.plate("rows", 2):
        rate = numpyro.sample("rate", dist.Gamma(given["shape"], 2.0))
        numpyro.sample("loc", dist.Normal(given["mean"], factor / jnp.sqrt(rate)))
    numpyro.sample("shares", dist.Dirichlet(given["shape"] + 1.0))


def levels_of_each(draws):
    """p-values of values brought to one scale by the cdf of each draw's own law."""
    given = given_each()
    rates = stats.gamma.cdf(np.asarray(draws["rate"]), given["shape"], scale=0.5)
    away = stats.norm.cdf(
        np.asarray(draws["loc"]), given["mean"][:, None], 3.0 / np.sqrt(np.asarray(draws["rate"]))
    )
    shares = stats.beta.cdf(np.asarray(draws["shares"])[:, 0], *(given["shape"] + 1.0).T)
    return {"rate": level_of(rates[:, 0], "uniform"), "loc": level_of(away[:, 1], "uniform")} | {
        "shares": level_of(shares, "uniform")
    }


def given_each():
    number = np.arange(NUMBER)
    return {"shape": np.stack([0.2 + number % 7, 0.5 + number % 3], axis=1), "mean": 1.0 * (number % 11)}


@pytest.mark.parametrize("block", [2**23, 9000])
def test_draws_that_are_given_something_each(monkeypatch, block):
    """Three tests at p = 1e-5; in one block and in several, the last one filled up."""
    monkeypatch.setattr(host_draws, "BLOCK_NUMBERS", block)
    with jax.enable_x64(True):
        drawn = host_draws.site_draws(rng(), of_each, NUMBER, np.asarray(3.0), given=given_each())
    assert drawn["rate"].shape == (NUMBER, 2) and len(np.unique(drawn["rate"][:, 0])) == NUMBER
    found = levels_of_each(drawn)
    assert min(found.values()) > LEVEL, found


def test_draws_given_what_is_another_draws_are_found():
    """Planted: every draw is given what belongs to the one after it."""
    scope = with_bug("lambda leaf: leaf[place], given)", "lambda leaf: leaf[(place + 1) % len(leaf)], given)")
    with jax.enable_x64(True):
        drawn = scope["site_draws"](rng(), of_each, NUMBER, np.asarray(3.0), given=given_each())
    assert levels_of_each(drawn)["loc"] < LEVEL


@pytest.mark.parametrize("block", [2**23, 50])
def test_one_draw_of_each_dirichlet(monkeypatch, block):
    """One test at p = 1e-5 a case; a prior that is forgotten is found."""
    monkeypatch.setattr(host_draws, "BLOCK_NUMBERS", block)
    counts = np.arange(2 * 1000 * 2 * 3).reshape(2, 1000, 2, 3) % 5
    prior = np.array([0.3, 1.0, 2.5], np.float32)
    values = host_draws.dirichlet_of_each(rng(), counts, prior)
    assert values.shape == counts.shape and values.dtype == np.float32 and (values > 0).all()
    np.testing.assert_allclose(values.sum(axis=-1), 1, rtol=1e-5)
    for own, right in ((prior, True), (prior + 1, False)):
        a = own + counts
        levels = stats.beta.cdf(values[..., 0].astype(float), a[..., 0], a[..., 1:].sum(axis=-1))
        assert (level_of(levels.ravel(), "uniform") > LEVEL) == right


def dependent(_):
    shape = numpyro.sample("shape", dist.Gamma(2.0, 1.0))
    numpyro.sample("rate", dist.Gamma(shape, 1.0))


def unknown(_):
    numpyro.sample("loc", dist.Normal(0.0, 1.0))
    numpyro.sample("label", dist.Categorical(jnp.ones(3) / 3))


def test_what_cannot_be_drawn_so_is_refused():
    with pytest.raises(ValueError, match="'rate' is NaN, or depends on the value of another site"):
        host_draws.site_draws(rng(), dependent, 5, 0.0)
    with pytest.raises(TypeError, match="CategoricalProbs is not made of normal and gamma variables"):
        host_draws.site_draws(rng(), unknown, 5, 0.0)


def test_logs_of_small_shapes_do_not_underflow():
    logs = host_draws.log_gamma_draws(rng(), np.array([1e-4, 0.02, 40.0]), NUMBER)
    assert np.isfinite(logs).all() and logs.min() < -1e4
    low = np.exp(0.02 * np.minimum(logs[:, 1], -30) - special.gammaln(1.02))
    level = np.where(logs[:, 1] < -30, low, special.gammainc(0.02, np.exp(logs[:, 1])))
    assert stats.kstest(level, "uniform").pvalue > LEVEL
    values = host_draws.dirichlet_draws(rng(), np.full((2, 3), 1e-4, np.float32), 200)
    assert values.dtype == np.float32 and (values > 0).all()


def test_blocks_of_dirichlet_draws_have_the_same_distribution(monkeypatch):
    """Blocks of seven draws, the last one shorter."""
    monkeypatch.setattr(host_draws, "BLOCK_NUMBERS", 45)
    a = np.array([[0.3, 1.0, 2.5], [2.0, 0.5, 0.7]])
    values = host_draws.dirichlet_draws(rng(), a, NUMBER)
    assert values.shape == (NUMBER, 2, 3) and len(np.unique(values[:, 1, 2])) == NUMBER
    np.testing.assert_allclose(values.sum(axis=-1), 1, rtol=1e-12)
    for row, own in enumerate(a):
        for k in range(3):
            assert level_of(values[:, row, k], stats.beta(own[k], own.sum() - own[k]).cdf) > LEVEL


def test_weights_and_labels():
    """Chi-squared of the labels' counts at p = 1e-5; a label of probability zero never comes."""
    a = np.array([0.3, 2.0])
    decays = host_draws.weight_draws(rng(), BetaDecay(a, np.array([0.4, 3.0])), NUMBER)
    assert level_of(-np.expm1(-decays[:, 1]), stats.beta(2.0, 3.0).cdf) > LEVEL
    shares = host_draws.weight_draws(rng(), dist.Dirichlet(a), NUMBER)
    assert level_of(shares[:, 0], stats.beta(0.3, 2.0).cdf) > LEVEL
    probs = np.array([[0.2, 0.0, 0.5, 0.3], [0.0, 0.0, 0.0, 1.0], [2.0, 1.0, 1.0, 0.0]])
    labels = host_draws.label_draws(rng(), probs, NUMBER)
    assert labels.dtype == np.uint8 and labels.shape == (NUMBER, 3) and (labels[:, 1] == 3).all()
    for row in (0, 2):
        own, seen = probs[row] / probs[row].sum(), probs[row] > 0
        counts = np.bincount(labels[:, row], minlength=4)
        assert counts[~seen].sum() == 0
        assert stats.chisquare(counts[seen], NUMBER * own[seen]).pvalue > LEVEL
