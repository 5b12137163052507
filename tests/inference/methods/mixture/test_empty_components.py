"""Components without rows are integrated out of the log prior: by its identity, by hand, and in a fit."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from inference import extend, fit
from inference.numerics.programs import log_prior
from zoo import Mixture
from zoo.conjugate import GaussianWishart

pytestmark = pytest.mark.usefixtures("in_double")

X = np.array([[-1.3], [-0.9], [0.4], [1.6], [2.2]])
LABELS = np.array([0, 0, 2, 2, 2])


def mixture(weight_prior, **fields):
    fields = {"num_components": 5, "concentration": dist.Gamma(2.0, 1.0)} | fields
    return Mixture(GaussianWishart([0.0], 0.3, [[0.7]], 2.5), weight_prior=weight_prior, **fields)


def values_of(weight_prior, seed=0):
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(5))
    own = {"weights": weights} if weight_prior == "dirichlet" else {"stick_decays": rng.exponential(size=4)}
    return own | {
        "concentration": np.array(0.7),
        "precisions": rng.gamma(2.0, size=(5, 1, 1)),
        "locs": rng.normal(size=(5, 1)),
        "assignments": LABELS,
    }


def of_occupied(values, weight_prior, prior):
    """The density by hand, of two of five components."""
    kept, alpha = [0, 2], float(values["concentration"])
    total = float(dist.Gamma(2.0, 1.0).log_prob(alpha))
    for k in kept:
        precision, loc = values["precisions"][k], values["locs"][k]
        total += float(dist.Wishart(prior.degrees_of_freedom, prior.scale_matrix).log_prob(precision))
        total += float(dist.Normal(0.0, 1 / np.sqrt(0.3 * precision[0, 0])).log_prob(loc[0]))
    if weight_prior == "dirichlet":
        lumped = np.append(values["weights"][kept], values["weights"][[1, 3, 4]].sum())
        return total + float(dist.Dirichlet(np.array([1.0, 1.0, 3.0]) * alpha / 5).log_prob(lumped))
    return total + float(dist.Exponential(alpha).log_prob(values["stick_decays"][:3]).sum())


@pytest.mark.parametrize("weight_prior", ["dirichlet", "stick_breaking"])
def test_the_prior_is_that_of_components_with_rows(weight_prior):
    """To 1e-11; with the terms of the others it is off by more than a nat."""
    model, values = mixture(weight_prior), values_of(weight_prior)
    given = {name: jnp.asarray(value) for name, value in values.items()}
    wanted = of_occupied(values, weight_prior, model.components)
    assert float(log_prior(model, given, X)) == pytest.approx(wanted, abs=1e-11)
    every = given | {"assignments": jnp.arange(5)}
    assert abs(float(log_prior(model, every, X)) - wanted) > 1.0


@pytest.mark.parametrize("weight_prior", ["dirichlet", "stick_breaking"])
def test_what_an_empty_component_is_says_nothing(weight_prior):
    model, values = mixture(weight_prior), values_of(weight_prior)
    other = {name: np.array(value) for name, value in values.items()}
    other["locs"][4], other["precisions"][4] = 1e4, 1e-6
    if weight_prior == "stick_breaking":
        other["stick_decays"][3] = 50.0
    both = [
        float(log_prior(model, {n: jnp.asarray(v) for n, v in own.items()}, X)) for own in (values, other)
    ]
    assert both[0] == both[1]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:mixture by gibbs has not converged")
def test_a_fit_says_so_and_has_the_same_prior_later():
    """The log joint's spread is that of a few components, not of thirty draws from the prior."""
    x = np.concatenate([X - 4, X, X + 4])
    model = mixture("dirichlet", num_components=30)
    tree = fit(model, x, method="gibbs", num_chains=2, num_warmup=100, num_samples=100, progress=False)
    lp = tree["sample_stats"]["lp"]
    assert lp.attrs["components_without_rows"] == "integrated out"
    likelihood = tree["log_likelihood"]["log_likelihood"].sum("observation")
    again = extend(tree, "log_prior")["log_prior"]["log_prior"]
    np.testing.assert_allclose((lp - likelihood).values, again.values, rtol=1e-9)
    np.testing.assert_allclose(tree["trace"]["objective"].values[:, 100:], lp.values, rtol=1e-9)
    assert float(lp.std()) < 20
