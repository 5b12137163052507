"""Each calibration check passes on the right thing and fails on planted bugs.

The tools are proved on two models small enough to work out here: a normal mean, whose posterior is known, and
a mixture of three normals with labels, with a mean-field bound and a blocked Gibbs sampler written out below.
Chance of a false alarm, by test: none where only `conditional_check` or an error is tested; 6e-5 for each use
of `elbo_check`; 1 % for each of `geweke` and `sbc`, with the seeds fixed."""

import dataclasses
import sys
from functools import partial
from types import SimpleNamespace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import xarray as xr
from jax.scipy.special import digamma, gammaln, xlogy
from scipy import stats

from inference.algorithm import Algorithm
from inference.calibration import conditional_check, elbo_check, geweke, posterior_check, relations, sbc
from inference.calibration.simulation_based import _ranked_draws
from inference.calibration.verdicts import (
    GewekeVerdict,
    PosteriorVerdict,
    RelationVerdict,
    SBCVerdict,
    rank_uniformity,
)
from inference.numerics.programs import joint_draws
from zoo import posteriors

KEY = jax.random.key(20)


class NormalMean:
    """loc ~ N(0, 4), x_n ~ N(loc, 1): evidence and posterior are normal."""

    prior = "proper"
    symmetries = ()

    def __call__(self, x=None, num_observations=None):
        loc = numpyro.sample("loc", dist.Normal(0.0, 2.0))
        with numpyro.plate("observations", num_observations if x is None else x.shape[0]):
            numpyro.sample("x", dist.Normal(loc, 1.0), obs=x)

    def posterior(self, x):
        precision = x.shape[0] + 0.25
        return dist.Normal(jnp.sum(x) / precision, precision**-0.5)


@dataclasses.dataclass(frozen=True)
class ThreeNormals:
    """weights ~ Dirichlet(alpha/K), precision ~ Gamma(a, b), loc ~ N(0, 1/(beta precision)), x_n from one."""

    draw_locals: bool = False
    alpha: float = 1.5
    a: float = 3.0
    b: float = 2.0
    beta: float = 0.5
    num_components = 3
    prior = "proper"
    symmetries = ("labels",)

    @property
    def explicit(self):
        return dataclasses.replace(self, draw_locals=True)

    def __call__(self, x=None, num_observations=None):
        k = self.num_components
        weights = numpyro.sample("weights", dist.Dirichlet(jnp.full(k, self.alpha / k)))
        with numpyro.plate("components", k):
            precisions = numpyro.sample("precisions", dist.Gamma(self.a, self.b))
            locs = numpyro.sample("locs", dist.Normal(0.0, (self.beta * precisions) ** -0.5))
        with numpyro.plate("observations", num_observations if x is None else x.shape[0]):
            if x is None or self.draw_locals:
                z = numpyro.sample("assignments", dist.Categorical(weights))
                numpyro.sample("x", dist.Normal(locs[z], precisions[z] ** -0.5), obs=x)
            else:
                parts = dist.Normal(locs, precisions**-0.5)
                numpyro.sample("x", dist.MixtureSameFamily(dist.Categorical(weights), parts), obs=x)


X = np.array([-2.1, -1.9, -2.4, 0.3, 0.1, 3.0, 3.3, 2.8])


# --- a mean-field posterior of ThreeNormals: its parameters, its program, its bound


class MeanField(NamedTuple):
    counts: np.ndarray  # Dirichlet
    loc: np.ndarray
    beta: np.ndarray
    a: np.ndarray
    b: np.ndarray
    responsibilities: np.ndarray


def random_mean_field(seed):
    rng = np.random.default_rng(seed)
    centres = np.array([-2.0, 0.2, 3.0]) + 0.2 * rng.normal(
        size=3
    )  # not far off: the variance grows with the distance
    parameters = (rng.uniform(3, 8, 3), centres, rng.uniform(3, 6, 3), *rng.uniform(8, 15, (2, 3)))
    return MeanField(*parameters, rng.dirichlet(np.ones(3), size=len(X)))


@dataclasses.dataclass(frozen=True)
class Guide:
    q: MeanField
    enumerate: str | None = "parallel"

    def __call__(self, x):
        q = self.q
        numpyro.sample("weights", dist.Dirichlet(q.counts))
        with numpyro.plate("components", 3):
            precisions = numpyro.sample("precisions", dist.Gamma(q.a, q.b))
            numpyro.sample("locs", dist.Normal(q.loc, (q.beta * precisions) ** -0.5))
        with numpyro.plate("observations", x.shape[0]):
            infer = {"enumerate": self.enumerate} if self.enumerate else None
            numpyro.sample("assignments", dist.Categorical(q.responsibilities), infer=infer)


jax.tree_util.register_dataclass(Guide, data_fields=["q"], meta_fields=["enumerate"])


def closed_form_bound(model, q, x, prior_counts=None, weights_entropy=True):
    k, r = model.num_components, q.responsibilities
    counts = model.alpha / k if prior_counts is None else prior_counts
    log_weights = digamma(q.counts) - digamma(q.counts.sum())
    log_precision, precision = digamma(q.a) - jnp.log(q.b), q.a / q.b
    half_log = 0.5 * (log_precision - jnp.log(2 * jnp.pi))
    bound = gammaln(counts * k) - k * gammaln(counts) + (counts - 1) * log_weights.sum()
    if weights_entropy:
        bound -= gammaln(q.counts.sum()) - gammaln(q.counts).sum() + ((q.counts - 1) * log_weights).sum()
    bound += jnp.sum(
        model.a * jnp.log(model.b) - gammaln(model.a) + (model.a - 1) * log_precision - model.b * precision
    )
    bound -= jnp.sum(q.a * jnp.log(q.b) - gammaln(q.a) + (q.a - 1) * log_precision - q.b * precision)
    bound += jnp.sum(
        0.5 * jnp.log(model.beta) + half_log - 0.5 * model.beta * (precision * q.loc**2 + 1 / q.beta)
    )
    bound -= jnp.sum(0.5 * jnp.log(q.beta) + half_log - 0.5)
    squares = precision * (x[:, None] - q.loc) ** 2 + 1 / q.beta
    bound += jnp.sum(r * (log_weights + half_log - 0.5 * squares)) - jnp.sum(xlogy(r, r))
    return float(bound)


# --- a blocked Gibbs sampler of ThreeNormals; `bug` plants one


def labels_block(values, model, x):
    scale = values["precisions"] ** -0.5
    logits = jnp.log(values["weights"]) + dist.Normal(values["locs"], scale).log_prob(x[:, None])
    return {"assignments": dist.Categorical(logits=logits)}


def weights_block(values, model, x, bug=None):
    counts = jnp.sum(values["assignments"][:, None] == jnp.arange(3), axis=0)
    return {"weights": dist.Dirichlet(model.alpha / (1 if bug == "alpha" else 3) + counts)}


def components_block(values, model, x, bug=None):
    member = values["assignments"][:, None] == jnp.arange(3)
    n, total = member.sum(axis=0), member.T @ x
    beta = model.beta + n
    rate = model.b + 0.5 * (member.T @ x**2 - (0 if bug == "shrinkage" else total**2 / beta))
    if bug == "later site":  # conditional on the locs of the last sweep, which are about to be redrawn
        rate = model.b + 0.5 * (
            model.beta * values["locs"] ** 2
            + (member.T @ x**2 - 2 * values["locs"] * total + n * values["locs"] ** 2)
        )
    shape = model.a + 0.5 * n + (0.5 if bug == "degrees of freedom" else 0)
    return {
        "precisions": dist.Gamma(shape, rate),
        "locs": dist.Normal(total / beta, (beta * values["precisions"]) ** -0.5),
    }


def planted(block, bug):
    def with_bug(values, model, x):
        return block(values, model, x, bug)

    return with_bug


BLOCKS = (labels_block, weights_block, components_block)


class State(NamedTuple):
    values: dict


class Info(NamedTuple):
    objective: jax.Array


def sampler(blocks=BLOCKS, stale=False, same_key=False):
    def init(key, model, x):
        zeros, labels = jnp.zeros(3), jnp.zeros(x.shape[0], jnp.int64)
        return State(
            {"weights": zeros + 1 / 3, "precisions": zeros + 1, "locs": zeros, "assignments": labels}
        )

    def step(key, state, model, x):
        values = dict(state.values)
        for block, block_key in zip(blocks, jax.random.split(key, len(blocks)), strict=True):
            conditional = block(values, model, x)
            for i, name in enumerate(conditional):
                current = (
                    state.values if stale else values
                )  # what the later sites of a block are conditioned on
                current = {**values, **{n: current[n] for n in conditional}}
                site_key = jax.random.key(0) if same_key else jax.random.fold_in(block_key, i)
                values[name] = block(current, model, x)[name].sample(site_key)
        return State(values), Info(jnp.zeros(()))

    return Algorithm(init, step)


def latent_values(seed=1):
    rng = np.random.default_rng(seed)
    return {
        "weights": rng.dirichlet(np.ones(3)),
        "precisions": rng.uniform(0.5, 2, 3),
        "locs": rng.normal(size=3),
        "assignments": rng.integers(0, 3, len(X)),
    }


# --- elbo_check


def test_elbo_of_the_exact_posterior_is_the_evidence():
    model = NormalMean()

    def guide(x):
        numpyro.sample("loc", model.posterior(x))

    evidence = stats.multivariate_normal(np.zeros(len(X)), np.eye(len(X)) + 4).logpdf(X)
    verdict = elbo_check(model, guide, evidence, (X,), key=KEY, num_particles=10)
    assert verdict.passed
    assert verdict.standard_error < 1e-10
    assert not elbo_check(model, guide, evidence + 1e-6, (X,), key=KEY, num_particles=10)


@pytest.mark.parametrize("seed", [0, 1])
def test_elbo_check_with_labels_summed_out(seed):
    model, q = ThreeNormals(), random_mean_field(seed)
    with jax.enable_x64(True):
        bound = closed_form_bound(model, q, X)
        wrong = (
            closed_form_bound(model, q, X, prior_counts=model.alpha),
            closed_form_bound(model, q, X, weights_entropy=False),
        )
    verdict = elbo_check(model, Guide(q), bound, (X,), key=KEY, num_particles=20_000)
    assert verdict.passed, str(verdict)
    assert verdict.standard_error < 0.1
    assert verdict.threshold == 4.0
    assert verdict.false_alarm_rate == pytest.approx(6.5e-5, rel=0.05)
    for other in wrong:
        assert not elbo_check(model, Guide(q), other, (X,), key=KEY, num_particles=20_000).passed


@pytest.mark.slow
def test_summing_labels_out_gives_the_same_elbo_with_a_smaller_error():
    model, q = ThreeNormals(), random_mean_field(2)
    summed, drawn = (
        elbo_check(model, Guide(q, enumerate), 0.0, (X,), key=KEY, num_particles=2000)
        for enumerate in ("parallel", None)
    )
    assert summed.standard_error < drawn.standard_error
    error = np.hypot(summed.standard_error, drawn.standard_error)
    assert abs(summed.estimate - drawn.estimate) < 4 * error


def test_elbo_check_names_the_sites_that_differ():
    def guide(x):
        numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)))
        numpyro.sample("scales", dist.Gamma(jnp.ones(3), 1.0).to_event(1))

    with pytest.raises(
        ValueError, match=r"missing: \['precisions', 'locs'\], not a site of it: \['scales'\]"
    ):
        elbo_check(ThreeNormals(), guide, 0.0, (X,), key=KEY, num_particles=10)


def test_elbo_check_refuses_another_shape():
    def guide(x):
        numpyro.sample("loc", dist.Normal(jnp.zeros(2), 1.0).to_event(1))

    with pytest.raises(ValueError, match=r"loc must have shape \(\)"):
        elbo_check(NormalMean(), guide, 0.0, (X,), key=KEY, num_particles=10)


@pytest.mark.slow
def test_elbo_check_refuses_labels_that_other_sites_depend_on():
    q = random_mean_field(0)

    def guide(x):
        with numpyro.plate("observations", x.shape[0]):
            infer = {"enumerate": "parallel"}
            z = numpyro.sample("assignments", dist.Categorical(q.responsibilities), infer=infer)
        numpyro.sample("weights", dist.Dirichlet(q.counts))
        with numpyro.plate("components", 3):
            precisions = numpyro.sample("precisions", dist.Gamma(q.a, q.b))
            numpyro.sample("locs", dist.Normal(jnp.mean(z), precisions**-0.5))

    with pytest.raises(ValueError, match="cannot be summed out row by row"):
        elbo_check(ThreeNormals(), guide, 0.0, (X,), key=KEY, num_particles=10)


def test_checks_refuse_data_that_are_not_a_tuple():
    with pytest.raises(TypeError, match="data must be a tuple"):
        elbo_check(NormalMean(), NormalMean(), 0.0, X, key=KEY, num_particles=10)
    with pytest.raises(TypeError, match="data must be a tuple"):
        conditional_check(ThreeNormals(), labels_block, latent_values(), X)


# --- conditional_check


@pytest.mark.parametrize("block", BLOCKS)
def test_right_conditionals_pass(block):
    verdict = conditional_check(ThreeNormals(), block, latent_values(), (X,))
    assert verdict.passed, str(verdict)
    assert verdict.false_alarm_rate == 0
    assert verdict.statistic < 1e-12


@pytest.mark.parametrize(
    ("block", "bug"),
    [
        (weights_block, "alpha"),
        (components_block, "shrinkage"),
        (components_block, "degrees of freedom"),
        (components_block, "later site"),
    ],
)
def test_planted_bugs_fail_the_conditional_check(block, bug):
    verdict = conditional_check(ThreeNormals(), planted(block, bug), latent_values(), (X,))
    assert not verdict.passed
    assert verdict.statistic > 1e-4


def test_wrong_logits_of_one_row_fail_the_conditional_check():
    def wrong(values, model, x):
        logits = labels_block(values, model, x)["assignments"].logits
        return {"assignments": dist.Categorical(logits=logits.at[3, 1].add(0.01))}

    verdict = conditional_check(ThreeNormals(), wrong, latent_values(), (X,))
    assert not verdict.passed
    assert verdict.errors["assignments"] == pytest.approx(0.01)


def test_an_unnormalised_conditional_passes():
    class Unnormalised(dist.Gamma):
        def log_prob(self, value):
            return (self.concentration - 1) * jnp.log(value) - self.rate * value

    def block(values, model, x):
        exact = components_block(values, model, x)
        return {
            **exact,
            "precisions": Unnormalised(exact["precisions"].concentration, exact["precisions"].rate),
        }

    assert conditional_check(ThreeNormals(), block, latent_values(), (X,)).passed


def test_conditional_check_names_a_missing_and_an_unknown_value():
    values = latent_values()
    values["means"] = values.pop("locs")
    with pytest.raises(ValueError, match=r"missing: \['locs'\], not a site of it: \['means'\]"):
        conditional_check(ThreeNormals(), weights_block, values, (X,))


def test_conditional_check_refuses_a_block_of_unknown_sites():
    with pytest.raises(ValueError, match="a block must have sites of the program"):
        conditional_check(ThreeNormals(), lambda *_: {"shift": dist.Normal(0.0, 1.0)}, latent_values(), (X,))


# --- geweke


def smoke(algorithm, key=KEY):
    return geweke(ThreeNormals(), algorithm, 5, key=key, num_draws=2000)


def test_geweke_passes_the_right_sampler():
    verdict = smoke(sampler())
    assert verdict.passed, str(verdict)
    assert verdict.false_alarm_rate == 0.01
    assert verdict.threshold == pytest.approx(0.01 / len(verdict.p_values))


@pytest.mark.cases_by_default(1)
@pytest.mark.parametrize(
    "wrong",
    [
        sampler((labels_block, weights_block, planted(components_block, "shrinkage"))),
        sampler((labels_block, planted(weights_block, "alpha"), components_block)),
        sampler((labels_block, weights_block, planted(components_block, "degrees of freedom"))),
        sampler(stale=True),
        sampler(same_key=True),
    ],
    ids=["no shrinkage", "alpha for alpha/K", "degrees of freedom", "stale values", "key reuse"],
)
def test_geweke_fails_planted_bugs(wrong):
    assert not smoke(wrong).passed


def test_geweke_fails_a_step_that_draws_latents_from_their_prior():
    """New data after such a step would be those of a draw of the joint."""

    def draw(key, *_):
        return State({"loc": 2 * jax.random.normal(key)})

    algorithm = Algorithm(draw, lambda key, *rest: (draw(key), Info(jnp.zeros(()))))
    assert not geweke(NormalMean(), algorithm, 5, key=KEY, num_draws=500).passed


@pytest.mark.slow
def test_geweke_takes_functionals_and_prior_draws():
    class Improper(ThreeNormals):
        prior = "improper"

    with jax.enable_x64(True):
        keys = jax.random.split(KEY, 400)
        draws = joint_draws(keys, ThreeNormals(draw_locals=True), 5, 400)
    arguments = {"key": KEY, "num_draws": 200, "functionals": lambda values: {"total": jnp.sum(values["x"])}}
    with pytest.raises(ValueError, match="improper"):
        geweke(Improper(), sampler(), 5, **arguments)
    verdict = geweke(Improper(), sampler(), 5, prior_draws=draws, **arguments)
    assert verdict.passed
    assert set(verdict.p_values) == {"total, location", "total, distribution", "total, spread"}
    with pytest.raises(ValueError, match=r"2 \* num_draws = 400 draws"):
        geweke(Improper(), sampler(), 5, prior_draws={n: v[:300] for n, v in draws.items()}, **arguments)


def test_geweke_refuses_a_state_without_values():
    class Positions(NamedTuple):
        position: jax.Array

    algorithm = Algorithm(lambda key, model, x: Positions(jnp.zeros(3)), sampler().step)
    with pytest.raises(TypeError, match="a field values; got Positions"):
        geweke(ThreeNormals(), algorithm, 5, key=KEY, num_draws=100)


@pytest.mark.slow
def test_geweke_fails_a_sampler_that_gives_nan():
    def step(key, state, model, x):
        state, info = sampler().step(key, state, model, x)
        return State(
            {
                **state.values,
                "locs": state.values["locs"] + jnp.where(state.values["weights"][0] > 0.9, jnp.nan, 0),
            }
        ), info

    verdict = geweke(ThreeNormals(), Algorithm(sampler().init, step), 5, key=KEY, num_draws=100)
    assert verdict.statistic == 0
    assert not verdict.passed


# --- sbc: the ranks, apart from `fit`


def ranked(scale, seed=0):
    """Truth from N(m, 1), draws from N(m, scale^2), and a quantity that depends on the data alone."""
    rng = np.random.default_rng(seed)
    centre = rng.normal(size=(400, 1))
    truth, draws = centre + rng.normal(size=(400, 1)), centre + scale * rng.normal(size=(400, 63))
    scalars = np.hstack([truth, draws])
    values = {"value": scalars, "rounded": np.round(scalars), "data": np.repeat(centre, 64, axis=1)}
    return rank_uniformity(values, rng)


def test_ranks_of_calibrated_draws_are_uniform():
    ranks, p_values = ranked(1.0)
    assert set(ranks) == {"value", "rounded"}
    assert ranks["value"].min() >= 0
    assert ranks["value"].max() <= 63
    assert min(p_values.values()) > 0.01 / len(p_values)


@pytest.mark.parametrize("scale", [0.6, 1.6])
def test_ranks_of_draws_with_a_wrong_spread_are_not_uniform(scale):
    _, p_values = ranked(scale)
    assert min(p_values.values()) < 0.01 / len(p_values)


def test_sbc_refuses_what_has_no_proper_prior_and_too_few_replicates():
    class Improper(ThreeNormals):
        prior = "improper"

    with pytest.raises(ValueError, match="improper"):
        sbc(Improper(), "gibbs", 5, key=KEY, num_replicates=20)
    with pytest.raises(ValueError, match="at least 20"):
        sbc(ThreeNormals(), "gibbs", 5, key=KEY, num_replicates=10)


def exact_fit(scale):
    """In place of `fit`: draws of NormalMean's posterior, its standard deviation multiplied by ``scale``."""

    def fit(model, x, *, method, seed, progress, num_samples):
        posterior = model.posterior(x)
        draws = posterior.loc + scale * posterior.scale * jax.random.normal(
            jax.random.key(seed), (1, num_samples)
        )
        groups = {"/posterior": xr.Dataset({"loc": (("chain", "draw"), np.asarray(draws))})}
        tree = xr.DataTree.from_dict(groups)
        tree.attrs["converged"] = 1
        return tree

    return fit


@pytest.mark.slow
def test_sbc_passes_the_exact_posterior_and_fails_one_too_narrow(monkeypatch):
    def run(scale):
        monkeypatch.setattr(sys.modules[sbc.__module__], "fit", exact_fit(scale))  # the face hides the module
        return sbc(NormalMean(), "exact", 4, key=KEY, num_replicates=100, num_samples=100)

    verdict = run(1.0)
    assert verdict.passed, str(verdict)
    assert verdict.num_ranked == 63
    assert verdict.num_unconverged == 0
    assert verdict.ranks["x: log density"].shape == (100,)
    assert "x: mean" not in verdict.ranks
    assert not run(0.4).passed


# --- all of them


@pytest.mark.slow
def test_results_do_not_depend_on_the_precision_of_the_caller():
    outside = (
        smoke(sampler(), KEY).statistic,
        conditional_check(ThreeNormals(), weights_block, latent_values(), (X,)).statistic,
    )
    with jax.enable_x64(True):
        inside = (
            smoke(sampler(), KEY).statistic,
            conditional_check(ThreeNormals(), weights_block, latent_values(), (X,)).statistic,
        )
    assert outside == inside
    assert all(isinstance(value, float) for value in outside)


def test_a_verdict_reads_well_and_is_true_only_if_it_passed():
    verdict = conditional_check(ThreeNormals(), planted(weights_block, "alpha"), latent_values(), (X,))
    assert not verdict
    assert str(verdict).startswith("FAILED: worst errors in nats: block ")
    assert "statistic=" in repr(verdict)


def test_many_tests_share_the_rate_of_false_alarms():
    """Bonferroni's correction, wherever several p-values or z-scores make one verdict."""
    of_geweke = partial(GewekeVerdict.of, false_alarm_rate=0.04, num_draws=9)
    of_sbc = partial(SBCVerdict.of, false_alarm_rate=0.04, ranks={}, num_ranked=3, num_unconverged=0)
    for verdict_of in (of_geweke, of_sbc):
        for smallest, passed in ((0.011, True), (0.01, True), (0.009, False), (np.nan, False)):
            found = verdict_of({"a": 0.5, "b": smallest, "c": 1.0, "d": 0.03})
            assert found.threshold == 0.01 and found.false_alarm_rate == 0.04 and bool(found) == passed
            np.testing.assert_equal(found.statistic, smallest)
        with pytest.raises(ValueError, match="no functional varies"):
            verdict_of({})
    reference = posteriors.load("mixture").reference
    rng = np.random.default_rng(0)
    draws = {name: rng.normal(own.mean, own.sd, (4, 50)) for name, own in reference.items()}
    found = posterior_check(draws, "mixture", false_alarm_rate=0.04)
    assert 2 * stats.norm.sf(found.threshold) * len(reference) == pytest.approx(0.04, rel=1e-9)


@pytest.mark.parametrize(("moved", "passed"), [(0.0, True), (5.0, False)])
def test_a_relation_in_distribution_shares_its_rate_among_its_tests(moved, passed, monkeypatch):
    """Twelve chains, three tests for each of two numbers; the second of these is moved."""
    values = np.random.default_rng(0).normal(size=(12, 2))
    sides = iter([{"size": values}, {"size": values[::-1] + [0.0, moved]}])
    monkeypatch.setattr(relations, "_numbers", lambda *_: next(sides))
    monkeypatch.setattr(relations, "_log_jacobian", lambda change: np.zeros(1))
    monkeypatch.setattr(relations, "_after_exchange", lambda name, change: name)
    change = SimpleNamespace(before=None, after=None)
    verdict = relations._in_law(None, None, change, None, {}, 0, 0.03)
    assert len(verdict.p_values) == 6 and verdict.threshold == pytest.approx(0.03 / 6)
    assert verdict.false_alarm_rate == 0.03 and bool(verdict) == passed
    assert verdict.statistic == min(verdict.p_values.values())


@pytest.mark.parametrize(("num_ranked", "kept"), [(4, [0, 3, 10, 13]), (2, [0, 10]), (50, None)])
def test_ranked_draws_are_evenly_spaced_over_all_chains(num_ranked, kept):
    """Draw j of chain i is 10 i + j: two chains of six; of more than there are, all, chain after chain."""
    numbers = np.array([[0, 1, 2, 3, 4, 5], [10, 11, 12, 13, 14, 15]])
    dims = ("chain", "draw", "feature")
    posterior = xr.Dataset({"scale": (dims[:2], numbers), "loc": (dims, numbers[..., None] * [1, 100])})
    latents = {"loc": SimpleNamespace(shape=(2,)), "scale": SimpleNamespace(shape=())}
    found = _ranked_draws(posterior, latents, num_ranked)
    expected = numbers.ravel() if kept is None else np.array(kept)
    np.testing.assert_array_equal(found["scale"], expected)
    np.testing.assert_array_equal(found["loc"], np.stack([expected, 100 * expected], axis=1))


def test_verdicts_name_the_three_worst_the_worst_first():
    """The largest errors and sizes of z, the smallest p-values."""
    common = {"statistic": 4.0, "threshold": 0.5, "false_alarm_rate": 0.01, "passed": False}
    values = {"a": 0.1, "b": 0.4, "c": 0.3, "d": 0.2}
    largest, smallest = "b 0.4, c 0.3, d 0.2", "a 0.1, d 0.2, c 0.3"
    of_relation = RelationVerdict(**common, errors=values)
    assert f"largest errors of 4: {largest}; at most 0.5 allowed" in str(of_relation)
    of_sbc = {"ranks": {}, "num_ranked": 3, "num_unconverged": 0}
    for found in (
        RelationVerdict(**common, p_values=values),
        GewekeVerdict(**common, p_values=values, num_draws=9),
        SBCVerdict(**common, p_values=values, **of_sbc),
    ):
        assert f"smallest p-values of 4: {smallest}; each must be at least 0.5" in str(found)
    z = {"a": 0.1, "b": -0.4, "c": 0.3, "d": -0.2}
    bias, visible = {"a": 1.0, "b": -2.0, "c": 3.0, "d": -4.0}, {"a": 0.5, "b": 0.7, "c": 0.6, "d": 0.1}
    found = str(PosteriorVerdict(**common, z=z, bias=bias, smallest_visible_bias=visible, ess={}))
    assert "largest z of 4: b -0.4 (-2 sd), c 0.3 (+3 sd), d -0.2 (-4 sd); at most 0.5" in found
    assert "a bias of 0.7 posterior sd in any of them" in found
