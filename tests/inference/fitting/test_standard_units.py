"""``standardize=True``: the fit of the hand-standardised table, in the units of the data, in every output."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer.util import log_density as program_log_density

import inference
import zoo
from inference import fit
from inference.calibration import elbo_check
from inference.precision import in_precision

SCALES = np.array([1e-3, 1.0, 50.0, 1e3])


@pytest.fixture(scope="module")
def table():
    """40 rows near a line in four columns of very different units, one cell missing."""
    r = np.random.default_rng(1)
    x = r.normal(size=(40, 1)) @ r.normal(size=(1, 4)) + 0.4 * r.normal(size=(40, 4)) + 3.0
    x[3, 2] = np.nan
    return x * SCALES


def by_hand(x):
    scale = np.nanstd(x, axis=0)
    return x / scale, scale


def same_up_to_units(model, x, method, tolerance=1e-9, **options):
    """Both fits agree in every output after conversion by hand."""
    z, s = by_hand(x)
    tree = fit(model.replaced(standardize=True), x, method=method, **options)
    plain = fit(model, z, method=method, **options)
    lost = np.sum(~np.isnan(x) * np.log(s))
    own = float(tree["trace"]["objective"][-1]), float(plain["trace"]["objective"][-1])
    size = x.shape[1] * (model.num_latents + 1)  # of loadings and means, of log posteriors
    counted = method == "nuts" or (method == "em" and model.prior == "proper")
    lost_by_parameters = (model.num_latents + 1) * np.log(s).sum() if counted else 0.0
    np.testing.assert_allclose(own[0] + lost + lost_by_parameters, own[1], atol=1e-6 * size)
    powers = {"loadings": s, "loc": s, "noise_variance": 1.0, "latents": 1.0}
    for name, scale in powers.items():
        if name in tree["posterior"]:
            scale = scale[:, None] if name == "loadings" else scale
            np.testing.assert_allclose(tree["posterior"][name], plain["posterior"][name] * scale, rtol=1e-7)
    new = x[:6].copy()
    new[0, 0] = new[1, 1] = np.nan
    for scores in ("latent", "orthonormal"):
        values = inference.transform(tree, new, scores=scores)
        np.testing.assert_allclose(
            values, inference.transform(plain, new / s, scores=scores), atol=tolerance * 10
        )
    spread = inference.transform(tree, new, covariance=True)["covariance"]
    np.testing.assert_allclose(
        spread, inference.transform(plain, new / s, covariance=True)["covariance"], rtol=1e-6
    )
    filled, hand = inference.predict(tree, new), inference.predict(plain, new / s)
    np.testing.assert_allclose(filled / s, hand, rtol=1e-7)
    np.testing.assert_allclose(filled.standard_deviation / s, hand.standard_deviation, rtol=1e-6, atol=1e-12)
    seen = np.isfinite(new)
    np.testing.assert_array_equal(filled.to_numpy()[seen], new[seen])
    densities = inference.log_density(tree, new) + (seen * np.log(s)).sum(1)
    np.testing.assert_allclose(densities, inference.log_density(plain, new / s), rtol=1e-8)
    return tree, plain


@pytest.mark.parametrize(
    ("method", "fields"),
    [
        ("em", {}),
        ("vb", {"loading_prior": "ard"}),
        pytest.param("em", {"loading_prior": "gaussian"}, marks=pytest.mark.slow),
        pytest.param("vb", {"loading_prior": "gaussian", "noise": "diagonal"}, marks=pytest.mark.slow),
        pytest.param("svi", {"loading_prior": "gaussian"}, marks=pytest.mark.slow),
        pytest.param("nuts", {"loading_prior": "gaussian"}, marks=pytest.mark.slow),
    ],
)
def test_ppca(table, method, fields, tmp_path):
    model = zoo.PPCA(num_latents=1, **fields)
    options = {"max_iterations": 60, "tolerance": 0.0} if method != "nuts" else {}
    if method == "nuts":
        options = {"num_warmup": 20, "num_samples": 10, "num_chains": 2}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree, _ = same_up_to_units(
            model, table, method, num_samples=options.pop("num_samples", 20), **options
        )
    inference.save(tree, tmp_path / "fit.nc")
    back = inference.load(tmp_path / "fit.nc")
    np.testing.assert_allclose(inference.log_density(back, table), inference.log_density(tree, table))
    assert inference.model_of(back).standardize
