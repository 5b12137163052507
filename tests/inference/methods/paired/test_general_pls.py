r"""Probabilistic PLS in general has no closed form: a data set whose maximum has the Galois group S_7.

Targets y_0 have three columns, covariates y_1 one, one shared latent and one of the covariates, noise 1. As
the covariates' own latents give them a variance of their own, the likelihood splits into that of y_0 (PPCA
with loadings a w, \|w\| = 1) and of y_1 given w'y_0 (a regression with a free residual variance). At the best
a^2 = w'S_00 w - 1 what is left to maximise over the sphere is, up to constants and times N / 2,

.. math:: w^T S_{00} w - \log(w^T Q w), \qquad Q = s_{11} S_{00} - s s^T, \quad s = S_{01}.

Its stationary points solve (S_00 - mu Q - lambda I) w = 0, w'w = 1, mu w'Qw = 1. Eliminating w and lambda
leaves a polynomial in mu of degree 9 with the spurious double root 1 / s_11, and one of degree 7 with integer
coefficients besides, of which 1 / mu at the maximum is w'Qw there. Modulo 7 it is irreducible, so its Galois
group is transitive, and primitive because 7 is prime; modulo 163 it is a cubic times four linear factors, so
the group has a 3-cycle and holds A_7 (Jordan). A_7 is simple and larger than S_6, so no tower of roots of
polynomials of degree six or less contains mu: neither radicals nor eigenvalues, singular values or
eigenvectors of matrices of size up to 6 x 6, taken as often as one likes, give the maximum, and the
covariance of these data is 4 x 4.
"""

from fractions import Fraction
from itertools import permutations

import numpy as np
from scipy import optimize

S_00 = np.array([[4, 1, 0], [1, 3, 1], [0, 1, 2]])
ACROSS, S_11 = np.array([2, 1, -1]), 10
Q = S_11 * S_00 - np.outer(ACROSS, ACROSS)
SEPTIC = (-108, 12852, -594963, 14073108, -187826435, 1440796074, -5962220040, 10378462000)


def determinant(matrix):
    """By permutations, exact."""
    total = 0
    for order in permutations(range(len(matrix))):
        sign = (-1) ** sum(a > b for i, a in enumerate(order) for b in order[i + 1 :])
        term = sign
        for row, column in enumerate(order):
            term *= matrix[row][column]
        total += term
    return total


def conditions(mu, lam):
    """The determinant of M = S_00 - mu Q - lambda I, and w'w - mu w'Qw for w w' = adj(M)."""
    m = [[int(S_00[i, j]) - mu * int(Q[i, j]) - lam * (i == j) for j in range(3)] for i in range(3)]
    adjugate = [
        [
            (-1) ** (i + j) * determinant([[m[a][b] for b in range(3) if b != i] for a in range(3) if a != j])
            for j in range(3)
        ]
        for i in range(3)
    ]
    weighted = sum(int(Q[i, j]) * adjugate[j][i] for i in range(3) for j in range(3))
    return determinant(m), sum(adjugate[i][i] for i in range(3)) - mu * weighted


def resultant(mu):
    """In lambda, of a cubic and a quadratic, from their values at 0, 1, -1, 2."""
    (f0, g0), (f1, g1), (f2, g2), (f3, _) = (conditions(mu, Fraction(lam)) for lam in (0, 1, -1, 2))
    third = (f3 - 3 * f1 + 3 * f0 - f2) / 6
    f = [third, (f1 + f2) / 2 - f0, (f1 - f2) / 2 - third, f0]
    g = [(g1 + g2) / 2 - g0, (g1 - g2) / 2, g0]
    return determinant([[*f, 0], [0, *f], [*g, 0, 0], [0, *g, 0], [0, 0, *g]])


def value(polynomial, x):
    return sum(c * x**i for i, c in enumerate(polynomial))


def log_likelihood(a, b, c):
    """Per row, of the dense normal with loadings [a, 0], [b, c] and unit noise."""
    loadings = np.zeros((4, 2))
    loadings[:3, 0], loadings[3] = a, (b, c)
    covariance = loadings @ loadings.T + np.eye(4)
    sample = np.block([[S_00, ACROSS[:, None]], [ACROSS[None], np.array([[S_11]])]])
    fit = np.trace(np.linalg.solve(covariance, sample))
    return -0.5 * (4 * np.log(2 * np.pi) + np.linalg.slogdet(covariance)[1] + fit)


def test_the_maximum_of_the_likelihood_is_that_of_the_sphere():
    """Dense normals maximised over all loadings, from eight starts; mu at the best is a root."""
    rng, found = np.random.default_rng(0), []
    for _ in range(8):
        start = rng.normal(size=5)
        found.append(
            optimize.minimize(lambda p: -log_likelihood(p[:3], p[3], p[4]), start, options={"gtol": 1e-9})
        )
    best = min(found, key=lambda result: result.fun)
    a = best.x[:3]
    w = a / np.linalg.norm(a)
    mu = 1 / (w @ Q @ w)
    assert a @ a > 1 and abs(best.x[4]) > 1  # inside: neither variance is on its edge
    np.testing.assert_allclose(a @ a, w @ S_00 @ w - 1, rtol=1e-5)
    terms = np.array([c * mu**i for i, c in enumerate(SEPTIC)])
    assert abs(terms.sum()) < 1e-5 * np.abs(terms).max()
    assert abs(terms.sum()) < 1e-3 * abs(value(SEPTIC, 1.01 * mu))  # planted: not a root 1 % beside


def test_eliminating_leaves_the_septic():
    """Equal up to one factor at more points than the degree: exact arithmetic."""
    ratios = {
        resultant(Fraction(mu)) / (value(SEPTIC, Fraction(mu)) * (S_11 * Fraction(mu) - 1) ** 2)
        for mu in range(1, 14)
    }
    assert len(ratios) == 1


def test_the_galois_group_is_not_to_be_had_by_eigenvalues():
    def roots(p):
        return [x for x in range(p) if value(SEPTIC, x) % p == 0]

    # Modulo 7: no root, and x^(7^7) = x, so all irreducible factors have degree 1 or 7.
    lead = pow(SEPTIC[-1] % 7, -1, 7)
    monic = [c * lead % 7 for c in SEPTIC]

    def product(a, b):
        full = [sum(a[i] * b[k - i] for i in range(7) if 0 <= k - i < 7) % 7 for k in range(13)]
        for k in range(12, 6, -1):
            full = [
                (c - full[k] * monic[i - k + 7]) % 7 if 0 <= i - k + 7 <= 7 else c for i, c in enumerate(full)
            ]
        return full[:7]

    power, x = [0, 1, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0, 0]
    for _ in range(7):
        result = [1, 0, 0, 0, 0, 0, 0]
        for _ in range(7):
            result = product(result, power)
        power = result
    assert not roots(7) and power == x
    # Modulo 163: four simple roots, and a cubic without any.
    four, rest = roots(163), [c % 163 for c in SEPTIC]
    assert len(four) == 4
    for root in four:
        quotient, carry = [], 0
        for c in reversed(rest):
            carry = (carry * root + c) % 163
            quotient.append(carry)
        assert quotient.pop() == 0
        rest = quotient[::-1]
    assert len(rest) == 4 and rest[-1] % 163
    assert all(value(rest, x) % 163 for x in range(163))
