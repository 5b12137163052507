"""Every sampler draws from the same posterior, and the Gibbs sampler runs as a NumPyro kernel."""

import arviz
import jax
import numpy as np
import numpyro
import pytest
import scipy.stats
from numpyro.infer import MCMC

import inference
import zoo
from inference import fit
from inference.diagnostics import invariants
from inference.gibbs import kernel


def p_values(one, two):
    """P-value of equal posterior means, by invariant: Welch's test on the means of chains.

    Chains of NUTS visit one corner of this posterior seldom and stay long (seeds 2 and 3 of eight), which
    Monte Carlo errors estimated within chains understate; the spread of chains does not.
    """
    first, second = invariants(one), invariants(two)
    for name in ("num_occupied", "lp", "concentration", "mean_log_likelihood", "same_cluster"):
        means = (part[name].mean("draw").to_numpy() for part in (first, second))
        yield name, scipy.stats.ttest_ind(*means, equal_var=False).pvalue


@pytest.mark.slow
def test_nuts_and_gibbs_agree_on_invariants(gibbs_tree, nuts_tree):
    """Five comparisons at p = .0027: 1.3 % false alarms, on fixed seeds."""
    found = dict(p_values(gibbs_tree, nuts_tree))
    assert min(found.values()) > 0.0027, found
    assert float(nuts_tree["sample_stats"]["diverging"].mean()) < 1e-3  # a few do not bias the means above
    assert {"acceptance_rate", "energy", "step_size", "n_steps", "lp"} <= set(
        nuts_tree["sample_stats"].data_vars
    )


@pytest.mark.slow
def test_the_comparison_can_fail(gibbs_tree, two_clusters, small_model):
    """A planted bug: another concentration prior shifts the invariants."""
    import numpyro.distributions as dist

    other = small_model.replaced(concentration=dist.Gamma(1.0, 3.0))
    tree = fit(other, two_clusters, method="gibbs", num_warmup=500, num_samples=4000, seed=1)
    assert min(p for _, p in p_values(gibbs_tree, tree)) < 0.0027


@pytest.mark.slow
def test_hmc_and_svi_run_on_the_same_program(small_model, two_clusters):
    with pytest.warns(UserWarning, match="has not converged"):
        hmc = fit(small_model, two_clusters, method="hmc", num_warmup=50, num_samples=20, num_chains=2)
        svi = fit(small_model, two_clusters, method="svi", max_iterations=50, num_samples=20)
    assert hmc["posterior"]["assignments"].shape == (2, 20, 60)
    assert np.isfinite(svi.attrs["elbo"]) and svi.attrs["elbo_standard_error"] > 0
    assert svi["posterior"].sizes["chain"] == 1
    draws = numpyro.infer.Predictive(inference.guide(svi), num_samples=3)(
        jax.random.key(0), two_clusters.to_numpy()
    )
    assert draws["assignments"].shape == (3, 60) and draws["locs"].shape == (3, 3, 2)


@pytest.mark.slow
def test_svi_converges_on_the_small_case(small_model, two_clusters, vb_tree):
    """The marginal program's bound is tighter than the mean-field bound over labels."""
    tree = fit(
        small_model,
        two_clusters,
        method="svi",
        max_iterations=20_000,
        step_size=0.005,
        num_samples=500,
        seed=1,
    )
    assert tree.attrs["converged"] == 1
    assert tree.attrs["elbo"] > float(vb_tree["trace"]["objective"].max()) - 10


@pytest.mark.slow
@pytest.mark.parametrize("chain_method", ["vectorized", pytest.param("sequential", marks=pytest.mark.slow)])
def test_the_gibbs_sampler_is_a_numpyro_kernel(chain_method, small_model, two_clusters):
    with jax.enable_x64(True):
        mcmc = MCMC(
            kernel(small_model),
            num_warmup=100,
            num_samples=300,
            num_chains=2,
            thinning=3,
            chain_method=chain_method,
            progress_bar=False,
        )
        mcmc.run(jax.random.key(0), two_clusters.to_numpy())
        draws = mcmc.get_samples(group_by_chain=True)
        assert draws["locs"].shape == (2, 100, 3, 2) and draws["covariances"].shape == (2, 100, 3, 2, 2)
        np.testing.assert_allclose(draws["weights"].sum(-1), 1, rtol=1e-9)
        mcmc.post_warmup_state = mcmc.last_state
        mcmc.run(mcmc.post_warmup_state.rng_key, two_clusters.to_numpy())
        tree = arviz.from_numpyro(mcmc)
    assert tree["posterior"]["locs"].dims[:2] == ("chain", "draw") and "x" in tree["observed_data"]


def test_models_without_a_gibbs_sampler_have_no_kernel():
    with pytest.raises(ValueError, match="plsi has no Gibbs sampler"):
        kernel(zoo.PLSI(num_topics=2))
