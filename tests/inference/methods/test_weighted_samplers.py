"""Samplers of weighted rows: each row's density, label or latents summed out, to the power of its weight."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from numpyro import handlers
from numpyro.infer import init_to_uniform
from scipy.special import gammaln, logsumexp, softmax

import zoo
from inference import fit
from inference.methods import methods_with_weights
from inference.methods.nuts_hmc import program
from inference.numerics.programs import latent_sites
from inference.numerics.weighted_rows import Rows
from tests.support.component_families import mixture, rows
from tests.support.log_joint import log_joint
from zoo.answers import start_of
from zoo.conjugate import PoissonGamma
from zoo.intake.families import for_data

pytestmark = pytest.mark.usefixtures("in_double")

rng = np.random.default_rng(5)
TABLE = rng.normal(size=(12, 3))
HOLES = np.where(rng.uniform(size=TABLE.shape) < 0.2, np.nan, TABLE)
HOLES[:, 0] = TABLE[:, 0]


# NUTS and HMC: the program


def programs():
    sticks = {"weight_prior": "stick_breaking", "free_last_stick": True}
    return {
        "Gaussian mixture": (mixture("GaussianWishart"), rows("GaussianWishart", 12)),
        "mixture of counts": (mixture("PoissonGamma"), rows("PoissonGamma", 12)),
        "free last stick": (mixture("PoissonGamma", **sticks), rows("PoissonGamma", 12)),
        "PPCA": (zoo.PPCA.from_data(TABLE, num_latents=1, loading_prior="gaussian"), TABLE),
        "PPCA with holes": (zoo.PPCA.from_data(HOLES, num_latents=1, loading_prior="ard"), HOLES),
    }


@pytest.mark.cases_by_default(1)
@pytest.mark.parametrize("name", programs())
def test_the_program_of_weighted_rows_is_that_of_their_copies(name):
    """At a draw of the parameters; fractional weights by linearity, and a weight left out is seen."""
    model, x = programs()[name]
    model = for_data(model, x)
    sites = latent_sites(model, x)
    values = start_of(model, jax.random.key(0), x) or _drawn(model, x)
    assert set(values) == set(sites)

    def joint(data):
        return float(log_joint(partial(program, model), values, data))

    whole = np.random.default_rng(1).integers(0, 4, len(x))
    copies = joint(jnp.asarray(np.repeat(np.asarray(x, float), whole, axis=0)))
    np.testing.assert_allclose(
        joint(Rows(jnp.asarray(x, float), jnp.asarray(whole, float))), copies, rtol=1e-11
    )
    assert abs(joint(jnp.asarray(x, float)) - copies) > 1  # planted: the weights ignored

    at = [joint(Rows(jnp.asarray(x, float), jnp.asarray(w * whole))) for w in (0.0, 0.5, 1.0)]
    np.testing.assert_allclose(at[1], 0.5 * (at[0] + at[2]), rtol=1e-11)


def _drawn(model, x):
    trace = _trace(model, x)
    return {name: trace[name]["value"] for name in latent_sites(model, x)}


def _trace(function, *arguments):
    """At a point that is drawn uniformly: flat priors have no draws."""
    seeded = handlers.substitute(handlers.seed(function, jax.random.key(3)), substitute_fn=init_to_uniform)
    return handlers.trace(seeded).get_trace(*arguments)


def test_programs_with_a_latent_of_each_row_take_no_weights():
    """Each model declares what its program does; a wrong declaration is found when the program runs."""
    cells = (rng.uniform(size=(9, 4)) < 0.5).astype(float)
    for model, x in ((zoo.PPCA(num_latents=1), TABLE), (zoo.EPCA.from_data(cells, num_latents=1), cells)):
        trace = _trace(model.from_data(x, num_latents=1), x).values()
        latent = [site for site in trace if site["type"] == "sample" and not site["is_observed"]]
        plates = {frame.name for site in latent for frame in site["cond_indep_stack"]}
        assert model.answers.weighs_rows == ("observations" not in plates)
        assert ("nuts" in methods_with_weights(model)) == model.answers.weighs_rows
    with pytest.raises(ValueError, match="method 'nuts' of epca does not take sample_weight: leave it out"):
        fit(zoo.EPCA(family="bernoulli", num_latents=1), cells, method="nuts", sample_weight=np.ones(9))
    with pytest.raises(ValueError, match="the program draws latents of each"):
        model = zoo.EPCA.from_data(cells, num_latents=1)
        _trace(program, model, Rows(cells, np.ones(9)))


# Gibbs: labels of copies, by enumeration

COUNTS = np.array([1.0, 4.0, 5.0, 12.0, 30.0])
WEIGHT = np.array([2, 1, 3, 1, 0])
SHAPE, RATE, ALPHA = 2.0, 0.3, 1.0


def _exact(x, power):
    """E[sum_k pi_k rate_k] and E[sum_k pi_k^2] of two components, by all labels of rows x to a power."""
    logs, firsts, seconds = [], [], []
    for labels in itertools.product((0, 1), repeat=len(x)):
        at = np.arange(2)[:, None] == np.array(labels)
        number, total = at @ power, at @ (power * x)
        weights = 0.5 * ALPHA + number
        shape, rate = SHAPE + total, RATE + number
        logs.append(np.sum(gammaln(weights) + gammaln(shape) - shape * np.log(rate)))
        firsts.append(weights @ (shape / rate) / weights.sum())
        seconds.append(weights @ (weights + 1) / (weights.sum() * (weights.sum() + 1)))
    share = softmax(logs)
    return np.array([share @ firsts, share @ seconds])


def _z(tree, truth):
    posterior = tree["posterior"]
    pi, rate = posterior["weights"].to_numpy(), posterior["rates"].to_numpy()[..., 0]
    draws = np.stack([np.sum(pi * rate, -1), np.sum(pi**2, -1)])
    batches = draws.reshape(2, -1, 100).mean(-1)
    return (batches.mean(-1) - truth) / (batches.std(-1, ddof=1) / np.sqrt(batches.shape[1]))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["gibbs", pytest.param("nuts", marks=pytest.mark.slow)])
def test_the_posterior_of_weighted_rows_is_that_by_enumeration(method):
    """All labels of seven copies. Two z of 80 batch means each below 4.5: a false alarm in 30 000 runs.

    Planted, and the other reading of a weight: one label for all copies of a row.
    """
    model = zoo.Mixture(PoissonGamma([SHAPE], [RATE]), num_components=2, concentration=ALPHA)
    copies = _exact(np.repeat(COUNTS, WEIGHT), np.ones(WEIGHT.sum()))
    call = {"num_chains": 4, "num_warmup": 200, "num_samples": 2000, "sample_weight": WEIGHT}
    tree = fit(model, COUNTS[:, None], method=method, **call)
    assert np.abs(_z(tree, copies)).max() < 4.5
    held = WEIGHT > 0
    shared = _exact(COUNTS[held], WEIGHT[held])
    assert np.abs(_z(tree, shared)).max() > 9


def test_one_label_for_all_copies_is_no_power_of_the_density():
    a = np.log([0.3, 0.2])
    assert 2 * logsumexp(a) > logsumexp(2 * a)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*has not converged")
def test_labels_of_a_weighted_fit_are_of_its_rows():
    """Rows of weight zero too; from a former fit; sparse counts."""
    x = rows("MultinomialDirichlet", 8)
    weight = np.array([0, 2, 1, 0, 3, 1, 1, 2])
    call = {"method": "gibbs", "num_chains": 2, "num_warmup": 5, "num_samples": 6, "sample_weight": weight}
    model = mixture("MultinomialDirichlet")
    tree = fit(model, x, **call)
    sparse = fit(model, scipy.sparse.csr_array(x), **call)
    for fitted in (tree, sparse, fit(model, x, init=tree, **call)):
        labels = fitted["posterior"]["assignments"]
        assert labels.dims == ("chain", "draw", "observation") and labels.shape == (2, 6, 8)
        assert 0 <= labels.min() and labels.max() < model.num_components
        np.testing.assert_array_equal(fitted["constant_data"]["sample_weight"], weight)
        assert fitted["log_likelihood"]["log_likelihood"].shape == (2, 6, 8)
    np.testing.assert_allclose(tree["sample_stats"]["lp"], sparse["sample_stats"]["lp"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["GaussianWishart", "NormalGamma"])
def test_gibbs_and_nuts_agree_on_weighted_rows_with_holes(name):
    """The log likelihood of the weighted rows; its z below 4.5, false alarm 7e-6 a family."""
    x = rows(name, 24).astype(float)
    x[::7, 1] = np.nan
    weight = np.random.default_rng(2).integers(0, 3, 24)
    model = mixture(name, concentration=1.0)
    means = []
    for method in ("gibbs", "nuts"):
        tree = fit(model, x, method=method, num_chains=4, num_samples=1500, sample_weight=weight)
        total = tree["log_likelihood"]["log_likelihood"].to_numpy() @ weight
        batches = total.reshape(-1, 100).mean(-1)
        means.append((batches.mean(), batches.std(ddof=1) / np.sqrt(batches.size)))
    (gibbs, own), (nuts, other) = means
    assert abs(gibbs - nuts) < 4.5 * np.hypot(own, other), means


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (0.5, r"gibbs takes whole numbers as sample_weight, .*; row 2 has 0\.5: use method='nuts'"),
        (1e14, r"weights that add up to 1e\+14 make .* GiB of them, more than this machine has"),
    ],
)
def test_weights_that_make_no_copies_are_refused_before_any_is_made(weight, message):
    x, weights = np.random.default_rng(0).normal(size=(20, 2)), np.ones(20)
    weights[2] = weight
    with pytest.raises(ValueError, match=message):
        fit(zoo.Mixture(num_components=2), x, method="gibbs", sample_weight=weights)
