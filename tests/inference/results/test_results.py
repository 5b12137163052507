"""A fit is a file: saved, read in a new process, and still able to predict."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import arviz
import numpy as np
import numpyro.distributions as dist
import pytest
import xarray as xr

import inference
from inference.numerics import programs
from inference.numerics.weighted_rows import in_own_shapes
from inference.results import build
from inference.results.build import _trace_group
from inference.results.groups import thinned
from inference.results.model_fields import describe, restore
from zoo.conjugate import GaussianWishart
from zoo.mixture import Mixture

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("concentration", [2.5, dist.Gamma(2.0, 0.1)])
@pytest.mark.parametrize("weight_prior", ["dirichlet", "stick_breaking"])
def test_a_model_survives_its_description(concentration, weight_prior):
    components = GaussianWishart(
        loc=[0.5, 1 / 3], mean_precision=0.1, scale_matrix=np.eye(2) / 7, degrees_of_freedom=2.5
    )
    model = Mixture(
        components=components, num_components=4, concentration=concentration, weight_prior=weight_prior
    )
    again = restore("mixture", *describe(model))
    assert describe(again)[0] == describe(model)[0]
    for name, array in describe(model)[1].items():
        np.testing.assert_array_equal(describe(again)[1][name], array)
    assert again.weight_prior == weight_prior and type(again.concentration) is type(model.concentration)


def test_a_description_imports_nothing():
    with pytest.raises(ValueError, match="uses a system"):
        restore("mixture", '{"components": {"type": "system"}, "num_components": 2}', {})
    with pytest.raises(ValueError, match="which this version does not have"):
        restore("os", "{}", {})


@pytest.mark.slow
def test_saved_and_read_in_a_new_process(vb_tree, two_clusters, tmp_path):
    """Where ArviZ comes first: its lazy stub of NumPyro made a package lack a submodule that NUTS needs."""
    path = tmp_path / "fit.nc"
    inference.save(vb_tree, path)
    assert [p.name for p in tmp_path.iterdir()] == ["fit.nc"]
    two_clusters.head().to_csv(tmp_path / "new.csv", index=False)
    program = (
        "import arviz, numpyro.distributions as dist, zoo, numpyro, jax; zoo.Mixture\n"
        "from numpyro.infer.util import initialize_model\n"
        "initialize_model(jax.random.key(0), lambda: numpyro.sample('a', dist.Gamma(1.0, 1.0)))\n"
        "import sys, pandas as pd, inference; tree = inference.load(sys.argv[1]); new = "
        "pd.read_csv(sys.argv[2])\n"
        "swapped = new[['width', 'length']]\n"  # columns are matched by name
        "print(*[float(v).hex() for v in inference.log_density(tree, swapped)])\n"
        "assert type(inference.model_of(tree)).__name__ == 'Mixture'"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [sys.executable, "-c", program, path, tmp_path / "new.csv"],
        capture_output=True,
        text=True,
        env=environment,
    )
    here = inference.log_density(vb_tree, two_clusters.head())
    assert run.stdout.split() == [float(v).hex() for v in here], run.stderr[-500:]


@pytest.mark.slow
def test_every_group_survives_saving(few_draws, tmp_path):
    inference.save(few_draws, tmp_path / "fit.nc")
    again = inference.load(tmp_path / "fit.nc")
    assert again.attrs == few_draws.attrs and set(again.children) == set(few_draws.children)
    for name, group in few_draws.children.items():
        xr.testing.assert_identical(group.to_dataset(), again[name].to_dataset())
    assert all(type(value) in (str, int, float) for value in again.attrs.values())


@pytest.mark.slow
def test_files_that_are_no_fits_get_one_clear_message(tmp_path, vb_tree):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        inference.load(tmp_path / "none.nc")
    (tmp_path / "text.nc").write_text("hello")
    with pytest.raises(ValueError, match="cannot be read as netCDF"):
        inference.load(tmp_path / "text.nc")
    xr.DataTree(xr.Dataset({"a": 1})).to_netcdf(tmp_path / "other.nc", engine="h5netcdf")
    with pytest.raises(ValueError, match="not a fit of this library"):
        inference.load(tmp_path / "other.nc")
    with pytest.raises(ValueError, match="does not exist"):
        inference.save(vb_tree, tmp_path / "no" / "fit.nc")


@pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto")  # of few draws, and another matter
def test_arviz_reads_the_tree(few_draws):
    loo = arviz.loo(few_draws, pointwise=True)
    assert np.isfinite(loo.elpd) and loo.n_data_points == 60
    assert "lp" in few_draws["sample_stats"]
    table = arviz.summary(few_draws, var_names=["concentration"])
    assert len(table) == 1


def test_lp_is_the_log_joint_density_that_the_sweeps_wrote_down(few_draws):
    """Prior and rows of the kept draws; the sampler itself adds up the density of its program."""
    kept = few_draws["trace"]["objective"][:, few_draws["trace"].attrs["num_warmup"] :]
    np.testing.assert_allclose(few_draws["sample_stats"]["lp"], kept, rtol=1e-10)


def test_the_trace_is_of_the_best_restart_and_every_end_of_its_own():
    """Three restarts of 5, 3 and 4 steps, the second the best: all are whole."""
    nan = np.nan
    objective = np.array([[1.0, 2, 3, 4, 5], [2, 4, 9, nan, nan], [0, 1, 2, 6, nan]])
    run = SimpleNamespace(
        trace={"objective": objective, "num_occupied": -objective}, best_restart=1, num_iterations=3
    )
    request = SimpleNamespace(method=None, settings=SimpleNamespace(num_restarts=3))
    trace = _trace_group(request, run)
    assert trace["iteration"].values.tolist() == [1, 2, 3]
    for name, values in run.trace.items():
        np.testing.assert_array_equal(trace[name], values[1, :3])
        np.testing.assert_array_equal(trace[f"{name}_by_restart"].sel(restart=2), values[2])
        np.testing.assert_array_equal(trace[f"{name}_at_end"], np.array([5, 9, 6]) * np.sign(values[0, 0]))


@pytest.mark.slow
def test_coordinates_netcdf_cannot_hold_become_text(two_clusters, small_model, tmp_path):
    import pandas as pd

    x = two_clusters.set_index(pd.MultiIndex.from_product([["a", "b"], range(30)]))
    tree = inference.fit(small_model, x, num_samples=2, tolerance=1e-3)
    inference.save(tree, tmp_path / "fit.nc")
    assert inference.load(tmp_path / "fit.nc")["observed_data"]["observation"][0] == "('a', 0)"


@pytest.mark.parametrize(
    ("chains", "draws", "most", "kept"),
    [
        (1, 7, 7, [0, 1, 2, 3, 4, 5, 6]),
        (1, 7, 6, [0, 2, 4, 6]),
        (1, 7, 3, [0, 3, 6]),
        (1, 7, 1, [0]),
        (2, 7, 4, [0, 4]),
        (2, 7, 6, [0, 3, 6]),
        (3, 8, 12, [0, 2, 4, 6]),
        (4, 9, 10, [0, 5]),
        (2, 7, 5, [0, 4]),
    ],
)
def test_draws_are_thinned_to_the_most_that_are_asked_for_and_evenly(chains, draws, most, kept):
    """In every group that has draws, by the smallest step that leaves no more; other groups stay."""
    numbers = xr.Dataset({"lp": (("chain", "draw"), np.arange(chains * draws).reshape(chains, draws))})
    data = xr.Dataset({"x": ("observation", np.arange(9.0))})
    groups = {"/posterior": numbers, "/sample_stats": -numbers, "/observed_data": data}
    tree = xr.DataTree.from_dict({"/": xr.Dataset(attrs={"model": "mixture"})} | groups)
    found = thinned(tree, most)
    expected = numbers["lp"].values[:, kept]
    assert expected.size <= most and found.attrs == tree.attrs
    np.testing.assert_array_equal(found["posterior"]["lp"], expected)
    np.testing.assert_array_equal(found["sample_stats"]["lp"], -expected)
    xr.testing.assert_identical(found["observed_data"].to_dataset(), data)


def test_densities_of_rows_take_the_programs_of_other_tables(monkeypatch):
    """All that a second file of mixed columns compiled were these; the numbers are those of its own size."""
    x, given = np.random.default_rng(0).normal(size=(600, 2)), []
    model = Mixture.from_data(x, num_components=2)

    def over_draws(function, draws, model, data):
        given.extend([len(data[0])] if function is build._log_likelihood else [])
        return programs.over_draws(function, draws, model, data)

    monkeypatch.setattr(build, "over_draws", over_draws)
    call = {"max_iterations": 2, "tolerance": 0.0, "num_restarts": 1, "num_samples": 3, "progress": False}
    shared = inference.fit(model, x, **call)
    inference.fit(model, x[:580], **call)
    with in_own_shapes():
        own = inference.fit(model, x, **call)
    for group in ("log_likelihood", "sample_stats"):
        for name, found in shared[group].data_vars.items():
            assert found.shape == own[group][name].shape
            np.testing.assert_allclose(found, own[group][name], rtol=1e-9)
    assert given == [640, 640, 600]
