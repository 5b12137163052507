"""Tempered sampling of models beside mixtures of exact cells: evidence against draws of the prior and sums.

A small model's evidence is the mean of its likelihood over draws of the prior by the program, with an error
of hundredths; that of topics is a sum over all topics of all tokens. Runs have 16 replicates: an error over
its standard error is Student's t with 15 degrees of freedom, and all of them make one test, which fails for
right samplers once in a thousand seeds. Planted mistakes must fail it.
"""

import warnings
from functools import cache, partial
from zlib import crc32

import jax
import numpy as np
import pytest
from numpyro import handlers
from numpyro.infer.util import potential_energy, unconstrain_fn
from scipy import stats

import zoo
from inference import fit
from inference.methods.documents.tempered import log_coefficients
from inference.methods.documents.tokens import Tokens
from inference.methods.lda import gibbs as lda_gibbs
from inference.methods.linear_gaussian import tempered as of_cells
from inference.methods.tempered import nuts, sampler
from inference.numerics.programs import latent_names, log_densities
from inference.precision import in_precision
from tests.inference.methods.test_tempered import CLOSE, FALSE_ALARMS, of_errors
from tests.support.fit_requests import check_method
from tests.support.posterior_cases import ALL as POSTERIORS
from tests.support.posterior_cases import clustered_topics, topics
from tests.support.posterior_enumeration import log_evidence_of_topics
from zoo.conjugate import GaussianWishart
from zoo.exponential_family import Gaussian
from zoo.in_blocks import map_in_blocks
from zoo.intake.families import for_data
from zoo.model import in_current_precision

SHORT = {"num_chains": 1, "num_warmup": 1, "num_samples": 1, "progress": False}
RUN = {"method": "tempered", "num_chains": 16, "num_warmup": 200, "num_samples": 400, "num_temperatures": 8}


def _rows(num_rows, d, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(num_rows, 1)) * rng.normal(size=d) + 0.7 * rng.normal(size=(num_rows, d))


def _holes(x):
    return np.where(np.random.default_rng(5).uniform(size=x.shape) < 0.2, np.nan, x)


PRIOR = {"loading_prior": "gaussian", "noise_concentration": 3.0, "noise_rate": 2.0, "loading_variance": 1.0}
PRIOR |= {"loc_variance": 1.0}
ARD = {"loading_prior": "ard", "ard_concentration": 2.0, "ard_rate": 2.0}
X, Y = _rows(4, 3), _rows(4, 2, 1)
BITS, LABELS = (X > 0).astype(float), (Y[:, :1] > 0).astype(float)


def _ppca(d, k, **fields):
    return zoo.PPCA(num_latents=k, num_features=d, loc_mean=np.zeros(d), **PRIOR | fields)


def _sppca(**fields):
    given = {"num_latents": 1, "loc_mean": 0.0, "num_features": 3, "num_outputs": 2}
    return zoo.SPPCA(**given | PRIOR | fields)


def _mcfa(**fields):
    given = PRIOR | {"loc_mean": np.zeros(3), "concentration": 2.0, "mean_precision": 0.5} | fields
    return zoo.MCFA(num_components=2, num_latents=1, **given)


#: Model, data, and the kernels that temper it.
CASES = {
    "ppca": (_ppca(3, 2), (_rows(5, 3),), ("gibbs", "nuts")),
    "factor analysis with missing cells": (
        _ppca(3, 1, noise="diagonal", noise_rate=np.array([2.0, 1.0, 3.0])),
        (_holes(_rows(6, 3)),),
        ("gibbs",),
    ),
    "ppca with ard": (_ppca(3, 1, **ARD), (X,), ("gibbs", "nuts")),
    "ppca of standardised columns": (
        _ppca(3, 1, standardize=True, column_scale=np.array([0.5, 2.0, 30.0]), noise_rate=1.0),
        (X * [0.5, 2.0, 30.0],),
        ("gibbs",),
    ),
    "ppca of student rows": (_ppca(2, 1, degrees_of_freedom=3.0), (_rows(5, 2),), ("nuts",)),
    "sppca": (_sppca(num_features=2, num_outputs=1), (X[:3, :2], Y[:3, :1]), ("gibbs", "nuts")),
    "sppca of outputs with a noise each, half of them": (
        _sppca(output_noise="per_output", noise_rate=np.array([2.0, 1.0, 3.0])),
        (_holes(X), np.where(np.eye(4, 2) > 0, np.nan, Y)),
        ("gibbs",),
    ),
    "sppca of given noise": (_sppca(noise_variance_x=0.6), (X, Y), ("gibbs",)),
    "sppca of a probit output": (_sppca(output_likelihood="probit", num_outputs=1), (X, LABELS), ("nuts",)),
    "mcfa": (_mcfa(), (X,), ("gibbs", "nuts")),
    "mcfa with a noise each": (_mcfa(noise="diagonal", **ARD), (_holes(X),), ("gibbs",)),
    "epca of bits": (zoo.EPCA(family="bernoulli", num_latents=1, loc_variance=1.0), (BITS,), ("nuts",)),
    "epca of unknown noise": (
        zoo.EPCA(
            family=Gaussian(noise_variance=None), num_latents=1, loc_variance=1.0, unit=1.0, loc_mean=0.0
        ),
        (X[:3, :2],),
        ("nuts",),
    ),
    "paired": (
        zoo.Paired.ecca(("bernoulli", "bernoulli"), 1, (1, 0), loc_variance=1.0),
        (BITS[:, :2], BITS[:, 2:]),
        ("nuts",),
    ),
    "mixture of cells in steps": (
        zoo.Mixture(
            GaussianWishart(
                loc=np.zeros(2),
                mean_precision=0.5,
                degrees_of_freedom=4.0,
                scale_matrix=0.4 * np.eye(2),
                rounding=np.array([0.0, 1.0]),  # the last alone, whose probability has no lattice
            ),
            2,
            1.0,
            weight_prior="dirichlet",
        ),
        (np.array([[0.4, 0.0], [-0.3, 0.0], [0.8, 0.0], [-1.5, 2.0]]),),
        ("gibbs",),
    ),
    "depcam without repulsion": (
        zoo.DEPCAM(num_components=2, num_latents=1, repulsion=0.0, sparsity=1.0, offset_variance=1.0),
        (BITS,),
        ("nuts",),
    ),
}
TOPICS = {
    name: (case().model, case().data, ("gibbs", "nuts"))
    for name, case in POSTERIORS.items()
    if case().enumerated in (topics, clustered_topics)
}
ALL = CASES | TOPICS
PAIRS = [(name, kernel) for name, (_, _, kernels) in ALL.items() for kernel in kernels]


@cache
def known(name, kernel, number=400_000):
    """Log evidence of a case and its error: by draws of the prior, or a sum over all topics.

    Of each case and kernel other draws, so that errors are independent in one test of all of them.
    """
    model, data, _ = ALL[name]
    if name in TOPICS:
        return log_evidence_of_topics(model, *data), 0.0
    model = for_data(model, *data).with_sizes_from(*data)
    with in_precision():
        own, parts = in_current_precision(model), in_current_precision(data)
        names = latent_names(model, *data)
        key = jax.random.key(crc32(f"{name} {kernel}".encode()))

        def log_likelihood(key):
            sites = handlers.trace(handlers.seed(own, key)).get_trace(num_observations=len(data[0]))
            found = log_densities(own, parts, {site: sites[site]["value"] for site in names})
            return sum(found[part].sum() for part in model.data_names)

        logs = np.asarray(map_in_blocks(log_likelihood, jax.random.split(key, number), 20_000))
    weights = np.exp(logs - logs.max())
    assert weights.sum() ** 2 / (weights**2).sum() > 1000
    return logs.max() + np.log(weights.mean()), weights.std() / weights.mean() / np.sqrt(number)


def _at_hand(name):
    """A case's model and data in the precision of a fit, and values of its sites drawn from the prior."""
    model, data, _ = ALL[name]
    model = for_data(model, *data).with_sizes_from(*data)
    own, parts = in_current_precision(model), in_current_precision(data)
    sites = handlers.trace(handlers.seed(own, jax.random.key(3))).get_trace(num_observations=len(data[0]))
    return own, parts, {site: sites[site]["value"] for site in latent_names(model, *data)}


@pytest.mark.parametrize("name", ["ppca", "epca of bits", "lda"])
def test_the_program_at_a_power_is_the_prior_times_the_likelihood_to_it(name):
    with in_precision():
        model, data, values = _at_hand(name)
        z = unconstrain_fn(nuts.program, (0.0, model, *data), {}, values)
        energies = [potential_energy(nuts.program, (p, model, *data), {}, z) for p in (0.0, 0.3, 1.0)]
        by_site = log_densities(model, data, values)
        likelihood = float(sum(by_site[part].sum() for part in model.data_names))
        state = nuts.TemperedNUTSState(z, None)
        assert float(nuts.log_likelihood(state, model, *data)) == pytest.approx(likelihood)
    assert np.asarray(energies[0] - energies[1]) == pytest.approx(0.3 * likelihood)
    assert np.asarray(energies[0] - energies[2]) == pytest.approx(likelihood)


def test_coefficients_of_documents_are_those_of_multinomial_counts():
    counts, share = np.array([[2, 1, 0], [0, 3, 1]]), np.full(3, 1 / 3)
    document, word = (np.repeat(axis.ravel(), counts.ravel()) for axis in np.indices(counts.shape))
    wanted = stats.multinomial.logpmf(counts, counts.sum(1), share).sum() + counts.sum() * np.log(3)
    assert log_coefficients(None, (Tokens(document, word, counts.shape),)) == pytest.approx(wanted)


def errors_of(pairs, **options):
    """Errors, and standard errors with those of what is known, in nats."""
    errors, standard_errors = [], []
    for name, kernel in pairs:
        model, data, _ = ALL[name]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            told = fit(model, *data, kernel=kernel, seed=1, progress=False, **RUN | options).attrs
        assert told["why_no_evidence"] == "", (name, kernel, told["why_no_evidence"])
        value, error = known(name, kernel)
        errors.append(told["log_evidence"] - value)
        standard_errors.append(np.hypot(told["log_evidence_se"], error))
        print(f"{name:50} {kernel:6} {errors[-1]:+.4f} {standard_errors[-1]:.4f}", flush=True)
    return np.array(errors), np.array(standard_errors)


def test_the_gibbs_sampler_of_normal_cells_gives_the_evidence():
    errors, standard_errors = errors_of([("ppca with ard", "gibbs")])
    assert of_errors(errors, standard_errors) > FALSE_ALARMS and standard_errors[0] < 0.1


@pytest.mark.slow
def test_every_model_and_kernel_gives_the_evidence():
    errors, standard_errors = errors_of(PAIRS)
    assert of_errors(errors, standard_errors) > FALSE_ALARMS, (errors / standard_errors).round(1)
    assert abs(errors.mean()) <= CLOSE


#: Model, data, and why there is no evidence to tell.
REFUSED = {
    "views of weight": (
        zoo.Paired.ecca(("bernoulli", "bernoulli"), 1, (1, 0), loc_variance=1.0, view_weights=(1.0, 3.0)),
        (BITS[:, :2], BITS[:, 2:]),
        "the density of y_1 counts to the power 3, which is no density of data",
    ),
    "paired with beta": (
        zoo.Paired.ecca(("bernoulli", "bernoulli"), 1, (1, 0), beta=0.5),
        (BITS[:, :2], BITS[:, 2:]),
        "the prior of Paired is unnormalised, .*; choose beta=0",
    ),
    "epca with beta": (
        zoo.EPCA(family="bernoulli", num_latents=1, beta=0.5),
        (BITS,),
        "the prior of EPCA is unnormalised, .*; choose beta=0",
    ),
    "depcam with repulsion": (
        zoo.DEPCAM(num_components=2, num_latents=1, repulsion=1.0, sparsity=1.0, offset_variance=1.0),
        (BITS,),
        "the prior of DEPCAM is unnormalised, .*; choose repulsion=0",
    ),
    "ppca of flat loadings": (
        zoo.PPCA(num_latents=1, num_features=3, loading_prior="flat"),
        (X,),
        "the prior of PPCA is improper, .*; choose loading_prior",
    ),
    "sppca of flat loadings": (
        zoo.SPPCA(num_latents=1, num_features=3, num_outputs=2, loading_prior="flat"),
        (X, Y),
        "the prior of SPPCA is improper, .*; choose loading_prior",
    ),
    "kernel pca": (zoo.KernelPCA(num_latents=1), (X,), "tempered"),
    "plsi": (zoo.PLSI(num_topics=2), (np.eye(4, 3),), "tempered"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_evidence_is_refused_with_the_reason(name):
    model, data, why = REFUSED[name]
    with pytest.raises(ValueError, match=why):
        fit(model, *data, method="tempered", **SHORT)


def test_every_model_of_the_zoo_is_tempered_or_refused():
    seen = {type(model).__name__.lower() for model, *_ in (*ALL.values(), *REFUSED.values())}
    assert seen == set(zoo.MODELS)


@pytest.mark.parametrize("name", ALL)
def test_no_model_refuses_what_its_kernels_do(name):
    model, _, _ = ALL[name]
    check_method(model, "tempered")


def noise_without_power(whole, power, values, model, *data):
    """Cells count to the power, and the shape of the noise's conditional is that of all of them."""
    values, other = whole(power, values, model, *data)
    return values, other.replaced(noise_concentration=model.noise_concentration)


def cells_without_power(whole, power, values, model, *data):
    """The noise counts to the power, latents and columns do not."""
    return values, whole(power, values, model, *data)[1]


def topics_without_power(whole, keys, drawn, model, power=1.0):
    return whole(keys, drawn, model)


def tokens_without_power(whole, keys, values, model, counts, power=1.0):
    return whole(keys, values, model, counts)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("home", "name", "planted", "case"),
    [
        (of_cells, "at_power", noise_without_power, "ppca"),
        (of_cells, "at_power", cells_without_power, "ppca"),
        (lda_gibbs, "parameters_given", topics_without_power, "lda"),
        (lda_gibbs, "assigned", tokens_without_power, "lda"),
    ],
)
def test_a_power_that_is_forgotten_is_noticed(monkeypatch, home, name, planted, case):
    monkeypatch.setattr(home, name, partial(planted, getattr(home, name)))
    _forget()
    try:
        errors, standard_errors = errors_of([(case, "gibbs")])
    except AssertionError as refused:  # by the verdict, which has noticed it first
        assert "estimates from below and above" in str(refused)
    else:
        assert of_errors(errors, standard_errors) < FALSE_ALARMS
    finally:
        monkeypatch.undo()
        _forget()


def _forget():
    jax.clear_caches()
    sampler._of_kernel.cache_clear()
    sampler._algorithm.cache_clear()
