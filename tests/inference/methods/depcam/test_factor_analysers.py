"""The peer that mixtures of PPCAs are compared with in `tests.benchmarks.depcam_clustering` is a fair one."""

import numpy as np
import pytest
from scipy.special import logsumexp

from tests.benchmarks.depcam_clustering import factor_analysers, planes


@pytest.mark.needs_peer
def test_one_component_is_factor_analysis():
    """Its likelihood, also of other rows, is that of scikit-learn at its maximum."""
    from sklearn.decomposition import FactorAnalysis

    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 2)) @ rng.normal(size=(2, 6)) + rng.normal(size=(200, 6)) * np.arange(1, 7) + 3
    score, trace = factor_analysers(x[:150], np.ones((150, 1)), 2, most=20_000, tolerance=1e-10)
    peer = FactorAnalysis(2, tol=1e-10, max_iter=20_000, svd_method="lapack").fit(x[:150])
    assert abs(trace[-1] / 150 - peer.score(x[:150])) < 1e-5
    assert abs(float(logsumexp(score(x[150:]), axis=1).mean()) - peer.score(x[150:])) < 1e-3


def test_the_likelihood_never_falls():
    x, labels = planes(0)
    _, trace = factor_analysers(x, 0.8 * np.eye(3)[labels] + 0.2 / 3, 2)
    assert len(trace) > 3 and (np.diff(trace) > -1e-9 * np.abs(trace[0])).all()
