"""Small instances of every model with a reference posterior, and how its methods are run on them.

``python -m tests.support.posterior_cases [NAME ...]`` remakes the references ``data/posteriors/NAME.json``
(`zoo.posteriors`): means and standard deviations of the invariants, by listing all labels or topics where
they can be listed, else in a long run of one sampler with its Monte Carlo standard errors.
``python -m tests.support.posterior_table [NAME ...]`` runs every method on them and writes what it finds to
``tests/reference/posteriors/NAME.json``. test_reference_posteriors.py holds every method to both.
"""

import json
import sys
import warnings
from typing import Any, NamedTuple

import numpy as np
from arviz_stats.base import array_stats

import zoo
from inference import fit
from inference.calibration.reference_posteriors import compared_quantities
from inference.convergence.identifiable import kind_of
from inference.results.model_fields import describe
from tests.support.posterior_enumeration import every_partition, every_partition_of_process, every_topic
from tests.tools.recording import REFERENCE, circumstances
from zoo import conjugate
from zoo.datasets import shipped_folder

METHODS_ON_POSTERIORS = REFERENCE / "posteriors"
LONG = {"num_warmup": 2000, "num_samples": 20_000, "thinning": 2}
NUTS = {"num_warmup": 1000, "num_samples": 2000}
HMC = {"num_warmup": 1000, "num_samples": 4000}
SVI = {"max_iterations": 5000, "num_samples": 4000}
VB = {"num_samples": 4000, "num_restarts": 5}


class Case(NamedTuple):
    """A model, its data, and how its methods are run; a method may need a variant of the model.

    Attributes:
        title: model, prior and data in words.
        model: with the prior that the reference posterior is of.
        data: small.
        reference: method and options of the long run; None: all quantities are enumerated.
        exact: methods that draw from this posterior, with their options.
        approximate: methods that do not, with their options; ``model`` among them replaces the case's.
        enumerated: gives mean and sd of invariants by listing all labels or topics; None: too many.
        left_out: methods that leave nothing to compare, and why.
    """

    title: str
    model: Any
    data: tuple
    reference: tuple[str, dict] | None
    exact: dict[str, dict]
    approximate: dict[str, dict]
    enumerated: Any = None
    left_out: dict[str, str] = {}


def fitted(case, method, options, seed):
    """A fit of the case; that it says it has not converged is judged by its numbers, not by its warning.

    Raises:
        KeyboardInterrupt: the fit was interrupted; what it has found by then is not that of the method.
    """
    options = dict(options)
    model = options.pop("model", case.model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        tree = fit(model, *case.data, method=method, seed=seed, progress=False, **options)
    if tree.attrs["stop_reason"].startswith("interrupted"):
        raise KeyboardInterrupt(f"{method} was interrupted: {tree.attrs['stop_reason']}")
    return tree


# How a posterior is enumerated


def partitions(model, x):
    return every_partition(model, x)


def process(model, x):
    return every_partition_of_process(model, x)


def topics(model, counts):
    return every_topic(counts, model.num_topics, np.asarray(model.topic_prior), float(model.word_smoothing))


def flat_topics(model, counts):
    return every_topic(counts, model.num_topics, 1.0, 1.0)


def clustered_topics(model, counts):
    return every_topic(
        counts,
        model.num_topics,
        np.asarray(model.topic_prior),
        float(model.word_smoothing),
        model.num_clusters,
        float(model.concentration),
    )


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


# why tempering is left out
_OF_EVIDENCE = "its evidence is known: tests/inference/methods/test_tempered_models.py"
_UNNORMALISED = "an unnormalised prior has no evidence"

_ROWS = np.array([[-1.3], [-0.9], [0.1], [0.4], [1.6], [2.2]])
_TOKENS = np.array([[2.0, 1, 1], [0, 3, 0], [1, 0, 1]])
_X, _Y = _plane(25, 3, 0), _plane(25, 2, 0)
_ODD = _X * np.where(np.arange(25) < 2, 8.0, 1.0)[:, None]
_LABELS = (_Y[:, :1] > 0).astype(float)
_BITS = _bits(20, 4, 1)
_BALANCED = {"loading_prior": "gaussian", "noise_concentration": 2.0, "noise_rate": 1.0}

CASES = {
    "mixture": lambda: Case(
        "Three Gaussians on six numbers, Dirichlet weights",
        zoo.Mixture(
            components=zoo.conjugate.GaussianWishart([0.0], 0.3, [[0.7]], 2.5),
            num_components=3,
            concentration=1.3,
            weight_prior="dirichlet",
        ),
        (_ROWS,),
        ("gibbs", LONG),
        {"gibbs": HMC, "collapsed_gibbs": HMC, "tempered": HMC, "nuts": NUTS, "hmc": HMC},
        {"vb": {"num_samples": 4000, "num_restarts": 5}, "em": {"num_restarts": 5}, "svi": SVI},
        partitions,
    ),
    "ppca": lambda: Case(
        "Probabilistic PCA with one latent, 25 rows of three columns",
        zoo.PPCA(num_latents=1, loading_variance=1.0, loc_mean=np.zeros(3), loc_variance=1.0, **_BALANCED),
        (_X,),
        ("nuts", {"num_warmup": 1000, "num_samples": 10_000}),
        {"gibbs": HMC, "tempered": HMC, "nuts": NUTS, "hmc": HMC},
        {
            "vb": {"num_samples": 4000},
            "em": {},
            "svi": SVI,
            "closed_form": {"model": zoo.PPCA(num_latents=1)},
        },
    ),
    "ppca_student": lambda: Case(
        "Probabilistic PCA with one latent and Student-t rows, 25 rows of three columns, two far away",
        zoo.PPCA(
            num_latents=1,
            degrees_of_freedom=4.0,
            loading_variance=1.0,
            loc_mean=np.zeros(3),
            loc_variance=1.0,
            **_BALANCED,
        ),
        (_ODD,),
        ("gibbs", LONG),
        {"gibbs": HMC, "nuts": NUTS, "hmc": HMC},
        {"vb": {"num_samples": 4000}, "em": {}, "svi": SVI},
        left_out={"closed_form": "for normal rows: the case ppca", "tempered": _OF_EVIDENCE},
    ),
    "mcfa": lambda: Case(
        "Two clusters on one latent, 25 rows of three columns",
        zoo.MCFA(
            num_components=2,
            num_latents=1,
            concentration=2.0,
            mean_precision=0.5,
            loading_variance=1.0,
            loc_mean=np.zeros(3),
            loc_variance=1.0,
            **_BALANCED,
        ),
        (_X,),
        ("gibbs", LONG),
        {"gibbs": HMC, "nuts": NUTS, "hmc": HMC},
        {"vb": {"num_samples": 4000}, "map": {}, "svi": SVI},
        left_out={"tempered": _OF_EVIDENCE},
    ),
    "kernelpca": lambda: Case(
        "Probabilistic kernel PCA, linear kernel, one latent, six rows",
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
        "Supervised PPCA with one latent, 25 rows of three inputs and two targets",
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
            "tempered": _OF_EVIDENCE,
        },
    ),
    "sppca_probit": lambda: Case(
        "Supervised PPCA with one latent, 25 rows of three inputs and one label, probit",
        zoo.SPPCA(
            num_latents=1, loading_variance=1.0, loc_variance=1.0, output_likelihood="probit", **_BALANCED
        ),
        (_X, _LABELS),
        ("gibbs", LONG),
        {"gibbs": HMC, "nuts": NUTS, "hmc": HMC},
        {"ep": {}, "svi": SVI},
        left_out={name: "for Gaussian outputs: the case sppca" for name in ("vb", "em", "closed_form")}
        | {name: "a projection of rows, no distribution of them" for name in ("morp", "kernel_cca")}
        | {"tempered": _OF_EVIDENCE},
    ),
    "epca": lambda: Case(
        "Exponential-family PCA with one latent, joint prior, 20 rows of four bits",
        zoo.EPCA(family="bernoulli", num_latents=1, beta=0.5, loc_variance=1.0),
        (_BITS,),
        ("gibbs", LONG),
        {"gibbs": HMC, "nuts": NUTS, "hmc": HMC},
        {"vb": {"num_samples": 4000}, "map": {}, "svi": SVI},
        left_out={"tempered": _UNNORMALISED},
    ),
    "paired": lambda: Case(
        "Exponential-family CCA with one shared and two specific latents, joint prior, 20 rows of 4 + 3 bits",
        zoo.Paired.ecca(("bernoulli", "bernoulli"), 1, (1, 1), beta=0.5, loc_variance=1.0),
        (_BITS, _bits(20, 3, 2)),
        ("gibbs", LONG),
        {"gibbs": HMC, "nuts": NUTS, "hmc": HMC},
        {"vb": {"num_samples": 4000}, "map": {}, "svi": SVI},
        left_out={
            "closed_form": "for Gaussian views with a flat prior, which has no posterior",
            "tempered": _UNNORMALISED,
        },
    ),
    "lda": lambda: Case(
        "Two topics, three documents of ten tokens, three words",
        zoo.LDA(num_topics=2, num_words=3, topic_prior=[0.5, 0.9], word_smoothing=0.7),
        (_TOKENS,),
        ("collapsed_gibbs", LONG),
        {"collapsed_gibbs": HMC, "gibbs": HMC, "tempered": HMC, "nuts": NUTS, "hmc": HMC},
        {"vb": {"num_samples": 4000, "learn": ()}, "svi": SVI},
        topics,
    ),
    "plsi": lambda: Case(
        "pLSI with two topics and flat priors, three documents of ten tokens, three words",
        zoo.PLSI(num_topics=2),
        (_TOKENS,),
        ("nuts", {"num_warmup": 1000, "num_samples": 10_000}),
        {"nuts": NUTS, "hmc": HMC},
        {"em": {}, "svi": SVI},
        flat_topics,
    ),
    "pcp": lambda: Case(
        "Two topics and two clusters, three documents of ten tokens, three words",
        zoo.PCP(num_topics=2, num_clusters=2, num_words=3, topic_prior=0.9, word_smoothing=0.7),
        (_TOKENS,),
        ("collapsed_gibbs", LONG),
        {"collapsed_gibbs": HMC, "gibbs": HMC, "nuts": NUTS, "hmc": HMC},
        {"vb": {"num_samples": 4000, "learn": ()}, "svi": SVI},
        clustered_topics,
        left_out={"tempered": _OF_EVIDENCE},
    ),
    "depcam": lambda: Case(
        "Two repulsive components with one latent each, 12 rows of three bits",
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
        left_out={"tempered": _UNNORMALISED},
    ),
}


# Mixtures and topics small enough that every mean is exact


_FINITE = "for Dirichlet weights: the case mixture"  # why EM is left out elsewhere
_UNTRUNCATED = "of the process without truncation: the case mixture_process"
_TEMPERED = "a sampler of the mixture, tempered: the case mixture"


def _mixture(title, components, x, weight_prior="dirichlet", num_components=3, concentration=1.3):
    sticks = weight_prior == "stick_breaking"
    gibbs = ("gibbs",) if sticks else ("gibbs", "collapsed_gibbs")
    return Case(
        f"{title}, {'stick-breaking' if sticks else 'Dirichlet'} weights",
        zoo.Mixture(
            components=components,
            num_components=num_components,
            concentration=concentration,
            weight_prior=weight_prior,
        ),
        (np.array(x, float),),
        None,
        dict.fromkeys(gibbs, HMC) | {"nuts": NUTS, "hmc": HMC},
        {"vb": VB, "svi": SVI} | ({} if sticks else {"em": {"num_restarts": 5}}),
        partitions,
        {"tempered": _TEMPERED} | ({"collapsed_gibbs": _UNTRUNCATED, "em": _FINITE} if sticks else {}),
    )


def _process(title, components, x):
    case = _mixture(title, components, x, "stick_breaking", num_components=6)
    others = [method for method in zoo.Mixture.methods if method != "collapsed_gibbs"]
    return case._replace(
        title=f"{title}, Dirichlet process without truncation",
        exact={"collapsed_gibbs": HMC},
        approximate={},
        enumerated=process,
        left_out=dict.fromkeys(others, "of the truncated program: the case mixture_sticks")
        | {"em": _FINITE, "tempered": _TEMPERED},
    )


def _topics(title, model, counts, enumerated):
    flat = isinstance(model, zoo.PLSI)
    gibbs = {} if flat else {"collapsed_gibbs": HMC, "gibbs": HMC}
    return Case(
        title,
        model,
        (np.array(counts, float),),
        None,
        gibbs | {"nuts": NUTS, "hmc": HMC},
        {"em": {}, "svi": SVI} if flat else {"vb": {"num_samples": 4000, "learn": ()}, "svi": SVI},
        enumerated,
        {} if flat else {"tempered": "a sampler of topics, tempered: the case lda"},
    )


_PLANE = [[-1.2, 0.3], [-0.8, -0.4], [0.1, 1.1], [0.9, 0.8], [1.5, -0.2], [2.0, 0.4]]
_ANSWERS = [[1, 1, 0], [1, 1, 0], [0, 0, 1], [0, 1, 1], [1, 0, 0], [0, 0, 1]]
_GAPS = [[1, 1, np.nan], [1, np.nan, 0], [0, 0, 1], [np.nan, 1, 1], [1, 0, 0], [0, 0, 1]]
_EVENTS = [[0, 5], [1, 4], [6, 1], [3, 2], [8, 0], [2, 2]]
_BAGS = [[4, 1, 0], [3, 2, 0], [0, 1, 4], [1, 0, 4], [2, 2, 1], [0, 3, 2]]
_LEVELS = [[0, 2], [0, 2], [1, 0], [2, 0], [2, 1], [1, 1]]
_WAITS = [[0.2, 1.1], [0.1, 0.7], [2.4, 0.3], [3.1, 0.2], [0.9, 0.9], [1.6, 2.5]]
_MIXED = [[-1.2, 0, 1], [-0.8, 1, 1], [0.1, 6, 0], [0.9, 3, 1], [1.5, 8, 0], [2.0, 2, 0]]

ENUMERATED = {
    "mixture_sticks": lambda: _mixture(
        "Three Gaussians on six numbers",
        conjugate.GaussianWishart([0.0], 0.3, [[0.7]], 2.5),
        _ROWS,
        "stick_breaking",
    ),
    "mixture_process": lambda: _process(
        "Gaussians on six numbers", conjugate.GaussianWishart([0.0], 0.3, [[0.7]], 2.5), _ROWS
    ),
    "mixture_process_poisson": lambda: _process(
        "Components of counts on six rows of two columns",
        conjugate.PoissonGamma([1.5, 1.5], [0.5, 0.5]),
        _EVENTS,
    ),
    "mixture_plane": lambda: _mixture(
        "Three Gaussians with full covariances on six rows of two columns",
        conjugate.GaussianWishart([0.3, 0.2], 0.3, [[0.7, 0.2], [0.2, 0.9]], 3.5),
        _PLANE,
    ),
    "mixture_known_covariance": lambda: _mixture(
        "Four Gaussians of known covariance on six rows of two columns",
        conjugate.GaussianKnownCovariance([0.3, 0.2], 0.2, [[0.5, 0.1], [0.1, 0.4]]),
        _PLANE,
        num_components=4,
    ),
    "mixture_known_mean": lambda: _mixture(
        "Three Gaussians of known mean on six rows of two columns",
        conjugate.GaussianKnownMean([0.3, 0.2], [[0.7, 0.2], [0.2, 0.9]], 3.5),
        _PLANE,
    ),
    "mixture_normal_gamma": lambda: _mixture(
        "Three normals with a variance per column on six rows of two columns",
        conjugate.NormalGamma([0.3, 0.2], [0.3, 0.3], [2.1, 1.4], [1.2, 0.4]),
        _PLANE,
        "stick_breaking",
    ),
    "mixture_spherical": lambda: _mixture(
        "Three normals with one variance on six rows of two columns",
        conjugate.SphericalNormalGamma([0.3, 0.2], [0.3, 0.3], 2.1, 1.2),
        _PLANE,
    ),
    "mixture_bernoulli": lambda: _mixture(
        "Three components of bits on six rows of three columns",
        conjugate.BernoulliBeta([0.7, 0.7, 0.7], [0.7, 0.7, 0.7]),
        _ANSWERS,
    ),
    "mixture_bernoulli_missing": lambda: _mixture(
        "Three components of bits on six rows of three columns, three cells missing",
        conjugate.BernoulliBeta([0.7, 0.7, 0.7], [0.7, 0.7, 0.7]),
        _GAPS,
        "stick_breaking",
    ),
    "mixture_binomial": lambda: _mixture(
        "Three components of counts out of eight on six rows of two columns",
        conjugate.BinomialBeta([0.7, 1.2], [1.5, 0.9], [8.0, 8.0]),
        _EVENTS,
    ),
    "mixture_poisson": lambda: _mixture(
        "Three components of counts on six rows of two columns",
        conjugate.PoissonGamma([1.5, 1.5], [0.5, 0.5]),
        _EVENTS,
    ),
    "mixture_poisson_sticks": lambda: _mixture(
        "Four components of counts on six rows of two columns",
        conjugate.PoissonGamma([1.5, 1.5], [0.5, 0.5]),
        _EVENTS,
        "stick_breaking",
        num_components=4,
        concentration=0.8,
    ),
    "mixture_multinomial": lambda: _mixture(
        "Three components of bags of five words on six rows",
        conjugate.MultinomialDirichlet([0.7, 0.7, 0.7], num_tokens=5),
        _BAGS,
    ),
    "mixture_categorical": lambda: _mixture(
        "Three components of categories on six rows of two columns",
        conjugate.CategoricalDirichlet([[0.7, 0.7, 0.7], [0.5, 0.5, 0.5]]),
        _LEVELS,
    ),
    "mixture_exponential": lambda: _mixture(
        "Three components of waiting times on six rows of two columns",
        conjugate.ExponentialGamma([2.0, 2.0], [0.8, 0.8]),
        _WAITS,
        "stick_breaking",
    ),
    "mixture_gamma": lambda: _mixture(
        "Three components of gamma variables of known shape on six rows of two columns",
        conjugate.GammaKnownShape([2.0, 2.0], [0.8, 0.8], [1.7, 2.3]),
        _WAITS,
    ),
    "mixture_log_normal": lambda: _mixture(
        "Three components of log-normal variables on six rows of two columns",
        conjugate.Product(
            (conjugate.NormalGamma([0.0, 0.0], [0.3, 0.3], [2.1, 1.4], [1.2, 0.4]),), ((0, 1),), logs=(0, 1)
        ),
        _WAITS,
    ),
    "mixture_mixed": lambda: _mixture(
        "Three components of a number, a count and a bit on six rows",
        conjugate.Product(
            families=(
                conjugate.NormalGamma([0.3], [0.3], [2.1], [1.2]),
                conjugate.PoissonGamma([1.5], [0.5]),
                conjugate.BernoulliBeta([0.7], [0.7]),
            ),
            columns=((0,), (1,), (2,)),
        ),
        _MIXED,
    ),
    "lda_three_topics": lambda: _topics(
        "Three topics, two documents of eight tokens, three words",
        zoo.LDA(num_topics=3, num_words=3, topic_prior=[0.6, 0.6, 0.6], word_smoothing=0.4),
        [[3, 1, 0], [0, 1, 3]],
        topics,
    ),
    "lda_sparse": lambda: _topics(
        "Two topics, sparse priors, four documents of eleven tokens, three words",
        zoo.LDA(num_topics=2, num_words=3, topic_prior=[0.3, 0.3], word_smoothing=0.3),
        [[3, 0, 0], [2, 1, 0], [0, 0, 3], [0, 1, 1]],
        topics,
    ),
    "plsi_long": lambda: _topics(
        "pLSI with two topics and flat priors, two documents of twelve tokens, three words",
        zoo.PLSI(num_topics=2),
        [[4, 2, 0], [0, 2, 4]],
        flat_topics,
    ),
    "pcp_three_clusters": lambda: _topics(
        "Two topics and three clusters, three documents of eight tokens, three words",
        zoo.PCP(num_topics=2, num_clusters=3, num_words=3, topic_prior=0.5, word_smoothing=0.5),
        [[2, 1, 0], [0, 0, 2], [0, 1, 2]],
        clustered_topics,
    ),
}
ALL = CASES | ENUMERATED


# Making a reference


def long_run(case):
    """Mean, sd, Monte Carlo standard error, R-hat and ESS of every quantity that varies, in the long run."""
    method, options = case.reference
    tree, found = fitted(case, method, options, seed=0), {}
    assert kind_of(tree) == "sampling"
    axes = {"chain_axis": 0, "draw_axis": 1}
    for name, draws in compared_quantities(tree).items():
        rare = name.startswith("pair_together") and abs(draws.mean() - 0.5) > 0.45
        if np.ptp(draws) > 0 and not rare:
            found[name] = {
                "mean": float(draws.mean()),
                "sd": float(draws.std()),
                "mcse": float(array_stats.mcse(draws, **axes, method="mean")),
                "r_hat": float(array_stats.rhat(draws, **axes)),
                "ess": float(array_stats.ess(draws, **axes)),
            }
    return found


def reference_of(case, name):
    """Quantities and origin of a reference.

    Raises:
        RuntimeError: the long run has not converged (R-hat 1.01 or more, or fewer than 5000 effective draws),
            or is more than 4 standard errors from an enumerated mean.
    """
    origin = {"method": "enumeration"}
    reference = {}
    if case.reference is not None:
        method, options = case.reference
        run = long_run(case)
        worst = max(own["r_hat"] for own in run.values())
        fewest = min(own["ess"] for own in run.values())
        if not (worst < 1.01 and fewest > 5000):
            raise RuntimeError(f"{name}: R-hat {worst:.4f}, ESS {fewest:.0f} after {options}")
        origin = {"method": method, "options": options, "largest_r_hat": worst, "smallest_ess": fewest}
        reference = {q: {key: own[key] for key in ("mean", "sd", "mcse")} for q, own in run.items()}
    if case.enumerated is not None:
        reference = with_enumerated(reference, case, name)
    return reference, origin | circumstances(f"python -m tests.support.posterior_cases {name}")


def with_enumerated(reference, case, name):
    """The reference with enumerated quantities in place of the long run's, which must agree with them."""
    reference = dict(reference)
    for quantity, (mean, sd) in case.enumerated(case.model, *case.data).items():
        run = reference.get(quantity)
        if run is not None and abs(run["mean"] - mean) > 4 * run["mcse"]:
            z = (run["mean"] - mean) / run["mcse"]
            raise RuntimeError(f"{name}: {quantity} is {z:.1f} standard errors from its enumerated mean")
        reference[quantity] = {"mean": mean, "sd": sd}
    return reference


def described(case):
    """What is assumed and observed, as the file of a posterior holds it."""
    model = case.model
    fields, arrays = describe(model)
    return {
        "title": case.title,
        "model": type(model).__name__.lower(),
        "fields": _inlined(json.loads(fields), arrays),
        "data": {part: _plain(data) for part, data in zip(model.data_names, case.data, strict=True)},
    }


def _inlined(value, arrays):
    """The fields with each array in place of its name."""
    if isinstance(value, list):
        return [_inlined(part, arrays) for part in value]
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return {"array": _plain(arrays[value["array"]])}
    return {name: _inlined(part, arrays) for name, part in value.items()}


def _plain(array):
    """Nested lists, None where a cell is missing."""
    if np.ndim(array):
        return [_plain(part) for part in array]
    return None if np.isnan(array) else float(array)


def write(name, case, reference, origin):
    """Write ``data/posteriors/NAME.json``, a line for each field, part of the data and quantity."""
    content = described(case) | {"reference": reference, "origin": origin}
    lines = []
    for key, value in content.items():
        if isinstance(value, dict):
            inner = [f"  {json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in value.items()]
            lines.append(f" {json.dumps(key)}: {{\n" + ",\n".join(inner) + "\n }")
        else:
            lines.append(f" {json.dumps(key)}: {json.dumps(value)}")
    folder = shipped_folder() / "posteriors"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def remake(name):
    """Make a reference and write its file."""
    case = ALL[name]()
    write(name, case, *reference_of(case, name))


if __name__ == "__main__":
    for asked in sys.argv[1:] or ALL:
        remake(asked)
        print(asked, flush=True)
