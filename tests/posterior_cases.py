"""Small instances of every model with a reference posterior, and what is compared of a fit.

``python -m tests.posterior_cases [NAME ...]`` remakes tests/reference/posteriors/NAME.json: means of the
invariants (`inference.diagnostics.invariants`) in a long run of one sampler with their Monte Carlo standard
errors, enumerated means where all labels or topics can be listed, and the measured bias of every approximate
method. test_reference_posteriors.py holds every method of every model to these files.
"""

import itertools
import json
import sys
import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from arviz_stats.base import array_stats
from scipy.special import gammaln

import zoo
from inference import fit
from inference.convergence.identifiable import kind_of, scalars
from inference.diagnostics import invariants

if __name__ == "__main__":
    from tests.recording import REFERENCE, circumstances
else:
    from recording import REFERENCE, circumstances

POSTERIORS = REFERENCE / "posteriors"
NOT_COMPARED = ("lp", "objective")  # each method's own: with locals summed out or not, a bound, a maximum
LONG = {"num_warmup": 2000, "num_samples": 20_000, "thinning": 2}
NUTS = {"num_warmup": 1000, "num_samples": 2000}
HMC = {"num_warmup": 1000, "num_samples": 4000}
SVI = {"max_iterations": 5000, "num_samples": 4000}


class Case(NamedTuple):
    """A model, its data, and how its methods are run; a method may need a variant of the model.

    Attributes:
        model: with the prior that the reference posterior is of.
        data: small.
        reference: method and options of the long run.
        exact: methods that draw from this posterior, with their options.
        approximate: methods that do not, with their options; ``model`` among them replaces the case's.
        enumerated: gives means of some invariants by listing all labels or topics; None: too many.
        left_out: methods that leave nothing to compare, and why.
    """

    model: Any
    data: tuple
    reference: tuple[str, dict]
    exact: dict[str, dict]
    approximate: dict[str, dict]
    enumerated: Any = None
    left_out: dict[str, str] = {}


def statistics(tree):
    """Mean and Monte Carlo standard error of every invariant of a fit, and R-hat and ESS of chains."""
    kind, found = kind_of(tree), {}
    for name, draws in scalars(invariants(tree)):
        if name.split("[")[0] in NOT_COMPARED:
            continue
        own = {"mean": float(draws.mean()), "mcse": 0.0}
        if kind == "variational":
            own["mcse"] = float(draws.std(ddof=1) / np.sqrt(draws.size))
        elif kind == "sampling" and np.ptp(draws) > 0:
            axes = {"chain_axis": 0, "draw_axis": 1}
            own["mcse"] = float(array_stats.mcse(draws, **axes, method="mean"))
            own["r_hat"] = float(array_stats.rhat(draws, **axes))
            own["ess"] = float(array_stats.ess(draws, **axes))
        if kind != "point":
            own["sd"] = float(draws.std())
        found[name] = own
    return found


def fitted(case, method, options, seed):
    """A fit of the case; that it says it has not converged is judged by its numbers, not by its warning."""
    options = dict(options)
    model = options.pop("model", case.model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return fit(model, *case.data, method=method, seed=seed, progress=False, **options)


# Enumerated posteriors


def every_partition(model, x):
    """Mean number of clusters and share of pairs in one cluster, over all labels of the rows."""
    labels = np.array(list(itertools.product(range(model.num_components), repeat=len(x))))
    with jax.enable_x64(True):
        features = model.components.features(jnp.asarray(x))
        sums = jax.vmap(lambda z: jax.ops.segment_sum(features, z, num_segments=model.num_components))
        evidence = jnp.sum(model.components.log_evidence(sums(jnp.asarray(labels))), axis=-1)
    counts = np.stack([np.bincount(z, minlength=model.num_components) for z in labels])
    share = float(model.concentration) / model.num_components
    log = np.asarray(evidence) + gammaln(share + counts).sum(axis=1)
    weights = np.exp(log - np.logaddexp.reduce(log))
    pairs = (counts * (counts - 1)).sum(axis=1) / (len(x) * (len(x) - 1))
    return {"num_occupied": weights @ (counts > 0).sum(axis=1), "same_cluster": weights @ pairs}


def every_topic(model, counts):
    """Mean word probabilities over all topics of all tokens (and clusters of all documents).

    Given these the posteriors are Dirichlets, and shares, topics and weights independent. Of LDA one row a
    document; of PCP those of a document whose cluster is not known.
    """
    document, word = (
        np.repeat(axis.ravel(), counts.astype(int).ravel()) for axis in np.indices(counts.shape)
    )
    clustered = isinstance(model, zoo.PCP)
    clusterings = [np.arange(len(counts))]
    if clustered:
        clusterings = map(np.array, itertools.product(range(model.num_clusters), repeat=len(counts)))
    means, logs = [], []
    for clusters, topics in itertools.product(
        clusterings, map(np.array, itertools.product(range(model.num_topics), repeat=len(word)))
    ):
        num_rows = model.num_clusters if clustered else len(counts)
        shares = np.zeros((num_rows, model.num_topics)) + model.topic_prior
        words = np.full((model.num_topics, counts.shape[1]), float(model.word_smoothing))
        np.add.at(shares, (clusters[document], topics), 1)
        np.add.at(words, (topics, word), 1)
        rows = [shares, words]
        if clustered:
            sizes = np.bincount(clusters, minlength=num_rows)
            rows.insert(0, (float(model.concentration) / num_rows + sizes)[None])
        logs.append(sum(gammaln(row).sum() - gammaln(row.sum(1)).sum() for row in rows))
        means.append(np.linalg.multi_dot([row / row.sum(1, keepdims=True) for row in rows]))
    weights = np.exp(np.array(logs) - np.logaddexp.reduce(logs))
    mean = np.tensordot(weights, np.array(means), axes=1)
    if clustered:
        return {f"word_probs[{w}]": mean[0, w] for w in range(3)}
    return {f"word_probs[{d}, {w}]": mean[d, w] for d in range(3) for w in range(3)}


# The instances


def _bits(num_rows, num_columns, seed):
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=(num_rows, 1)) * rng.normal(size=num_columns) * 1.5
    return (rng.uniform(size=theta.shape) < 1 / (1 + np.exp(-theta))).astype(float)


def _plane(num_rows, num_columns, seed):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(num_rows, 1)) * rng.normal(size=num_columns) * 1.5 + rng.normal(
        size=(num_rows, num_columns)
    )


_ROWS = np.array([[-1.3], [-0.9], [0.1], [0.4], [1.6], [2.2]])
_TOKENS = np.array([[2.0, 1, 1], [0, 3, 0], [1, 0, 1]])
_X, _Y = _plane(25, 3, 0), _plane(25, 2, 0)
_LABELS = (_Y[:, :1] > 0).astype(float)
_BITS = _bits(20, 4, 1)
_BALANCED = {"loading_prior": "gaussian", "noise_concentration": 2.0, "noise_rate": 1.0}

CASES = {
    "mixture": lambda: Case(
        zoo.Mixture(
            components=zoo.GaussianWishart([0.0], 0.3, [[0.7]], 2.5),
            num_components=3,
            concentration=1.3,
            weight_prior="dirichlet",
        ),
        (_ROWS,),
        ("gibbs", LONG),
        {"gibbs": HMC, "collapsed_gibbs": HMC, "nuts": NUTS, "hmc": HMC},
        {"vb": {"num_samples": 4000, "num_restarts": 5}, "em": {"num_restarts": 5}, "svi": SVI},
        every_partition,
    ),
    "ppca": lambda: Case(
        zoo.PPCA(num_latents=1, loading_variance=1.0, loc_mean=np.zeros(3), loc_variance=1.0, **_BALANCED),
        (_X,),
        ("nuts", {"num_warmup": 1000, "num_samples": 10_000}),
        {"nuts": NUTS, "hmc": HMC},
        {
            "vb": {"num_samples": 4000},
            "em": {},
            "svi": SVI,
            "closed_form": {"model": zoo.PPCA(num_latents=1)},
        },
    ),
    "kernelpca": lambda: Case(
        zoo.KernelPCA(num_latents=1, kernel="linear", noise_variance=0.3, latent_variance=0.8),
        (_X[:6],),
        ("nuts", {"num_warmup": 1000, "num_samples": 10_000}),
        {"nuts": NUTS, "hmc": HMC},
        {
            "svi": SVI,
            "em": {"model": zoo.KernelPCA(num_latents=1, kernel="linear", noise_variance=0.3)},
            "closed_form": {"model": zoo.KernelPCA(num_latents=1, kernel="linear", noise_variance=0.3)},
        },
    ),
    "sppca": lambda: Case(
        zoo.SPPCA(num_latents=1, loading_variance=1.0, loc_variance=1.0, **_BALANCED),
        (_X, _Y),
        ("nuts", {"num_warmup": 1000, "num_samples": 10_000}),
        {"nuts": NUTS, "hmc": HMC},
        {
            "vb": {"num_samples": 4000},
            "em": {},
            "svi": SVI,
            "closed_form": {"model": zoo.SPPCA(num_latents=1, center="plugin")},
        },
        left_out={
            "morp": "a projection of rows, no distribution of them",
            "kernel_cca": "a projection of rows, no distribution of them",
            "gibbs": "for probit outputs: the case sppca_probit",
            "ep": "for probit outputs: the case sppca_probit",
        },
    ),
    "sppca_probit": lambda: Case(
        zoo.SPPCA(
            num_latents=1, loading_variance=1.0, loc_variance=1.0, output_likelihood="probit", **_BALANCED
        ),
        (_X, _LABELS),
        ("gibbs", LONG),
        {"gibbs": HMC, "nuts": NUTS, "hmc": HMC},
        {"ep": {}, "svi": SVI},
        left_out={name: "for Gaussian outputs: the case sppca" for name in ("vb", "em", "closed_form")}
        | {name: "a projection of rows, no distribution of them" for name in ("morp", "kernel_cca")},
    ),
    "epca": lambda: Case(
        zoo.EPCA(family="bernoulli", num_latents=1, beta=0.5, loc_variance=1.0),
        (_BITS,),
        ("gibbs", LONG),
        {"gibbs": HMC, "nuts": NUTS, "hmc": HMC},
        {"vb": {"num_samples": 4000}, "map": {}, "svi": SVI},
    ),
    "paired": lambda: Case(
        zoo.Paired.ecca(("bernoulli", "bernoulli"), 1, (1, 1), beta=0.5, loc_variance=1.0),
        (_BITS, _bits(20, 3, 2)),
        ("gibbs", LONG),
        {"gibbs": HMC, "nuts": NUTS, "hmc": HMC},
        {"vb": {"num_samples": 4000}, "map": {}, "svi": SVI},
        left_out={"closed_form": "for Gaussian views with a flat prior, which has no posterior"},
    ),
    "lda": lambda: Case(
        zoo.LDA(num_topics=2, num_words=3, topic_prior=[0.5, 0.9], word_smoothing=0.7),
        (_TOKENS,),
        ("collapsed_gibbs", LONG),
        {"collapsed_gibbs": HMC, "gibbs": HMC, "nuts": NUTS, "hmc": HMC},
        {"vb": {"num_samples": 4000, "learn": ()}, "svi": SVI},
        every_topic,
    ),
    "plsi": lambda: Case(
        zoo.PLSI(num_topics=2),
        (_TOKENS,),
        ("nuts", {"num_warmup": 1000, "num_samples": 10_000}),
        {"nuts": NUTS, "hmc": HMC},
        {"em": {}, "svi": SVI},
    ),
    "pcp": lambda: Case(
        zoo.PCP(num_topics=2, num_clusters=2, num_words=3, topic_prior=0.9, word_smoothing=0.7),
        (_TOKENS,),
        ("collapsed_gibbs", LONG),
        {"collapsed_gibbs": HMC, "gibbs": HMC, "nuts": NUTS, "hmc": HMC},
        {"vb": {"num_samples": 4000, "learn": ()}, "svi": SVI},
        every_topic,
    ),
    "depcam": lambda: Case(
        zoo.DEPCAM(
            num_components=2,
            num_latents=1,
            repulsion=1.0,
            sparsity=1.0,
            offset_variance=1.0,
            concentration=2.0,
        ),
        (_bits(12, 3, 3),),
        ("nuts", {"num_warmup": 2000, "num_samples": 4000}),
        {"nuts": NUTS, "hmc": HMC},
        {"vb": {"num_samples": 4000}, "em": {}, "map": {}, "svi": SVI},
    ),
}


def remake(name):
    """Run the reference and every approximate method, and write the file.

    Raises:
        RuntimeError: the long run has not converged: R-hat 1.01 or more, or fewer than 400 effective draws.
    """
    case = CASES[name]()
    method, options = case.reference
    reference = statistics(fitted(case, method, options, seed=0))
    worst = max(own.get("r_hat", 1.0) for own in reference.values())
    fewest = min(own.get("ess", np.inf) for own in reference.values())
    if not (worst < 1.01 and fewest > 400):
        raise RuntimeError(f"{name}: R-hat {worst:.4f}, ESS {fewest:.0f} after {options}")
    enumerated = {} if case.enumerated is None else case.enumerated(case.model, *case.data)
    for quantity, value in enumerated.items():
        z = (reference[quantity]["mean"] - value) / reference[quantity]["mcse"]
        if abs(z) > 4:
            raise RuntimeError(f"{name}: {quantity} is {z:.1f} standard errors from its enumerated mean")
        reference[quantity] = {"mean": float(value), "mcse": 0.0, "sd": reference[quantity]["sd"]}
    record = circumstances(f"python -m tests.posterior_cases {name}") | {
        "model": repr(case.model),
        "method": method,
        "options": options,
        "largest_r_hat": worst,
        "smallest_ess": fewest,
        "enumerated": sorted(enumerated),
        "posterior": reference,
        "bias": {other: bias(case, other, reference) for other in case.approximate},
        "left_out": case.left_out,
    }
    POSTERIORS.mkdir(exist_ok=True)
    (POSTERIORS / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def bias(case, method, reference, seed=1):
    """Mean of each invariant under a method, less that of the reference, with its standard error."""
    found = statistics(fitted(case, method, case.approximate[method], seed))
    return {
        quantity: {
            "bias": own["mean"] - reference[quantity]["mean"],
            "standard_error": float(np.hypot(own["mcse"], reference[quantity]["mcse"])),
        }
        for quantity, own in found.items()
        if quantity in reference
    }


if __name__ == "__main__":
    for asked in sys.argv[1:] or CASES:
        remake(asked)
        print(asked, flush=True)
