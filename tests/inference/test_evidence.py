"""The log evidence after the fact, against integrals that know nothing of its coordinates.

Posteriors are drawn exactly here, by resampling draws of the prior, so that no sampler stands between the
formula and its check; the slow test goes through NUTS. Every comparison is within four standard errors: one
of 16 000 fails by chance.
"""

import re
from dataclasses import dataclass
from functools import cache, partial

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.special
import scipy.stats
from numpyro import handlers, sample

import zoo
from inference import evidence, fit, log_evidence, save
from inference.fitting.verdict import verdict
from inference.numerics.programs import over_draws
from inference.precision import in_precision
from inference.results.files import load
from zoo.fields import size_of
from zoo.model import Table, in_current_precision

WANTED = 4.0  # standard errors
PRIOR = {"loading_prior": "gaussian", "noise_concentration": 3.0, "noise_rate": 2.0, "loading_variance": 1.0}
PRIOR |= {"loc_variance": 1.0}


def _rows(num_rows, d, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(num_rows, 1)) * rng.normal(size=d) + 0.7 * rng.normal(size=(num_rows, d))


def _ppca(d, k, **fields):
    return zoo.PPCA(num_latents=k, num_features=d, loc_mean=np.zeros(d), **PRIOR | fields)


def _sites(model, num_rows, key):
    """One draw of the prior by the program, without what belongs to rows."""
    sites = handlers.trace(handlers.seed(model, key)).get_trace(num_observations=num_rows)
    kept = {n: s["value"] for n, s in sites.items() if s["type"] == "sample" and not s["cond_indep_stack"]}
    return {name: value for name, value in kept.items() if name not in model.data_names}


def _log_rows(model, values, *data):
    return model.log_likelihood(values, *data).sum()


def _exact(model, data, number=200_000, num_draws=300, seed=0):
    """Log evidence by draws of the prior, its error, and draws (4, num_draws) of the posterior."""
    with in_precision():
        keys = jax.random.split(jax.random.key(seed), number)
        own = in_current_precision(model)
        prior = jax.jit(jax.vmap(partial(_sites, own, len(data[0]))))(keys)
        prior = {name: np.asarray(value) for name, value in prior.items()}
        log_weights = np.asarray(
            over_draws(_log_rows, {n: v[None] for n, v in prior.items()}, model, in_current_precision(data))
        )[0]
    weights = np.exp(log_weights - log_weights.max())
    assert weights.sum() ** 2 / (weights**2).sum() > 4 * num_draws  # few are drawn twice
    chosen = np.random.default_rng(seed).choice(number, (4, num_draws), p=weights / weights.sum())
    error = weights.std() / weights.mean() / np.sqrt(number)
    draws = {name: value[chosen] for name, value in prior.items()}
    return log_weights.max() + np.log(weights.mean()), error, draws


def _estimated(model, data, draws, seed=0, most=0.05):
    """What the module finds from draws (chain, draw, ...) of the sites."""
    with in_precision():
        data = in_current_precision(data)
        moved = over_draws(evidence._unconstrained, draws, model, data)
        moved = {name: np.asarray(value) for name, value in moved.items()}
        found, why = evidence._of_halves(jax.random.key(seed), moved, model, data)
    assert why == "" and found.error < most
    return found


def _misses(found, value, error):
    return (found.value - value) / np.hypot(found.error, error)


def _holes(x):
    return np.where(np.random.default_rng(5).uniform(size=x.shape) < 0.2, np.nan, x)


CASES = {
    "two latents of three columns": lambda: (_ppca(3, 2), (_rows(5, 3),)),
    "a noise variance each, missing cells": lambda: (
        _ppca(3, 1, noise="diagonal", noise_rate=np.array([2.0, 1.0, 3.0])),
        (_holes(_rows(6, 3)),),
    ),
    "columns in their deviations": lambda: (
        _ppca(3, 2, standardize=True, column_scale=np.array([0.5, 2.0, 30.0]), noise_rate=1.0),
        (_rows(4, 3) * [0.5, 2.0, 30.0],),
    ),
    "Student-t rows": lambda: (_ppca(2, 1, degrees_of_freedom=3.0), (_rows(5, 2),)),
    "three latents of four columns": lambda: (_ppca(4, 3), (_rows(4, 4),)),
    "two tables": lambda: (
        zoo.SPPCA(
            num_latents=2,
            loading_prior="gaussian",
            loading_variance=1.0,
            loc_mean=0.0,
            loc_variance=1.0,
            noise_concentration=3.0,
            noise_rate=2.0,
            num_features=2,
            num_outputs=1,
        ),
        (_rows(3, 2), _rows(3, 1, seed=1)),
    ),
}


@cache
def _known(name):
    """A case's model and data, and what `_exact` gives."""
    model, data = CASES[name]()
    return model, data, *_exact(model, data)


@pytest.fixture(scope="module")
def planar():
    return _known("two latents of three columns")


@pytest.mark.cases_by_default(1)
@pytest.mark.parametrize("name", CASES)
def test_the_evidence_is_that_of_draws_from_the_prior(name):
    model, data, value, error, draws = _known(name)
    found = _estimated(model, data, draws)
    assert abs(_misses(found, value, error)) < WANTED, (found, value, error)


def log_marginal(x, loadings, noise, loc_variance):
    """Log density of all rows, mean integrated out, at loadings (..., D, K) and noise (...)."""
    n, d = x.shape
    s = loadings @ np.swapaxes(loadings, -1, -2) + noise[..., None, None] * np.eye(d)
    scatter = (x - x.mean(0)).T @ (x - x.mean(0))
    of_mean = s / n + loc_variance * np.eye(d)
    found = (n - 1) * np.linalg.slogdet(s)[1] + np.trace(np.linalg.solve(s, scatter), axis1=-2, axis2=-1)
    found += np.linalg.slogdet(of_mean)[1] + x.mean(0) @ np.linalg.inv(of_mean) @ x.mean(0)
    return -(found + d * np.log(n) + n * d * np.log(2 * np.pi)) / 2


def test_one_latent_by_quadrature():
    """Gauss-Hermite for both loadings, a fine grid for the log noise, the mean in closed form."""
    x = _rows(8, 2)
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    log_noise = np.linspace(-5, 5, 801)
    log_prior = scipy.stats.invgamma(3.0, scale=2.0).logpdf(np.exp(log_noise)) + log_noise
    grid = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), -1)[:, :, None, :, None]
    found = log_marginal(x, grid, np.exp(log_noise) * np.ones(grid.shape[:2] + (1,)), 1.0) + log_prior
    log_weights = np.log(weights[:, None, None] * weights[:, None] / (2 * np.pi))
    value = scipy.special.logsumexp(found + log_weights) + np.log(log_noise[1] - log_noise[0])
    model = _ppca(2, 1)
    by_draws, error, draws = _exact(model, (x,))
    assert abs(by_draws - value) < WANTED * error
    assert abs(_misses(_estimated(model, (x,), draws), value, 0.0)) < WANTED


def _no_group(whole, self, points):
    k = self.num_latents
    group = np.log(2) * k + k**2 / 2 * np.log(np.pi) - scipy.special.multigammaln(k / 2, k)
    return whole(self, points) - group


def _no_jacobian(whole, self, points):
    powers = self.num_latents - np.arange(1, self.num_latents + 1)
    return whole(self, points) - points[..., : self.num_latents] @ powers


@pytest.mark.parametrize("planted", [_no_group, _no_jacobian])
def test_a_volume_or_a_jacobian_that_is_forgotten_is_noticed(planar, monkeypatch, planted):
    model, data, value, error, draws = planar
    whole = evidence._Coordinates.log_volume
    monkeypatch.setattr(evidence._Coordinates, "log_volume", lambda self, at: planted(whole, self, at))
    assert abs(_misses(_estimated(model, data, draws), value, error)) > WANTED


def test_fitted_to_the_draws_it_is_compared_with_the_proposal_biases_the_estimate(planar, monkeypatch):
    """Twenty runs of few draws: their mean is right, and is not with both on one half."""
    model, data, value, error, draws = planar
    own = evidence._bridge

    def mean_error():
        misses = []
        for run in range(20):
            chosen = np.random.default_rng(run).permutation(300)[:46]
            few = {name: of_site[:, chosen] for name, of_site in draws.items()}
            misses.append(_estimated(model, data, few, seed=run, most=0.3).value - value)
        return abs(np.mean(misses)) / np.hypot(error, np.std(misses) / np.sqrt(20))

    assert mean_error() < WANTED
    monkeypatch.setattr(evidence, "_bridge", lambda random, fitted, held, *of: own(random, held, held, *of))
    monkeypatch.setattr(evidence, "APART", np.inf)  # the verdict would notice some of them
    assert mean_error() > WANTED


def test_units_add_their_logarithm_and_order_adds_nothing(planar):
    """With the same random numbers a change of units is exact; another order of columns is another run."""
    model, (x,), _, _, draws = planar
    found = _estimated(model, (x,), draws)
    variances = {
        name: getattr(model, name) * 1e6 for name in ("loading_variance", "loc_variance", "noise_rate")
    }
    large = {name: of_site * (1e6 if name == "noise_variance" else 1e3) for name, of_site in draws.items()}
    in_millimetres = _estimated(model.replaced(**variances), (x * 1e3,), large)
    assert in_millimetres.value == pytest.approx(found.value - x.size * np.log(1e3), abs=1e-6)
    assert in_millimetres.error == pytest.approx(found.error, abs=1e-8)
    assert _estimated(model, (x[::-1].copy(),), draws).value == pytest.approx(found.value, abs=1e-8)
    turned = draws | {"loadings": draws["loadings"][:, :, ::-1], "loc": draws["loc"][..., ::-1]}
    other = _estimated(model, (x[:, ::-1].copy(),), turned)
    assert abs(_misses(other, found.value, found.error)) < WANTED


def test_without_a_symmetry_a_normal_posterior_is_met_exactly():
    """Rows ~ N(mu, 1), mu ~ N(0, 1): the proposal is the posterior but for its fitted moments."""

    @dataclass(frozen=True, eq=False)
    class Location(zoo.Model):
        num_features: int | None = size_of("x")
        data = (Table("x"),)
        dims = {"mu": ("feature",), "x": ("observation", "feature")}
        methods = ("nuts",)

        def program(self, x, rows):
            mu = sample("mu", dist.Normal(0, 1).expand([self.num_features]).to_event(1))
            with rows:
                return sample("x", dist.Normal(mu, 1).to_event(1), obs=x)

    x, rng = _rows(10, 2), np.random.default_rng(0)
    mu = x.sum(0) / 11 + rng.normal(size=(4, 1000, 2)) / np.sqrt(11)
    found = _estimated(Location(num_features=2), (x,), {"mu": mu})
    value = scipy.stats.multivariate_normal(np.zeros(10), np.eye(10) + 1).logpdf(x.T).sum()
    assert abs(_misses(found, value, 0.0)) < WANTED
    assert found.error < 0.005


# The public function


@pytest.fixture(scope="module")
def sampled():
    """A model with one latent, its rows, and draws by NUTS."""
    model, x = _ppca(3, 1), _rows(12, 3)
    return fit(model, x, method="nuts", num_warmup=300, num_samples=400, progress=False)


def test_the_fit_knows_its_evidence_and_keeps_it_in_its_file(sampled, tmp_path):
    found = log_evidence(sampled)
    assert "log_evidence" not in sampled.attrs
    assert found.attrs["why_no_evidence"] == "" and found.attrs["log_evidence_se"] < 0.1
    assert log_evidence(sampled).attrs["log_evidence"] == found.attrs["log_evidence"]
    save(found, tmp_path / "fit.nc")
    assert load(tmp_path / "fit.nc").attrs["log_evidence"] == found.attrs["log_evidence"]


def _one_chain(tree):
    return tree.isel(chain=slice(1))


def _few_draws(tree):
    return tree.isel(draw=slice(0, None, 14))


def _chains_apart(tree):
    moved = tree.copy(deep=True)
    moved["sample_stats"]["lp"][0] += 50.0
    return moved


def _halves_apart(tree):
    moved = tree.copy(deep=True)
    moved["posterior"]["noise_variance"][:, 200:] *= 3
    return moved


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_one_chain, "the chains are no sample of the posterior: one chain"),
        (_chains_apart, "the chains are no sample of the posterior: .*largest R-hat"),
        (
            _few_draws,
            "116 draws are too few to fit a proposal in 7 coordinates. Next: num_samples=36 or more",
        ),
        (_halves_apart, "the (halves of the draws disagree|proposal hardly overlaps)|no sample"),
    ],
)
def test_what_the_verdict_does_not_tell(sampled, change, why):
    tree = log_evidence(change(sampled))
    attrs = tree.attrs
    judged = verdict(tree)
    assert attrs["verdict"] == f"{judged.word}: {judged.text}"
    assert "log evidence is not told" in f"{judged.text}; {judged.reason}"
    assert np.isnan(attrs["log_evidence"]) and np.isnan(attrs["log_evidence_se"])
    assert re.search(why, attrs["why_no_evidence"]), attrs["why_no_evidence"]


def test_the_verdict_is_that_of_the_fit_that_has_been_told(sampled, monkeypatch):
    monkeypatch.setattr(evidence, "_DRAWS_A_COORDINATE", 10**6)
    assert sampled.attrs["verdict"].startswith("Good")
    assert log_evidence(sampled).attrs["verdict"] == "Caution: The log evidence is not told"


BITS = np.eye(4)
REFUSED = {
    "improper": (
        _ppca(3, 1, loading_prior="flat"),
        "prior of PPCA is improper.*loading_prior='gaussian'",
    ),
    "ARD": (_ppca(3, 1, loading_prior="ard"), "not the same in all directions.*loading_prior='gaussian'"),
    "labels": (
        zoo.Mixture.from_data(np.eye(8)[:, :2], num_components=2),
        "Mixture is unchanged under labels",
    ),
    "latents in the program": (zoo.EPCA.from_data(BITS, num_latents=1), "the program of EPCA draws latents"),
    "unnormalised": (zoo.DEPCAM(num_components=2, num_latents=1), "the prior of DEPCAM is unnormalised"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_models_without_such_an_evidence_are_refused(sampled, name):
    model, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        evidence._check(sampled, model)


@pytest.mark.parametrize(
    ("model", "left"),
    [
        (zoo.PPCA(loading_prior="ard"), {"sign"}),
        (zoo.MCFA(loading_prior="ard"), {"labels", "sign"}),
        (zoo.EPCA(ard=True), {"sign"}),
        (_ppca(3, 1), {"rotation"}),
    ],
)
def test_a_prior_for_each_latent_is_no_prior_for_every_direction(model, left):
    assert set(model.exact_symmetries) == left


def test_fits_without_such_an_evidence_are_refused(sampled):
    weighted = sampled.copy()
    weighted["constant_data"] = (
        sampled["constant_data"].to_dataset().assign(sample_weight=("observation", [1]))
    )
    with pytest.raises(ValueError, match="fit without sample_weight"):
        log_evidence(weighted)
    point = fit(_ppca(3, 1), _rows(12, 3), method="em", max_iterations=2, tolerance=0)
    with pytest.raises(ValueError, match="method 'em' has none: fit with method='gibbs' or method='nuts'"):
        log_evidence(point)
    with pytest.raises(TypeError, match="DataTree"):
        log_evidence(_rows(3, 3))
    with pytest.raises(ValueError, match="seed must be"):
        log_evidence(sampled, seed=-1)


# Through NUTS


def _by_importance_sampling(x, draws, number=200_000):
    """Log evidence and error: Student-t proposals, the mean integrated out, L of the plain rows of W.

    The volume of the group is read off Bartlett's decomposition: standard normal entries of W give chi
    distributed diagonals of L with K, K - 1, ... degrees of freedom and standard normal entries below.
    """
    d, k = draws["loadings"].shape[-2:]
    below = np.tril_indices(d, -1, k)
    lower = np.swapaxes(np.linalg.qr(np.swapaxes(draws["loadings"].reshape(-1, d, k), 1, 2))[1], 1, 2)
    lower = lower * np.sign(np.diagonal(lower, axis1=1, axis2=2))[:, None]
    logs = np.log(np.diagonal(lower, axis1=1, axis2=2))
    own = np.column_stack([logs, lower[:, *below], np.log(draws["noise_variance"].ravel())])
    proposal = scipy.stats.multivariate_t(own.mean(0), np.cov(own.T), df=8, seed=0)
    points = proposal.rvs(number)
    of_prior = scipy.stats.chi(k - np.arange(k)).logpdf(np.exp(points[:, :k])) + points[:, :k]
    log_prior = of_prior.sum(1) + scipy.stats.norm.logpdf(points[:, k:-1]).sum(1)
    log_prior += scipy.stats.invgamma(3.0, scale=2.0).logpdf(np.exp(points[:, -1])) + points[:, -1]
    loadings = np.zeros((number, d, k))
    loadings[:, *np.diag_indices(k)] = np.exp(points[:, :k])
    loadings[:, *below] = points[:, k:-1]
    log_weights = log_marginal(x, loadings, np.exp(points[:, -1]), 1.0) + log_prior - proposal.logpdf(points)
    weights = np.exp(log_weights - log_weights.max())
    return log_weights.max() + np.log(weights.mean()), weights.std() / weights.mean() / np.sqrt(number)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:ppca by nuts has not converged")  # an R-hat of 1.01 is none of 1.05
def test_six_columns_and_three_latents_by_nuts():
    """Twenty seeds: each within three standard errors, false alarms one in 19 runs of the whole test."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 3)) @ rng.normal(size=(3, 6)) + 0.7 * rng.normal(size=(80, 6))
    model, call = _ppca(6, 3), {"method": "nuts", "num_warmup": 300, "num_samples": 400, "progress": False}
    first = fit(model, x, seed=100, **call)
    value, error = _by_importance_sampling(x, first.fit.values("posterior"))
    assert error < 0.01
    misses = []
    for seed in range(20):
        told = log_evidence(fit(model, x, seed=seed, **call)).attrs
        assert told["why_no_evidence"] == "" and told["log_evidence_se"] < 0.1
        misses.append((told["log_evidence"] - value) / np.hypot(told["log_evidence_se"], error))
    print(np.round(misses, 2), value, error, told["log_evidence_se"])
    assert np.abs(misses).max() < 3, misses
