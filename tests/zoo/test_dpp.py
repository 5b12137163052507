"""Determinantal point processes against enumeration of all subsets; similarities of bases."""

from itertools import combinations, product

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats

from zoo.dpp import (
    KDPP,
    LEnsemble,
    _draw_eigenvectors,
    angular_similarity,
    greedy_subset,
    log_determinant,
    log_elementary_symmetric,
    marginal_kernel,
    repulsion_factor,
    subspace_similarity,
)

NUM_DRAWS = 20_000
SMALLEST_P = 1e-5  # of each chi-squared test: its false-alarm rate
SUBSETS = np.array(list(product([0, 1], repeat=5)))


@pytest.fixture(scope="module", autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def kernel():
    factor = np.random.default_rng(0).normal(size=(5, 5))
    return factor @ factor.T / 3.0


@pytest.fixture(scope="module")
def probabilities(kernel):
    """Of all 32 subsets, by plain determinants."""
    minors = np.array([np.linalg.det(kernel[np.ix_(s == 1, s == 1)]) if s.any() else 1.0 for s in SUBSETS])
    return minors / minors.sum()


@pytest.fixture(scope="module")
def bases():
    return np.stack([np.linalg.qr(m)[0] for m in np.random.default_rng(1).normal(size=(3, 9, 4))])


def chi_squared_p(draws, expected):
    """p-value of the counts of subsets; those expected fewer than 5 times count as one."""
    numbers = np.asarray(draws) @ (1 << np.arange(5)[::-1])
    counts, expected = np.bincount(numbers, minlength=32), expected * len(numbers)
    rare = expected < 5
    pooled = [np.append(values[~rare], values[rare].sum()) for values in (counts, expected)]
    keep = pooled[1] > 0
    if pooled[0][~keep].sum():
        return 0.0
    return scipy.stats.chisquare(*(values[keep] for values in pooled)).pvalue


def test_probabilities_are_those_of_enumeration(kernel, probabilities):
    law = LEnsemble(kernel)
    np.testing.assert_allclose(np.exp(law.log_prob(SUBSETS)), probabilities, atol=1e-12)
    assert np.linalg.det(kernel + np.eye(5)) == pytest.approx(
        sum(np.linalg.det(kernel[np.ix_(s == 1, s == 1)]) if s.any() else 1.0 for s in SUBSETS)
    )
    marginal = marginal_kernel(jnp.asarray(kernel))
    np.testing.assert_allclose(law.mean, probabilities @ SUBSETS, atol=1e-12)
    for i, j in combinations(range(5), 2):
        together = probabilities[(SUBSETS[:, i] == 1) & (SUBSETS[:, j] == 1)].sum()
        assert marginal[i, i] * marginal[j, j] - marginal[i, j] ** 2 == pytest.approx(together, abs=1e-12)
    np.testing.assert_allclose(law.variance, law.mean * (1 - law.mean))


def test_draws_have_these_probabilities(kernel, probabilities):
    draws = LEnsemble(kernel).sample(jax.random.key(0), (NUM_DRAWS,))
    assert chi_squared_p(draws, probabilities) > SMALLEST_P
    independent = dist.Bernoulli(LEnsemble(kernel).mean).sample(jax.random.key(0), (NUM_DRAWS,))
    assert chi_squared_p(independent, probabilities) < 1e-12  # planted: the same marginals, no repulsion


@pytest.mark.parametrize("size", [1, 3, 4])
def test_subsets_of_given_size(kernel, probabilities, size):
    law = KDPP(kernel, size)
    expected = np.where(SUBSETS.sum(axis=1) == size, probabilities, 0.0)
    expected = expected / expected.sum()
    np.testing.assert_allclose(np.exp(law.log_prob(SUBSETS)), expected, atol=1e-12)
    draws = law.sample(jax.random.key(1), (100, NUM_DRAWS // 100))
    assert draws.shape == (100, NUM_DRAWS // 100, 5)
    assert chi_squared_p(draws.reshape(-1, 5), expected) > SMALLEST_P


def test_elementary_symmetric_polynomials_by_enumeration():
    values = np.array([0.3, 2.0, 0.0, 1.5])
    with np.errstate(divide="ignore"):
        table = np.exp(log_elementary_symmetric(jnp.log(values), 3))
    for m, degree in product(range(5), range(4)):
        by_hand = sum(np.prod(chosen) for chosen in combinations(values[:m], degree))
        assert table[m, degree] == pytest.approx(by_hand, abs=1e-14)


@pytest.mark.slow
def test_a_kernel_of_low_rank_draws_no_more_items_than_its_rank():
    factor = np.random.default_rng(2).normal(size=(6, 2))
    low_rank = 50 * factor @ factor.T
    assert LEnsemble(low_rank).sample(jax.random.key(0), (500,)).sum(axis=1).max() == 2
    assert (KDPP(low_rank, 2).sample(jax.random.key(0), (500,)).sum(axis=1) == 2).all()
    assert log_determinant(jnp.ones((3, 3))) == -jnp.inf


def test_greedy_subset_takes_the_best_item_each_time(kernel):
    chosen = []
    for _ in range(4):
        rest = [i for i in range(5) if i not in chosen]
        chosen.append(max(rest, key=lambda i: np.linalg.det(kernel[np.ix_([*chosen, i], [*chosen, i])])))
    assert greedy_subset(kernel, 4) == chosen
    free = greedy_subset(kernel)
    grown = [np.linalg.det(kernel[np.ix_(free[:k], free[:k])]) for k in range(1, len(free) + 1)]
    assert np.all(np.diff([1.0, *grown]) > 0)
    rest = [i for i in range(5) if i not in free]
    assert all(np.linalg.det(kernel[np.ix_([*free, i], [*free, i])]) <= grown[-1] for i in rest)
    assert greedy_subset(np.diag([0.5, 3.0, 2.0])) == [1, 2]
    with pytest.raises(ValueError, match="at most the rank of the kernel, 1; got 2"):
        greedy_subset(np.ones((3, 3)), 2)


@pytest.mark.parametrize("scale", [0.02, 50.0])
def test_greedy_subsets_of_many_kernels_are_those_by_determinants(scale):
    """Twenty kernels whose gains are far from one, eight items each."""
    for own in range(20):
        factor = np.random.default_rng(own).normal(size=(8, 8))
        large, chosen = scale * factor @ factor.T, []
        for _ in range(6):
            sets = [[*chosen, i] for i in range(8) if i not in chosen]
            chosen = max(sets, key=lambda items: np.linalg.slogdet(large[np.ix_(items, items)])[1])
        assert greedy_subset(large, 6) == chosen


def test_three_forms_of_the_angular_similarity(bases):
    """(5) and (6) are the normalised one times a constant, so log determinants differ by K times its log."""
    rho, num_components, num_columns = 0.1, 3, 4
    cosines = np.einsum("kia,lib->klab", bases, bases)
    same = (cosines.sum(axis=(2, 3)), rho)
    np.testing.assert_allclose(
        angular_similarity(bases, rho, "equation_6"), np.exp(same[1] * same[0]), rtol=1e-12
    )
    squared = np.sum((bases[:, None, :, :, None] - bases[None, :, :, None, :]) ** 2, axis=(2, 3, 4))
    np.testing.assert_allclose(
        angular_similarity(bases, rho, "equation_5"), np.exp(-0.5 * rho * squared), rtol=1e-12
    )
    forms = {
        form: float(log_determinant(angular_similarity(bases, rho, form)))
        for form in ("normalised", "equation_5", "equation_6")
    }
    shift = num_components * rho * num_columns
    assert forms["equation_6"] - forms["normalised"] == pytest.approx(shift, abs=1e-10)
    assert forms["equation_5"] - forms["normalised"] == pytest.approx(-shift * (num_columns - 1), abs=1e-10)
    np.testing.assert_allclose(np.diagonal(angular_similarity(bases, rho)), 1.0, atol=1e-12)
    assert np.linalg.eigvalsh(angular_similarity(bases, rho)).min() > 0


def test_only_the_subspace_similarity_ignores_signs_and_rotations(bases):
    rotation = np.linalg.qr(np.random.default_rng(3).normal(size=(4, 4)))[0]
    turned = bases.copy()
    turned[1] = bases[1] @ rotation
    flipped = bases.copy()
    flipped[1, :, 0] *= -1
    for other in (turned, flipped):
        np.testing.assert_allclose(
            subspace_similarity(other, 0.1), subspace_similarity(bases, 0.1), atol=1e-12
        )
        assert np.abs(angular_similarity(other, 0.1) - angular_similarity(bases, 0.1)).max() > 0.01
    twice = np.stack([bases[0], bases[0] @ rotation])
    np.testing.assert_allclose(subspace_similarity(twice, 0.1), np.ones((2, 2)), atol=1e-12)
    opposite = np.stack([bases[0], -bases[0]])  # the same component, yet as unlike as two can be
    assert float(angular_similarity(opposite, 0.1)[0, 1]) == pytest.approx(np.exp(-0.8), abs=1e-12)
    orthogonal = np.eye(8).reshape(8, 2, 4).swapaxes(0, 1)
    np.testing.assert_allclose(subspace_similarity(orthogonal, 0.1)[0, 1], np.exp(-0.4), atol=1e-12)


def test_equation_9_as_printed_is_no_determinant(bases):
    """Unit diagonals beside the off-diagonals of (6), for two components that are the same."""
    off = float(angular_similarity(bases[[0, 0]], 0.1, "equation_6")[0, 1])
    assert 1 - off**2 == pytest.approx(1 - np.exp(0.8), abs=1e-12)
    assert 1 - off**2 < 0


def test_distributions_and_factor_stand_in_a_program(kernel, bases):
    def program(value=None):
        repulsion_factor("repulsion", subspace_similarity(bases, 0.1), 2.0)
        return numpyro.sample("subset", LEnsemble(kernel), obs=value)

    subset = np.array([1, 0, 1, 0, 0])
    density = numpyro.infer.util.log_density(program, (subset,), {}, {})[0]
    repulsion = 2.0 * np.linalg.slogdet(np.asarray(subspace_similarity(bases, 0.1)))[1]
    assert float(density) == pytest.approx(float(LEnsemble(kernel).log_prob(subset)) + repulsion, abs=1e-10)
    by_item = jax.jit(lambda L: KDPP(L, 2).log_prob(jnp.asarray(subset)))(jnp.asarray(kernel))
    assert float(by_item) == pytest.approx(float(KDPP(kernel, 2).log_prob(subset)), abs=1e-12)
    drawn = numpyro.handlers.trace(numpyro.handlers.seed(program, 0)).get_trace()["subset"]["value"]
    assert set(np.asarray(drawn)) <= {0, 1}


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: LEnsemble(np.ones((2, 3))), ValueError, r"must have shape \(items, items\); got \(2, 3\)"),
        (lambda: LEnsemble(np.array([[1.0, 2.0], [0.0, 1.0]])), ValueError, "must be symmetric"),
        (lambda: LEnsemble(np.array([[1.0, 2.0], [2.0, 1.0]])), ValueError, "positive semi-definite"),
        (lambda: LEnsemble(np.array([[1.0, np.nan], [np.nan, 1.0]])), ValueError, "must be finite"),
        (lambda: KDPP(np.eye(3), 4), ValueError, "between 1 and 3, the number of items; got 4"),
        (lambda: KDPP(np.eye(3), 1.5), TypeError, "size must be a whole number; got 1.5"),
        (lambda: KDPP(np.ones((3, 3)), 2), ValueError, "at most the rank of the kernel, 1; got 2"),
        (lambda: angular_similarity(np.eye(3)[None], 0.1, "eq5"), ValueError, "normalised, equation_5"),
    ],
)
def test_bad_input_gets_a_clear_error(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.needs_peer
def test_numbers_are_those_of_dppy():
    """DPPy, where it installs: marginal kernel and elementary symmetric polynomials."""
    dppy = pytest.importorskip("dppy.finite_dpps")
    factor = np.random.default_rng(4).normal(size=(5, 5))
    law = dppy.FiniteDPP("likelihood", L=factor @ factor.T)
    law.compute_K()
    np.testing.assert_allclose(law.K, marginal_kernel(jnp.asarray(law.L)), atol=1e-10)


def test_eigenvectors_are_taken_by_the_odds_of_enumeration(monkeypatch):
    """200 sets of given uniforms: a vector is taken where its own is below its conditional probability.

    Given which of those after it are taken, by enumeration of all sets of two of four values.
    """
    values, size = np.array([0.3, 2.0, 0.7, 1.5]), 2
    table = log_elementary_symmetric(jnp.log(values), size)
    sets = [set(chosen) for chosen in combinations(range(4), size)]
    weights = np.array([np.prod(values[list(chosen)]) for chosen in sets])
    monkeypatch.setattr(jax.random, "uniform", lambda key, shape, dtype: key)  # the uniforms themselves
    uniforms = np.random.default_rng(5).random((200, 4))
    found = jax.vmap(_draw_eigenvectors, (0, None, None))(jnp.asarray(uniforms), jnp.log(values), table)
    for own, taken in zip(uniforms, found, strict=True):
        left, expected = np.ones(len(sets), bool), np.zeros(4)
        for m in range(4)[::-1]:
            holds = np.array([m in chosen for chosen in sets])
            expected[m] = own[m] < weights[left & holds].sum() / weights[left].sum()
            left &= holds == bool(expected[m])
        np.testing.assert_array_equal(taken, expected)
