"""The number of latents by bound, ARD and held-out density."""

import re
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import inference
import zoo
from inference.diagnostics import model_size
from inference.diagnostics.model_size import recommended


def _rows(num_rows, d, k, seed=0, noise=0.5):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(num_rows, k))
    basis = np.linalg.qr(rng.normal(size=(d, k)))[0]
    return z @ (basis * np.linspace(3.0, 2.0, k)).T + noise * rng.normal(size=(num_rows, d))


@pytest.mark.slow
def test_three_ways_find_the_truth():
    """Four strong latents of ten columns, candidates 1 to 7: all three say 4.

    Signals of 16 to 36 times the noise and 200 rows: the eigenvalue of a latent that is not there exceeds the
    noise by at most about 2 sqrt(10 / 200), far less than the bound asks for. Held-out density may take one
    more within its standard error, so it is asked for 4 or 5.
    """
    x = _rows(200, 10, 4)
    table = inference.choose_num_latents(x, range(1, 8), max_iterations=5000)
    assert table.attrs["by_bound"] == 4
    assert table.attrs["by_ard"] == 4
    assert table.attrs["by_heldout"] in (4, 5)
    assert int(table["bic"].idxmin()) == 4
    assert table["bound"].loc[4] > table["bound"].drop(4).max() + 1


@pytest.mark.slow
def test_the_table_has_the_three_columns_and_says_it():
    """One row a candidate; with a single strong latent all agree."""
    table = inference.choose_num_latents(_rows(60, 4, 1), [2, 1], folds=2)
    assert list(table.index) == [1, 2] and table.index.name == "num_latents"
    assert np.isfinite(table[["bound", "heldout", "standard_error", "bic"]]).all(axis=None)
    assert np.isnan(table["ard_relevant"].loc[1]) and table["ard_relevant"].loc[2] == 1
    assert table.attrs["by_bound"] == table.attrs["by_ard"] == 1
    assert "ARD keeps 1 of 2" in table.attrs["note"]


def test_one_decomposition_scores_all_sizes_as_fits_do():
    """The same held-out densities and BIC as those of a fit of each fold and size; the floor warns."""
    x, models = _rows(30, 4, 2) + 5.0, {k: zoo.PPCA(num_latents=k) for k in (1, 3)}
    table = model_size._in_closed_form(models, x, 3, 1)
    fits = model_size.cross_validate(models, x, folds=3, seed=1)
    for name in ("heldout", "standard_error", "bic"):
        np.testing.assert_allclose(table[name], fits[name], rtol=1e-9, err_msg=name)
    with pytest.warns(UserWarning, match="the noise variance is held at noise_floor"):
        model_size._in_closed_form(models, _rows(30, 4, 2, noise=0.0), 3, 1)


def test_the_largest_candidate_is_not_called_the_optimum():
    """By hand: a rule that ends at the edge is told, unless the data allow no more."""
    said = model_size.larger_untried("num_latents", (1, 3, 2), (1, 2, 3))
    assert said == "; num_latents above 3 was not tried, and may be better: give larger candidates"
    assert not model_size.larger_untried("num_latents", (1, 2), (1, 2, 3))
    assert not model_size.larger_untried("num_latents", (3,), (1, 2, 3), 3)
    x = _rows(60, 6, 2)
    assert "num_latents above 2" in inference.choose_num_latents(x, [1, 2], folds=2).attrs["note"]


def test_units_are_told_once_by_name_and_a_field_mends_them():
    """Two latents in columns of units a thousandfold apart, a cell missing: folds differ in deviations."""
    x = pd.DataFrame(_rows(60, 5, 2), columns=list("abcde")) * [1.0, 1e3, 1e6, 50.0, 50.0]
    x.iloc[0, 0] = np.nan
    with pytest.warns(UserWarning) as caught:
        inference.choose_num_latents(x, [1, 2, 3], folds=2)
    told = [str(warning.message) for warning in caught]
    scales = [message for message in told if "very different scales" in message]
    assert len(scales) == 1 and len(set(told)) == len(told)
    assert re.search(r"scales, a \(sd .* to c \(sd ", scales[0])
    assert {warning.filename for warning in caught} == {__file__}
    table = inference.choose_num_latents(x, [1, 2, 3], folds=2, fields={"standardize": True})
    assert table.attrs["by_heldout"] == 2


def test_a_larger_size_that_scores_alike_is_not_chosen(monkeypatch):
    """By hand: two latents fall short of three by less than the error of that, as in `zoo sweep`."""
    scores = pd.DataFrame(
        {
            "heldout": [-3.0, -2.0001, -2.0],
            "difference": [-1.0, -1e-4, 0.0],
            "difference_error": [0.1, 1e-3, 0.0],
        },
        index=[1, 2, 3],
    ).assign(standard_error=0.1, bic=0.0)
    monkeypatch.setattr(model_size, "_in_closed_form", lambda *given: scores)
    table = inference.choose_num_latents(_rows(60, 6, 2), [1, 2, 3])
    assert table.attrs["by_heldout"] == recommended(scores)[1] == 2
    assert table.attrs["note"].endswith("held-out density: 2")


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"standardize": True}, TypeError, "a field of the model: give fields={'standardize': ...}"),
        ({"speed": 1}, TypeError, "has no option 'speed'"),
        ({"fields": {"noise": "diagonal"}}, ValueError, "noise is chosen here: leave it out of fields"),
    ],
)
def test_what_is_no_option_is_refused_before_any_fit(given, error, message, monkeypatch):
    monkeypatch.setattr(model_size, "log_densities", None)
    with pytest.raises(error, match=re.escape(message)):
        inference.choose_num_latents(_rows(20, 4, 1), [1], **given)


@pytest.mark.parametrize(
    ("candidates", "message"),
    [([], "candidates is empty"), ([0], "from 1 to 3"), ([1, 4], "got 4"), ([1.5], "got 1.5")],
)
def test_candidates_that_the_data_do_not_allow(candidates, message):
    """Refused before anything is fitted."""
    with pytest.raises(ValueError, match=message):
        inference.choose_num_latents(_rows(20, 4, 1), candidates)


def test_the_smallest_within_one_standard_error_of_the_best_is_recommended():
    """By hand: the best is 3; 2 falls short by less than its error, 1 by more, and 0 has no finite score."""
    table = pd.DataFrame(
        {
            "heldout": [-np.inf, -3.0, -2.1, -2.0, -2.05],
            "difference": [-np.inf, -1.0, -0.1, 0.0, -0.05],
            "difference_error": [np.nan, 0.2, 0.3, 0.0, 0.3],
        }
    )
    assert recommended(table) == (3, 2)
    with pytest.raises(ValueError, match="no model gives the held-out rows a finite density"):
        recommended(table[:1])


def test_errors_of_a_cross_validation_are_those_of_its_rows(monkeypatch):
    """Planted scores: k times the first cell of a row, so that the paired differences are known."""

    def fitted(model, *others):
        attrs = {"converged": True, "bic": 0.0}
        return SimpleNamespace(attrs=attrs, data_vars=(), num_latents=model.num_latents)

    def scores(tree, rows):
        return xr.DataArray(tree.num_latents * np.asarray(rows)[:, 0])

    monkeypatch.setattr(model_size, "_fit", fitted)
    monkeypatch.setattr(model_size, "log_density", scores)
    x = np.random.default_rng(0).normal(size=(10, 4)) + 1.0
    table = model_size.cross_validate({k: zoo.PPCA(num_latents=k) for k in (1, 2)}, x, folds=2)
    error = x[:, 0].std(ddof=1) / np.sqrt(10)
    np.testing.assert_allclose(table["heldout"], [x[:, 0].mean(), 2 * x[:, 0].mean()], rtol=1e-12)
    np.testing.assert_allclose(table["standard_error"], [error, 2 * error], rtol=1e-12)
    np.testing.assert_allclose(table["difference"], [-x[:, 0].mean(), 0.0], rtol=1e-12)
    np.testing.assert_allclose(table["difference_error"], [error, 0.0], rtol=1e-12)


def test_a_call_that_fails_tells_what_its_fits_warned_of():
    with pytest.warns(UserWarning, match="columns differ 1.5 times") as told, pytest.raises(ValueError):  # noqa: PT011
        with model_size._distinct_warnings():
            for ratio in (1.5, 2.5):
                warnings.warn(f"columns differ {ratio} times", stacklevel=1)
            raise ValueError
    assert len(told) == 1
