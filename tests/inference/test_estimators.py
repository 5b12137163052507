"""The models as scikit-learn estimators: its own checks, pipelines, searches, and the numbers of `inference`.

scikit-learn's checks compare nothing with scikit-learn: they say whether an estimator keeps its promises.
"""

import inspect
import re

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.metrics import r2_score
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

import inference
import zoo
from inference import estimators
from inference.estimators import (
    DEPCAMEstimator,
    EPCAEstimator,
    KernelPCAEstimator,
    MCFAEstimator,
    MixtureEstimator,
    PairedRegressor,
    PPCAEstimator,
    SPPCAClassifier,
    SPPCARegressor,
)
from inference.extension import new_rows
from tests.support.fit_cases import fitted as fit_of

SLOWER = [
    MixtureEstimator(num_components=3),
    DEPCAMEstimator(num_components=2),
    MCFAEstimator(num_components=2),
    EPCAEstimator(),
    KernelPCAEstimator(),
    SPPCARegressor(),
    SPPCAClassifier(),
    PairedRegressor(),
]


def checks(estimators):
    """Each check of each estimator as a case of its own."""
    found = []
    for estimator in estimators:
        for one, check in estimator_checks_generator(estimator, mark="skip"):
            name = getattr(check, "func", check).__name__
            if name == "check_array_api_input":  # skips itself unless SCIPY_ARRAY_API is set
                continue
            if name.startswith("check_sample_weight_equivalence") and type(one) is MixtureEstimator:
                continue  # 27 rows of 30 columns, whose covariance the default prior cannot read
            found.append(pytest.param(one, check, id=f"{type(one).__name__}-{name}-{len(found)}"))
    return found


@pytest.mark.filterwarnings("ignore")  # the checks warn of what they skip, and fit noise that has no optimum
@pytest.mark.parametrize(("estimator", "check"), checks([PPCAEstimator()]))
def test_scikit_learns_checks_pass(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("estimator", "check"), checks(SLOWER))
def test_scikit_learns_checks_pass_for_the_others(estimator, check):
    check(estimator)


@pytest.mark.parametrize("estimator", [PPCAEstimator(), *SLOWER], ids=lambda one: type(one).__name__)
def test_every_parameter_is_documented_once_and_none_besides(estimator):
    arguments, _, _ = inspect.getdoc(estimator).partition("Args:")[2].partition("Example:")
    assert sorted(re.findall(r"^    (\w+): \S", arguments, re.MULTILINE)) == sorted(estimator.get_params())


@pytest.fixture(scope="module")
def table():
    """Forty rows of four columns around a line, and two outputs that follow it."""
    rng = np.random.default_rng(4)
    z = rng.normal(size=(40, 1))
    x = z @ np.array([[1.0, -1.0, 0.5, 2.0]]) + 0.1 * rng.normal(size=(40, 4))
    return pd.DataFrame(x, columns=list("abcd")), z @ np.array([[2.0, -1.0]]) + 0.1 * rng.normal(size=(40, 2))


def test_numbers_are_those_of_inference(table):
    x, _ = table
    estimator = PPCAEstimator(num_latents=2, random_state=3).fit(x)
    rows = x.to_numpy()[:5].copy()
    rows[0, 1] = np.nan
    new = pd.DataFrame(rows, columns=x.columns)
    np.testing.assert_array_equal(estimator.transform(new), inference.transform(estimator.tree_, rows))
    np.testing.assert_array_equal(estimator.predict(new), inference.predict(estimator.tree_, rows))
    assert estimator.score(new) == float(inference.log_density(estimator.tree_, rows).mean())
    assert np.isfinite(estimator.predict(new)).all()


@pytest.mark.parametrize(
    "estimator",
    [PPCAEstimator(), MixtureEstimator(num_components=1), MCFAEstimator(num_components=1)],
    ids=lambda one: type(one).__name__,
)
def test_a_weight_counts_as_rows_in_fit_and_score(table, estimator):
    x = table[0].to_numpy()
    weight = np.r_[np.full(10, 3.0), np.ones(20), np.zeros(10)]
    weighted = clone(estimator).fit(x, sample_weight=weight)
    repeated = clone(estimator).fit(np.repeat(x, weight.astype(int), axis=0))
    plain = clone(estimator).fit(x)
    np.testing.assert_allclose(weighted.score_samples(x), repeated.score_samples(x), atol=1e-3)
    assert np.abs(plain.score_samples(x) - repeated.score_samples(x)).max() > 0.05
    own = np.average(weighted.score_samples(x), weights=weight)
    assert weighted.score(x, sample_weight=weight) == pytest.approx(own)


def test_weights_are_parted_as_the_rows_are_by_cross_validation(table):
    x = table[0].to_numpy()
    weight = np.repeat([2.0, 1.0], 20)
    found = cross_val_score(PPCAEstimator(), x, cv=KFold(2), params={"sample_weight": weight})
    first = PPCAEstimator().fit(x[20:], sample_weight=weight[20:]).score(x[:20])
    assert found[0] == pytest.approx(first)
    with pytest.raises(ValueError, match="sample_weight is given to fit and among settings: give it once"):
        PPCAEstimator(settings={"sample_weight": weight}).fit(x, sample_weight=weight)


def test_a_pipeline_gives_named_columns(table):
    x, _ = table
    pipeline = make_pipeline(StandardScaler(), PPCAEstimator(num_latents=2)).set_output(transform="pandas")
    scores = pipeline.fit_transform(x)
    assert list(scores.columns) == ["latent0", "latent1"] and scores.index.equals(x.index)


def test_a_search_finds_the_number_of_latents(table):
    x, _ = table
    search = GridSearchCV(PPCAEstimator(), {"num_latents": [1, 2, 3], "noise": ["isotropic"]}, cv=4).fit(x)
    assert search.best_params_["num_latents"] == 1 and search.best_score_ > -20


@pytest.mark.parametrize(
    "estimator",
    [
        PPCAEstimator(),
        pytest.param(SPPCARegressor(max_iter=20), marks=pytest.mark.slow),
        pytest.param(PairedRegressor(max_iter=20), marks=pytest.mark.slow),
        pytest.param(KernelPCAEstimator(), marks=pytest.mark.slow),
    ],
    ids=lambda one: type(one).__name__,
)
@pytest.mark.filterwarnings("ignore:.*has not converged")
def test_names_of_a_table_reach_the_tree(table, estimator):
    """A column of whole numbers named like an id is neither left out nor counted: an array has no names."""
    x = (10 * table[0]).assign(id=np.arange(40.0)).set_axis([f"row {n}" for n in range(40)], axis=0)
    y = pd.DataFrame(10 * table[1], columns=["height", "width"])
    tree = clone(estimator).fit(x, y).tree_
    held = tree["observed_data"]
    dims = {dim: list(held[dim].to_numpy()) for dim in held.coords}
    assert dims.pop("observation") == list(x.index)
    assert dims.pop(min(dims)) == [*"abcd", "id"]
    assert list(dims.values()) == [["height", "width"]] * len(dims)
    turned = inference.transform(tree, x[x.columns[::-1]])
    np.testing.assert_array_equal(turned, inference.transform(tree, x))
    of_array = clone(estimator).fit(x.to_numpy(), y.to_numpy()).tree_
    np.testing.assert_array_equal(tree["trace"]["objective"], of_array["trace"]["objective"])


@pytest.mark.filterwarnings("ignore:.*has not converged")
def test_a_mistake_in_new_rows_is_told_by_its_names(table):
    x = table[0].abs().round().set_axis([f"row {n}" for n in range(40)], axis=0)
    estimator = EPCAEstimator(family="poisson", max_iter=5).fit(x)
    x.loc["row 7", "b"] = -3.0
    with pytest.raises(ValueError, match="row 'row 7', column 'b' is -3"):
        estimator.transform(x)


@pytest.mark.slow
def test_outputs_are_predicted_in_the_shape_that_they_came_in(table):
    x, y = table
    both = SPPCARegressor(max_iter=200).fit(x, y)
    assert both.predict(x).shape == (40, 2) and both.score(x, y) > 0.9
    with_gaps = np.where(np.arange(40) % 2, np.nan, y[:, 0])
    one = clone(both).fit(x, with_gaps)
    hidden = np.isnan(with_gaps)
    assert one.predict(x).shape == (40,) and one.score(x[hidden], y[hidden, 0]) > 0.9


@pytest.mark.filterwarnings("ignore:.*has not converged")
def test_outputs_are_scored_where_they_are_known(table):
    x, y = table
    regressor = SPPCARegressor(max_iter=20).fit(x, y)
    with_gaps = y.copy()
    with_gaps[::2, 0] = np.nan
    predicted = regressor.predict(x)
    each = [r2_score(y[1::2, 0], predicted[1::2, 0]), r2_score(y[:, 1], predicted[:, 1])]
    assert regressor.score(x, with_gaps) == pytest.approx(np.mean(each), rel=1e-12)
    weight = np.r_[np.ones(20), np.zeros(20)]
    assert regressor.score(x, with_gaps, sample_weight=weight) == pytest.approx(
        regressor.score(x[:20], with_gaps[:20]), rel=1e-12
    )
    with_gaps[1:, 0] = np.nan
    with pytest.raises(ValueError, match="two labelled rows or more; y has 0 in column 0: score rows whose"):
        regressor.score(x, with_gaps)


@pytest.mark.filterwarnings("ignore:.*has not converged")
@pytest.mark.parametrize(
    ("names", "as_given"),
    [
        (["down", "up"], list),
        (["down", "up"], lambda labels: np.array(labels, dtype=object)),
        pytest.param(
            ["down", "up"], lambda labels: pd.Series(labels, dtype="string"), marks=pytest.mark.slow
        ),
        pytest.param(["down", "up"], pd.Categorical, marks=pytest.mark.slow),
        pytest.param([0, 1], lambda labels: pd.Series(labels, dtype="Int64"), marks=pytest.mark.slow),
        pytest.param([0.0, 1.0], lambda labels: np.array(labels, dtype=float), marks=pytest.mark.slow),
    ],
    ids=["list", "array", "string", "categorical", "whole", "real"],
)
def test_rows_without_a_label_are_unlabelled(table, names, as_given):
    """The probabilities are those of `inference.fit` to the same labels; accuracy is of labelled rows."""
    x, y = table
    known = np.arange(40) % 2 == 0
    of_rows = [names[int(up)] if has else None for up, has in zip(y[:, 0] > 0, known, strict=True)]
    labels = as_given(of_rows)
    classifier = SPPCAClassifier(num_latents=1, label_coding="reduced", max_iter=20).fit(x, labels)
    assert list(classifier.classes_) == names
    as_words = [None if label is None else str(label) for label in of_rows]
    model = zoo.SPPCA(num_latents=1, label_coding="reduced")
    tree = inference.fit(model, x, as_words, max_iterations=20, progress=False)
    shares = inference.predict(tree, x, what="classes")
    np.testing.assert_allclose(classifier.predict_proba(x), shares, rtol=1e-12)
    right = classifier.predict(x)[known] == np.array(of_rows)[known]
    assert classifier.score(x, labels) == pytest.approx(right.mean())
    with pytest.raises(ValueError, match="every label of y is missing"):
        classifier.score(x, [None] * 40)
    with pytest.raises(ValueError, match="more than one class; every label is missing"):
        classifier.fit(x, [None] * 40)


def test_labels_are_predicted_as_they_were_given(table):
    x, y = table
    labels = np.where(y[:, 0] > 0, "up", "down")
    classifier = SPPCAClassifier(num_latents=1, label_coding="reduced", max_iter=200).fit(x, labels)
    assert set(classifier.predict(x)) == {"up", "down"} and classifier.score(x, labels) > 0.85
    np.testing.assert_allclose(classifier.predict_proba(x).sum(axis=1), 1.0)


@pytest.mark.slow
def test_clusters_of_a_mixture():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2)) + np.repeat([[0.0], [9.0]], 20, axis=0)
    estimator = MixtureEstimator(num_components=2, random_state=1)
    labels = estimator.fit_predict(x)
    assert set(labels[:20]).isdisjoint(labels[20:]) and estimator.transform(x).shape == (40, 2)
    assert cross_val_score(estimator, x, cv=2).shape == (2,)


def test_a_target_that_is_needed_and_missing_is_asked_for(table):
    with pytest.raises(ValueError, match="requires y"):
        SPPCARegressor().fit(table[0], None)
    with pytest.raises(ValueError, match="more than one class"):
        SPPCAClassifier().fit(table[0], ["up"] * 40)
    with pytest.raises(ValueError, match="every label is 0.0$"):  # as it was given, and no np.float64(0.0)
        SPPCAClassifier().fit(table[0], np.zeros(40))


def test_an_unknown_field_or_option_is_named(table):
    with pytest.raises(TypeError, match="speed"):
        PPCAEstimator(settings={"speed": 1}).fit(table[0])
    with pytest.raises(TypeError, match="num_wheels"):
        PPCAEstimator(fields={"num_wheels": 1}).fit(table[0])


# scikit-learn's habits


@pytest.fixture(scope="module")
def clusters():
    """Two groups of twenty rows, a mixture of them by EM, and the rows."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2)) + np.repeat([[0.0], [9.0]], 20, axis=0)
    return MixtureEstimator(num_components=2, method="em", random_state=1, n_init=2).fit(x), x


@pytest.fixture(scope="module")
def line(table):
    x, _ = table
    return PPCAEstimator(num_latents=1, method="em", max_iter=500).fit(x), x


def test_the_mixture_scores_and_tells_as_scikit_learns_does(clusters):
    """EM with the same two well separated groups: the same likelihood and criteria as GaussianMixture."""
    estimator, x = clusters
    peer = GaussianMixture(2, random_state=0, tol=1e-9, reg_covar=0.0).fit(x)
    np.testing.assert_allclose(estimator.score_samples(x), peer.score_samples(x), atol=1e-3)
    assert estimator.score(x) == pytest.approx(estimator.score_samples(x).mean())
    assert estimator.bic(x) == pytest.approx(peer.bic(x), abs=0.1)
    assert estimator.aic(x) == pytest.approx(peer.aic(x), abs=0.1)
    assert estimator.bic(x) == pytest.approx(estimator.tree_.attrs["bic"], abs=1e-3)
    shares = estimator.predict_proba(x)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    assert (shares.argmax(axis=1) == estimator.predict(x)).all()
    assert list(estimator.get_feature_names_out()) == ["component0", "component1"]


@pytest.mark.slow
def test_samples_follow_the_fit(clusters, line):
    """Means of 400 draws within five standard errors (false alarm 2e-6 a column); other seeds, other rows."""
    estimator, x = clusters
    rows, groups = estimator.sample(400)
    assert rows.shape == (400, 2) and (groups == estimator.predict(rows)).all()
    for group in (0, 1):
        own, fitted = rows[groups == group], x[estimator.predict(x) == group]
        assert len(own) > 100
        error = fitted.std(axis=0, ddof=1) * np.sqrt(1 / len(own) + 0.0)
        assert (abs(own.mean(axis=0) - fitted.mean(axis=0)) < 5 * error).all()
    projection, x = line
    rows = projection.sample(400)
    assert rows.shape == (400, 4)
    np.testing.assert_array_equal(rows, projection.sample(400))
    np.testing.assert_allclose(
        np.cov(rows.T), np.cov(x.T.to_numpy()), atol=0.6 * np.cov(x.T.to_numpy()).max()
    )
    assert not np.allclose(rows[:40], x)
    with pytest.raises(ValueError, match="n_samples"):
        projection.sample(0)


def test_samples_are_made_in_rounds_of_their_own_seed_and_draws(monkeypatch):
    """Three draws at a time of a fit of 2 chains and 4 rows: cells tell the round, and rows are all asked."""
    asked, posterior = [], xr.Dataset({"loc": (("chain", "draw", "feature"), np.zeros((2, 50, 3)))})
    table = xr.Dataset({"x": (("observation", "feature"), np.zeros((4, 3)))})
    tree = xr.DataTree.from_dict({"posterior": posterior, "observed_data": table})

    def drawn(some, seed, number):
        asked.append((seed, some["posterior"].sizes["draw"]))
        return np.full((2 * some["posterior"].sizes["draw"], number, 3), float(len(asked)))

    monkeypatch.setattr(estimators, "new_rows", drawn)
    monkeypatch.setattr(estimators, "model_of", lambda tree: zoo.PPCA(num_latents=1))
    monkeypatch.setattr(estimators, "_SAMPLED_AT_ONCE", 3 * 4 * 3 * 2)
    rows = estimators._replicated(tree, 60, np.random.default_rng(0))
    seeds, draws = zip(*asked, strict=True)
    assert len(set(seeds)) == len(asked) == 3 and draws == (3, 3, 3)
    np.testing.assert_array_equal(np.unique(rows, return_counts=True)[1], [24 * 3, 24 * 3, 12 * 3])


def test_new_rows_are_of_their_draw():
    """Components without spread: rows are whole locations of their draw; rows at latents are kept."""
    tree = fit_of("mixture vb").copy()
    posterior = tree["posterior"].to_dataset().copy(deep=True)
    posterior["precisions"].values[:] = 1e16 * np.eye(posterior.sizes["feature"])
    tree["posterior"] = xr.DataTree(posterior)
    locs = posterior["locs"].transpose("chain", "draw", "component", "feature").values
    locs = locs.reshape(-1, *locs.shape[2:])
    rows, others = (new_rows(tree, seed, 3) for seed in (4, 5))
    assert rows.shape == (len(locs), 3, locs.shape[-1]) and not np.allclose(rows, others)
    away = np.abs(rows[:, :, None] - locs[:, None]).max(-1)
    assert (away.min(-1) < 1e-5).all() and len(np.unique(away.argmin(-1))) > 1
    kept = fit_of("epca map")
    every = inference.extend(kept, "posterior_predictive", seed=4)["posterior_predictive"]["x"].values[0]
    for own, of_draw in zip(new_rows(kept, 4, 2), every, strict=True):
        assert all((row == of_draw).all(-1).any() for row in own)


def test_the_inverse_of_a_projection_is_its_expected_row(line):
    projection, x = line
    back = projection.inverse_transform(projection.transform(x))
    assert back.shape == x.shape
    noise = np.sqrt(float(projection.tree_["variational"]["noise_variance"]))
    assert np.abs(back - x.to_numpy()).max() < 6 * noise
    with pytest.raises(ValueError, match="Z must have 1 columns"):
        projection.inverse_transform(np.zeros((3, 2)))


@pytest.mark.parametrize("family", ["gaussian", "poisson"])
def test_the_inverse_of_exponential_family_pca_is_a_mean(family):
    """Of a fit by map the expectation is that at the natural parameters, loadings times latents and loc."""
    rng = np.random.default_rng(1)
    x = rng.poisson(np.exp(rng.normal(size=(30, 1)) @ np.ones((1, 4)))).astype(float)
    estimator = EPCAEstimator(num_latents=1, family=family, method="map", max_iter=50).fit(x)
    held = estimator.tree_["variational"]
    latents = rng.normal(size=(5, 1))
    theta = latents @ held["loadings"].values.T + held["loc"].values
    back = estimator.inverse_transform(latents)
    np.testing.assert_allclose(back, np.exp(theta) if family == "poisson" else theta, rtol=1e-10)


@pytest.mark.slow
def test_criteria_are_of_maximum_likelihood_alone(table):
    x, _ = table
    estimator = PPCAEstimator(method="vb", loading_prior="ard", settings={"num_samples": 5}, tol=1e-3)
    estimator.fit(x)
    with pytest.raises(ValueError, match="fit with method='em'"):
        estimator.bic(x)


def test_parameters_are_those_of_fit(monkeypatch, table):
    calls = []

    def note(model, *data, **settings):
        calls.append(settings)
        raise InterruptedError

    monkeypatch.setattr(estimators, "fit", note)
    x, _ = table

    def settings_of(**parameters):
        with pytest.raises(InterruptedError):
            PPCAEstimator(**parameters).fit(x)
        return calls[-1]

    given = settings_of(random_state=5, n_init=3, max_iter=7, tol=0.5, settings={"num_samples": 9})
    wanted = {"seed": 5, "num_restarts": 3, "max_iterations": 7, "tolerance": 0.5, "num_samples": 9}
    assert given == {"progress": False, "method": "auto"} | wanted
    names = {"seed": 8, "num_restarts": 2, "max_iterations": 4, "tolerance": 0.1, "progress": True}
    won = settings_of(random_state=5, n_init=3, max_iter=7, tol=0.5, settings=names)
    assert won == {"method": "auto"} | names  # what settings say themselves goes before the parameters
    assert settings_of(random_state=np.random.RandomState(0)) == settings_of(
        random_state=np.random.RandomState(0)
    )
    assert settings_of(random_state=None)["seed"] != settings_of(random_state=None)["seed"]
    assert settings_of()["seed"] == 0


def test_a_search_goes_over_the_new_names(table):
    x, _ = table
    grid = {"tol": [1e-6, 1e-2], "n_init": [1]}
    search = GridSearchCV(PPCAEstimator(method="em"), grid, cv=2).fit(x)
    assert set(search.best_params_) == {"tol", "n_init"}


@pytest.mark.slow
def test_the_classifier_has_latents_enough_by_default():
    """Three classes of wine: one latent told 73 per cent of them apart, three tell more than 95.

    Of iris it told 67 per cent, and 94 now. No warning comes with a default.
    """
    x, labels = load_wine(return_X_y=True)
    classifier = make_pipeline(StandardScaler(), SPPCAClassifier()).fit(x, labels)
    assert classifier.score(x, labels) > 0.95
    assert classifier[-1].transform(StandardScaler().fit_transform(x)).shape == (178, 3)
    narrow = SPPCAClassifier().fit(x[:, :2], labels)
    assert narrow.transform(x[:3, :2]).shape == (3, 1)


def test_a_mixed_frame_reaches_the_model(table):
    """Words are for the model to take or refuse: its message names the column, scikit-learn's would not."""
    x, _ = table
    frame = x.assign(region=["north", "south"] * 20)
    with pytest.raises(ValueError, match=r"these columns hold categories: region .*leave_out"):
        PPCAEstimator().fit(frame)


@pytest.mark.parametrize("through", ["fit", "pipeline", "estimator"])
def test_warnings_point_at_the_caller_s_line(through, table):
    x, _ = table
    with pytest.warns(UserWarning, match="has not converged") as caught:
        if through == "fit":
            inference.fit(zoo.PPCA(num_latents=1), x, method="em", max_iterations=2, num_restarts=1)
        elif through == "pipeline":
            make_pipeline(StandardScaler(), PPCAEstimator(method="em", max_iter=2, n_init=1)).fit(x)
        else:
            PPCAEstimator(method="em", max_iter=2, n_init=1).fit(x)
    assert {warning.filename for warning in caught} == {__file__}


@pytest.mark.parametrize("estimator", [EPCAEstimator(), PPCAEstimator()], ids=["epca", "ppca"])
def test_rows_in_another_unit_are_scored_alike(estimator):
    """The density of rows in thousandths is a thousand times as high in each of four columns."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 1)) @ rng.normal(size=(1, 4)) + 0.3 * rng.normal(size=(40, 4))
    scores = [clone(estimator).fit(unit * x).score(unit * x) for unit in (1.0, 0.001)]
    assert scores[1] - scores[0] == pytest.approx(4 * np.log(1000), abs=1e-4)
