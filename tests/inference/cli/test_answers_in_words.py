"""Columns of two words in the commands: fitted as yes and no, told and predicted in their words."""

import numpy as np
import pandas as pd
import pytest

import inference
from inference.cli import main


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A folder with tables of two words, the same in both orders, and their fits."""
    place = tmp_path_factory.mktemp("coins")
    rng = np.random.default_rng(1)
    z = rng.normal(size=(80, 1))
    x = pd.DataFrame(z @ np.ones((1, 3)) + 0.5 * rng.normal(size=(80, 3)), columns=list("abc"))
    for name, words in (("first", ("h", "t")), ("second", ("t", "h"))):
        table = x.assign(score=z[:, 0] + rng.normal(size=80), coin=np.where(z[:, 0] > 0, *words))
        table.to_csv(place / f"{name}.csv", index=False)
        command = ["fit", "paired", str(place / f"{name}.csv"), "--views", "score,coin", "a:c", "--force"]
        command += ["--set", "num_shared=1", "--num-samples", "50", "--out", str(place / f"{name}.nc")]
        assert main(command) == 0
    return place


@pytest.mark.parametrize(("name", "above"), [("first", "h"), ("second", "t")])
def test_two_words_are_predicted_with_the_probability_of_the_word(fitted, name, above):
    """Whichever word comes first in the alphabet, the saved fit gives back that of the rows."""
    tree = inference.load(fitted / f"{name}.nc")
    assert tree.attrs["method"] == "vb"
    rows = pd.DataFrame({"a": [3.0, -3.0, 0.0], "b": [3.0, -3.0, 0.1], "c": [3.0, -3.0, -0.1]})
    rows.to_csv(fitted / "new.csv", index=False)
    out = fitted / "found.csv"
    command = ["predict", str(fitted / f"{name}.nc"), str(fitted / "new.csv"), "--out", str(out), "--force"]
    assert main(command) == 0
    found = pd.read_csv(out)
    other = {"h": "t", "t": "h"}[above]
    assert list(found["coin"][:2]) == [above, other]
    assert (found["coin_probability"][:2] > 0.9).all() and 0.5 <= found["coin_probability"][2] < 0.9
    assert "score_probability" not in found
    of_second_word = inference.predict(tree, None, rows).sel(feature_0="coin").to_numpy()
    shown = np.where(found["coin"] == "t", of_second_word, 1 - of_second_word)
    np.testing.assert_allclose(found["coin_probability"], shown, rtol=1e-12)


def test_a_view_in_the_place_of_another_is_told_how_to_be_passed(fitted):
    tree = inference.load(fitted / "first.nc")
    rows = pd.DataFrame({"a": [3.0], "b": [3.0], "c": [3.0]})
    with pytest.raises(
        ValueError, match=r"columns score, coin of the fit; .* y_1: .*predict\(tree, None, x\)"
    ):
        inference.predict(tree, rows)
    with pytest.raises(ValueError, match="they have a, z: they are those of y_1"):
        inference.predict(tree, rows[["a"]].assign(z=1.0))
    with pytest.raises(ValueError, match="they have z: name their columns as those of the fit"):
        inference.predict(tree, pd.DataFrame({"z": [1.0]}))
