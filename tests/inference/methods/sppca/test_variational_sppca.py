"""VB of SPPCA: its bound against the program, its agreement with EM where there are many rows, its limits."""

import jax
import numpy as np
import pytest

import inference
from inference import fit, log_density, predict, transform
from inference.calibration import elbo_check
from inference.symmetry import align_rotation
from tests.support.supervised_toys import toy
from zoo import SPPCA

PRIOR = {"loading_prior": "gaussian", "noise_concentration": 1.0, "noise_rate": 0.1}


def small():
    """Thirty rows, half of them labelled, a hole in x and in y."""
    x, _, y = toy(0, num_rows=30, num_features=4, num_outputs=2, num_latents=2, labelled=15)
    x[3, 1] = y[4, 0] = np.nan
    return x, y


@pytest.fixture(scope="module")
def tree():
    return fit(SPPCA(num_latents=2, **PRIOR), *small(), method="vb", tolerance=1e-9, num_samples=50)


@pytest.mark.slow
def test_bound_is_that_of_the_program_and_a_wrong_count_is_found(tree):
    """Unlabelled rows count for nothing in q of the outputs' noise; counted, the same number is no bound."""
    objective = tree["trace"]["objective"].to_numpy()
    assert np.diff(objective).min() >= -1e-12 * np.abs(objective).max()
    model, keywords = inference.model_of(tree), {"key": jax.random.key(1), "num_particles": 1000}
    assert elbo_check(model, inference.guide(tree), objective[-1], small(), **keywords).passed
    stored = tree["variational"].to_dataset()
    name = "noise_precision_y_concentration"
    bugged = tree.copy()
    bugged["variational"] = stored.assign({name: stored[name] + np.isnan(small()[1]).sum() / 2})
    assert not elbo_check(model, inference.guide(bugged), objective[-1], small(), **keywords).passed


@pytest.mark.slow
def test_new_rows_under_q(tree):
    x, y = small()
    outputs = predict(tree, x)
    assert outputs.sizes == {"observation": 30, "output": 2}
    assert (outputs["standard_deviation"] > 0).all()
    cells = predict(tree, x, what="cells")
    assert float(cells[0, 0]) == x[0, 0] and np.isfinite(cells).all()
    np.testing.assert_allclose(
        transform(tree, x, y), align_rotation(tree)["variational"]["latents"], atol=1e-10
    )
    assert transform(tree, x, covariance=True)["covariance"].shape == (30, 2, 2)
    assert np.isfinite(log_density(tree, x, y)).all() and transform(tree, x, scores="orthonormal").shape == (
        30,
        2,
    )


def test_what_vb_is_not_for():
    x, y = small()
    for fields, message in (
        ({}, "vb needs a proper prior"),
        ({"kernel": "linear"}, "vb is for the primal model"),
        ({"center": "plugin", **PRIOR}, "vb estimates means and noise with the loadings"),
    ):
        with pytest.raises(ValueError, match=message):
            fit(SPPCA(num_latents=2, **fields), np.nan_to_num(x), y, method="vb")
    with pytest.raises(TypeError, match="SPPCA takes 2 parts of data, x and y; got 1: y is missing"):
        fit(SPPCA(num_latents=2), x)


@pytest.mark.slow
def test_many_rows_make_it_the_maximum():
    """With 1500 rows predictions of VB and EM agree within a twentieth of an sd; a noise for each output."""
    x, y, _ = toy(0, num_rows=1500)
    y[900:] = np.nan
    model = SPPCA(num_latents=3, output_noise="per_output", **PRIOR)
    tree = fit(model, x, y, method="vb", num_samples=20)
    assert tree["variational"]["noise_precision_y_rate"].dims == ("output",)
    em = fit(SPPCA(num_latents=3), x, y)
    away = np.abs(predict(tree, x) - predict(em, x)) / predict(em, x)["standard_deviation"]
    assert away.max() < 0.05
