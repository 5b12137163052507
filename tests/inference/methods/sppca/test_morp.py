"""MORP and kernel CCA: the eigenvalue problems, all forms, the finding about Algorithm 6.1."""

import warnings

import numpy as np
import pytest
import scipy.linalg

from inference import extend, fit, load, log_density, model_of, predict, save, transform
from inference.diagnostics import summary_text
from inference.methods.sppca.morp import METHODS
from inference.methods.sppca.projections import (
    _singular,
    blended_gram,
    kernel_cca,
    morp_dual,
    morp_primal,
    morp_simplified,
    printed_morp,
)
from tests.support.supervised_toys import angle, toy
from zoo import SPPCA
from zoo.kernels import RBF, Linear, Precomputed
from zoo.kernels.gram import centred_gram, centring_of, gram_matrix

MODEL = SPPCA(num_latents=3)


def centred(seed=0, **sizes):
    x, y, _ = toy(seed, **sizes)
    return x - x.mean(axis=0), y - y.mean(axis=0)


def blend_of(x, y, weight):
    return blended_gram(x @ x.T, (y @ y.T,), np.array([weight]))


def test_primal_is_the_generalised_eigenvalue_problem():
    """Problem (6.5) by scipy: directions, eigenvalues, and the scale sqrt(lambda)."""
    x, y = centred()
    blend = np.asarray(blend_of(x, y, 0.4))
    found = morp_primal(x, blend, 3, 2.0)
    values, vectors = scipy.linalg.eigh(x.T @ blend @ x, x.T @ x + 2.0 * np.eye(12))
    np.testing.assert_allclose(found.eigenvalues, values[::-1][:3], rtol=1e-9)
    expected = vectors[:, ::-1][:, :3] * np.sqrt(values[::-1][:3])
    np.testing.assert_allclose(np.abs(found.weights), np.abs(expected), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("rows", "features"), [(150, 12), (20, 40)])
def test_dual_gives_the_scores_of_the_primal_form(rows, features):
    x, y = centred(num_rows=rows, num_features=features, labelled=rows)
    gram, blend = x @ x.T, blend_of(x, y, 0.5)
    primal = x @ morp_primal(x, blend, 3, 1.5).weights
    dual = gram @ morp_dual(gram, blend, 3, 1.5).coefficients
    np.testing.assert_allclose(dual @ dual.T, primal @ primal.T, atol=1e-8 * np.abs(primal).max() ** 2)


@pytest.mark.parametrize("form", ["primal", "dual"])
def test_both_forms_solve_the_problem_with_the_ridge_that_was_asked_for(form):
    """X'B X w = l (X'X + g I) w by scipy, the ridge as large as the rest: the scores and the eigenvalues."""
    x, y = centred(num_rows=30, labelled=30)
    balanced = y @ y.T * np.sum(x**2) / np.sum(y**2)
    blend, ridge = 0.6 * x @ x.T + 0.4 * balanced, np.sum(x**2) / x.shape[1]
    options = METHODS["morp"].options | {"form": form, "ridge": ridge, "weight": 0.4}
    outcome, total = METHODS["morp"].solve(None, MODEL, (x + 2.0, y - 1.0), **options)
    values, vectors = scipy.linalg.eigh(x.T @ blend @ x, x.T @ x + ridge * np.eye(x.shape[1]))
    scores = x @ (vectors[:, ::-1][:, :3] * np.sqrt(values[::-1][:3]))
    assert total == pytest.approx(values[-3:].sum(), rel=1e-8)
    found = outcome.variational["latents"]
    np.testing.assert_allclose(np.abs(found), np.abs(scores), atol=1e-7 * np.abs(scores).max())


def test_full_rank_gram_matrices_make_all_forms_one():
    """N - 1 <= M: dual, simplified and the printed algorithm agree in span and scale."""
    x, y = centred(num_rows=20, num_features=40, labelled=20)
    gram, blend = x @ x.T, blend_of(x, y, 0.5)
    scores = [
        gram @ np.asarray(form.coefficients)
        for form in (morp_dual(gram, blend, 3, 0.0), morp_simplified(gram, blend, 3))
    ]
    basis = np.linalg.svd(x, full_matrices=False)[2][:19]  # Q is singular on all of x's columns
    printed = x @ basis.T @ printed_morp(x @ basis.T, blend, 3, 0.0).weights
    for other in (scores[1], printed):
        np.testing.assert_allclose(scores[0] @ scores[0].T, other @ other.T, atol=1e-7)


@pytest.mark.parametrize("weight", [0.0, 0.5, 0.9])
def test_algorithm_6_1_as_printed_is_pca(weight):
    """For N >= M + L whatever the weight; problem (6.5) is not, once it weighs the outputs."""
    x, y = centred()
    pca = np.linalg.svd(x, full_matrices=False)[2][:3].T
    blend = blend_of(x, y, weight)
    assert angle(printed_morp(x, blend, 3, 0.0).weights, pca) < 1e-7
    ours = angle(morp_primal(x, blend, 3, 0.0).weights, pca)
    assert ours < 1e-7 if weight == 0 else ours > 0.01


def test_the_printed_algorithm_solves_its_problem_with_a_ridge():
    """X'X w = l (X' K^+ X + g I) w by scipy, with a ridge as large as the rest."""
    x, y = centred()
    blend = np.asarray(blend_of(x, y, 0.5)) + np.eye(len(x))
    q = x.T @ np.linalg.inv(blend) @ x
    ridge = np.trace(q) / len(q)
    found = printed_morp(x, blend, 3, ridge)
    values, vectors = scipy.linalg.eigh(x.T @ x, q + ridge * np.eye(len(q)))
    np.testing.assert_allclose(found.eigenvalues, values[::-1][:3], rtol=1e-8)
    np.testing.assert_allclose(np.abs(found.weights), np.abs(vectors[:, ::-1][:, :3]), rtol=1e-6, atol=1e-9)


def test_a_direction_shorter_than_the_rounding_of_its_columns_has_no_rank():
    """Two columns that differ by 1e-4 of their length: the root of the summed rounding decides."""
    rng = np.random.default_rng(0)
    one, other = np.linalg.qr(rng.normal(size=(30, 2)))[0].T
    x = 3.0 * np.stack([one, one + 1e-4 * other], axis=1)  # singular values of unit columns: 1.4 and 7e-5
    for rounding, rank in ((1e-12, 2), (9e-8, 1)):  # errors of 5e-7 and 1.4e-4
        assert np.sum(_singular(x, rounding)[1] > 0) == rank


def test_weight_zero_is_pca_with_its_scores():
    x, y, _ = toy(0)
    tree = fit(MODEL, x, y, method="morp", weight=0.0)
    u, s, _ = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)
    scores = transform(tree, x).to_numpy()
    np.testing.assert_allclose(np.abs(scores), np.abs(u[:, :3] * s[:3]), atol=1e-8)
    np.testing.assert_allclose(scores, tree["variational"]["latents"], atol=1e-10)


def test_labels_stay_in_play():
    """Three scores explain more of the outputs than those of PCA, the more so the larger the weight."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 10)) * np.linspace(3, 1, 10)
    y = x[:, 6:9] @ rng.normal(size=(3, 3)) + rng.normal(size=(100, 3))

    def explained(weight):
        z = transform(fit(MODEL, x, y, method="morp", weight=weight), x).to_numpy()
        left = (y - y.mean(axis=0)) - z @ np.linalg.lstsq(z, y - y.mean(axis=0), rcond=None)[0]
        return 1 - (left**2).sum() / ((y - y.mean(axis=0)) ** 2).sum()

    shares = [explained(weight) for weight in (0.0, 0.5, 0.9)]
    assert shares[0] < shares[1] < shares[2]


def test_kernels_output_sets_and_saving(tmp_path):
    x, y, _ = toy(0)
    model = SPPCA(num_latents=3, kernel=RBF(4.0))
    options = {"weight": (0.2, 0.3), "output_sets": ((0,), (1, 2)), "output_kernel": ("rbf", "linear")}
    for form in ("dual", "simplified"):
        tree = fit(model, x, y, method="morp", form=form, **options)
        np.testing.assert_allclose(transform(tree, x), tree["variational"]["latents"], atol=1e-8)
        save(tree, tmp_path / f"{form}.nc")
        np.testing.assert_array_equal(transform(load(tmp_path / f"{form}.nc"), x[:9]), transform(tree, x[:9]))
    dual = fit(MODEL, x, y, method="morp", form="dual")
    assert model_of(dual).kernel is not None and model_of(tree).kernel.length_scale == 4.0
    primal = fit(MODEL, x, y, method="morp")
    pairs = [t @ t.T for t in (transform(tree, x).to_numpy() for tree in (dual, primal))]
    np.testing.assert_allclose(*pairs, atol=1e-7)


def test_a_kernel_has_the_dual_form_unless_another_is_asked_for():
    x, y, _ = toy(0)
    model = SPPCA(num_latents=3, kernel=RBF(4.0))
    bare, dual = (fit(model, x, y, method="morp", **form) for form in ({}, {"form": "dual"}))
    np.testing.assert_array_equal(transform(bare, x), transform(dual, x))
    assert (
        np.abs(transform(fit(model, x, y, method="morp", form="simplified"), x) - transform(dual, x)).max()
        > 1e-6
    )


@pytest.mark.parametrize(
    ("method", "noun"), [("morp", "eigenvalues"), ("kernel_cca", "canonical correlations")]
)
def test_a_summary_tells_what_the_directions_are_worth_and_promises_no_drawn_data(method, noun):
    x, y, _ = toy(0)
    tree = fit(SPPCA(num_latents=2), x, y, method=method)
    told, worth = summary_text(tree), tree["variational"]["eigenvalues"].to_numpy()
    assert told.startswith("Two directions, with the ") and "drawn from the fit" not in told
    assert f"{noun} {worth[0]:.3g}, {worth[1]:.3g}." in told
    assert sum(worth) == pytest.approx(float(tree["trace"]["objective"][-1]))
    one = summary_text(fit(SPPCA(num_latents=1), x, y, method=method))
    assert one.startswith("One direction, with the ") and f"{noun[:-1]} {worth[0]:.3g}." in one


def test_traces_are_balanced():
    x, y, _ = toy(0)
    scores = [transform(fit(MODEL, x, scale * y, method="morp"), x).to_numpy() for scale in (1.0, 100.0)]
    np.testing.assert_allclose(*scores, atol=1e-8)
    unbalanced = transform(fit(MODEL, x, 100.0 * y, method="morp", balance=False), x).to_numpy()
    assert angle(unbalanced, scores[0]) > 0.01


def test_projection_is_marked_as_no_model():
    x, y, _ = toy(0)
    tree = fit(MODEL, x, y, method="morp")
    assert tree.attrs["generative"] == 0 and tree["posterior"].sizes["draw"] == 1
    asked = (
        lambda: log_density(tree, x),
        lambda: predict(tree, x),
        lambda: extend(tree, "posterior_predictive"),
    )
    for ask in asked:
        with pytest.raises(ValueError, match="this fit is a projection, not generative"):
            ask()
    x[1, 2] = np.nan
    with pytest.raises(ValueError, match="a fit by morp needs every cell; row 1, column 2 of x is missing"):
        transform(tree, x)


def test_kernel_cca_is_cca_as_the_ridge_goes():
    """Linear kernels and a ridge next to nothing: scores correlate as the canonical correlations do."""
    x, y = centred()
    found = kernel_cca(x @ x.T, y @ y.T, 3, 1e-9)
    basis_x, basis_y = (np.linalg.svd(part, full_matrices=False)[0] for part in (x, y))
    expected = np.linalg.svd(basis_x.T @ basis_y)[1]
    np.testing.assert_allclose(found.eigenvalues, expected, atol=1e-6)
    tree = fit(MODEL, *toy(0)[:2], method="kernel_cca", ridge=1e-9)
    scores = transform(tree, toy(0)[0]).to_numpy()
    canonical = basis_x @ np.linalg.svd(basis_x.T @ basis_y)[0][:, :3]
    assert angle(scores, canonical) < 1e-4
    heavy = fit(MODEL, *toy(0)[:2], method="kernel_cca", ridge=1.0)
    assert (heavy["posterior"]["eigenvalues"] < tree["posterior"]["eigenvalues"]).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weight": 1.5}, r"weight must lie in \[0, 1\]"),
        ({"weight": (0.6, 0.6)}, r"weight must lie in \[0, 1\], also in sum"),
        ({"weight": (0.2, 0.3)}, "one number for each of the 1 output sets"),
        ({"ridge": -1.0}, "ridge must be a number of at least 0"),
        ({"form": "tertiary"}, "form must be one of auto, primal, dual, simplified"),
        ({"form": "simplified", "ridge": 1.0}, "has no ridge"),
        ({"output_kernel": "sigmoid"}, "output_kernel must be one of linear, rbf, polynomial"),
        ({"output_sets": ((0, 1), (1, 2)), "weight": (0.1, 0.1)}, "each in one set"),
    ],
)
def test_options_outside_their_domain(options, message):
    x, y, _ = toy(0)
    with pytest.raises(ValueError, match=message):
        fit(MODEL, x, y, method="morp", **options)


def test_data_that_projections_cannot_take():
    x, y, partly = toy(0)
    with pytest.raises(ValueError, match="morp needs every cell.*row 45, column 0 of y is missing"):
        fit(MODEL, x, partly, method="morp")
    with pytest.raises(ValueError, match="with a kernel use form='dual'"):
        fit(SPPCA(num_latents=3, kernel="linear"), x, y, method="morp", form="primal")
    with pytest.raises(ValueError, match="outputs have rank, 1; num_latents is 3"):
        fit(MODEL, x, y[:, :1], method="kernel_cca")
    with pytest.raises(ValueError, match="ridge must be a positive number"):
        fit(MODEL, x, y, method="kernel_cca", ridge=0.0)


FAR = (100.0, 1000.0, 1e6)


@pytest.mark.parametrize("method", ["primal", "dual", "simplified", "kernel_cca"])
def test_an_offset_of_the_data_moves_no_score(method):
    """Far from zero the Gram matrix of raw rows has rounding errors of the size of small eigenvalues."""
    x, y, _ = toy(0, num_rows=40, num_features=5, num_outputs=2, num_latents=2)
    options = {"method": "kernel_cca"} if method == "kernel_cca" else {"method": "morp", "form": method}
    model = SPPCA(num_latents=2)
    want = transform(fit(model, x, y, **options), x[:4]).values
    for offset in FAR:
        tree = fit(model, x + offset, y - 10 * offset, **options)
        tolerance = 1e-14 * offset * np.abs(want).max()
        np.testing.assert_allclose(transform(tree, x[:4] + offset), want, atol=tolerance)
        np.testing.assert_allclose(tree["variational"]["latents"][:4], want, atol=tolerance)


@pytest.mark.filterwarnings("ignore:the columns of x have very different scales")
@pytest.mark.parametrize(("form", "spread"), [("dual", 1.0), ("dual", 1e3), ("simplified", 1.0)])
def test_dual_forms_give_the_scores_of_the_primal_one_on_raw_tables(form, spread):
    """A table with a year column, and columns of units 1e-3 to 1e3, with as many columns as rows allow."""
    rng = np.random.default_rng(3)
    size = 5 if form == "dual" else 39  # simplified: the same problem where the rank is N - 1
    x = rng.normal(size=(40, size)) * np.geomspace(1 / spread, spread, size)
    x[:, 0] += 2005.0
    y = x[:, 1:2] / x[:, 1].std() + 0.1 * rng.normal(size=(40, 1)) + 1e4
    model = SPPCA(num_latents=1)
    primal = fit(model, x, y, method="morp", form="primal")
    other = fit(model, x, y, method="morp", form=form)
    want = transform(primal, x).values
    np.testing.assert_allclose(transform(other, x), want, atol=1e-7 * np.abs(want).max())


def in_mixed_units(offset):
    """40 rows of 39 columns in units 1e-3 to 1e3, two outputs, and the scores by each form to all digits.

    Scores of the primal and dual form depend on the span of the columns alone, those of the simplified one on
    the projection of the blend's eigenvectors onto it; the span is that of columns in one unit.
    """
    rng = np.random.default_rng(3)
    rows, units = rng.normal(size=(40, 39)), np.geomspace(1e-3, 1e3, 39)
    y = rows[:, :2] + 0.3 * rng.normal(size=(40, 2))
    about = rows - rows.mean(axis=0)
    basis = np.linalg.qr(about)[0]
    blend = blend_of(about * units, y - y.mean(axis=0), 0.5)
    values, vectors = np.linalg.eigh(basis.T @ blend @ basis)
    exact = {"primal": basis @ (vectors * np.sqrt(values))[:, :-3:-1]}
    values, vectors = np.linalg.eigh(blend)
    exact["simplified"] = basis @ (basis.T @ (vectors * np.sqrt(np.abs(values)))[:, :-3:-1])
    return (rows + offset) * units, y + offset, exact | {"dual": exact["primal"]}


@pytest.mark.filterwarnings("ignore:the columns of x have very different scales")
@pytest.mark.parametrize("form", ["primal", "dual", "simplified"])
def test_columns_in_units_far_apart_all_count(form):
    """A cut among eigenvalues of the Gram matrix lost the columns in small units: 10 % of the scores."""
    for offset in (0.0, 1e3):
        x, y, exact = in_mixed_units(offset)
        found = fit(SPPCA(num_latents=2), x, y, method="morp", form=form)["variational"]["latents"].to_numpy()
        want = exact[form] * np.sign(np.sum(exact[form] * found, axis=0))
        np.testing.assert_allclose(found, want, atol=1e-6 * want.std(axis=0).max())


def test_a_cut_among_eigenvalues_loses_columns_in_small_units():
    """The fault that was, planted: directions below 10 N eps of the largest eigenvalue are left out."""
    x, y, exact = in_mixed_units(0.0)
    about = x - x.mean(axis=0)
    u, lengths, _ = np.linalg.svd(about, full_matrices=False)
    kept = u[:, lengths**2 > 10 * 39 * np.finfo(float).eps * lengths[0] ** 2]
    values, vectors = np.linalg.eigh(kept.T @ blend_of(about, y - y.mean(axis=0), 0.5) @ kept)
    found = kept @ (vectors * np.sqrt(np.abs(values)))[:, :-3:-1]
    want = exact["primal"] * np.sign(np.sum(exact["primal"] * found, axis=0))
    assert np.abs(found - want).max() > 0.01 * want.std(axis=0).max()


def test_a_column_that_others_determine_adds_nothing_far_from_zero():
    """Its own direction is rounding error, of the size of the offset and not of the largest column."""
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=(40, 4)) * np.array([1.0, 1.0, 1e3, 1e-3]) + 1e4, rng.normal(size=(40, 1))
    more = np.column_stack([x, x[:, 0] - x[:, 1]])
    for form in ("primal", "dual"):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="the columns of x have very different scales")
            latents = [
                fit(SPPCA(num_latents=1), part, y, method="morp", form=form, balance=False, weight=1.0)
                for part in (x, more)
            ]
        want, found = (tree["variational"]["latents"].to_numpy() for tree in latents)
        np.testing.assert_allclose(found * np.sign(np.sum(found * want)), want, atol=1e-6 * want.std())


def test_without_the_cut_at_rounding_errors_the_dual_form_is_wrong_far_from_zero():
    """The fault that was: double centring of raw products and a cut relative to the centred spectrum."""
    x, y, _ = toy(0, num_rows=40, num_features=5, num_outputs=2, num_latents=2)
    want = x - x.mean(axis=0)
    want = want @ morp_primal(want, blend_of(want, y - y.mean(axis=0), 0.5), 2, 0.0).weights
    raw = gram_matrix(Linear(), x + 1000)
    raw = centring_of(raw).gram(raw)
    blend = blend_of(x - x.mean(axis=0), y - y.mean(axis=0), 0.5)

    def error(rounding):
        scores = raw @ morp_dual(raw, blend, 2, 0.0, rounding).coefficients
        return np.abs(scores - want).max() / np.abs(want).max()

    assert error(0.0) > 0.1
    assert error(centred_gram(Precomputed(), gram_matrix(Linear(), x + 1000)).rounding) < 1e-6
