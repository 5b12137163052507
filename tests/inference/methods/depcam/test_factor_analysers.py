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
    noise = rng.normal(size=(400, 8)) * np.linspace(0.5, 1, 8)
    x = rng.normal(size=(400, 2)) @ rng.normal(size=(2, 8)) + noise
    score, trace = factor_analysers(x[:300], np.ones((300, 1)), 2, most=5000, tolerance=1e-9)
    peer = FactorAnalysis(2, tol=1e-5, max_iter=5000, svd_method="lapack").fit(x[:300])
    assert abs(trace[-1] / 300 - peer.score(x[:300])) < 1e-5
    assert abs(float(logsumexp(score(x[300:]), axis=1).mean()) - peer.score(x[300:])) < 1e-3


def test_the_likelihood_never_falls():
    x, labels = planes(0)
    _, trace = factor_analysers(x, 0.8 * np.eye(3)[labels] + 0.2 / 3, 2)
    assert len(trace) > 3 and (np.diff(trace) > -1e-9 * np.abs(trace[0])).all()
