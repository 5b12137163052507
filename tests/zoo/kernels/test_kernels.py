"""Kernels against explicit feature maps, and Gram matrices against their formulas, entry by entry."""

import itertools
import json
import math
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from scipy import stats

from inference.cli.settings import parse_settings, resolve
from inference.results.model_fields import _describe, _restore
from zoo.fields import names_of
from zoo.kernels import KERNELS, RBF, Linear, Polynomial, Precomputed, as_kernel
from zoo.kernels import gram as gram_matrices
from zoo.kernels.gram import (
    announce_cost,
    centring_of,
    check_gram,
    cross_gram,
    extended_centring,
    feature_rows,
    given_latents,
    gram_matrix,
)

X = np.random.default_rng(0).normal(size=(11, 3)) + 2.0
NEW = np.random.default_rng(1).normal(size=(4, 3))
SHAPED = [Linear(), RBF(0.7), Polynomial(2, offset=0.5, scale=1.5), Polynomial(3, offset=0.0)]


def value(kernel, x, y):
    """One entry by its definition."""
    if isinstance(kernel, Linear):
        return sum(a * b for a, b in zip(x, y, strict=True))
    if isinstance(kernel, RBF):
        return math.exp(-sum((a - b) ** 2 for a, b in zip(x, y, strict=True)) / 2 / 0.7**2)
    return (float(kernel.scale) * float(x @ y) + float(kernel.offset)) ** kernel.degree


def monomials(kernel, x):
    """Columns of an explicit feature map of a polynomial kernel: one per monomial."""
    degrees = [kernel.degree] if float(kernel.offset) == 0 else range(kernel.degree + 1)
    features = []
    for degree in degrees:
        for powers in itertools.product(range(degree + 1), repeat=x.shape[1]):
            if sum(powers) == degree:
                weight = math.comb(kernel.degree, degree) * float(kernel.offset) ** (kernel.degree - degree)
                weight *= float(kernel.scale) ** degree * math.factorial(degree)
                weight /= math.prod(map(math.factorial, powers))
                features.append(math.sqrt(weight) * np.prod(x**powers, axis=1))
    return np.stack(features, axis=1)


@pytest.mark.parametrize("kernel", SHAPED, ids=lambda k: type(k).__name__)
def test_every_entry_is_the_definition_on_host_and_in_compiled_code(kernel, monkeypatch):
    monkeypatch.setattr(gram_matrices, "BLOCK_BYTES", 8 * 11 * 3)  # three rows a block
    want = np.array([[value(kernel, a, b) for b in X] for a in X])
    gram = gram_matrix(kernel, X)
    np.testing.assert_allclose(gram, want, rtol=1e-12, atol=1e-13)
    np.testing.assert_array_equal(gram, gram.T)
    np.testing.assert_allclose(kernel.diagonal(X), np.diag(want), rtol=1e-12)
    crossed = np.array([[value(kernel, a, b) for b in X] for a in NEW])
    np.testing.assert_allclose(cross_gram(kernel, NEW, X), crossed, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(gram_matrix(kernel, scipy.sparse.csr_array(X)), want, rtol=1e-11, atol=1e-13)
    with jax.enable_x64(True):
        compiled = jax.jit(lambda k, x: (k.matrix(x, x), k.diagonal(x)))(kernel, jnp.asarray(X))
    np.testing.assert_allclose(compiled[0], want, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(compiled[1], np.diag(want), rtol=1e-11)


@pytest.mark.parametrize("kernel", [Polynomial(2, offset=0.5, scale=1.5), Polynomial(3, offset=0.0)])
def test_feature_dimension_is_that_of_the_explicit_map(kernel):
    features = monomials(kernel, X)
    np.testing.assert_allclose(features @ features.T, kernel.matrix(X, X), rtol=1e-11)
    wide = np.random.default_rng(2).normal(size=(60, 3))
    gram = gram_matrix(kernel, wide)
    rank = np.linalg.matrix_rank(centring_of(gram).gram(gram), tol=1e-8 * np.trace(gram))
    assert kernel.feature_dimension(3) == rank
    assert Linear().feature_dimension(3) == Polynomial(1).feature_dimension(3) == 3
    assert RBF(1.0).feature_dimension(3) == math.inf and Precomputed().feature_dimension(3) is None


@pytest.mark.parametrize("kernel", SHAPED[:1] + SHAPED[2:], ids=lambda k: type(k).__name__)
def test_centring_is_subtraction_of_the_mean_in_feature_space(kernel):
    features, new = (X, NEW) if isinstance(kernel, Linear) else (monomials(kernel, X), monomials(kernel, NEW))
    centred, gram = features - features.mean(axis=0), gram_matrix(kernel, X)
    centring = centring_of(gram)
    np.testing.assert_allclose(centring.gram(gram), centred @ centred.T, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(centring.gram_in_place(gram.copy()), centring.gram(gram), atol=1e-12)
    want = (new - features.mean(axis=0)) @ centred.T
    np.testing.assert_allclose(centring.cross(cross_gram(kernel, NEW, X)), want, rtol=1e-9, atol=1e-9)


def test_centring_is_extended_without_the_old_gram_matrix():
    """Yu (2006), (5.28)-(5.30): the old rows enter by their column means only."""
    gram = gram_matrix(RBF(0.7), X)
    old = centring_of(gram[:7, :7])
    extended = extended_centring(old, gram[:7, 7:], gram[7:, 7:])
    np.testing.assert_allclose(extended.column_means, gram.mean(axis=0), rtol=1e-13)
    literal = np.mean(gram[:7, :7].sum(axis=1))  # rowmean_1 read as sums: not a mean, and far off
    assert abs(literal - extended.column_means[0]) > 0.1


def test_names_defaults_and_what_is_read_off_data():
    assert {name: type(as_kernel(name)) for name in KERNELS} == KERNELS
    kernel = RBF(0.3)
    assert as_kernel(kernel) is kernel and type(as_kernel("RBF")) is RBF
    filled = as_kernel("rbf").filled(X)
    squared = ((X[:, None] - X[None]) ** 2).sum(axis=-1).mean()
    np.testing.assert_allclose(2 * filled.length_scale**2, squared, rtol=1e-12)
    np.testing.assert_allclose(
        as_kernel("rbf").filled(scipy.sparse.csr_array(X)).length_scale, filled.length_scale, rtol=1e-9
    )
    assert kernel.filled(X) is kernel and Linear().filled(X).feature_dimension(4) == 4
    settings = parse_settings(["a=RBF(0.5)", "b=Polynomial(2, offset=0)", "c=rbf"], ("a", "b", "c"), "it")
    built = resolve(settings)
    assert float(built["a"].length_scale) == 0.5 and built["b"].degree == 2 and built["c"] == "rbf"


@pytest.mark.parametrize("kernel", [*SHAPED, Precomputed()], ids=lambda k: type(k).__name__)
def test_a_kernel_is_a_pytree_and_survives_storage(kernel):
    leaves, structure = jax.tree.flatten(kernel)
    again = jax.tree.unflatten(structure, leaves)
    assert type(again) is type(kernel) and names_of(again).static == names_of(kernel).static
    arrays = {}
    stored = json.loads(json.dumps(_describe(kernel, "kernel", arrays)))
    assert stored["type"] == type(kernel).__name__ and not arrays
    restored = _restore(stored, arrays)
    if not isinstance(kernel, Precomputed):
        np.testing.assert_array_equal(restored.matrix(X, NEW), kernel.matrix(X, NEW))


BAD_KERNELS = {
    "length scale": (
        lambda: RBF(0.0),
        ValueError,
        "length_scale must be a positive number; got 0.0",
    ),
    "vector": (lambda: RBF([1.0, 2.0]), ValueError, "length_scale must be a positive number"),
    "degree": (lambda: Polynomial(1.5), ValueError, "degree must be a whole number of at least 1; got 1.5"),
    "offset": (lambda: Polynomial(2, offset=-1.0), ValueError, "offset must be .* at least 0; got -1.0"),
    "scale": (lambda: Polynomial(2, scale=np.nan), ValueError, "scale must be a positive number; got nan"),
    "name": (lambda: as_kernel("cosine"), ValueError, "no kernel is called 'cosine'; there are linear, rbf"),
    "kind": (lambda: as_kernel(3.0), TypeError, "kernel must be one of linear.*got float"),
    "unset": (lambda: RBF().matrix(X, X), ValueError, "length_scale is not set"),
    "equal rows": (lambda: RBF().filled(np.ones((4, 2))), ValueError, "the rows are all equal"),
    "a missing cell": (lambda: RBF().filled(np.diag([np.nan, 1.0])), ValueError, "row 0, column 0 is nan"),
    "new rows": (
        lambda: cross_gram(Precomputed(), np.ones((2, 5)), np.eye(4)),
        ValueError,
        r"must have shape \(new rows, 4\); got \(2, 5\)",
    ),
}


@pytest.mark.parametrize("case", BAD_KERNELS)
def test_bad_kernels_get_one_clear_message(case):
    make, error, message = BAD_KERNELS[case]
    with pytest.raises(error, match=message):
        make()


def spoiled(row, column, entry):
    gram = gram_matrix(RBF(0.7), X)
    gram[row, column] = entry
    return gram


def indefinite():
    vectors = np.linalg.qr(np.random.default_rng(3).normal(size=(6, 6)))[0]
    return (vectors * [3.0, 2.0, 1.0, 0.5, 0.1, -0.01]) @ vectors.T


BAD_GRAMS = {
    "not square": (X, r"is square; got shape \(11, 3\)"),
    "NaN": (spoiled(2, 5, np.nan), r"x\[2, 5\] is nan \(1 such"),
    "not symmetric": (spoiled(4, 1, 0.9), r"symmetric; x\[(4, 1|1, 4)\] is .* but x\[(1, 4|4, 1)\] is"),
    "negative diagonal": (spoiled(3, 3, -0.2), r"x\[3, 3\] is -0.2"),
    "indefinite": (indefinite(), "the lowest eigenvalue of x is -0.01 beside a trace of 6.59"),
}


@pytest.mark.parametrize("case", BAD_GRAMS)
def test_bad_gram_matrices_are_named_by_entry_or_eigenvalue(case):
    matrix, message = BAD_GRAMS[case]
    with pytest.raises(ValueError, match=message):
        check_gram(matrix)


def test_good_gram_matrices_pass_even_where_they_have_no_full_rank():
    for kernel in SHAPED:
        gram = gram_matrix(kernel, X)
        check_gram(gram)
        check_gram(centring_of(gram).gram(gram))
        np.testing.assert_array_equal(gram_matrix(Precomputed(), gram), gram)
    check_gram(np.zeros((3, 3)))


def test_the_cost_is_said_before_a_large_matrix_is_made(monkeypatch):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "2000 x 2000 matrix of kernel values needs 30.5 MiB" in announce_cost(2000)
    with pytest.warns(UserWarning, match="12000 x 12000 matrix of kernel values needs 1.07 GiB of memory"):
        announce_cost(12000)
    with pytest.raises(ValueError, match="more than this machine has .*: use fewer rows"):
        announce_cost(10**8)
    monkeypatch.setattr(gram_matrices, "LARGE_BYTES", 8 * 100)
    with pytest.warns(UserWarning, match="11 x 11 matrix"):
        gram_matrix(Linear(), X)


def test_feature_rows_of_a_linear_kernel_are_those_of_the_factor_model():
    """With k(x, y) = x'y the loadings are W = X'B: rows are Normal(0, W W' + noise), by SciPy's density."""
    rng = np.random.default_rng(2)
    coefficients, noise = rng.normal(size=(11, 2)) / 5, 0.7
    loadings = X.T @ coefficients
    covariance = loadings @ loadings.T + noise * np.eye(3)
    with jax.enable_x64(True):
        given = NEW @ X.T, (NEW**2).sum(axis=1), X @ loadings, coefficients
        rows = feature_rows(*map(jnp.asarray, given), jnp.asarray(noise), 3.0)
    np.testing.assert_allclose(rows.mean, NEW @ np.linalg.solve(covariance, loadings), rtol=1e-9)
    inverse = np.linalg.inv(np.eye(2) + loadings.T @ loadings / noise)
    np.testing.assert_allclose(rows.covariance, inverse, rtol=1e-9)
    expected = stats.multivariate_normal.logpdf(NEW, np.zeros(3), covariance)
    np.testing.assert_allclose(rows.log_density, expected, rtol=1e-9)


def test_rows_given_their_latents_have_the_density_of_the_factor_model():
    """With k(x, y) = x'y: Normal(W z, noise) of the centred rows, by SciPy's density."""
    rng = np.random.default_rng(3)
    coefficients, noise, z = rng.normal(size=(11, 2)) / 5, 0.7, rng.normal(size=(11, 2))
    loadings = X.T @ coefficients
    with jax.enable_x64(True):
        given = z, X @ X.T, (X**2).sum(axis=1), coefficients
        found = np.asarray(given_latents(*map(jnp.asarray, given), jnp.asarray(noise), 3.0))
    expected = stats.norm.logpdf(X, z @ loadings.T, np.sqrt(noise)).sum(axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
