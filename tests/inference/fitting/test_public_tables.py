"""Public tables, unaltered: of the catalogue and of scikit-learn, from file to report without an option."""

import numpy as np
import pandas as pd
import pytest
import sklearn.datasets

import inference
import zoo
from inference.cli import main
from inference.fitting import front_door
from zoo.intake import read_columns

SCIKIT = ("iris", "wine", "breast_cancer", "diabetes", "digits")
SHIPPED = {
    "faithful": "mixture",
    "olive": "mixture",
    "bfi": "epca",
    "votes_repub": "ppca",
    "rock_art": "epca",
}


def frame_of(name):
    """A table of scikit-learn as ``pandas.read_csv`` gives it, classes and all."""
    return getattr(sklearn.datasets, f"load_{name}")(as_frame=True).frame


class Planned(Exception):
    """The call has passed every check."""


@pytest.fixture
def planned(monkeypatch):
    """Calls that end where they would be run."""
    calls = []

    def stop(request):
        calls.append(request)
        raise Planned

    monkeypatch.setattr(front_door, "plan", stop)
    return calls


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("model", [zoo.Mixture, zoo.EPCA, zoo.PPCA, zoo.DEPCAM])
@pytest.mark.parametrize("name", SCIKIT)
def test_every_check_is_passed(name, model, planned):
    """Nothing is compiled."""
    frame = frame_of(name)
    if model is zoo.PPCA and name == "digits":
        frame = frame.drop(columns="target")
    with pytest.raises(Planned):
        inference.fit(model(), frame)
    (request,) = planned
    assert np.isfinite(request.data[0]).all()
    constant = [column for column in frame if frame[column].nunique() == 1]
    assert request.data[0].shape == (len(frame), frame.shape[1] - len(constant))


def test_constant_columns_are_left_out_and_named(planned):
    frame = frame_of("digits")
    constant = [column for column in frame if frame[column].nunique() == 1]
    assert len(constant) == 3
    columns = read_columns(frame)
    assert [column.name for column in columns.left_out] == constant
    with pytest.warns(UserWarning, match=rf"columns left out: {constant[0]} \(0 in every row\); .*row\)$"):
        with pytest.raises(Planned):
            inference.fit(zoo.Mixture(), frame)


def test_constant_columns_among_answers_are_answers():
    bits = pd.DataFrame({"a": [0, 1, 0, 1], "b": [0, 0, 0, 0], "c": [1, 1, 0, 1]})
    assert [column.kind for column in read_columns(bits).columns] == ["yes/no"] * 3
    numbers = bits.assign(a=[0.5, 1.5, 2.5, 0.1])
    assert [column.kind for column in read_columns(numbers).columns] == ["real", "text", "yes/no"]
    assert read_columns(numbers, families={"b": "gaussian"}).columns[1].kind == "real"
    assert [column.kind for column in read_columns(bits[["b"]]).columns] == ["real"]  # nothing else is there


@pytest.mark.slow
@pytest.mark.parametrize("name", SCIKIT)
def test_a_file_of_scikit_learn_goes_to_a_report(name, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame_of(name).to_csv(f"{name}.csv", index=False)
    assert main(["fit", "mixture", f"{name}.csv", "--report", "out.html"]) == 0
    printed = capsys.readouterr().out
    assert "columns    " in printed and (tmp_path / "out.html").stat().st_size > 10_000


@pytest.mark.slow
@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_table_goes_to_a_report(name, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["fit", SHIPPED[name], name, "--report", "out.html"]) == 0
    assert (tmp_path / "out.html").stat().st_size > 10_000
