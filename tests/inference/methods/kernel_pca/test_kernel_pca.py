"""Kernel PCA by eigenvalues and by EM: the program's maximum, few sweeps, bad input."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.sparse

import inference
import zoo
from inference import fit
from inference.diagnostics import summary_text
from inference.methods.kernel_pca import em
from tests.support.kernel_rows_cases import NEW, X, centred, spectrum
from tests.support.log_joint import log_joint
from zoo.kernels import RBF, Polynomial


def largest_angle(a, b):
    return scipy.linalg.subspace_angles(a, b)[0]


def value_and_slopes(tree, x, **changed):
    """The program's log joint at a fit's estimate and its gradients there."""
    with jax.enable_x64(True):
        posterior = tree["posterior"]
        sites = [name for name in ("latents", "noise_variance") if name in posterior]
        values = {name: jnp.asarray(posterior[name].to_numpy()[0, 0]) for name in sites}
        model, data = inference.model_of(tree), (jnp.asarray(x),)
        value, slopes = jax.jit(jax.value_and_grad(lambda v: log_joint(model, v, *data)))(values)
        return float(value), {name: np.abs(slope).max() for name, slope in slopes.items()}


FLAT = {
    "rbf": {"kernel": RBF(1.5), "noise_variance": 0.02},
    "estimated noise": {"kernel": "linear"},
    "polynomial": {"kernel": Polynomial(2), "degrees_of_freedom": 40.0},
}
PRIOR = {"prior": {"kernel": RBF(1.5), "noise_variance": 0.02, "latent_variance": 0.3}}


@pytest.mark.parametrize("case", PRIOR | FLAT)
def test_the_closed_form_is_the_programs_maximum(case):
    """Its objective is the program's value; all gradients vanish; nothing nearby is higher."""
    fields = (FLAT | PRIOR)[case]
    tree = fit(zoo.KernelPCA(num_latents=2, **fields), X)
    value, slopes = value_and_slopes(tree, X)
    np.testing.assert_allclose(tree["trace"]["objective"], value, rtol=1e-12)
    assert max(slopes.values()) < 1e-7 * abs(value)
    assert tree.attrs["converged"] == 1 and tree.attrs["components_pruned"] == 0
    rng = np.random.default_rng(0)
    for scale in (1e-2, 1e-1):
        moved = tree.copy(deep=True)
        moved["posterior"]["latents"] += scale * rng.normal(size=(1, 1, 40, 2))
        assert value_and_slopes(moved, X)[0] < value


def test_estimated_noise_is_that_of_probabilistic_pca():
    """(5.19) with m in the place of N: what two components leave over, per remaining column."""
    tree = fit(zoo.KernelPCA(num_latents=2, kernel="linear", degrees_of_freedom=40.0), X)
    eigenvalues = np.linalg.eigvalsh(np.cov(X.T, bias=True))[::-1]
    np.testing.assert_allclose(tree["posterior"]["noise_variance"], eigenvalues[2], rtol=1e-12)
    np.testing.assert_allclose(
        tree["posterior"]["explained_variances"][0, 0], eigenvalues[:2] - eigenvalues[2], rtol=1e-10
    )


def test_lanczos_is_the_dense_solver_and_the_eigenvectors():
    model = zoo.KernelPCA(num_latents=4, kernel=RBF(1.5), noise_variance=0.01)
    lanczos, dense = (fit(model, X, solver=solver)["variational"] for solver in ("lanczos", "dense"))
    values, vectors = spectrum(RBF(1.5), X)
    for estimate in (lanczos, dense):
        np.testing.assert_allclose(estimate["eigenvalues"], values[:4], rtol=1e-11)
        found = estimate["gram_products"].to_numpy() / np.sqrt(values[:4])
        assert largest_angle(found, vectors[:, :4]) < 1e-10
        np.testing.assert_allclose(np.abs(np.sum(found * vectors[:, :4], axis=0)), 1.0, rtol=1e-10)
    np.testing.assert_allclose(lanczos["coefficients"], dense["coefficients"], atol=1e-10)  # signs too


def test_components_below_the_noise_vanish_and_are_counted():
    """The corrected Theorem 5.2.1: eigenvalues up to m s2 leave no component."""
    values, _ = spectrum(RBF(1.5), X)
    noise = (values[2] + values[3]) / 2 / 39
    model = zoo.KernelPCA(num_latents=5, kernel=RBF(1.5), noise_variance=noise)
    with pytest.warns(UserWarning, match="closed_form: 2 of 5 components vanish.*component 3 has"):
        tree = fit(model, X)
    variances = tree["variational"]["signal_variances"].to_numpy()
    np.testing.assert_allclose(variances, np.maximum(values[:5] / 39 - noise, 0.0), rtol=1e-10)
    assert (tree["posterior"]["latents"][0, 0, :, 3:] == 0).all()
    assert (inference.transform(tree, NEW)[:, 3:] == 0).all()
    assert tree.attrs["explained_share"] == pytest.approx(values[:3].sum() / values.sum())
    tables = inference.diagnostics.profiles(tree)
    assert tables["latents"].index.tolist() == [0, 1, 2]
    assert set(tables["extreme_rows"].index.get_level_values("latent")) == {0, 1, 2}
    assert summary_text(tree).startswith("Three latents")
    assert max(value_and_slopes(tree, X)[1].values()) < 1e-8
    with pytest.warns(UserWarning, match="em: 2 of 5 components vanish"):
        em = fit(model, X, method="em", max_iterations=3000, tolerance=1e-10)
    np.testing.assert_allclose(em["trace"]["objective"][-1], tree["trace"]["objective"][0], rtol=1e-7)
    assert em.attrs["components_pruned"] == 2


@pytest.mark.filterwarnings("ignore:closed_form")
def test_where_all_components_vanish_no_latent_is_told():
    """Rows in their order stood at the ends of latents of zeros, of 0 / 0 of the variance."""
    tree = fit(zoo.KernelPCA(num_latents=2, kernel=RBF(1.5), noise_variance=100.0), X)
    assert summary_text(tree).startswith("No latents") and "end, row" not in summary_text(tree)
    tables = inference.diagnostics.profiles(tree)
    assert len(tables["latents"]) == 0 == len(tables["extreme_rows"])


# EM


@pytest.mark.parametrize("case, acceleration", [("rbf", "none"), *((case, "px") for case in FLAT)])
def test_em_never_falls_and_ends_at_the_closed_form(case, acceleration):
    fields = {"num_latents": 2} | FLAT[case]
    best = fit(zoo.KernelPCA(**fields), X)
    settings = {"max_iterations": 400, "tolerance": 0, "num_restarts": 2, "acceleration": acceleration}
    tree = fit(zoo.KernelPCA(**fields), X, method="em", init="random", **settings)
    objective = tree["trace"]["objective_by_restart"].to_numpy().T
    assert np.diff(objective, axis=1).min() >= -1e-12 * np.abs(objective).max()
    assert objective.max() <= best["trace"]["objective"].item() + 1e-9
    if acceleration == "px":  # plain EM has the span as soon, but not the scale
        np.testing.assert_allclose(objective[:, -1], best["trace"]["objective"].item(), rtol=1e-10)
    name = "eigenvalues"
    np.testing.assert_allclose(tree["variational"][name], best["variational"][name], rtol=1e-6)


def test_em_begins_at_the_closed_form_where_its_sketch_holds_all_directions():
    """Three columns, two components and more random vectors than that: one sweep gains nothing."""
    model = zoo.KernelPCA(num_latents=2, kernel="linear", degrees_of_freedom=40.0)
    best = fit(model, X)["trace"]["objective"].item()
    one = fit(model, X, method="em", max_iterations=1, tolerance=0, num_restarts=1)
    assert one["trace"]["objective"][-1].item() == pytest.approx(best, rel=1e-10)


def test_the_noise_begins_at_what_the_sketch_leaves():
    """Of a linear kernel of three columns the two last eigenvalues, over the freedom and two directions."""
    model = zoo.KernelPCA(num_latents=1, kernel="linear", degrees_of_freedom=40.0)
    with jax.enable_x64(True):
        (rows,) = em.prepare(model, (X,), None, memory="full")
        state = em.init(jax.random.key(0), model, rows)
    lengths = np.linalg.eigvalsh((X - X.mean(0)).T @ (X - X.mean(0)))
    np.testing.assert_allclose(state.noise_variance, lengths[:2].sum() / (40.0 * 2), rtol=1e-8)


def test_a_random_start_has_half_of_the_variance():
    """The other half is noise, over the dimensions of the kernel's space."""
    model = zoo.KernelPCA(num_latents=2, kernel="linear", degrees_of_freedom=40.0)
    with jax.enable_x64(True):
        (rows,) = em.prepare(model, (X,), None, memory="full")
        state = em.init(jax.random.key(0), model, rows, strategy="random")
        signal = np.trace(rows.inner(state.directions, state.products))
        np.testing.assert_allclose(state.products, rows.product(state.directions), rtol=1e-9)
    whole = ((X - X.mean(0)) ** 2).sum() / 40.0
    np.testing.assert_allclose(signal, 0.5 * whole, rtol=1e-9)
    np.testing.assert_allclose(state.noise_variance, 0.5 * whole / X.shape[1], rtol=1e-9)


def test_em_finds_components_a_million_times_weaker_than_the_first():
    """Columns in units 1e-3 to 1e3: from noise like the first column's, weak components never came back."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2)) @ rng.normal(size=(2, 8)) + 0.5 * rng.normal(size=(60, 8))
    x = x * np.geomspace(1e-3, 1e3, 8)
    left, lengths, _ = np.linalg.svd(x - x.mean(0), full_matrices=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # columns of one noise; the objective falls by rounding, 1e-3 nats
        tree = fit(zoo.KernelPCA(num_latents=6, kernel="linear"), x, method="em")
        scores = inference.transform(tree, x, scores="orthonormal").to_numpy()
    wanted = left[:, :6] * lengths[:6]
    wanted *= np.sign((wanted * scores).sum(0))
    assert (np.abs(scores - wanted).max(0) < 1e-6 * wanted.std(0)).all()


def geometric(num_rows, count, ratio):
    """A centred Gram matrix whose eigenvalue after the first ``count`` is ``ratio`` times their last."""
    rng = np.random.default_rng(0)
    q = np.linalg.qr(np.column_stack([np.ones(num_rows), rng.normal(size=(num_rows, num_rows - 1))]))[0]
    tail = ratio * 0.95 ** np.arange(num_rows - 1 - count)
    values = np.concatenate([np.linspace(4.8, 1.0, count), tail])
    gram = (q[:, 1:] * values) @ q[:, 1:].T
    return (gram + gram.T) / 2, values


@pytest.mark.slow
@pytest.mark.parametrize("sweeps, bar", [pytest.param(20, 1e-3, marks=pytest.mark.slow), (50, 1e-7)])
def test_em_and_rayleigh_ritz_have_the_eigenvalues_after_few_sweeps(sweeps, bar):
    """Ten components, gap ratio 0.87, four starts: the bars hold from each; a tenth of the sweeps fails."""
    gram, values = geometric(150, 10, 0.87)
    model = zoo.KernelPCA(num_latents=10, kernel="precomputed", noise_variance=1e-4)

    def error(seed, count):
        settings = {"max_iterations": count, "tolerance": 0, "seed": seed}
        found = fit(model, gram, method="em", **settings)["variational"]["eigenvalues"]
        return np.abs(found.to_numpy() / values[:10] - 1).max()

    assert max(error(seed, sweeps) for seed in range(4)) < bar
    assert error(0, sweeps // 10) > bar


@pytest.mark.slow
def test_parameter_expansion_has_the_scale_where_plain_em_crawls():
    """Z Z' / N after 60 sweeps from the same start; the subspaces are alike."""
    fields = {"num_latents": 2, "kernel": RBF(1.5), "noise_variance": 1e-4}
    best = fit(zoo.KernelPCA(**fields), X)["trace"]["objective"].item()
    gap = {}
    for acceleration in ("px", "none"):
        settings = {"max_iterations": 100, "tolerance": 0, "acceleration": acceleration, "init": "random"}
        gap[acceleration] = (
            best - fit(zoo.KernelPCA(**fields), X, method="em", **settings)["trace"]["objective"][-1].item()
        )
    assert gap["px"] < 1e-6 and gap["none"] > 1e3 * gap["px"]


def test_the_objective_is_the_texts_with_its_constants():
    """(5.24) at m = N, evaluated as printed from the coefficients of the estimate."""
    model = zoo.KernelPCA(num_latents=2, kernel=RBF(1.5), noise_variance=0.05, degrees_of_freedom=40.0)
    estimate, gram = fit(model, X)["variational"], centred(RBF(1.5), X)
    b = estimate["coefficients"].to_numpy() * np.sqrt(estimate["signal_variances"].to_numpy())
    inner = b.T @ gram @ b + 0.05 * np.eye(2)
    explained = np.trace(gram @ b @ np.linalg.solve(inner, b.T @ gram)) / (40 * 0.05)
    printed = -20 * (np.linalg.slogdet(inner)[1] - explained)
    constants = -20 * 38 * np.log(0.05) - np.trace(gram) / (2 * 0.05)
    np.testing.assert_allclose(fit(model, X)["trace"]["objective"].item(), printed + constants, rtol=1e-12)


# The way in and out


@pytest.mark.slow
def test_in_single_precision_and_cut_by_a_checkpoint_em_is_the_same(tmp_path):
    model = zoo.KernelPCA(num_latents=2, kernel=RBF(1.5), noise_variance=0.02)
    settings = {"method": "em", "max_iterations": 60, "tolerance": 0, "seed": 3}
    whole = fit(model, X, **settings)
    single = fit(model, X, dtype="float32", **settings)
    eigenvalues = whole["variational"]["eigenvalues"]
    np.testing.assert_allclose(single["variational"]["eigenvalues"], eigenvalues, rtol=1e-4)
    path = tmp_path / "run"
    fit(model, X, checkpoint=path, **settings)
    again = fit(model, X, checkpoint=path, **settings)  # resumed at its end
    np.testing.assert_array_equal(again["variational"]["eigenvalues"], eigenvalues)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["closed_form", "em"])
def test_a_fit_is_stored_and_goes_on(method, tmp_path):
    model = zoo.KernelPCA(num_latents=2, kernel="rbf", noise_variance=0.02)
    tree = fit(model, X, method=method)
    inference.save(tree, tmp_path / "fit.nc")
    again = inference.load(tmp_path / "fit.nc")
    restored = inference.model_of(again)
    np.testing.assert_allclose(restored.kernel.length_scale**2, X.var(axis=0).sum())
    np.testing.assert_array_equal(inference.transform(again, NEW), inference.transform(tree, NEW))
    on = fit(model, np.concatenate([X, NEW]), init=again)  # the length scale stays that of the former rows
    assert on.attrs["method"] == "em"
    assert float(inference.model_of(on).kernel.length_scale) == float(restored.kernel.length_scale)
    assert on["posterior"].sizes["observation"] == 45
    assert tree["posterior"]["latents"].dims == ("chain", "draw", "observation", "latent")


NAN = X.copy()
NAN[3, 1] = np.nan
BAD_FITS = {
    "NaN": ({"x": NAN}, "x must be finite.*row 3, column 1 is nan"),
    "K >= N": ({"num_latents": 40}, "below the number of rows, 40; got 40: give num_latents=39 or less"),
    "K >= M": (
        {"kernel": "linear", "noise_variance": None, "num_latents": 3},
        "feature space, 3, or no",
    ),
    "equal rows": ({"x": np.ones((5, 2))}, "the rows of x are all the same in feature space"),
    "not square": ({"kernel": "precomputed"}, r"is square; got shape \(40, 3\)"),
    "no noise": (
        {"kernel": "polynomial", "noise_variance": None, "num_latents": 10, "x": X[:11]},
        "explain the Gram matrix whole",
    ),
    "nuts": ({"method": "nuts"}, "nuts needs a prior of the latents.*give latent_variance"),
    "em prior": ({"method": "em", "latent_variance": 1.0}, "em maximises the score under a flat prior"),
    "noise and prior": (
        {"kernel": "linear", "noise_variance": None, "latent_variance": 1.0},
        "closed_form knows the maximum for a given noise_variance",
    ),
    "solver": ({"solver": "magic"}, "solver must be one of auto, lanczos, dense; got 'magic'"),
    "acceleration": ({"method": "em", "acceleration": "fast"}, "acceleration must be one of px, none"),
}


@pytest.mark.parametrize("case", BAD_FITS)
def test_bad_fits_get_one_clear_message(case):
    given, message = BAD_FITS[case]
    given = {"num_latents": 2, "kernel": RBF(1.5), "noise_variance": 0.1, "x": X, "method": "auto"} | given
    fields = ("num_latents", "kernel", "noise_variance", "latent_variance")
    model = zoo.KernelPCA(**{name: given.pop(name) for name in fields if name in given})
    with pytest.raises(ValueError, match=message):
        fit(model, given.pop("x"), **given)


def test_sparse_rows_are_refused_with_a_way_out():
    counts = scipy.sparse.csr_array(np.abs(np.round(X)))
    with pytest.raises(TypeError, match="x must be dense: of sparse rows give the Gram matrix"):
        fit(zoo.KernelPCA(num_latents=2), counts)
    dense = fit(zoo.KernelPCA(num_latents=2, noise_variance=0.1), counts.toarray())
    gram = (counts @ counts.T).toarray()
    sparse = fit(zoo.KernelPCA(num_latents=2, kernel="precomputed", noise_variance=0.1), gram)
    np.testing.assert_allclose(sparse["posterior"]["latents"], dense["posterior"]["latents"], atol=1e-8)


def test_the_cost_is_said_before_the_matrix_is_made(monkeypatch):
    from zoo.kernels import gram as gram_matrices

    monkeypatch.setattr(gram_matrices, "LARGE_BYTES", 8 * 40**2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(zoo.KernelPCA(num_latents=2, kernel="linear"), X)
    said = [str(warning.message) for warning in caught]
    assert len(said) == 1 and "the 40 x 40 matrix of kernel values needs 0.0 MiB of memory" in said[0]
