"""The number of latents by labelled rows whose labels are hidden, and calibrated class probabilities."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import inference
import zoo
from inference.diagnostics import model_size

NAMES = np.array(["bolt", "nut", "washer"])
MAKING = {"max_iterations": 200, "tolerance": 1e-5}


def parts(seed, num_rows=400, labelled=0.2, shares=(0.6, 0.3, 0.1)):
    """Rows of three classes in six columns with a large direction that tells nothing of them."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(3, num_rows, p=shares)
    x = rng.normal(size=(3, 6))[kind] + rng.normal(size=(num_rows, 6))
    x += rng.normal(size=(num_rows, 1)) * rng.normal(size=(1, 6)) * 3
    y = pd.Series(np.where(rng.random(num_rows) < labelled, NAMES[kind], None), name="kind")
    return x, y, kind


@pytest.fixture(scope="module")
def table():
    x, y, _ = parts(0)
    return inference.choose_num_latents_for_classes(x, y, (2, 3), **MAKING)


def test_the_direction_that_hides_the_classes_needs_a_latent(table):
    assert table.attrs["chosen"] == 3
    assert table["accuracy"][3] > table["accuracy"][2] and table["log_score"][3] > table["log_score"][2]
    right, labelled = (sum(table.attrs[name].values()) for name in ("right", "labelled"))
    assert right / labelled == pytest.approx(table["accuracy"][3])
    assert labelled == parts(0)[1].notna().sum() and table.attrs["rows"] == 400


def test_a_gain_below_a_hundredth_of_the_probability_buys_no_latent(monkeypatch):
    """However sure it is: with 2, 3, 4 latents every label has -.02, -.005, -.001 nats."""
    right = {2: np.exp(-0.02), 3: np.exp(-0.005), 4: np.exp(-0.001)}

    def predicted(model, x, what):
        p, own = right[model.num_latents], x[:, 0].astype(int)
        return xr.DataArray(np.where(np.arange(3) == own[:, None], p, (1 - p) / 2))

    monkeypatch.setattr(model_size, "fit", lambda model, *data, **options: model)
    monkeypatch.setattr(model_size, "predict", predicted)
    kind = np.arange(30) % 3
    x = np.column_stack([kind, np.random.default_rng(0).normal(size=(30, 6))])
    found = inference.choose_num_latents_for_classes(x, NAMES[kind], (2, 3, 4))
    assert found.attrs["chosen"] == 3 and found["difference_error"].max() < 1e-12


def test_hidden_labels_are_not_seen():
    """Labels that have nothing to do with the rows: right in at most .75 of 90 (by chance .5; 3e-6)."""
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(90, 5)), rng.choice(["a", "b"], 90)
    assert inference.choose_num_latents_for_classes(x, y, (4,), **MAKING)["accuracy"][4] < 0.75


@pytest.mark.filterwarnings("ignore:noise_variance_y is at its floor", "ignore:the 3 outputs have rank 2")
def test_probabilities_of_classes_are_calibrated():
    """Right answers against the sum of their probabilities, in standard errors (false alarm 6e-5 each)."""
    x, y, kind = parts(2, num_rows=3000, labelled=0.3)
    tree = inference.fit(zoo.SPPCA(num_latents=3), x, y, progress=False, **MAKING)
    hidden = y.isna().to_numpy()
    shares = inference.predict(tree, x[hidden], what="classes").to_numpy()
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    assert shares.min() >= 0 and 0.6 < shares.max(axis=1).mean() < 0.95
    for c in range(3):  # of all rows, and of those that are far from certain
        for which in (slice(None), (shares[:, c] > 0.2) & (shares[:, c] < 0.8)):
            p, is_class = shares[which, c], kind[hidden][which] == c
            assert abs((is_class - p).sum()) < 4 * np.sqrt((p * (1 - p)).sum())


def test_folds_keep_a_row_of_every_class():
    label = np.array([-1, 0, 0, 0, 1, 1, 2, 2, 2, 2])
    part = model_size._dealt(label, 3, 5, 0)
    assert part[0] == -1 and set(part[1:]) == {0, 1}  # the smallest class has two rows
    for c in range(3):
        assert set(part[label == c]) == {0, 1}
    with pytest.raises(ValueError, match="folds must be a whole number from 2; got 1"):
        model_size._dealt(label, 3, 1, 0)


def test_what_cannot_be_validated():
    with pytest.raises(ValueError, match="y holds numbers: give class labels"):
        inference.choose_num_latents_for_classes(np.eye(5), np.linspace(0, 1, 5), (2,))
    with pytest.raises(ValueError, match="candidates must be whole numbers from 1 to 5; got 6"):
        inference.choose_num_latents_for_classes(*parts(0)[:2], (6,))
