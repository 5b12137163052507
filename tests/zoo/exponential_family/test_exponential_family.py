"""One table of families: derivatives, normalisation, conjugate kernels, domains."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from inference.precision import in_precision
from zoo.exponential_family import (
    FAMILIES,
    Bernoulli,
    Binomial,
    ByColumn,
    Categorical,
    Exponential,
    GammaWithShape,
    Gaussian,
    NegativeBinomial,
    Ordinal,
    Poisson,
    as_family,
    families,
)
from zoo.exponential_family import family as family_module

CASES = {  # family, natural parameters, values of x, the same density by scipy
    "gaussian": (Gaussian(2.0), [-1.3, 0.4], [-2.0, 0.7], lambda x, t: stats.norm.logpdf(x, t, 2**0.5)),
    "bernoulli": (Bernoulli(), [-1.3, 0.4], [0.0, 1.0], lambda x, t: stats.bernoulli.logpmf(x, _expit(t))),
    "binomial": (Binomial(7), [-1.3, 0.4], [2.0, 7.0], lambda x, t: stats.binom.logpmf(x, 7, _expit(t))),
    "poisson": (Poisson(), [-1.3, 0.4], [0.0, 3.0], lambda x, t: stats.poisson.logpmf(x, np.exp(t))),
    "exponential": (
        Exponential(),
        [-1.3, -0.4],
        [0.2, 3.0],
        lambda x, t: stats.expon.logpdf(x, scale=-1 / t),
    ),
    "gamma": (
        GammaWithShape(2.5),
        [-1.3, -0.4],
        [0.2, 3.0],
        lambda x, t: stats.gamma.logpdf(x, 2.5, scale=-1 / t),
    ),
    "negative_binomial": (
        NegativeBinomial(2.5),
        [-1.3, -0.4],
        [0.0, 3.0],
        lambda x, t: stats.nbinom.logpmf(x, 2.5, -np.expm1(t)),
    ),
}
KERNELS = {  # where E[g'] = lam / nu
    "gaussian": (0.6, 1.5),
    "bernoulli": (0.6, 1.5),
    "binomial": (0.6, 1.5),
    "poisson": (0.6, 1.5),
    "exponential": (0.6, 1.5),
    "gamma": (0.6, 1.5),
    "negative_binomial": (0.6, 1.5),
}


def _expit(t):
    return 1 / (1 + np.exp(-t))


@pytest.mark.parametrize("name", CASES)
def test_the_expected_base_measure_is_the_sum_over_observed_cells(name):
    """By SciPy at theta: the log density less theta times the cell and the log-partition."""
    family, theta, x, reference = CASES[name]
    theta, x = np.array(theta), np.array(x)
    table = np.stack([x, x[::-1], [np.nan, x[0]]])
    of_cell = dict(zip(x, reference(x, theta), strict=True))
    with in_precision():
        a, phi = np.asarray(family.log_partition(jnp.asarray(theta))), float(family.dispersion)
        rest = {cell: of_cell[cell] - (cell * t - g) / phi for cell, t, g in zip(x, theta, a, strict=True)}
        expected = sum(rest[cell] for cell in table[~np.isnan(table)])
        found = float(family.expected_base_measure(jnp.asarray(table), 9.0, 9.0))
        assert found == pytest.approx(expected, rel=1e-10)
        if name == "gaussian":  # of unknown variance, the expectations are those that are given
            found = Gaussian(None).expected_base_measure(jnp.asarray(table), 1 / phi, np.log(phi))
            assert float(found) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("name", CASES)
def test_density_mean_and_variance(name):
    """The mean and variance are derivatives of the log-partition, by differences and by JAX."""
    family, theta, x, reference = CASES[name]
    theta, x = np.array(theta), np.array(x)
    with in_precision():
        found = np.asarray(family.log_density(jnp.asarray(theta), jnp.asarray(x)))
        step = 1e-5
        up, down = (family.log_partition(jnp.asarray(theta + s)) for s in (step, -step))
        by_jax = jax.vmap(jax.grad(jax.grad(family.log_partition)))(jnp.asarray(theta))
        mean, variance = family.mean(jnp.asarray(theta)), family.variance(jnp.asarray(theta))
        np.testing.assert_allclose((up - down) / (2 * step), mean, rtol=1e-6)
        np.testing.assert_allclose(by_jax * family.dispersion, variance, rtol=1e-9)
        np.testing.assert_allclose(family.natural(mean), theta, rtol=1e-9)
    np.testing.assert_allclose(found, reference(x, theta), rtol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_draws_have_that_mean_and_variance(name):
    """20 000 draws of two parameters; |z| < 5 for four numbers: a false alarm in 4e5 runs of a family."""
    family, theta, *_ = CASES[name]
    with in_precision():
        drawn = np.asarray(
            family.distribution(jnp.asarray(theta)).sample(jax.random.key(0), (20_000,)), np.float64
        )
        mean, variance = (
            np.asarray(family.mean(jnp.asarray(theta))),
            np.asarray(family.variance(jnp.asarray(theta))),
        )
    assert np.abs((drawn.mean(0) - mean) / np.sqrt(variance / len(drawn))).max() < 5
    squared = (drawn - mean) ** 2
    assert np.abs((squared.mean(0) - variance) / (squared.std(0) / len(drawn) ** 0.5)).max() < 5


@pytest.mark.parametrize("name", KERNELS)
def test_conjugate_kernel_is_normalised_where_it_says(name):
    """By quadrature: finite, and its mean of g' is lam / nu, which the printed exponents miss."""
    family, lam, nu = CASES[name][0], *KERNELS[name]
    assert family.kernel_is_proper(lam, nu) and family.kernel_is_bounded(lam, nu)
    ends = (-60.0, -1e-12) if family.theta_is_negative else (-60.0, 60.0)

    def density(theta):
        with in_precision():
            return float(jnp.exp(family.log_kernel(jnp.asarray(theta), lam, nu)))

    def weighted(theta):
        with in_precision():
            return density(theta) * float(family.mean(jnp.asarray(theta)))

    points = [-5.0, -1.0] if family.theta_is_negative else [-5.0, 0.0, 5.0]
    normaliser = integrate.quad(density, *ends, points=points, limit=200)[0]
    mean = integrate.quad(weighted, *ends, points=points, limit=200)[0] / normaliser
    np.testing.assert_allclose(mean, lam / nu, rtol=1e-6)


@pytest.mark.parametrize(
    ("family", "lam", "nu"),
    [
        (Gaussian(), 0.1, 0.0),
        (Bernoulli(), 0.0, 1.0),
        (Bernoulli(), 1.0, 1.0),
        (Binomial(3), 3.0, 1.0),
        (Poisson(), 0.0, 1.0),
        (Exponential(), 0.0, 1.0),
        (NegativeBinomial(), 0.0, 1.0),
    ],
)
def test_improper_kernels_are_known(family, lam, nu):
    assert not family.kernel_is_proper(lam, nu)


@pytest.mark.parametrize("cell", [0.0, 1.0])
def test_a_table_of_one_value_has_finite_natural_parameters_to_start_from(cell):
    """Guards against a start at infinity, from which no optimiser comes back."""
    for family in (Bernoulli(), Poisson(), NegativeBinomial(2.0), Binomial(1)):
        theta = np.asarray(family.natural_of_columns(np.full((4, 3), cell)))
        assert theta.shape == (3,) and np.isfinite(theta).all()
        assert not family.theta_is_negative or (theta < 0).all()


def test_probabilities_of_classes_and_levels_add_up():
    categorical, ordinal = Categorical(4), Ordinal(5)
    with in_precision():
        theta = jnp.asarray([[0.3, -1.0, 2.0]])
        total = sum(jnp.exp(categorical.log_density(theta, jnp.asarray([float(c)]))) for c in range(4))
        np.testing.assert_allclose(total, 1.0, rtol=1e-12)
        cuts = jnp.asarray([[-2.0, -0.5, 0.5, 1.5], [-1.0, 0.0, 0.1, 3.0]])
        theta = jnp.asarray([[0.3, -1.0]])
        levels = [ordinal.log_density_at(theta, jnp.full((1, 2), float(c)), cuts) for c in range(1, 6)]
        np.testing.assert_allclose(jnp.sum(jnp.exp(jnp.stack(levels)), axis=0), 1.0, rtol=1e-12)
        np.testing.assert_allclose(
            jnp.exp(jnp.stack(levels, -1)), ordinal.level_probs(theta, cuts), rtol=1e-9
        )
        far = ordinal.log_density_at(jnp.full((1, 2), 60.0), jnp.full((1, 2), 2.0), cuts)
        assert np.isfinite(far).all()  # a difference of sigmoids would be log 0


@pytest.mark.parametrize(
    ("family", "bad", "message"),
    [
        ("bernoulli", 0.5, "0 or 1; row 1, column 0 is 0.5"),
        ("poisson", -1.0, "whole numbers of at least 0; row 1, column 0 is -1"),
        ("exponential", -1.0, "numbers of at least 0; row 1, column 0 is -1"),
        ("gaussian", np.inf, "finite numbers; row 1, column 0 is inf"),
        ("ordinal", 6.0, "levels from 1 to 5; row 1, column 0 is 6"),
        ("categorical", 2.0, "classes numbered from 0 to 1; row 1, column 0 is 2"),
        ("binomial", 2.0, "whole numbers from 0 to 1; row 1, column 0 is 2"),
        ("negative_binomial", 1.5, "whole numbers of at least 0; row 1, column 0 is 1.5"),
    ],
)
def test_values_outside_the_domain_are_named(family, bad, message):
    good = 1.0
    with pytest.raises(ValueError, match=message):
        as_family(family).check(np.array([[good, np.nan], [bad, good]]))


def test_a_family_that_does_not_exist_is_named_with_those_that_do():
    with pytest.raises(ValueError, match="no family is called 'cauchy'; there are gaussian, bernoulli"):
        as_family("cauchy")
    assert set(FAMILIES) >= set(CASES)


CLOSED_FORMS = {
    "gaussian": (Gaussian(0.7), 1.3),
    "bernoulli": (Bernoulli(), 1.0),
    "binomial": (Binomial(3), 2.0),
    "poisson": (Poisson(), 4.0),
}


@pytest.mark.parametrize("name", CLOSED_FORMS)
def test_cell_terms_are_the_weighted_log_density_and_the_kernel_up_to_a_constant(name):
    with jax.enable_x64(True):
        family, cell = CLOSED_FORMS[name]
        theta, beta, weight, (lam, nu) = jnp.linspace(-4.0, 4.0, 17), 0.3, 0.8, (0.4, 1.1)
        terms = family.cell_terms(jnp.array([[cell], [jnp.nan]]), beta, jnp.array([lam, nu]), weight)
        for row, likelihood in ((0, weight * family.log_density(theta, cell)), (1, 0.0)):
            linear, precision, count, rate = (term[row, 0] for term in terms)
            found = linear * theta - precision * theta**2 / 2 - rate * jnp.exp(theta)
            found -= count * jnp.log(2 * jnp.cosh(theta / 2))
            away = found - likelihood - beta * family.log_kernel(theta, lam, nu)
            assert np.ptp(away) < 1e-12


@pytest.mark.parametrize("name", ["gaussian", "bernoulli", "binomial"])
def test_the_quadratic_bound_is_below_the_log_density_and_touches_it(name):
    with jax.enable_x64(True):
        family, cell = CLOSED_FORMS[name]
        theta, curve = jnp.linspace(-4.0, 4.0, 17), 1.5
        constant, slope, curvature = family.quadratic_bound(jnp.float64(cell), jnp.float64(curve))
        lacking = family.log_density(theta, cell) - (constant + slope * theta - curvature * theta**2 / 2)
        assert lacking.min() > -1e-12
        np.testing.assert_allclose(lacking[jnp.abs(theta) == curve], 0.0, atol=1e-12)
        assert (name == "gaussian") == bool(lacking.max() < 1e-12)
        assert (family.variance(theta) / family.dispersion**2).max() <= family.curvature_bound + 1e-12


def test_a_mixed_table_has_the_terms_of_each_column():
    with jax.enable_x64(True):
        table = ByColumn.of((Poisson(), Gaussian(0.7), Poisson(), Bernoulli()))
        x = jnp.array([[2.0, 0.3, 5.0, 1.0], [0.0, -1.0, jnp.nan, 0.0]])
        pairs = jnp.array([[0.2, 0.5], [0.1, 0.9], [0.7, 1.3], [0.4, 1.1]])  # a kernel of each column
        for given in ((), (0.3, pairs, 0.8)):
            found = table.cell_terms(x, *given)
            for column, family in enumerate((Poisson(), Gaussian(0.7), Poisson(), Bernoulli())):
                alone = (given[0], given[1][column], given[2]) if given else ()
                for term, own in zip(found, family.cell_terms(x[:, [column]], *alone), strict=True):
                    np.testing.assert_array_equal(term[:, [column]], own)
        assert table.log_partition_forms == {"exponential", "quadratic", "logistic"}
        whole = sum(f.expected_base_measure(x[:, c], 1.0, 0.0) for f, c in table.column_groups(4))
        np.testing.assert_allclose(table.expected_base_measure(x, 1.0, 0.0), whole)


def test_another_family_is_looked_for_where_a_cell_is_refused_alone(monkeypatch):
    """The search passes over the table several times; missing cells are no reason for it."""
    looked, suited = [], family_module._suited
    monkeypatch.setattr(family_module, "_suited", lambda *args: looked.append(1) or suited(*args))
    Bernoulli().check(np.array([[0.0, np.nan], [1.0, 1.0]]))
    assert not looked
    with pytest.raises(ValueError, match="family='poisson'"):
        Bernoulli().check(np.array([[0.0, np.nan], [1.0, 2.0]]))


def test_the_kernel_of_a_negative_binomial_is_that_of_a_beta_distribution():
    """Proper where both numbers of Beta(lam, r nu + 1) are positive, with r = 4 and nu about -1 / 4."""
    family = NegativeBinomial(4.0)
    assert family.kernel_is_proper(1.0, -0.2) and not family.kernel_is_proper(1.0, -0.3)
    assert not family.kernel_is_proper(0.0, 1.0)


def test_means_that_must_be_positive_fall_back_on_that_of_all_cells():
    """Of a column of zeros or without cells; one where all cells are zero."""
    x = np.array([[1.0, 0.0, np.nan], [3.0, 0.0, np.nan], [np.nan, 0.0, np.nan]])
    np.testing.assert_allclose(families._positive_means(x), [2.0, 0.8, 0.8])  # 4 over five cells
    np.testing.assert_allclose(families._positive_means(np.zeros((2, 2))), 1.0)


@pytest.mark.parametrize("name", KERNELS)
def test_the_default_kernel_is_centred_on_the_mean_of_all_cells(name):
    """The kernel's mean of g' is lam / nu; in a mixed table that of the cells of the column's family."""
    family = CASES[name][0]
    x = np.array([[0.0, 1.0, np.nan], [1.0, 1.0, 0.0]])
    for strength in (0.5, 2.0):
        lam, nu = family.kernel_of(x, strength)
        assert lam / nu == pytest.approx(0.6) and family.kernel_is_proper(lam, nu)
        assert (nu if name in ("exponential", "gamma") else lam) == pytest.approx(strength)
    table = ByColumn.of((family, Gaussian(0.3), family))
    shares = (
        pair[0] / pair[1] for pair in table.kernel_of(np.array([[1.0, -8.0, 0.0], [1.0, 2.0, 1.0]]), 0.5)
    )
    assert list(shares) == pytest.approx([0.75, -3.0, 0.75])


@pytest.mark.parametrize("cell", [0.0, 1.0])
def test_the_default_kernel_of_one_answer_alone_has_mean_one_half(cell):
    lam, nu = Bernoulli().kernel_of(np.full((3, 2), cell), 0.5)
    assert lam == 0.5 and lam / nu == 0.5


def test_the_moments_of_levels_and_the_top_class_are_those_of_their_probabilities():
    """Probabilities by NumPy; the deviations from the mean level, squared, one level after the other."""
    theta, cuts = np.array([[0.3, -1.0], [2.0, 0.4]]), np.array([[-2.0, -0.5, 1.5], [-1.0, 0.1, 3.0]])
    below = np.concatenate(
        [np.zeros((2, 2, 1)), _expit(cuts - theta[..., None]), np.ones((2, 2, 1))], axis=-1
    )
    probs = np.diff(below, axis=-1)
    with in_precision():
        mean, variance = Ordinal(4).mean_and_variance(jnp.asarray(theta), jnp.asarray(cuts))
    expected = sum(probs[..., level - 1] * level for level in range(1, 5))
    np.testing.assert_allclose(mean, expected, rtol=1e-12)
    spread = sum(probs[..., level - 1] * (level - expected) ** 2 for level in range(1, 5))
    np.testing.assert_allclose(variance, spread, rtol=1e-10)
    with in_precision():
        odds = jnp.log(jnp.asarray([[5.0, 2.0], [0.5, 0.5], [1.0, 2.0]]))  # against class 0
        top, uncertain = Categorical(3).mean_and_variance(odds, None)
    np.testing.assert_array_equal(top, [1.0, 0.0, 2.0])
    np.testing.assert_allclose(uncertain, [15 / 64, 1 / 4, 1 / 4], rtol=1e-12)
