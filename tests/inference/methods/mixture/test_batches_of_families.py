"""VB of a mixture whose rows pass in batches from a file, for every component family."""

import numpy as np
import pytest

import zoo
from inference import fit
from tests.support.component_families import priors, rows

PRIORS = priors()
NUM_ROWS, BATCH = 203, 60


@pytest.mark.slow
@pytest.mark.parametrize("name", PRIORS)
@pytest.mark.filterwarnings("ignore:mixture by vb has not converged")
def test_batches_are_steps_of_all_rows_and_end_at_their_fixed_point(name, tmp_path):
    """The first pass is one step of all rows; from where batches end, a step of all rows gains nothing.

    The gain is below 1e-9 nats a row, the tolerance that batches stop at, against some 1e-2 a row of the
    first passes.
    """
    x = np.asarray(rows(name, NUM_ROWS), dtype=float)
    model = zoo.Mixture(num_components=3, components=PRIORS[name])
    np.save(tmp_path / "x.npy", x)
    call = {"num_samples": 2, "progress": False}
    start = {"responsibilities": np.random.default_rng(0).dirichlet(np.ones(3), NUM_ROWS)}
    whole = fit(model, x, init=start, max_iterations=1, tolerance=0, **call)
    first = fit(model, x, init=start, batch_size=BATCH, max_iterations=1, tolerance=0, **call)
    np.testing.assert_allclose(first["trace"]["objective"], whole["trace"]["objective"], rtol=1e-12)
    tree = fit(model, tmp_path / "x.npy", batch_size=BATCH, tolerance=1e-9, **call)
    reached = float(tree["trace"]["objective"][-1])
    again = fit(model, x, init=tree, max_iterations=1, tolerance=0, **call)
    gain = float(again["trace"]["objective"][-1]) - reached
    assert abs(gain) < 1e-9 * NUM_ROWS + 1e-12 * abs(reached)
