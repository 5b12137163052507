"""Corrections of the papers, each by a computation that the printed form fails and the card's form passes.

The cards' corrections name these checks (``check``), the guide's page has the longer ones (``shown``).
"""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, optimize, stats
from scipy.special import digamma, expit, gammaln

import zoo
from inference.methods.sppca.projections import printed_morp
from inference.precision import in_precision
from zoo.cards import read_card, read_notes
from zoo.dpp import angular_similarity

pytestmark = pytest.mark.repo

#: Name of a check, as a card has it, to a function that gives the errors of the printed form and of ours.
CHECKS: dict[str, Callable[[], tuple[float, float]]] = {}


def shows(name: str) -> Callable:
    """Enter a check by its name."""

    def enter(check: Callable) -> Callable:
        CHECKS[name] = check
        return check

    return enter


def corrections():
    """The corrections of all cards."""
    return [own for name in zoo.MODELS for own in read_notes(read_card(name)).corrections]


@pytest.mark.parametrize("name", CHECKS)
def test_the_printed_form_is_off_and_ours_is_not(name):
    with in_precision():
        printed, ours = CHECKS[name]()
    assert printed > 0.01 and ours < 1e-6 and ours < 1e-4 * printed


def test_each_check_is_of_a_correction_and_each_name_has_a_check():
    assert {own.check for own in corrections()} - {""} == set(CHECKS)


def test_a_computation_shows_each_correction_and_no_check_is_of_a_remark():
    """What no computation shows is worded as a remark."""
    assert len(corrections()) >= 24 and all(own.check or own.shown for own in corrections())
    assert not any(own.check for name in zoo.MODELS for own in read_notes(read_card(name)).remarks)


@shows("the concentration of DMA")
def of_concentration():
    """Against the maximum of E log p(pi | alpha), where K is another number than M."""
    size, lam = 6, np.array([40.0, 20.0, 9.0, 3.0, 0.7, 0.3])
    logs = (digamma(lam) - digamma(lam.sum())).sum()

    def falls(log_alpha):
        alpha = np.exp(log_alpha)
        return -(gammaln(alpha) - size * gammaln(alpha / size) + (alpha / size - 1) * logs)

    best = np.exp(
        optimize.minimize_scalar(falls, bounds=(-5, 8), method="bounded", options={"xatol": 1e-11}).x
    )

    def solution(leading):
        def gap(alpha):
            return leading * (digamma(alpha / size) - digamma(alpha)) - logs

        return optimize.brentq(gap, 1e-6, 1e8)

    return abs(np.log(solution(size - 2) / best)), abs(np.log(solution(size) / best))


@pytest.mark.parametrize("kind", ["equal", "single", "tiny", "drawn"])
def test_the_concentration_of_dma_has_one_solution(kind):
    """For any lambda: the left side rises from minus infinity to -M log M, which bounds the right side."""
    rng = np.random.default_rng(0)
    for size in (2, 5, 40):
        lam = {
            "equal": np.full(size, 3.0),
            "single": np.r_[1e4, np.full(size - 1, 1e-3)],
            "tiny": np.full(size, 1e-6),
            "drawn": rng.gamma(0.1, 50.0, size) + 1e-8,
        }[kind]
        logs = (digamma(lam) - digamma(lam.sum())).sum()
        alphas = np.geomspace(1e-9, 1e12, 400)
        left = size * (digamma(alphas / size) - digamma(alphas))
        assert (np.diff(left) > -1e-9 * np.abs(left[1:])).all() and left[0] < logs < -size * np.log(size)


@shows("the generalised Dirichlet")
def of_generalised_dirichlet():
    """Its integral over three weights, and the sum of their expectations (3.21), less 1."""
    a, b = np.array([1.4, 2.1]), np.array([2.5, 1.7])
    norm = np.exp(gammaln(a + b) - gammaln(a) - gammaln(b))

    def density(second, first, last_power):
        left = 1 - first - second
        value = norm.prod() * first ** (a[0] - 1) * second ** (a[1] - 1) * left ** (b[1] - 1)
        return value * (1 - first) ** (b[0] - a[1] - b[1]) * left**last_power

    def integral(last_power):
        found, _ = integrate.dblquad(
            density, 0, 1, 0, lambda first: 1 - first, args=(last_power,), epsabs=1e-9
        )
        return found

    def expected(last):
        """Sum over the weights where the factor of the last one that leads is ``last``."""
        left = np.cumprod(np.r_[1.0, b / (a + b)])
        return np.r_[a / (a + b), last] @ left

    # b_2 - a_3 - b_3 in the printed factor j = M - 1; lambda of a last stick does not exist and is taken as 1
    printed = abs(integral(b[1] - 1.0 - 1.0) - 1), abs(expected(1 / (1 + 1)) - 1)
    return min(printed), max(abs(integral(0.0) - 1), abs(expected(1.0) - 1))


@shows("the determinant of two bases")
def of_determinant():
    """Against that of the two bases' similarities, which are one on the diagonal."""
    rho, rng = 0.3, np.random.default_rng(0)
    bases = np.linalg.qr(rng.normal(size=(2, 5, 2)))[0]
    truth = np.linalg.det(np.asarray(angular_similarity(jnp.asarray(bases), rho), float))
    cosines = (bases[0].T @ bases[1]).sum()
    return abs(1 - np.exp(2 * rho * cosines) - truth), abs(1 - np.exp(2 * rho * (cosines - 2)) - truth)


@shows("the mean of a Bernoulli variable")
def of_means():
    """Against the sum over its two values."""
    theta = -2.5
    mean = sum(x * np.exp(theta * x - np.log1p(np.exp(theta))) for x in (0, 1))
    return abs(1 / (1 + np.exp(theta)) - mean), abs(1 / (1 + np.exp(-theta)) - mean)


@shows("conjugate priors of natural parameters")
def of_conjugate_priors():
    """The kernel of Bernoulli cells as a density of the mean: Beta(lam, nu - lam) only with the Jacobian."""
    lam, nu = 0.7, 2.2

    def mean_of(power):
        def kernel(theta):
            p = expit(theta)
            return (
                np.exp(lam * theta - nu * np.logaddexp(0, theta)) * (p * (1 - p)) ** power * np.array([1, p])
            )

        parts = [integrate.quad(lambda t, i=i: kernel(t)[i], -60, 60, epsabs=1e-12)[0] for i in (0, 1)]
        return parts[1] / parts[0]

    return abs(mean_of(1.0) - stats.beta(lam, nu - lam).mean()), abs(
        mean_of(0.0) - stats.beta(lam, nu - lam).mean()
    )


def _views(noise=0.4):
    rng = np.random.default_rng(0)
    loadings = rng.normal(size=(4, 2))
    joint = np.block([[np.eye(2), loadings.T], [loadings, loadings @ loadings.T + noise * np.eye(4)]])
    return loadings, joint, noise


@shows("the covariance of an unlabelled row's latent")
def of_unlabelled():
    """Against the conditional covariance of the joint Gaussian."""
    w, joint, noise = _views()
    truth = joint[:2, :2] - joint[:2, 2:] @ np.linalg.solve(joint[2:, 2:], joint[2:, :2])
    inverse = np.linalg.inv(w.T @ w + noise * np.eye(2))
    return np.abs(inverse - truth).max(), np.abs(noise * inverse - truth).max()


@shows("the covariance of a latent")
def of_latent():
    """Against the conditional covariance of the joint Gaussian; M = V'V + sigma^2 I."""
    w, joint, noise = _views()
    truth = joint[:2, :2] - joint[:2, 2:] @ np.linalg.solve(joint[2:, 2:], joint[2:, :2])
    m = w.T @ w + noise * np.eye(2)
    return np.abs(noise * m - truth).max(), np.abs(noise * np.linalg.inv(m) - truth).max()


@shows("the projection of a new row")
def of_projection():
    """In the dual form, against the primal posterior mean, up to a sign; D is printed, of unit noise of x."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 4)) * [3.0, 2.0, 1.0, 0.5], rng.normal(size=(30, 2))
    y += x[:, :2]
    x, y = x - x.mean(0), y - y.mean(0)
    n, sx2, sy2, new = len(x), 0.3, 0.2, rng.normal(size=4)
    values, vectors = np.linalg.eigh(x @ x.T / sx2 + y @ y.T / sy2)
    values, vectors = values[::-1][:2], vectors[:, ::-1][:, :2]
    d = 1 - n / values
    z = np.sqrt(n) * vectors * np.sqrt(d)
    second = z.T @ z + n * np.linalg.inv(
        np.diag(values / n)
    )  # of the posterior of each row, A^-1 = N / lambda
    w = x.T @ z @ np.linalg.inv(second)
    truth = np.linalg.solve(w.T @ w + sx2 * np.eye(2), w.T @ new)
    middle = vectors.T @ x @ x.T @ vectors

    def dual(added):
        return np.sqrt(n) * np.linalg.solve(middle + np.diag(added), vectors.T @ x @ new) / np.sqrt(d)

    return np.abs(dual(d) - truth).max(), np.abs(dual(n * sx2 / d) - truth).max()


@shows("the Lagrangian of PCA")
def of_lagrangian():
    """Against differences, away from the optimum."""
    rng = np.random.default_rng(0)
    root, w, lam, step = rng.normal(size=(4, 4)), rng.normal(size=4), 1.7, 0.5
    c = root @ root.T  # central differences of a quadratic function are exact

    def lagrangian(w):
        return w @ c @ w - lam * (w @ w - 1)

    truth = np.array([(lagrangian(w + step * e) - lagrangian(w - step * e)) / (2 * step) for e in np.eye(4)])
    return np.abs(2 * c @ w - lam * w - truth).max(), np.abs(2 * (c @ w - lam * w) - truth).max()


@shows("the parameters of a Gaussian")
def of_parameters():
    """Entries of a mean and of a triangle with its diagonal."""
    n = 7
    truth = n + len(np.tril_indices(n)[0])
    return abs(n + n * (n - 1) // 2 - truth), abs(n + n * (n + 1) // 2 - truth)


@shows("the expected logarithm of a precision")
def of_log_precision():
    """Of Gamma(e, f), by quadrature, against digamma(e) - log f and a mean of 10 draws."""
    e, f = 3.5, 2.0
    law = stats.gamma(e, scale=1 / f)
    truth, _ = integrate.quad(lambda u: u * law.pdf(np.exp(u)) * np.exp(u), -40, 20, epsabs=1e-12)
    drawn = np.log(law.rvs(10, random_state=0)).mean()
    return abs(drawn - truth), abs(digamma(e) - np.log(f) - truth)


@shows("the expected squared residual")
def of_residual():
    """Of y - w'x with independent Gaussian w and x, by Gauss-Hermite quadrature over each entry's product."""
    y, w, x, v = 1.3, np.array([0.4, -0.8]), np.array([1.1, 0.5]), 0.3
    nodes, weights = np.polynomial.hermite_e.hermegauss(5)
    grids = np.meshgrid(*[nodes] * 4, indexing="ij")
    weight = np.prod(np.meshgrid(*[weights / weights.sum()] * 4, indexing="ij"), axis=0)
    wx = sum((w[i] + v**0.5 * grids[i]) * (x[i] + v**0.5 * grids[2 + i]) for i in range(2))
    truth = (weight * (y - wx) ** 2).sum()
    ww, xx = np.outer(w, w) + v * np.eye(2), np.outer(x, x) + v * np.eye(2)
    rest = y**2 + np.trace(ww @ xx)
    return abs(rest - 2 * w @ x - truth), abs(rest - 2 * y * w @ x - truth)


@shows("components below the noise")
def of_small_components():
    """One component whose eigenvalue is below the noise: the likelihood is highest at length zero."""
    m, noise, value = 20.0, 1.0, 15.0  # of the Gram matrix, below m noise

    def falls(square):
        return 0.5 * (m * np.log(square + noise) + value / (square + noise))

    best = optimize.minimize_scalar(falls, bounds=(0, 50), method="bounded", options={"xatol": 1e-12}).x
    printed = value / m - noise  # whose root the printed formula takes, though it is negative
    return abs(printed - best), abs(max(printed, 0.0) - best)


@shows("the Kullback-Leibler divergence")
def of_divergence():
    """Against log p(Y) less the bound, for a parameter of three values."""
    joint, q = np.array([0.02, 0.05, 0.01]), np.array([0.5, 0.2, 0.3])
    posterior = joint / joint.sum()
    gap = np.log(joint.sum()) - (q * np.log(joint / q)).sum()
    return abs((q * np.log(posterior / q)).sum() - gap), abs((q * np.log(q / posterior)).sum() - gap)


@shows("the output noise in the dual form")
def of_output_noise():
    """Against the primal update (7.16) of the same latents; rows without outputs count as zeros in print."""
    rng = np.random.default_rng(0)
    n, n1 = 12, 7
    y, z = rng.normal(size=(n1, 2)), rng.normal(size=(n, 3))
    own, spread = z[:n1], z.T @ z + 0.4 * n * np.eye(3)
    c1 = own.T @ own + 0.4 * n1 * np.eye(3)
    w = y.T @ own @ np.linalg.inv(c1)
    truth = ((y**2).sum() + np.trace(w.T @ w @ c1) - 2 * np.trace(y @ w @ own.T)) / (2 * n1)
    explained = own.T @ y @ y.T @ own
    printed = ((y**2).sum() - np.trace(explained @ np.linalg.inv(spread))) / (2 * n)
    return abs(printed - truth), abs(
        ((y**2).sum() - np.trace(explained @ np.linalg.inv(c1))) / (2 * n1) - truth
    )


@shows("the gradient of the loadings")
def of_gradient():
    """Of Gaussian cells with as many latents as columns, so that the transpose has the same shape."""
    rng = np.random.default_rng(0)
    x, u, v = rng.normal(size=(6, 3)), rng.normal(size=(6, 3)), rng.normal(size=(3, 3))

    def likelihood(v):
        theta = u @ v.T
        return (x * theta - theta**2 / 2).sum()

    truth, step = np.empty((3, 3)), 0.5  # central differences of a quadratic function are exact
    for at in np.ndindex(3, 3):
        move = np.zeros((3, 3))
        move[at] = step
        truth[at] = (likelihood(v + move) - likelihood(v - move)) / (2 * step)
    printed = u.T @ (x - u @ v.T)
    return np.abs(printed - truth).max(), np.abs(printed.T - truth).max()


@shows("the singular values of the natural parameters")
def of_singular_values():
    """How far U = Theta V S^-1 is from orthonormal; mu squared are the eigenvalues of Theta' Theta."""
    theta = np.random.default_rng(0).normal(size=(8, 3))
    squares, v = np.linalg.eigh(theta.T @ theta)

    def away(scale):
        u = theta @ v / scale
        return np.abs(u.T @ u - np.eye(3)).max()

    return away(squares), away(np.sqrt(squares))


@shows("the loadings of probabilistic CCA")
def of_canonical_loadings():
    """V_1 V_2' of the estimate against the covariance of the views, for a rotation of the latents."""
    rng = np.random.default_rng(0)
    root = rng.normal(size=(4, 4))
    s = root @ root.T
    s11, s12, s22 = s[:2, :2], s[:2, 2:], s[2:, 2:]
    r1, r2 = (np.linalg.inv(np.linalg.cholesky(own)).T for own in (s11, s22))
    left, p, right = np.linalg.svd(r1.T @ s12 @ r2)
    w1, w2 = r1 @ left, r2 @ right.T
    turn = np.array([[np.cos(0.7), -np.sin(0.7)], [np.sin(0.7), np.cos(0.7)]])
    half = np.diag(np.sqrt(p))

    def away(m1, m2):
        return np.abs(s11 @ w1 @ m1 @ (s22 @ w2 @ m2).T - s12).max()

    return away(half @ turn, turn.T @ half), away(half @ turn, half @ turn)


@shows("the covariance of loadings in GiBECCA")
def of_gibecca_loadings():
    """Against the conditional covariance of the joint Gaussian of one loading vector and all rows."""
    rng = np.random.default_rng(0)
    u, gamma, root = rng.normal(size=5), 0.8, rng.normal(size=(2, 2))
    psi = root @ root.T + np.eye(2)
    cross = gamma * np.kron(u[None], np.eye(2))
    rows = gamma * np.kron(np.outer(u, u), np.eye(2)) + np.kron(np.eye(5), psi)
    truth = gamma * np.eye(2) - cross @ np.linalg.solve(rows, cross.T)
    printed = (u**2).sum() * np.linalg.inv(psi) + np.eye(2) / gamma
    return np.abs(printed - truth).max(), np.abs(np.linalg.inv(printed) - truth).max()


@shows("the parameters of PCP")
def of_pcp():
    """Entries of alpha, lambda and of K topics over V words, which sum to one; M clusters are drawn."""
    clusters, topics, words = 20, 6, 30
    truth = 1 + np.zeros(topics).size + np.zeros((topics, words - 1)).size
    return abs(1 + clusters + topics * (words - 1) - truth), abs(1 + topics + topics * (words - 1) - truth)


@shows("the derivative of the determinant's logarithm")
def of_log_determinant():
    """By a scale, against differences: what is printed for weight one does not carry the weight."""
    rho, xi, weight, rng = 0.3, 0.4, 10.0, np.random.default_rng(0)
    bases, scales = np.linalg.qr(rng.normal(size=(2, 5, 2)))[0], np.array([[1.2, -0.7], [0.5, 0.9]])
    similarity = np.asarray(angular_similarity(jnp.asarray(bases), rho), float)

    def kernel(scale):
        moved = scales.copy()
        moved[0, 1] = scale
        quality = np.exp(-0.5 * xi * np.abs(moved).sum(axis=1))
        return quality[:, None] * similarity * quality

    step = 1e-5
    up, down, own = kernel(-0.7 + step), kernel(-0.7 - step), kernel(-0.7)
    truth = weight * (np.linalg.slogdet(up)[1] - np.linalg.slogdet(down)[1]) / (2 * step)
    printed = np.trace(np.linalg.solve(own, (up - down) / (2 * step)))
    return abs(printed - truth), abs(-weight * xi * np.sign(-0.7) - truth)


def test_the_primal_algorithm_of_morp_is_pca_with_one_row_more_than_columns():
    """By the sine of the angle of Algorithm 6.1 to PCA; centring takes one dimension."""
    rng = np.random.default_rng(0)

    def sine(num_rows):
        x = rng.normal(size=(num_rows, 5)) * [4, 3, 2, 1.5, 1]
        y = rng.normal(size=(num_rows, 2))
        x, y = x - x.mean(0), y - y.mean(0)
        found = printed_morp(x, 0.5 * x @ x.T + 0.5 * y @ y.T, 2, np.zeros(())).weights
        pca = np.linalg.svd(x)[2][:2].T
        own = np.linalg.qr(found)[0]
        return np.linalg.norm(own - pca @ pca.T @ own, 2)

    assert sine(5 + 2) > 0.01 and sine(5 + 2 + 1) < 1e-9
