"""Misprints and gaps of the papers' formulas, with what is right, for ``zoo show``: plain literals.

Each was found by deriving the formula anew and holding it to the program, a closed form or a quadrature.
The models and algorithms here use the corrected formulas; what is *assumed* differently from a paper is the
paragraph "Departures" of a model's docstring.
"""

__all__ = ["PAPER_CORRECTIONS"]

_THESIS = "Yu (2006)"
_VIRTANEN = "Virtanen (2010)"
_LECTURE = "Lecture on variational PCA"

_EXPONENTIAL_FAMILIES = (
    (
        f"{_VIRTANEN}, Table 1",
        "the mean of a Bernoulli is 1 / (1 + exp(-theta)), and lies strictly between 0 and 1 for a finite "
        "theta; mu of the exponential row is the rate, the mean is -1 / theta, and theta is negative "
        "(section 5.2 calls it positive).",
    ),
    (
        f"{_VIRTANEN}, Table 2",
        "the Jacobian of the mean is left out. exp(lam theta - nu g(theta)) is N(lam/nu, 1/nu) for a "
        "Gaussian of unit variance, mu ~ Beta(lam, nu - lam) for a Bernoulli, mu ~ Gamma(lam, rate nu) for "
        "a Poisson and rate ~ Gamma(nu + 1, rate lam) for an exponential.",
    ),
    (
        f"{_VIRTANEN}, (37) and section 7.2",
        "it is for one row: over a table c(V) enters once, and a(UV') is the exponential of a sum, not a "
        "product of logarithms. Whether a sees the mean is not said; here it does.",
    ),
)
_IDENTIFICATION = (
    f"{_VIRTANEN}, identification of components",
    "the singular values are the mu_i themselves, only K of them are not zero, and signs of U and V must be "
    "turned together; clustering the two apart can break their product, and neither way mends an exchange "
    "of order.",
)
_ALGORITHM_1 = (
    f"{_VIRTANEN}, Algorithm 1",
    "the gradient is that of the log density, not of the density. Exp(mu0) for the step is by its mean here.",
)

#: Model to (place in a paper, what is right there).
PAPER_CORRECTIONS = {
    "mixture": (
        (
            f"{_THESIS}, (3.12), (3.14), (3.15)",
            "the last stick is 1, so sums over sticks end at M - 1 and alpha = (M - 1) / sum of (Psi(l1 + "
            "l2) - Psi(l2)). The printed M leaves that stick free; free_last_stick=True is that version.",
        ),
        (
            f"{_THESIS}, (3.20)",
            "the leading K must be M: M (Psi(alpha/M) - Psi(alpha)) = sum of E log pi_j. It need not have a "
            "solution: equal clusters send alpha to infinity, one cluster to zero.",
        ),
        (
            f"{_THESIS}, chapter 3, the bound of DMA",
            "its first terms are log p(pi | alpha) and log p(theta_j | prior); lambda and (mu_j, nu_j) are "
            "printed in their place.",
        ),
        (
            f"{_THESIS}, section 3.3.4 and (3.21)",
            "in the generalised Dirichlet density the product of factors ends at M - 2; in (3.21) the "
            "leading factor is 1 for j = M.",
        ),
        (
            f"{_THESIS}, section 3.3.4",
            "starting every component at the prior breaks no symmetry: equal responsibilities are a fixed "
            "point. Starts here are random.",
        ),
        (
            f"{_THESIS}, section 2.2.4, E-step of multinomial components",
            "xi_kv = xi_0v + the expected number of tokens v in component k; the printed inner sum runs "
            "over the index that should stay free.",
        ),
        (
            f"{_THESIS}, (3.9)",
            "a new component is drawn from the posterior given the one row, not from the base measure.",
        ),
        (
            f"{_THESIS}, Table 2.1",
            "the Wishart needs nu0 > D - 1, and the mean covariance exists only for nu0 > D + 1.",
        ),
        (
            f"{_THESIS}, section 2.2.2 and (2.3)",
            "the bound needs the expectation of A(theta_k); the normaliser in (2.3) cannot depend on theta; "
            "q(c_i) has as many entries as components, not as rows.",
        ),
        (
            f"{_THESIS}, section 2.2.4",
            "the updates of W0 and nu0 depend on each other and are solved together here; 'the inverse of "
            "the sample covariance divided by beta0' is read with a further nu0 below, which the printed "
            "gain fits.",
        ),
        (
            f"{_THESIS}, chapter 3, sampling of alpha",
            "no conditional is given. Conjugate given the sticks; sampled on log alpha under Dirichlet "
            "weights, where the auxiliary-variable draw of Escobar and West is not exact.",
        ),
    ),
    "ppca": (
        (
            f"{_THESIS}, section 5.1.2",
            "EM climbs, so 'local minima' are maxima; and what it proves is Proposition 5.1.1, where "
            "Theorem 5.2.1 is named.",
        ),
        (
            f"{_VIRTANEN}, section 3.4",
            "the posterior covariance of a latent is sigma^2 M^-1 where sigma^2 M is printed, and X is "
            "close to UV', not UV.",
        ),
        (
            f"{_LECTURE}, Q_tau and f",
            "the cross term is -2 y_nm <w_m>'<x_n>; y_nm is missing.",
        ),
        (f"{_LECTURE}, Q_x and Q_w", "they hold sums of log densities, not of densities."),
        (
            f"{_LECTURE}, the Kullback-Leibler divergence",
            "log p(Y) less the bound is KL(q, p) = the integral of q log(q/p), with that sign.",
        ),
        (
            f"{_LECTURE}, <log tau>",
            "no sampling is needed: digamma(e) - log f, with e = a + half the number of cells observed. "
            "With sampled values the bound can fall.",
        ),
    ),
    "kernelpca": (
        (
            f"{_THESIS}, Theorem 5.2.1 and (5.18)",
            "it holds for eigenvalues above m s2 only; components below vanish: (I - m s2 / lambda)^1/2 is "
            "taken of the positive part.",
        ),
        (
            f"{_THESIS}, section 5.2.3",
            "R' turns the K components among themselves, so it cannot stand before an eigenvector of length "
            "N.",
        ),
        (
            f"{_THESIS}, section 5.2.4",
            "Z V_Z is not the exact projection but a whitened and shrunk one, to be scaled back; "
            "eigenvalues from Z'Z alone lose all digits at small s2. Here they are those of the Gram matrix "
            "on the span of Z.",
        ),
        (f"{_THESIS}, (5.24)", "the terms that it drops are constant only while s2 is given."),
        (
            f"{_THESIS}, Algorithm 5.2, step 6",
            "Z'GZ is that of the old Z but Z'Z that of the new one; with the old one the objective falls.",
        ),
        (
            f"{_THESIS}, section 5.2, added rows",
            "the row means known of the old block are those of K_11; K_1 is printed after (5.30).",
        ),
    ),
    "sppca": (
        (
            f"{_THESIS}, (7.12), and the paper",
            "the second moment of an unlabelled row's latent is sx2 (W_x'W_x + sx2 I)^-1 + zz'; the leading "
            "sx2 is missing, and with the printed form the likelihood falls. (7.22) has it.",
        ),
        (
            f"{_THESIS}, (7.24)",
            "the output noise divides by L N1 and sums over the N1 labelled rows only, with their own Z and "
            "C.",
        ),
        (
            f"{_THESIS}, Theorem 7.3.1",
            "it gives the loadings for given noise, where an eigenvalue exceeds 1. The noises follow by "
            "alternating with sx2 = (tr S_x - tr W_x'W_x) / M, alike for y: closed_form.",
        ),
        (
            f"{_THESIS}, Theorem 7.3.2 (ii)",
            "(V'GV + N sx2 D^-1)^-1 with D = I - N Lambda^-1; printed with D alone.",
        ),
        (
            "Yu et al. (2006), remark on rotations",
            "W_x'W_x and W_y'W_y are to be divided by sx2 and sy2, as in the thesis.",
        ),
        (
            f"{_THESIS}, (7.7)",
            "the mean of the outputs is the labelled rows' mean only when all rows are labelled.",
        ),
        (
            f"{_THESIS}, before (7.17)",
            "the blocks of the Gram matrix are X1 X' and X2 X', N1 and N2 rows by N.",
        ),
        (
            f"{_THESIS}, Algorithm 7.3",
            "it needs K < N, steps 5 and 6 both use the old Z and C, and in a feature space of infinitely "
            "many dimensions sx2 tends to 0: it must be given.",
        ),
        (
            f"{_THESIS}, section 6.1.2, (6.4) and (6.6)",
            "correlation is maximised; and maximising z'Kz equals minimising z'K^-1 z only while z is free, "
            "not with z = Xw.",
        ),
        (
            f"{_THESIS}, Algorithm 6.1",
            "its eigenproblem is singular for gamma = 0 and more columns than rows less one, and gives PCA "
            "itself whenever N >= M + L.",
        ),
        (
            f"{_THESIS}, Algorithm 6.3",
            "it equals Algorithm 6.2 only where the centred Gram matrix has rank N - 1; K_x^-1 never exists "
            "after centring and is a pseudo-inverse.",
        ),
    ),
    "epca": (
        *_EXPONENTIAL_FAMILIES,
        (
            f"{_VIRTANEN}, Figure 6",
            "lam = 0, nu = 10 rules out positive theta, not negative, and is not a proper Beta.",
        ),
        (
            f"{_VIRTANEN}, terms",
            "g' is the inverse of what is usually called the link; a family is regular where the set of "
            "natural parameters is open.",
        ),
        (f"{_VIRTANEN}, gradient of V", "(X - g'(Theta))' U, D x K; printed transposed."),
        _ALGORITHM_1,
        _IDENTIFICATION,
    ),
    "paired": (
        *_EXPONENTIAL_FAMILIES,
        (
            f"{_VIRTANEN}, sections 4.3.1 and 4.3.2",
            "the constraint is w' Sigma w = 1, and M1 M2' = P; the maximum of the likelihood is CCA only "
            "with unrestricted specific covariances, not with low-rank ones.",
        ),
        _ALGORITHM_1,
        _IDENTIFICATION,
        (
            f"{_VIRTANEN}, Algorithm 2, v_k",
            "the printed Sigma is the precision: the covariance is its inverse. gamma_k must be drawn "
            "before v_k at the start.",
        ),
        (
            f"{_VIRTANEN}, Algorithm 2, mu",
            "the formula has the latents integrated out though it says 'given U'; that is right only if U "
            "is drawn again before anything uses it, which the printed order does not do. theta less the "
            "mean uses the current mean.",
        ),
        (
            f"{_VIRTANEN}, Algorithm 2, step 4",
            "accepting single cells of a row that was proposed from a full covariance leaves another "
            "distribution invariant; right for a diagonal one.",
        ),
        (f"{_VIRTANEN}, Figure 12", "its caption counts 17 + 16 words where the table has 16 + 16."),
    ),
    "lda": (
        (
            f"{_THESIS}, section 4.2.2",
            "none found: it states the model and prints no updates. The bound here is checked against "
            "samples of the program.",
        ),
    ),
    "plsi": (
        (
            f"{_THESIS}, (4.7)-(4.17)",
            "none found: EM and its equivalence with the factorisation under the I-divergence were derived "
            "anew and are right as printed.",
        ),
    ),
    "pcp": (
        (
            f"{_THESIS}, section 9.1.1",
            "the model has 1 + K + K (V - 1) parameters: lambda has K entries, not M.",
        ),
        (
            f"{_THESIS}, text after (9.7) and Algorithm 9.1, lines 1 and 7",
            "a document belongs to cluster m, and the parameter is eta_m, where k is printed.",
        ),
        (
            f"{_THESIS}, Algorithm 9.1, lines 1 and 12",
            "beta is used before it is set: it must be started too, or (9.9) done before (9.8).",
        ),
        (
            f"{_THESIS}, Algorithm 9.1, lines 8, 14 and 15, and section 9.1.4",
            "what is followed is the bound (9.5), not the likelihood, and it is the bound that rises when a "
            "cluster goes.",
        ),
        (
            f"{_THESIS}, (9.5) and section 9.1.3",
            "the smoothing is an additive constant, a Dirichlet prior of the topics, and its term is "
            "missing in (9.5), which is otherwise not what the updates climb.",
        ),
        (
            f"{_THESIS}, section 9.3.2",
            "the bound of new documents holds q(pi) and q(theta) as they were fitted; their divergences are "
            "not counted again.",
        ),
        (f"{_THESIS}, section 9.3.4", "NMI is mutual information over the larger of the two entropies."),
    ),
    "depcam": (
        (
            "Qiao et al., (5), (6) and (9)",
            "as printed the two kernels differ from one of unit diagonal by constants only, but the "
            "determinant (9) mixes them and can be negative: 1 - exp(2 rho (sum of cosines - d)).",
        ),
        ("Qiao et al., section III-C", "the matrix is that of the entries L_ij, where Y_ij is printed."),
        (
            "Qiao et al., (16)",
            "with latents of each component p(y) does not cancel: log N(y_nk; 0, I) is kept.",
        ),
        ("Qiao et al., before (18)", "neither integral has a closed form, where 'either' is printed."),
        (
            "Qiao et al., Algorithm 1",
            "what it watches lacks the entropy of q(z) and can fall; the log posterior is watched here.",
        ),
        (
            "Qiao et al., (21)",
            "the derivative of S fills (k, k') and (k', k); the part along U itself is normal to the "
            "manifold and drops out. On the Stiefel manifold the gradient is G - U sym(U'G): that of the "
            "Grassmann manifold never turns a basis inside its span, though the likelihood notices.",
        ),
        ("Qiao et al., (22)", "the printed step goes along the gradient of -L, downhill in L."),
        (
            "Qiao et al., (23)",
            "lambda is missing, and all of it but -lambda xi sign(phi) cancels. In place of trying -1, 0 "
            "and 1 the scales are soft-thresholded, which gives exact zeros and never falls.",
        ),
        ("Qiao et al., (25)", "dL/dy_n = -y_n + sum_k q_nk W_k'(x_n - mean(W_k y_n))."),
        (
            "Qiao et al., (26) and (27)",
            "they are proportional to, and the most probable of, what is printed; xi and rho do not enter.",
        ),
    ),
}
