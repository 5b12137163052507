"""Weights: sums, expectations and normalisers of both priors."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.scipy.special import gammaln
from scipy import integrate, special, stats
from scipy.special import digamma

from zoo.dirichlet_process import (
    BetaDecay,
    DirichletAllocation,
    StickBreaking,
    compact_labels,
    generalised_dirichlet_mean,
    log_stick_weights,
)

pytestmark = pytest.mark.usefixtures("in_double")


def test_stick_weights_sum_to_one_unless_the_last_stick_is_free():
    fractions = jax.random.uniform(jax.random.key(0), (6,))
    assert np.isclose(jnp.exp(log_stick_weights(fractions, 7)).sum(), 1.0, rtol=1e-14)
    assert jnp.exp(log_stick_weights(fractions, 6)).sum() < 1.0
    assert np.isfinite(log_stick_weights(jnp.array([0.0, 1.0]), 3)).all()


@pytest.mark.cases_by_default(1)
@pytest.mark.parametrize(
    "weight_prior", [DirichletAllocation(4), StickBreaking(4), StickBreaking(4, free_last_stick=True)]
)
def test_expectations_are_those_of_draws(weight_prior):
    """50 000 draws, 5 standard errors: false alarms below 1e-5 for the 8 comparisons of a case."""
    posterior = weight_prior.posterior(jnp.array([3.0, 0.5, 7.0, 1.0]), 1.7)
    draws = posterior.sample(jax.random.key(1), (50_000,))
    log_weights = jax.vmap(lambda value: weight_prior.log_weights({weight_prior.site: value}))(draws)
    for values, expected in (
        (log_weights, weight_prior.expected_log_weights(posterior)),
        (jnp.exp(log_weights), weight_prior.expected_weights(posterior)),
    ):
        z = (values.mean(axis=0) - expected) / (values.std(axis=0) / np.sqrt(50_000))
        assert np.abs(z).max() < 5


@pytest.mark.parametrize(
    "weights", [DirichletAllocation(4), StickBreaking(4), StickBreaking(4, free_last_stick=True)]
)
def test_expectations_and_normalisers_are_those_of_scipy(weights):
    """Of log weights and of the kernels, at few and many rows."""
    counts, alpha = np.array([3.0, 0.5, 7.0, 0.02]), 1.7
    q = weights.posterior(jnp.asarray(counts), alpha)
    if not weights.has_sticks:
        a = counts + alpha / 4
        logs, kernel = digamma(a) - digamma(a.sum()), special.gammaln(a).sum() - special.gammaln(a.sum())
    else:
        tails = np.array([7.52, 7.02, 0.02, 0.0])[: weights.num_sticks]
        a, b = 1 + counts[: weights.num_sticks], alpha + tails
        taken, left = digamma(a) - digamma(a + b), digamma(b) - digamma(a + b)
        logs = [taken[j] + left[:j].sum() if j < len(taken) else left.sum() for j in range(4)]
        kernel = special.betaln(a, b).sum()
    np.testing.assert_allclose(weights.expected_log_weights(q), logs, rtol=1e-10)
    np.testing.assert_allclose(weights.log_normaliser(q), kernel, rtol=1e-10)


def test_the_decay_of_a_stick_is_minus_the_log_of_what_a_beta_variable_leaves():
    """Its density by the change of variables, its mean by quadrature, its draws by their distribution."""
    a, b, decay = 1.8, 1.6, np.array([0.01, 0.4, 3.0])
    law = BetaDecay(a, b)
    by_hand = stats.beta(a, b).logpdf(-np.expm1(-decay)) - decay
    np.testing.assert_allclose(law.log_prob(jnp.asarray(decay)), by_hand, rtol=1e-9)
    mean = integrate.quad(lambda e: e * np.exp(stats.beta(a, b).logpdf(-np.expm1(-e)) - e), 0, 30)[0]
    np.testing.assert_allclose(law.mean, mean, rtol=1e-7)
    draws = -np.expm1(-np.asarray(law.sample(jax.random.key(0), (5000,))))
    assert stats.kstest(draws, stats.beta(a, b).cdf).pvalue > 1e-5  # the rate of false alarms


def test_the_program_of_sticks_has_the_fractions_and_weights_of_its_decays():
    program = numpyro.handlers.seed(lambda: StickBreaking(4).sample(jnp.asarray(1.5)), 0)
    sites = numpyro.handlers.trace(program).get_trace()
    names = ("stick_decays", "stick_fractions", "weights")
    decays, fractions, weights = (np.asarray(sites[name]["value"]) for name in names)
    np.testing.assert_allclose(fractions, 1 - np.exp(-decays), rtol=1e-12)
    left = np.append(1.0, np.cumprod(1 - fractions))
    np.testing.assert_allclose(weights, np.append(fractions, 1.0) * left, rtol=1e-12)


def test_weights_of_empty_components_are_integrated_out():
    """A Dirichlet with the empty ones lumped; of sticks, those up to the last component with rows."""
    occupied, alpha, weights = (
        np.array([True, False, True, False, False]),
        2.3,
        np.array([0.3, 0.1, 0.4, 0.15, 0.05]),
    )
    prior = DirichletAllocation(5)
    log_prob = dist.Dirichlet(np.full(5, alpha / 5)).log_prob(weights)
    lumped = dist.Dirichlet(alpha * np.array([0.2, 0.2, 0.6])).log_prob(np.array([0.3, 0.4, 0.3]))
    given = jnp.asarray(weights), log_prob, alpha
    np.testing.assert_allclose(prior.log_density_of_occupied(*given, occupied), lumped, rtol=1e-10)
    np.testing.assert_allclose(prior.log_density_of_occupied(*given, np.full(5, True)), log_prob, rtol=1e-12)
    sticks = StickBreaking(5)
    of_sticks = jnp.array([0.1, 0.02, 0.003, 0.0004])
    found = sticks.log_density_of_occupied(of_sticks, of_sticks, alpha, jnp.asarray(occupied))
    np.testing.assert_allclose(found, 0.123, rtol=1e-12)


def test_sticks_given_counts_are_conjugate_over_all_labelings():
    """Sum over labels of p(labels) from the normalisers is one.

    The evidence of 3 rows in 3 components, 27 labelings.
    """
    alpha = 0.8
    for weight_prior, prior_normaliser in (
        (
            DirichletAllocation(3),
            DirichletAllocation(3).log_normaliser(dist.Dirichlet(jnp.full(3, alpha / 3))),
        ),
        (StickBreaking(3), -2 * jnp.log(alpha)),
    ):
        total = 0.0
        for labels in itertools.product(range(3), repeat=3):
            counts = jnp.bincount(jnp.array(labels), length=3).astype(float)
            total += jnp.exp(
                weight_prior.log_normaliser(weight_prior.posterior(counts, alpha)) - prior_normaliser
            )
        np.testing.assert_allclose(total, 1.0, rtol=1e-12)


def test_dirichlet_multinomial_evidence_is_the_printed_one():
    alpha, counts = 1.3, jnp.array([4.0, 0.0, 2.0])
    weight_prior = DirichletAllocation(3)
    ours = weight_prior.log_normaliser(weight_prior.posterior(counts, alpha)) - weight_prior.log_normaliser(
        dist.Dirichlet(jnp.full(3, alpha / 3))
    )
    printed = gammaln(alpha) - gammaln(alpha + 6) + jnp.sum(gammaln(alpha / 3 + counts) - gammaln(alpha / 3))
    np.testing.assert_allclose(ours, printed, rtol=1e-12)


def test_mean_weights_of_sticks_are_the_generalised_dirichlet_mean():
    """Yu (2006), (3.21), with a leading factor of one for the last component."""
    posterior = StickBreaking(3).posterior(jnp.array([5.0, 2.0, 1.0]), 2.0)
    a, b = posterior.concentration1, posterior.concentration0
    printed = [
        a[0] / (a[0] + b[0]),
        a[1] / (a[1] + b[1]) * b[0] / (a[0] + b[0]),
        b[0] / (a[0] + b[0]) * b[1] / (a[1] + b[1]),
    ]
    np.testing.assert_allclose(StickBreaking(3).expected_weights(posterior), printed, rtol=1e-13)
    np.testing.assert_array_equal(b, [2.0 + 3.0, 2.0 + 1.0])  # the tail leaves out j itself


def generalised_dirichlet_log_density(weights, a, b):
    """Of Connor and Mosimann (1969), of the first M - 1 weights; the printed middle product runs too far."""
    left = 1.0 - jnp.cumsum(weights[..., :-2], axis=-1)
    return (
        jnp.sum((a - 1.0) * jnp.log(weights[..., :-1]), axis=-1)
        + jnp.sum((b[:-1] - a[1:] - b[1:]) * jnp.log(left), axis=-1)
        + (b[-1] - 1.0) * jnp.log(weights[..., -1])
        - jnp.sum(gammaln(a) + gammaln(b) - gammaln(a + b), axis=-1)
    )


def test_stick_weights_are_a_dirichlet_exactly_under_the_condition_of_connor_and_mosimann():
    """b_{j-1} = a_j + b_j: density equal to NumPyro's Dirichlet on the simplex; else it differs."""
    a = jnp.array([0.7, 2.0, 1.3])
    dirichlet = jnp.append(a, 0.9)
    b = jnp.cumsum(dirichlet[::-1])[::-1][1:]
    weights = dist.Dirichlet(jnp.ones(4)).sample(jax.random.key(0), (50,))
    np.testing.assert_allclose(
        generalised_dirichlet_log_density(weights, a, b),
        dist.Dirichlet(dirichlet).log_prob(weights),
        rtol=1e-10,
    )
    other = b.at[0].add(0.1)
    gap = generalised_dirichlet_log_density(weights, a, other) - dist.Dirichlet(dirichlet).log_prob(weights)
    assert jnp.abs(gap).max() > 0.05
    np.testing.assert_allclose(generalised_dirichlet_mean(a, b), dirichlet / dirichlet.sum(), rtol=1e-12)


def test_the_generalised_dirichlet_density_is_that_of_the_sticks():
    """Betas of the sticks times the Jacobian of the map to weights; any a, b. The printed form is not."""
    a, b = jnp.array([0.7, 2.0, 1.3]), jnp.array([1.1, 0.4, 3.0])
    weights = dist.Dirichlet(jnp.ones(4)).sample(jax.random.key(1), (50,))
    left = 1.0 - jnp.concatenate([jnp.zeros((50, 1)), jnp.cumsum(weights[:, :-2], axis=-1)], axis=-1)
    sticks = weights[:, :-1] / left
    expected = jnp.sum(dist.Beta(a, b).log_prob(sticks) - jnp.log(left), axis=-1)
    ours = generalised_dirichlet_log_density(weights, a, b)
    np.testing.assert_allclose(ours, expected, rtol=1e-9, atol=1e-9)
    printed = ours + (b[-1] - 1.0) * jnp.log(weights[:, -1])  # the product running to M - 1, as printed
    assert jnp.abs(printed - expected).max() > 1.0


def test_the_posterior_of_truncated_sticks_is_no_dirichlet():
    posterior = StickBreaking(4).posterior(jnp.array([5.0, 2.0, 1.0, 3.0]), 2.0)
    a, b = posterior.concentration1, posterior.concentration0
    np.testing.assert_allclose(a[1:] + b[1:], b[:-1] + 1.0)


def test_compact_labels_of_draws_on_the_host_are_those_of_each():
    labels = np.array([[0, 0, 3, 3], [1, 2, 0, 3], [2, 2, 2, 2]])
    found, number = compact_labels(labels, 5)
    assert found.dtype == np.uint8 and isinstance(found, np.ndarray)
    for own, compact, count in zip(labels, found, number, strict=True):
        expected = compact_labels(jnp.asarray(own), 5)
        np.testing.assert_array_equal(compact, expected[0])
        assert count == expected[1] == len(set(own.tolist()))
