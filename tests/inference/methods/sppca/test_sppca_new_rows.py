"""What a fit of SPPCA says of new rows, against conditionals of a dense normal worked out row by row."""

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.stats

from inference import fit, load, log_density, model_of, predict, save, transform
from inference.symmetry import align_rotation
from tests.support.supervised_toys import toy
from zoo import SPPCA
from zoo.linear_gaussian.supervised_answers import RealAnswers

MODEL = SPPCA(num_latents=3)


def with_names():
    x, _, y = toy(0)
    rows = [f"row {i}" for i in range(len(x))]
    frames = pd.DataFrame(x, rows, [f"gene {i}" for i in range(12)]), pd.DataFrame(y, rows, ["a", "b", "c"])
    return frames


@pytest.fixture(scope="module")
def tree():
    return fit(MODEL, *with_names())


@pytest.fixture(scope="module")
def classified():
    x, y, _ = toy(0)
    labels = pd.Series(np.array(["low", "mid", "high"])[np.digitize(y[:, 0], [-1.0, 1.0])], dtype="category")
    labels = labels.cat.set_categories(["low", "mid", "high"])
    labels[45:] = None
    with pytest.warns(UserWarning, match="3 outputs have rank 2"):
        return fit(MODEL, x, labels), labels


def dense(tree):
    """Mean and covariance of [x, y] at the estimate."""
    v = tree["variational"]
    w = np.concatenate([v["loadings_x"], v["loadings_y"]])
    noise = np.concatenate([np.full(12, v["noise_variance_x"]), np.full(len(w) - 12, v["noise_variance_y"])])
    return np.concatenate([v["loc_x"], v["loc_y"]]), w, w @ w.T + np.diag(noise)


def conditional(mean, covariance, row):
    """Mean and covariance of the missing cells of a row given the others."""
    o = ~np.isnan(row)
    gain = covariance[np.ix_(~o, o)] @ np.linalg.inv(covariance[np.ix_(o, o)])
    spread = covariance[np.ix_(~o, ~o)] - gain @ covariance[np.ix_(o, ~o)]
    return mean[~o] + gain @ (row[o] - mean[o]), spread


def new_rows():
    x, y, _ = toy(9, num_rows=6)
    x[0, 2] = x[1, :5] = y[2, 0] = np.nan
    x[3] = np.nan
    return x, y


def test_outputs_and_cells_are_conditional_means_with_their_spread(tree):
    mean, _, covariance = dense(tree)
    x, y = new_rows()
    outputs = predict(tree, x)
    assert outputs.dims == ("observation", "output") and list(outputs["output"]) == ["a", "b", "c"]
    cells, partly = predict(tree, x, y, what="cells"), predict(tree, x, y)
    for i in range(6):
        expected, spread = conditional(mean, covariance, np.append(x[i], np.full(3, np.nan)))
        np.testing.assert_allclose(outputs[i], expected[-3:], rtol=1e-9)
        deviation = outputs["standard_deviation"][i]
        np.testing.assert_allclose(deviation, np.sqrt(np.diag(spread)[-3:]), rtol=1e-9)
        row = np.append(x[i], y[i])
        missing = np.isnan(row)
        whole = np.append(cells[i], partly[i])
        np.testing.assert_allclose(whole[~missing], row[~missing])
        np.testing.assert_allclose(whole[missing], conditional(mean, covariance, row)[0], rtol=1e-9)
    assert cells.dims == ("observation", "feature") and cells["feature"][0] == "gene 0"
    assert float(cells["standard_deviation"][4].max()) == 0.0


def test_scores_and_their_covariance_are_posterior_moments(tree):
    mean, w, covariance = dense(tree)
    x, y = new_rows()
    for data in ((x,), (x, y)):
        found = transform(tree, *data, covariance=True)
        rows = np.concatenate(data, axis=1)
        for i, row in enumerate(rows):
            o = np.flatnonzero(~np.isnan(row))
            gain = w[o].T @ np.linalg.inv(covariance[np.ix_(o, o)])
            np.testing.assert_allclose(found["scores"][i], gain @ (row[o] - mean[o]), atol=1e-9)
            np.testing.assert_allclose(found["covariance"][i], np.eye(3) - gain @ w[o], atol=1e-9)
    fitted = with_names()
    stored = align_rotation(tree)["variational"]["latents"]
    np.testing.assert_allclose(transform(tree, *fitted), stored, atol=1e-10)
    assert np.abs(transform(tree, fitted[0]) - stored).max() > 0.01


def test_orthonormal_scores_are_coordinates_in_the_span_of_the_loadings(tree):
    x = new_rows()[0][4:]
    v = tree["variational"]
    scores = transform(tree, x, scores="orthonormal").to_numpy()
    projector = v["loadings_x"].to_numpy() @ np.linalg.pinv(v["loadings_x"].to_numpy())
    centred = x - v["loc_x"].to_numpy()
    np.testing.assert_allclose(scores @ scores.T, centred @ projector @ centred.T, rtol=1e-9)


def test_density_of_inputs_alone_and_of_both(tree):
    mean, _, covariance = dense(tree)
    x, y = new_rows()
    for data in ((x,), (x, y), (x, None)):
        rows = np.concatenate([part for part in data if part is not None], axis=1)
        for row, found in zip(rows, log_density(tree, *data).to_numpy(), strict=True):
            o = np.flatnonzero(~np.isnan(row))
            normal = scipy.stats.multivariate_normal(mean[o], covariance[np.ix_(o, o)]) if o.size else None
            np.testing.assert_allclose(found, normal.logpdf(row[o]) if o.size else 0.0, rtol=1e-10)


def test_class_probabilities_are_bayes_rule(classified):
    """The class's share times the density of the inputs given its code, both by the joint normal."""
    tree, labels = classified
    mean, _, covariance = dense(tree)
    x = toy(9, num_rows=6)[0]
    shares = predict(tree, x, what="classes")
    assert shares.dims == ("observation", "class") and list(shares["class"]) == ["low", "mid", "high"]
    for i in range(6):
        weighted = np.empty(3)
        for c, code in enumerate(np.eye(3)):
            expected, spread = conditional(mean, covariance, np.append(np.full(x.shape[1], np.nan), code))
            weighted[c] = mean[x.shape[1] + c] * scipy.stats.multivariate_normal(expected, spread).pdf(x[i])
        np.testing.assert_allclose(shares[i], weighted / weighted.sum(), rtol=1e-6)
    given = predict(tree, toy(0)[0][:4], labels[:4], what="classes").to_numpy()
    np.testing.assert_array_equal(given, np.eye(3)[labels[:4].cat.codes])
    x = toy(0)[0]
    guess = predict(tree, x[:45], what="classes").argmax("class").to_numpy()
    assert (guess == labels[:45].cat.codes.to_numpy()).mean() > 0.7
    # labels are coded as they were in the fit
    assert predict(tree, x, labels, what="outputs").sizes["output"] == 3
    assert log_density(tree, x[:2], ["low", None]).shape == (2,)


@pytest.mark.parametrize("noise", [0.02, 0.3])
def test_two_columns_of_two_classes_count_once(noise):
    """Columns that mirror each other have the probabilities of one column with the same noise."""
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(9, 4)), rng.normal(size=(1, 2))
    values = {"loadings_x": rng.normal(size=(4, 2)), "loc_x": np.zeros(4), "noise_variance_x": 0.5}
    found = []
    for coding, signs, loc in (("one_of_c", [[1], [-1]], [0.3, 0.7]), ("reduced", [[1]], [0.3])):
        model = SPPCA.from_data(x, ["a", "b"] * 4 + ["a"], num_latents=2, label_coding=coding)
        own = values | {"loadings_y": signs * w, "loc_y": np.array(loc), "noise_variance_y": noise}
        own = {name: jnp.asarray(value) for name, value in own.items()}
        found.append(RealAnswers.of(model).cells(model, own, jnp.asarray(x), what="classes")[0])
    np.testing.assert_allclose(*found, rtol=1e-4)


def test_a_saved_fit_predicts_the_same(classified, tree, tmp_path):
    for name, own in (("a", tree), ("b", classified[0])):
        save(own, tmp_path / f"{name}.nc")
        again = load(tmp_path / f"{name}.nc")
        assert model_of(again).classes == model_of(own).classes
        np.testing.assert_array_equal(predict(again, toy(9)[0]), predict(own, toy(9)[0]))


def test_what_cannot_be_asked(tree):
    x, y = new_rows()
    with pytest.raises(ValueError, match="predicts outputs, cells; got 'classes'"):
        predict(tree, x, what="classes")
    with pytest.raises(ValueError, match="x must have 12 columns, as the model has; got 11"):
        predict(tree, x[:, :11])
    with pytest.raises(ValueError, match="x has 6 and y has 5"):
        log_density(tree, x, y[:5])
    with pytest.raises(TypeError, match="takes 2 parts of data, x and y; got 3"):
        log_density(tree, x, y, y)
