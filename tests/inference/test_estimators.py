"""The models as scikit-learn estimators: its own checks, pipelines, searches, and the numbers of `inference`.

scikit-learn's checks compare nothing with scikit-learn: they say whether an estimator keeps its promises.
"""

import inspect
import re

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

import inference
from inference.estimators import (
    DEPCAMEstimator,
    EPCAEstimator,
    KernelPCAEstimator,
    MixtureEstimator,
    PairedRegressor,
    PPCAEstimator,
    SPPCAClassifier,
    SPPCARegressor,
)

SLOWER = [
    MixtureEstimator(num_components=3),
    DEPCAMEstimator(num_components=2),
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
    estimator = PPCAEstimator(num_latents=2, seed=3).fit(x)
    rows = x.to_numpy()[:5].copy()
    rows[0, 1] = np.nan
    new = pd.DataFrame(rows, columns=x.columns)
    np.testing.assert_array_equal(estimator.transform(new), inference.transform(estimator.tree_, rows))
    np.testing.assert_array_equal(estimator.predict(new), inference.predict(estimator.tree_, rows))
    assert estimator.score(new) == float(inference.log_density(estimator.tree_, rows).mean())
    assert np.isfinite(estimator.predict(new)).all()


def test_a_pipeline_gives_named_columns(table):
    x, _ = table
    pipeline = make_pipeline(StandardScaler(), PPCAEstimator(num_latents=2)).set_output(transform="pandas")
    scores = pipeline.fit_transform(x)
    assert list(scores.columns) == ["ppcaestimator0", "ppcaestimator1"] and scores.index.equals(x.index)


def test_a_search_finds_the_number_of_latents(table):
    x, _ = table
    search = GridSearchCV(PPCAEstimator(), {"num_latents": [1, 2, 3], "noise": ["isotropic"]}, cv=4).fit(x)
    assert search.best_params_["num_latents"] == 1 and search.best_score_ > -20


def test_outputs_are_predicted_in_the_shape_that_they_came_in(table):
    x, y = table
    both = SPPCARegressor(options={"max_iterations": 200}).fit(x, y)
    assert both.predict(x).shape == (40, 2) and both.score(x, y) > 0.9
    with_gaps = np.where(np.arange(40) % 2, np.nan, y[:, 0])
    one = clone(both).fit(x, with_gaps)
    hidden = np.isnan(with_gaps)
    assert one.predict(x).shape == (40,) and one.score(x[hidden], y[hidden, 0]) > 0.9


def test_labels_are_predicted_as_they_were_given(table):
    x, y = table
    labels = np.where(y[:, 0] > 0, "up", "down")
    classifier = SPPCAClassifier(label_coding="reduced", options={"max_iterations": 200}).fit(x, labels)
    assert set(classifier.predict(x)) == {"up", "down"} and classifier.score(x, labels) > 0.85
    np.testing.assert_allclose(classifier.predict_proba(x).sum(axis=1), 1.0)


@pytest.mark.slow
def test_clusters_of_a_mixture():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2)) + np.repeat([[0.0], [9.0]], 20, axis=0)
    estimator = MixtureEstimator(num_components=2, seed=1)
    labels = estimator.fit_predict(x)
    assert set(labels[:20]).isdisjoint(labels[20:]) and estimator.transform(x).shape == (40, 2)
    assert cross_val_score(estimator, x, cv=2).shape == (2,)


def test_a_target_that_is_needed_and_missing_is_asked_for(table):
    with pytest.raises(ValueError, match="requires y"):
        SPPCARegressor().fit(table[0], None)
    with pytest.raises(ValueError, match="more than one class"):
        SPPCAClassifier().fit(table[0], ["up"] * 40)


def test_an_unknown_field_or_option_is_named(table):
    with pytest.raises(TypeError, match="speed"):
        PPCAEstimator(options={"speed": 1}).fit(table[0])
    with pytest.raises(TypeError, match="num_wheels"):
        PPCAEstimator(fields={"num_wheels": 1}).fit(table[0])
