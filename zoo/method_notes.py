"""What each method of each model costs and when to use it; plain literals for ``zoo show``.

N observations, D features, K components, topics or latents, d latents of a component, M clusters, W words,
J outputs; costs are those of one step, sweep or pass. How a method works stands in its own file.
"""

__all__ = ["GENERIC", "METHOD_NOTES"]

#: Methods that run on any program: what a step costs, when to use it.
GENERIC = {
    "nuts": (
        "gradients of the program, up to 1023 a draw",
        "the referee: draws of the posterior itself, where labels and latents leave it smooth",
    ),
    "hmc": (
        "gradients of the program, a fixed number a draw",
        "as nuts, where trajectories should have one length",
    ),
    "svi": (
        "one gradient of the program a step",
        "a quick Gaussian approximation of any program; no R-hat applies",
    ),
    "map": (
        "one gradient of the program a step, or a few",
        "a point estimate to start from, or for large tables",
    ),
}

#: Model to its own methods: what a step costs, when to use it.
METHOD_NOTES = {
    "mixture": {
        "vb": (
            "O(N K D^2)",
            "first: seconds, a bound to compare models by; give it restarts, and moves if it matters",
        ),
        "gibbs": ("O(N K D^2)", "how many clusters, how sure: draws of the truncated or finite model"),
        "collapsed_gibbs": (
            "O(N K D^2), plus O(N D^2) a split-merge proposal",
            "no truncation, few parameters; probabilities of partitions",
        ),
        "em": ("O(N K D^2)", "maximum likelihood, BIC and AIC; singular components are held and reported"),
    },
    "ppca": {
        "closed_form": (
            "O(N D min(N, D)), once",
            "first, wherever no cell is missing and the noise is isotropic",
        ),
        "em": (
            "O(min(N, D) D K); with holes O(N D K^2)",
            "missing cells, factor analysis, sparse tables, priors",
        ),
        "vb": ("O(N D K^2)", "how many latents (ARD), and uncertainty of the loadings"),
    },
    "kernelpca": {
        "closed_form": ("O(N^2) a product, some tens of them", "first: the maximum is known"),
        "em": ("O(N^2 K)", "the same maximum by sweeps that never lower the score"),
    },
    "sppca": {
        "em": (
            "O(min(N, D) D K); with holes O(N D K^2)",
            "first: any cell of inputs or outputs may be missing",
        ),
        "closed_form": (
            "O((min(N, D) + J)^3) a pass, some 17 of them",
            "every row labelled, one variance for all outputs",
        ),
        "vb": ("O(N D K^2)", "uncertainty of loadings under the Gaussian prior"),
        "gibbs": ("O(N D K^2)", "draws with the proper prior; probit outputs"),
        "ep": ("O(N (D K^2 + J^3))", "probit outputs: exact for one binary output"),
        "morp": (
            "O(N D min(N, D)); O(N^3) with a kernel",
            "a projection to compare with, no model of the rows",
        ),
        "kernel_cca": ("O(N^3)", "a projection to compare with, no model of the rows"),
    },
    "epca": {
        "map": (
            "O(N D K)",
            "first, and for tables of millions of cells; beta = 1 has nothing else; num_restarts=5 where "
            "latent_variance times loading_variance is above 10: single starts end apart there",
        ),
        "gibbs": (
            "O(N D K^2)",
            "draws for Gaussian, Bernoulli and binomial cells, joint prior and ARD included",
        ),
        "vb": (
            "O(N D K^2); Poisson some ten times O(N D K^3)",
            "a bound to compare models by; Poisson cells",
        ),
    },
    "paired": {
        "map": (
            "O(N D K)",
            "first, and for large tables; num_restarts=5 where latent_variance times loading_variance is "
            "above 10: single starts end apart there",
        ),
        "gibbs": (
            "O(N D K^2); full covariances O(N D^2 + D^3) a view",
            "draws, and the full-covariance model",
        ),
        "vb": (
            "O(N D K^2); Poisson some ten times O(N D K^3)",
            "a bound to compare models by; the low-rank program",
        ),
        "closed_form": ("O(N D min(N, D)), once", "Gaussian views without holes: CCA and PLS"),
    },
    "lda": {
        "vb": ("O(inner steps x nonzeros x K)", "first; documents are restarted in every step"),
        "collapsed_gibbs": ("O(tokens x K)", "draws that mix"),
        "gibbs": ("O(tokens x K)", "parameters in the state, all tokens at once; mixes more slowly"),
    },
    "plsi": {
        "em": ("O(nonzeros x K)", "the maximum of the likelihood; temper it when it overfits"),
    },
    "pcp": {
        "vb": (
            "O(nonzeros x M + inner steps x M W K)",
            "first: the structured family; the mean-field one collapses",
        ),
        "collapsed_gibbs": ("O(tokens x K + D M K), D documents", "draws that mix"),
        "gibbs": ("O(nonzeros x M + tokens x K)", "parameters in the state; mixes more slowly"),
    },
    "depcam": {
        "em": (
            "five passes of O(N K D d)",
            "first, with sparsity above 0; equals EM of Tipping and Bishop for Gaussian cells",
        ),
        "vb": ("five passes of O(N K D d^2)", "compares numbers of components fairly; sparsity 0 is safe"),
    },
}
