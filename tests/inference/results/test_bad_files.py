"""Files that are no fits, or not whole ones: one clear message each, and what to do about it."""

import numpy as np
import pytest
import xarray as xr

import inference
import zoo
from inference.cli import main
from inference.diagnostics import compare, summary
from inference.plots import plot_objective
from inference.report import report
from inference.results.integrity import CHECKSUM

ROWS = np.random.default_rng(0).normal(size=(20, 3))


@pytest.fixture(scope="module")
def tree():
    return inference.fit(zoo.PPCA(num_latents=1, loading_prior="gaussian"), ROWS, method="em")


@pytest.fixture
def saved(tree, tmp_path):
    path = tmp_path / "fit.nc"
    inference.save(tree, path)
    return path


def rewritten(path, **attributes):
    """The same file with other root attributes, as an older version writes it; None takes one out."""
    with xr.open_datatree(path, engine="h5netcdf") as opened:
        tree = opened.load()
    tree.attrs.pop(CHECKSUM)
    tree.attrs = {k: v for k, v in (tree.attrs | attributes).items() if v is not None}
    tree.to_netcdf(path, engine="h5netcdf")
    return path


def without(tree, *names):
    groups = {f"/{name}": group.to_dataset() for name, group in tree.children.items() if name not in names}
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs=tree.attrs)} | groups)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
def test_a_truncated_file(saved, share):
    whole = saved.read_bytes()
    saved.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(ValueError, match="cannot be read as netCDF.*copy it again, or fit again"):
        inference.load(saved)


def test_a_file_of_something_else(saved):
    rewritten(saved, model_fields=None)
    with pytest.raises(ValueError, match="not a fit of this library.*zoo fit MODEL FILE"):
        inference.load(saved)


@pytest.mark.parametrize(
    ("version", "remedy"),
    [
        ("0.2.7", None),
        ("?", None),
        ("0.1.0", "fit again, or read its numbers with xarray.open_datatree"),
        ("0.3.0", "install .* 0.3.0 or later"),
        ("1.0", "install .* 1.0 or later"),
    ],
)
def test_a_file_of_another_version(saved, version, remedy):
    rewritten(saved, version_probabilistic_model_zoo=version)
    if remedy is None:
        assert inference.load(saved).attrs["model"] == "ppca"
        return
    with pytest.raises(ValueError, match=f"written by version {version} .*{remedy}"):
        inference.load(saved)


def test_a_model_of_another_version(saved):
    rewritten(saved, model="hiddenmarkov")
    with pytest.raises(ValueError, match="model 'hiddenmarkov', which this version does not have"):
        inference.load(saved)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("{broken", "model_fields of this fit cannot be read.*copy the file again, or fit again"),
        (
            '{"num_latents": 1, "wheels": 3}',
            "PPCA the field 'wheels', which this version does not have: install",
        ),
        ('{"loc_mean": {"type": "Engine"}}', "uses a Engine, which this version does not have"),
    ],
)
def test_fields_that_this_version_does_not_have(saved, fields, message):
    with pytest.raises(ValueError, match=message):
        inference.load(rewritten(saved, model_fields=fields))


@pytest.mark.parametrize("ending", [".nc", ".npz", ".csv"])
def test_data_of_another_kind_than_the_ending_says(tmp_path, ending, capsys):
    path = tmp_path / f"data{ending}"
    path.write_bytes(b"\x00\xff\xfe no table")
    assert main(["compare", str(path)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    if ending == ".csv":
        assert "is no text, or encoded otherwise: save it as UTF-8, or --read encoding=" in error
    else:
        assert f"cannot be read as a {ending} file" in error and "copy it again" in error


def test_the_command_line_says_it_in_one_line(saved, capsys):
    saved.write_bytes(saved.read_bytes()[:1000])
    assert main(["report", str(saved)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "fit again" in error


@pytest.mark.parametrize(
    ("group", "use", "message"),
    [
        ("posterior", lambda t: inference.log_density(t, ROWS[:2]), "needs the group 'posterior'"),
        ("posterior", lambda t: inference.extend(t, "log_prior"), "needs the group 'posterior'"),
        ("posterior", summary, "needs the group 'posterior'.*take the whole tree"),
        ("variational", lambda t: inference.predict(t, ROWS[:2]), "needs the group 'variational'"),
        ("variational", lambda t: inference.transform(t, ROWS[:2]), "needs the group 'variational'"),
        ("trace", plot_objective, "needs the group 'trace'"),
        ("observed_data", lambda t: inference.extend(t, "log_prior"), r"keep=\('observed_data',\)"),
        ("constant_data", inference.model_of, "lacks 'loc_mean' of its group 'constant_data'"),
        ("log_likelihood", lambda t: compare({"a": t, "b": t}), "point estimate"),
    ],
)
def test_a_fit_without_the_needed_group(tree, group, use, message):
    with pytest.raises(ValueError, match=message):
        use(without(tree, group))


@pytest.mark.slow
def test_a_report_does_without_the_data(vb_tree, tmp_path):
    path = report(without(vb_tree, "observed_data", "log_likelihood"), tmp_path / "fit.html")
    assert "does not hold its data" in path.read_text(encoding="utf-8")
