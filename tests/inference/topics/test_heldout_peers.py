"""Held-out log likelihood against scikit-learn on few splits; tests.benchmarks.mixture_heldout has more.

Eight splits of a set. Were two fits equally good, the mean of the differences would lie two standard errors
below zero in 4 of 100 runs (Student's t, 7 degrees of freedom); the seeds are fixed and both packages
deterministic, so a run that passes keeps passing with these versions.
"""

import numpy as np
import pytest

from inference import fit, log_density
from tests.benchmarks.mixture_heldout import OURS, PEERS, difference, exact_predictive, priors, score, split
from zoo.mixture import Mixture

SPLITS = 8
MATCHED = {"k-means starts", "k-means starts, their prior"}


@pytest.fixture(scope="module", params=[("faithful", 2), ("wine", 3)], ids=lambda p: p[0])
def runs(request):
    """Scores of all splits by fit, and the set they are of."""
    ours = {label: OURS[label] for label in MATCHED | {"default"}}
    scores = [score(*request.param, seed, ours, PEERS)[0] for seed in range(SPLITS)]
    return request.param, {key: [s[key] for s in scores] for key in scores[0]}


@pytest.mark.needs_peer
@pytest.mark.parametrize(
    ("mine", "peer"),
    [
        ("default", "Bayesian, default"),
        ("k-means starts", "Bayesian, our prior"),
        ("k-means starts, their prior", "Bayesian"),
        ("k-means starts", "maximum likelihood"),
    ],
)
def test_no_worse_than_scikit_learn(runs, mine, peer):
    assert difference(runs[1]["ours", mine], runs[1]["theirs", peer])["reached"]


@pytest.mark.needs_peer
def test_a_fit_that_leaves_its_components_equal_misses_the_bar(runs):
    """The planted fault: responsibilities that start equal stay so, a mixture of one Gaussian.

    On wine that is as good as maximum likelihood with three, so the exact predictive is the yardstick.
    """
    (name, num_components), scores = runs
    damaged = []
    for seed in range(SPLITS):
        train, held_out = split(name, seed)
        model = Mixture(components=priors(train)["ours"], num_components=num_components)
        equal = np.full((len(train), num_components), 1 / num_components)
        tree = fit(model, train, init={"responsibilities": equal}, num_samples=1)
        damaged.append(float(log_density(tree, held_out).mean()))
    assert not difference(damaged, scores["exact", "Bayesian, our prior"])["reached"]


@pytest.mark.needs_peer
def test_the_exact_predictive_of_its_q_is_ours_of_the_same_q():
    """From scikit-learn's responsibilities one step of ours leads to its q, and the same density."""
    from sklearn.mixture import BayesianGaussianMixture

    train, held_out = split("faithful", 0)
    ours = priors(train)["ours"]
    estimator = BayesianGaussianMixture(
        n_components=3, weight_concentration_prior_type="dirichlet_distribution", reg_covar=0.0, tol=1e-12,
        mean_precision_prior=float(ours.mean_precision), max_iter=5000, random_state=0,
        degrees_of_freedom_prior=float(ours.degrees_of_freedom),
        covariance_prior=np.linalg.inv(ours.scale_matrix),
    ).fit(train)  # fmt: skip
    model = Mixture(components=ours, num_components=3)
    tree = fit(model, train, init={"responsibilities": estimator.predict_proba(train)}, num_samples=1)
    np.testing.assert_allclose(log_density(tree, held_out), exact_predictive(estimator, held_out), atol=1e-4)
