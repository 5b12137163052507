"""What the papers claim and what came out here, for ``zoo show``: plain literals, nothing imported.

Every figure stands in ``tests/reference/README.md`` or in CHANGELOG.md, where
the command, the versions and the seeds are; a test looks for the figures there. Corrections to the papers
stand in `zoo.paper_corrections`.
"""

from typing import NamedTuple

__all__ = ["PAPER_CLAIMS", "PaperClaim"]


class PaperClaim(NamedTuple):
    """A claim of a paper beside what was measured.

    Attributes:
        paper: what it says, and where.
        here: what came out.
        record: file in ``tests/reference`` with the figures; empty: a test or the changelog has them.
    """

    paper: str
    here: str
    record: str = ""


PAPER_CLAIMS = {
    "mixture": (
        PaperClaim(
            "Table 3.1 (Yu 2006): with Dirichlet weights, K = 10, alpha = 10 leaves 7.8 components "
            "occupied; K = 20, 8.65; K = 50, alpha = 100, 21.2.",
            "Reproduced: 7.0, 7.3 and 21.5.",
            "mixture_table_3_1.json",
        ),
        PaperClaim(
            "Its lower half, stick-breaking weights: 4.65 to 11.15 components at alpha = 1000.",
            "Not with the model as defined: all rows gather on the last stick. The misprinted updates "
            "(free_last_stick=True) give 4.8 to 10.1.",
            "mixture_table_3_1.json",
        ),
        PaperClaim(
            "The toy of five Gaussians has the bound -949.73 (one unpublished draw).",
            "-967.5 over 20 draws, standard deviation 18.3.",
            "mixture_toy_bound.json",
        ),
        PaperClaim(
            "Learning the hyperparameters raises it to -922.14, by 27.6 nats (section 2.2.4).",
            "By 26.2 +- 1.4 nats over 20 draws.",
            "mixture_learnt.json",
        ),
        PaperClaim(
            "Old Faithful: 3, 6 and 15 components at alpha 100, 500 and 1000.",
            "4.6, 8.1 and 14.8; no reading of the prior gives the printed ones.",
            "mixture_old_faithful.json",
        ),
    ),
    "ppca": (
        PaperClaim(
            "The maximum of the likelihood is the leading eigenvectors, scaled (Tipping and Bishop 1999).",
            "Subspaces equal scikit-learn's to 2e-15 rad.",
            "benchmark_ppca.json",
        ),
    ),
    "kernelpca": (
        PaperClaim(
            'Any s2 leads to the same solution (5.18) (Yu 2006, chapter 5: "any s2 leads to (5.18)").',
            "No: components with an eigenvalue of at most m s2 vanish; see above.",
        ),
        PaperClaim(
            "EM needs a few sweeps and less time than an eigensolver (Yu 2006, section 5.2.6, Figure 5.3).",
            "On the digits' Gram matrix the eigenvalues are right to 1.1e-4 after 20 sweeps and 4.1e-8 "
            "after 50. A dense eigensolver takes longer, Lanczos does not: closed_form uses it.",
            "kernel_pca_digits.json",
        ),
    ),
    "sppca": (
        PaperClaim(
            "ORL faces, two labels a class, 1-NN error 0.276 against 0.332 for PCA (Yu 2006, Table 7.3).",
            "Reproduced, 0.287 and 0.334, but whitened PCA, which sees no label, has 0.288: the gain is the "
            "whitening's.",
            "sppca_faces.json",
        ),
        PaperClaim(
            "Yale faces alike, 0.500 against 0.544.",
            "0.536 against 0.546, whitened PCA 0.536: the gain was not reproduced on our splits.",
            "sppca_faces.json",
        ),
        PaperClaim(
            "EM needs many iterations.",
            "Parameter-expanded EM takes a median of 14 sweeps to 1e-5 nats where the thesis's takes 300.",
            "sppca.json",
        ),
    ),
    "epca": (
        PaperClaim(
            "A joint prior between the Gaussian and the conjugate one predicts best, beta near 0.4 "
            "(Virtanen 2010).",
            "So where the Gaussian part is weak (product of variances 100): 0.0171 +- 0.0039 nats a cell "
            "better than beta 0. With the printed variances it does nothing (-0.0004 +- 0.0001), with both "
            "parts tuned it gains 0.0012 +- 0.0004.",
            "epca_spect.json",
        ),
        PaperClaim(
            "Random starts nearly always end at the same maximum (Figure 9).",
            "Reproduced, ten of ten; not with a free mean, a weak Gaussian part and beta 0.",
            "epca_spect.json",
        ),
    ),
    "paired": (
        PaperClaim(
            "EPLS predicts better than SEPCA with one latent (Virtanen 2010, Figure 8).",
            "Reproduced, errors 0.248 and 0.448; but EPLS with one target is SEPCA with as many latents in "
            "all.",
            "paired.json",
        ),
        PaperClaim(
            "BECCA finds the shared latent (Figure 10).",
            "Reproduced over 14 replicates: mean correlation 0.913 on binary views, 0.974 on counts.",
            "figure_10.json",
        ),
        PaperClaim(
            "GiBECCA samples the posterior of the full-covariance model (section 6.2.3).",
            "As printed it fails the joint-distribution test (z 9.9 and more); the corrected sweep passes.",
            "geweke_paired.json",
        ),
        PaperClaim(
            "Gibbs is about twenty times as fast as HMC (Figure 11).",
            "Effective draws of a shared natural parameter a CPU second: as printed 29, but of another "
            "posterior; corrected 0.6; HMC with random steps 175, Polya-Gamma Gibbs 174, NUTS 200 "
            "(CHANGELOG.md).",
        ),
    ),
    "lda": (
        PaperClaim(
            "Its held-out perplexity is above that of PCP at every number of topics (Yu 2006, Table 9.1).",
            "No: with the documents restarted in every step it is below. On newsgroups, K = 20, PCP with "
            "200 clusters has 1.11 times its perplexity by the bound and 1.07 times by the likelihood.",
            "topic_bars.json",
        ),
    ),
    "plsi": (
        PaperClaim(
            "pLSI is the factorisation of the counts under the I-divergence (Gaussier and Goutte 2005).",
            "The same as NMF under that divergence, step by step.",
        ),
    ),
    "pcp": (
        PaperClaim(
            "Algorithm 9.1 (mean field) clusters and projects at once (Yu 2006, chapter 9).",
            "From its random start it ends in one cluster, NMI 0.00, each of 12 times; the structured "
            "family finds the clusters of five simulated corpora with NMI 0.84, 1.00, 1.00, 0.83, 1.00.",
            "pcp_corpora.json",
        ),
        PaperClaim(
            "Of as many clusters as documents few survive (section 9.1.4).",
            "On those corpora 6, 7, 5, 7 and 6, where 5 are right.",
            "pcp_corpora.json",
        ),
        PaperClaim(
            "It clusters best: NMI 0.622 on newsgroups, 0.418 on Reuters (Table 9.2).",
            "On texts prepared otherwise, K = 10 and 20, ten starts: newsgroups 0.64 and 0.65 by the best "
            "bound, 0.63 and 0.61 on average; Reuters 0.64 and 0.64, 0.64 and 0.64 on average.",
            "topic_bars.json",
        ),
        PaperClaim(
            "It predicts held-out words better than LDA at every K (Table 9.1).",
            "No: 1.11 times the perplexity of a well-run LDA by the bound, 1.07 times by the likelihood, "
            "begun with LDA's topics 1.03 and 1.02 times (newsgroups, K = 20, 200 clusters); on Reuters 1.08 "
            "and 1.04, begun with LDA's topics 1.01 and 1.00.",
            "topic_bars.json",
        ),
    ),
    "depcam": (
        PaperClaim(
            "The angular kernel keeps components apart (Qiao et al.).",
            "It tells U from -U, though both are the same component: repulsion can be bought by flipping"
            'signs. kernel="subspace" cannot.',
        ),
        PaperClaim(
            "With a medium weight of the determinant held-out rows are clustered better (Figure 4).",
            "No gain of repulsion was seen. Offset and integrated latents matter: held-out accuracy 0.856 "
            "over ten draws of the paper's data, k-means 0.859; with neither 0.531.",
            "depcam_clustering.json",
        ),
        PaperClaim(
            "The prior makes the scales sparse (Figure 5).",
            "Reproduced: at lambda = 100 43 % of them are zero. That is the l1 part's doing, and held-out "
            "accuracy falls by 0.028 +- 0.027.",
            "depcam_clustering.json",
        ),
    ),
}
