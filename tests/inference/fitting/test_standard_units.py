"""``standardize=True``: the fit of the hand-standardised table, in the units of the data, in every output."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from scipy import stats

import inference
import zoo
from inference import fit
from inference.algorithm import Method
from inference.calibration import elbo_check
from inference.convergence.identifiable import invariants
from inference.methods import units
from inference.methods.ppca import vb
from inference.methods.sppca import vb as sppca_vb
from inference.precision import in_precision
from tests.support.log_joint import log_joint
from zoo.coordinates.of_models import inside, noise_factors
from zoo.exponential_family import Gaussian

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
    own = [float(np.ravel(each["trace"]["objective"])[-1]) for each in (tree, plain)]
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
    own, hand = (invariants(each)["marginal_covariance"] for each in (tree, plain))
    np.testing.assert_allclose(own / np.outer(s, s), hand, rtol=1e-6, atol=1e-9)
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
        pytest.param("vb", {"loading_prior": "ard"}, marks=pytest.mark.slow),
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


def test_a_method_s_own_completion_is_turned_back_and_known_cells_stay(table):
    """By hand: the method sees standard units, and what it says of them is given in those of the data."""
    model = zoo.PPCA(num_latents=1, standardize=True).with_sizes_from(table)
    scale, shift, asked = model.column_scale, 0.0, []

    def predict(stored, model, x):
        asked.append(np.asarray(x))
        return jnp.full(x.shape, 0.5), jnp.full(x.shape, 2.0)

    with in_precision():
        mean, variance = units._predicted(Method(predict=predict), {}, model, jnp.asarray(table))
        mean, variance = np.asarray(mean), np.asarray(variance)
    np.testing.assert_allclose(asked[0], (table - shift) / scale, rtol=1e-12)
    lost = np.isnan(table)
    assert lost.any()
    np.testing.assert_allclose(
        mean[lost], np.broadcast_to(0.5 * scale + shift, table.shape)[lost], rtol=1e-12
    )
    np.testing.assert_array_equal(mean[~lost], table[~lost])
    np.testing.assert_allclose(variance, np.broadcast_to(2.0 * np.asarray(scale) ** 2, table.shape))


@pytest.fixture(scope="module")
def outputs(table):
    r = np.random.default_rng(2)
    y = np.nanmean(table / SCALES, axis=1)[:, None] * [1.0, -2.0] + 0.3 * r.normal(size=(40, 2))
    y[5, 1] = np.nan
    return y * [1e-2, 1e2]


@pytest.mark.parametrize(
    ("method", "fields"),
    [
        pytest.param("vb", {}, marks=pytest.mark.slow),
        pytest.param("em", {"loading_prior": "flat"}, marks=pytest.mark.slow),
        pytest.param("em", {"loading_prior": "flat", "center": "plugin"}, marks=pytest.mark.slow),
        pytest.param("em", {"output_noise": "per_output"}, marks=pytest.mark.slow),
        pytest.param("gibbs", {}, marks=pytest.mark.slow),
        pytest.param("nuts", {}, marks=pytest.mark.slow),
    ],
)
def test_sppca(table, outputs, method, fields):
    """Inputs and real outputs are measured in their standard deviations; so is what is predicted."""
    (x, s), (y, t) = by_hand(table), by_hand(outputs)
    model = zoo.SPPCA(num_latents=1, **{"loading_prior": "gaussian"} | fields)
    options = {"num_samples": 20} | (
        {"num_warmup": 20, "num_chains": 2} if method in ("gibbs", "nuts") else {"max_iterations": 50}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = fit(model.replaced(standardize=True), table, outputs, method=method, **options)
        plain = fit(model, x, y, method=method, **options)
    scales = {"loadings_x": s[:, None], "loc_x": s, "loadings_y": t[:, None], "loc_y": t}
    for name in tree["posterior"].data_vars:
        np.testing.assert_allclose(
            tree["posterior"][name], plain["posterior"][name] * scales.get(name, 1.0), rtol=1e-6, atol=1e-12
        )
    new = table[:6].copy()
    new[0, 0] = np.nan
    seen = np.isfinite(new)
    for scores in ("latent", "orthonormal"):
        own, hand = (inference.transform(a, b, scores=scores) for a, b in ((tree, new), (plain, new / s)))
        np.testing.assert_allclose(own, hand, rtol=1e-6, atol=1e-9)
    for what, data, scale in (("outputs", (), t), ("cells", (), s)):
        own = inference.predict(tree, new, *data, what=what)
        hand = inference.predict(plain, new / s, *data, what=what)
        np.testing.assert_allclose(own / scale, hand, rtol=1e-6)
        np.testing.assert_allclose(
            own.standard_deviation / scale, hand.standard_deviation, rtol=1e-6, atol=1e-12
        )
    known = outputs[:6].copy()
    known[2, 0] = np.nan
    for a, b in (((new,), (new / s,)), ((new, known), (new / s, known / t))):
        lost = (seen * np.log(s)).sum(1) + ((np.isfinite(known) * np.log(t)).sum(1) if len(a) > 1 else 0.0)
        own, hand = inference.log_density(tree, *a) + lost, inference.log_density(plain, *b)
        np.testing.assert_allclose(own, hand, rtol=1e-7)
    if "log_likelihood" in tree.children:
        lost = (np.isfinite(table) * np.log(s)).sum(1) + (np.isfinite(outputs) * np.log(t)).sum(1)
        own, hand = (a["log_likelihood"]["log_likelihood"] for a in (tree, plain))
        np.testing.assert_allclose(own + lost, hand, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("noise", ["shared", "per_output"])
def test_the_noise_of_sppca_is_in_standard_units_of_each_column(table, outputs, noise):
    """Rows of inputs and outputs against SciPy's normal density of the standardised ones."""
    x, y = np.delete(table, 3, axis=0)[:5], outputs[-5:]
    model = zoo.SPPCA(num_latents=1, standardize=True, output_noise=noise).with_sizes_from(table, outputs)
    rng = np.random.default_rng(4)
    scales = np.concatenate([np.nanstd(table, axis=0), np.nanstd(outputs, axis=0)])
    loadings, loc = scales[:, None] * rng.normal(size=(6, 1)), np.nanmean(table) * rng.normal(size=6)
    own = np.array([0.3] * 4 + ([0.6, 0.6] if noise == "shared" else [0.6, 1.1]))
    values = {
        "loadings_x": loadings[:4],
        "loadings_y": loadings[4:],
        "loc_x": loc[:4],
        "loc_y": loc[4:],
        "noise_variance_x": np.array(0.3),
        "noise_variance_y": np.array(0.6) if noise == "shared" else own[4:],
    }
    with in_precision():
        found = model.log_likelihood(jax.tree.map(jnp.asarray, values), jnp.asarray(x), jnp.asarray(y))
        found = np.asarray(found)
    standard = loadings / scales[:, None]
    covariance = standard @ standard.T + np.diag(own)
    z = (np.concatenate([x, y], axis=1) - loc) / scales
    expected = stats.multivariate_normal.logpdf(z, np.zeros(6), covariance) - np.log(scales).sum()
    np.testing.assert_allclose(found, expected, rtol=1e-8)


@pytest.mark.slow
def test_sppca_with_labels_scales_its_inputs_only(table):
    x = np.nan_to_num(table, nan=100.0)
    labels = np.where(x[:, 0] > np.median(x[:, 0]), "high", "low")
    scale = x.std(0)
    for fields, method in (({}, "em"), ({"output_likelihood": "probit"}, "ep")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            own = fit(zoo.SPPCA(num_latents=1, standardize=True, **fields), x, labels, method=method)
            hand = fit(zoo.SPPCA(num_latents=1, **fields), x / scale, labels, method=method)
        shares = [inference.predict(t, z, what="classes") for t, z in ((own, x[:5]), (hand, x[:5] / scale))]
        np.testing.assert_allclose(*shares, rtol=1e-6)


def unconstrained_density(model, values, *data):
    return float(log_joint(model, values, *data))


@pytest.mark.parametrize("prior", ["gaussian", "ard"])
def test_the_program_is_that_of_standard_units(table, prior):
    """Log densities of rows, latents and parameters; a planted scale of two must show."""
    z, s = by_hand(table)
    model = zoo.PPCA.from_data(table, num_latents=1, loading_prior=prior, standardize=True)
    plain = zoo.PPCA.from_data(z, num_latents=1, loading_prior=prior)
    np.testing.assert_allclose(model.loc_mean, plain.loc_mean * s)
    r = np.random.default_rng(0)
    values = {"loadings": r.normal(size=(4, 1)), "loc": r.normal(size=4), "noise_variance": np.array(0.7)}
    values |= {"loading_precision": np.array([1.3])} if prior == "ard" else {}
    scaled = values | {"loadings": values["loadings"] * s[:, None], "loc": values["loc"] * s}
    lost = (np.isfinite(table) * np.log(s)).sum() + 2 * np.log(s).sum()
    with in_precision():
        for of, latents in ((lambda m: m, {}), (lambda m: m.explicit, {"latents": r.normal(size=(40, 1))})):
            expected = unconstrained_density(of(plain), values | latents, jnp.asarray(z))
            found = unconstrained_density(of(model), scaled | latents, jnp.asarray(table))
            np.testing.assert_allclose(found + lost, expected, rtol=1e-10)
        wrong = scaled | {"loadings": 2 * scaled["loadings"]}
        assert abs(unconstrained_density(model, wrong, jnp.asarray(table)) + lost - expected) > 1.0


@pytest.mark.slow
def test_the_guide_continuations_and_reports_of_a_standardised_fit(table, tmp_path):
    """q's program has the model's sites in the units of the data: its bound is the fit's last objective."""
    x = np.nan_to_num(table, nan=150.0)
    model = zoo.PPCA(num_latents=1, loading_prior="gaussian", standardize=True)
    tree = fit(model, x, method="vb", max_iterations=200)
    bound = float(tree["trace"]["objective"][-1])
    with in_precision():
        check = elbo_check(
            inference.model_of(tree).explicit,
            inference.guide(tree),
            bound,
            (x,),
            key=jax.random.key(0),
            num_particles=1000,
        )
        wrong = elbo_check(
            inference.model_of(tree).explicit,
            inference.guide(tree),
            bound + np.log(x.std(0)).sum(),
            (x,),
            key=jax.random.key(0),
            num_particles=1000,
        )
    assert check.passed and not wrong.passed, (check, wrong)
    again = fit(inference.model_of(tree), x, method="vb", init=tree, max_iterations=20, tolerance=0.0)
    gained = float(again["trace"]["objective"][-1] - tree["trace"]["objective"][-1])
    assert -1e-8 < gained < 1e-2
    loo = inference.diagnostics.compare({"own": tree, "again": again})
    assert np.isfinite(np.asarray(loo["elpd"], float)).all()
    weighted = fit(model, x, method="vb", sample_weight=np.full(40, 2.0), max_iterations=50)
    doubled = fit(inference.model_of(weighted), np.concatenate([x, x]), method="vb", max_iterations=50)
    np.testing.assert_allclose(
        weighted["trace"]["objective"][-1], doubled["trace"]["objective"][-1], atol=1e-6
    )


def test_standardize_is_refused_where_it_has_no_meaning(table):
    x, y = np.nan_to_num(table), table[:, :1] * 0 + 1.0
    with pytest.raises(ValueError, match="standardize=True goes with kernel=None"):
        zoo.SPPCA(num_latents=1, kernel="linear", standardize=True)
    with pytest.raises(ValueError, match="part of the noise model, which 'morp' does not have"):
        fit(zoo.SPPCA(num_latents=1, standardize=True), x, x[:, :1], method="morp")
    with pytest.raises(ValueError, match="takes dense x"):
        fit(zoo.PPCA(num_latents=1, standardize=True), scipy.sparse.csr_matrix(x))
    with pytest.raises(ValueError, match="column 0 of y is constant"):
        fit(zoo.SPPCA(num_latents=1, standardize=True), x, np.nan_to_num(y, nan=1.0))
    with pytest.raises(ValueError, match="column_scale must have one number for each of 4 columns"):
        zoo.PPCA.from_data(x, num_latents=1, standardize=True, column_scale=[1.0, 2.0])
    with pytest.raises(ValueError, match="column_scale must be positive"):
        zoo.PPCA.from_data(x, num_latents=1, standardize=True, column_scale=[1.0, 2.0, 0.0, 1.0])


def test_weights_count_rows_in_the_change_of_units(table):
    """A row of weight two has twice its cells' change of density, as two such rows have."""
    model = zoo.PPCA.from_data(table, num_latents=1, standardize=True)
    twice = np.r_[np.arange(40), [0, 1, 2]]
    weight = np.bincount(twice, minlength=40).astype(float)
    settings = {"method": "em", "max_iterations": 3, "tolerance": 0.0}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*has not converged")
        first = fit(model, table, **settings)
        weighted = fit(model, table, sample_weight=weight, init=first, **settings)
        doubled = fit(model, table[twice], init=first, **settings)
    ends = (float(tree["trace"]["objective"][-1]) for tree in (weighted, doubled))
    np.testing.assert_allclose(*ends, rtol=1e-10)


@pytest.mark.parametrize(
    ("method", "kernel"),
    [("closed_form", "linear"), *[pytest.param("em", k, marks=pytest.mark.slow) for k in ("linear", "rbf")]],
)
def test_kernel_pca(table, method, kernel, tmp_path):
    """The scores of the hand-standardised table, whatever the columns' units; without it they are others."""
    x = np.nan_to_num(table)
    z = x / x.std(axis=0)
    fields = {"num_latents": 2, "kernel": kernel, "noise_variance": 0.05}
    model = zoo.KernelPCA(**fields, standardize=True)
    tree = fit(model, x, method=method)
    plain = fit(zoo.KernelPCA(**fields), z, method=method)
    with pytest.warns(UserWarning, match="very different scales.*give standardize=True"):
        raw = fit(zoo.KernelPCA(**fields), x, method=method)
    ends = [float(np.ravel(each["trace"]["objective"])[-1]) for each in (tree, plain, raw)]
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-9)
    assert abs(ends[2] - ends[1]) > 1.0
    new, units = x[:5] * 1.01, np.array([1e3, 0.1, 7.0, 1.0])
    other = fit(model, x * units, method=method)
    inference.save(tree, tmp_path / "fit.nc")
    back = inference.load(tmp_path / "fit.nc")
    assert inference.model_of(back).standardize
    for scores in ("latent", "orthonormal"):
        wanted = np.abs(inference.transform(plain, new / x.std(axis=0), scores=scores))
        for own, rows in ((tree, new), (back, new), (other, new * units)):
            found = np.abs(inference.transform(own, rows, scores=scores))
            np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-8)
    more = fit(model, x, method="em", init=tree, max_iterations=2, tolerance=0.0)
    np.testing.assert_allclose(float(more["trace"]["objective"][-1]), ends[0], rtol=1e-9)
    with pytest.raises(ValueError, match="standardize=True is of rows, and a precomputed kernel has none"):
        zoo.KernelPCA(kernel="precomputed", noise_variance=0.1, standardize=True)


STANDARDISED = {
    "ppca": lambda x, **own: zoo.PPCA.from_data(x, loading_prior="gaussian", **own),
    "ppca, ard": lambda x, **own: zoo.PPCA.from_data(x, loading_prior="ard", noise="diagonal", **own),
    "depcam": lambda x, **own: zoo.DEPCAM.from_data(x, family=Gaussian(noise_variance=None), **own),
    "sppca": lambda x, **own: zoo.SPPCA.from_data(x[:, :2], x[:, 2:], loading_prior="gaussian", **own),
}


@pytest.mark.parametrize("name", STANDARDISED)
def test_priors_of_a_standardised_table_are_those_of_the_table_divided_by_hand(table, name):
    """Variances and rates have no unit any more; the means of the prior are in the units of the data."""
    z, s = by_hand(table)
    own, plain = STANDARDISED[name](table, standardize=True), STANDARDISED[name](z)
    read = ("loading_variance", "ard_rate", "loc_variance", "noise_rate", "offset_variance", "sparsity")
    for field in (field for field in read if getattr(plain, field, None) is not None):
        np.testing.assert_allclose(getattr(own, field), getattr(plain, field), rtol=1e-9, err_msg=field)
    (mean,) = (field for field in ("loc_mean", "offset_mean") if hasattr(plain, field))
    np.testing.assert_allclose(getattr(own, mean), np.nanmean(table, axis=0), rtol=1e-9)
    with in_precision():
        standard = inside(own, own.own_coordinates)
        assert not standard.standardize and standard.own_coordinates is None
        np.testing.assert_allclose(getattr(standard, mean), np.nanmean(z, axis=0), rtol=1e-6)


def test_moments_of_loadings_and_means_have_the_units_of_their_draws(table):
    """Draws of each column's loadings and mean, in units of the data: their moments are those of the draws.

    So is the variance of what is left of the cells.
    """
    rng = np.random.default_rng(0)
    _, s = by_hand(table)
    draws, left = rng.normal(size=(50, 4, 3)), rng.normal(size=(50, 4))  # by column two loadings and the mean
    ppca, sppca = (STANDARDISED[name](table, standardize=True) for name in ("ppca", "sppca"))
    depcam = STANDARDISED["depcam"](table, standardize=True)

    def moments(given):
        joint = np.stack([np.cov(own.T) for own in given.transpose(1, 0, 2)])
        found = {"loadings{}": given[0, :, :2], "loc{}": given[0, :, 2]}
        found |= {"loadings{}_mean": given.mean(axis=0)[:, :2], "loc{}_mean": given.mean(axis=0)[:, 2]}
        found |= {"loadings{}_covariance": joint[:, :2, :2], "loc{}_variance": joint[:, 2, 2]}
        return found | {"loadings_loc{}_covariance": joint[:, :2, 2]}

    whole = slice(None)
    parts = ((ppca, "", "x", whole), (sppca, "_x", "x", slice(0, 2)), (sppca, "_y", "y", slice(2, 4)))
    for model, suffix, block, own in (*parts, (depcam, "", "x", whole)):
        known = units._units((sppca_vb if suffix else vb).METHOD, model)
        scale, shift = known[block]
        np.testing.assert_allclose(scale, s[own], rtol=1e-6)
        assert shift == 0.0
        spread = (left[:, own] * s[own]).var(axis=0)
        np.testing.assert_allclose(
            left[:, own].var(axis=0) * noise_factors(model)[suffix],
            spread,
            rtol=1e-6,
        )
        if model is depcam:
            continue
        standard = moments(draws[:, own])
        for name, value in moments(draws[:, own] * s[own][:, None]).items():
            scale, shift = known[name.format(suffix)]
            np.testing.assert_allclose(standard[name] * scale + shift, value, rtol=1e-6, err_msg=name)
