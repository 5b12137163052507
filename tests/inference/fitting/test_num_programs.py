"""How many programs a fit compiles: each takes some hundredths of a second, whatever it does."""

import jax
import numpy as np
import pytest
from jax import monitoring

import zoo
from inference import fit

pytestmark = pytest.mark.all_compiled
MOST = 12
_compiled = []


def _note(name, seconds, **about):
    if name.endswith("backend_compile_duration"):
        _compiled.append(about.get("fun_name"))


monitoring.register_event_duration_secs_listener(_note)

ROWS = np.random.default_rng(0).normal(size=(30, 3))
COUNTS = np.random.default_rng(0).poisson(1.0, size=(30, 6))
BITS = (ROWS > 0).astype(float)
CASES = {
    "mixture": (zoo.Mixture(num_components=3), ROWS, ("vb", "gibbs", "collapsed_gibbs", "em")),
    "lda": (zoo.LDA(num_topics=2), COUNTS, ("vb", "gibbs")),
    "pcp": (zoo.PCP(num_topics=2, num_clusters=2), COUNTS, ("vb", "gibbs")),
    "depcam": (zoo.DEPCAM(num_components=2, num_latents=1), BITS, ("em", "vb")),
    "epca": (zoo.EPCA(num_latents=1), BITS, ("map", "vb", "gibbs")),
    "ppca": (zoo.PPCA(num_latents=1), ROWS, ("em", "closed_form")),
}
PAIRS = [(case, method) for case, (_, _, methods) in CASES.items() for method in methods]
EACH = [pair if pair == ("mixture", "vb") else pytest.param(*pair, marks=pytest.mark.slow) for pair in PAIRS]


@pytest.mark.filterwarnings("ignore:.* has not converged", "ignore:the learnt")
@pytest.mark.parametrize(("case", "method"), EACH)
def test_a_fit_compiles_a_handful_of_programs(case, method):
    """Planted: arithmetic outside of any program, operation by operation."""
    model, data, _ = CASES[case]
    jax.clear_caches()
    _compiled.clear()
    fit(model, data, method=method, max_iterations=5, num_warmup=3, num_samples=4)
    assert 0 < len(_compiled) <= MOST, _compiled
    for number in range(MOST + 1):
        jax.numpy.zeros(number + 1)
    assert len(_compiled) > MOST
