"""Densities of held-out rows that are read off a run equal those that its tree gives."""

import numpy as np
import pandas as pd
import pytest

import zoo
from inference import log_density
from inference.diagnostics import model_size


def table(num_rows=60):
    """Two groups far from zero, on other scales, with missing cells."""
    rng = np.random.default_rng(0)
    x = rng.normal(np.array([900.0, -3.0, 0.02]), [5.0, 0.3, 0.001], (num_rows, 3))
    x[::2] += [40.0, 2.0, 0.01]
    x[::9, 1] = np.nan
    return x


def mixed():
    """Columns of several kinds."""
    rng = np.random.default_rng(1)
    kinds = {"size": table()[:, 0], "visits": rng.poisson(3.0, 60), "region": rng.choice(["a", "b"], 60)}
    return pd.DataFrame(kinds)


CASES = {
    "mixture": (zoo.Mixture(num_components=2), table(), "vb", {"num_restarts": 2}),
    "dp": (
        zoo.Mixture(num_components=3, weight_prior="stick_breaking"),
        np.nan_to_num(table()),
        "vb",
        {"num_restarts": 2},
    ),
    "mixed": (zoo.Mixture(num_components=2), mixed(), "vb", {"num_restarts": 1}),
    "em": (zoo.Mixture(num_components=2), np.nan_to_num(table()), "em", {"num_restarts": 1}),
    "single": (zoo.Mixture(num_components=2), np.nan_to_num(table()), "vb", {"dtype": "float32"}),
    "spread": (zoo.PPCA(num_latents=1, loading_prior="gaussian"), np.nan_to_num(table()), "vb", {}),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("case", CASES)
def test_densities_read_off_a_run_are_those_of_its_tree(case):
    """In the coordinates of the data, however the fit was computed."""
    model, data, method, settings = CASES[case]
    model, rows = model_size.read_rows(model, (data,))
    held = np.arange(60) % 4 == 0
    settings = {"num_samples": 1, "max_iterations": 20} | settings
    new, call = rows.take(held), (model, rows.take(~held), method, 0, settings)
    found = model_size._fit(*call, new)
    assert not found.children and found.attrs["converged"] in (0, 1)
    expected = log_density(model_size._fit(*call), *new)
    assert found["log_density"].dims == expected.dims
    np.testing.assert_allclose(found["log_density"], expected, rtol=1e-12)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", ["documents", "draws"])
def test_other_fits_keep_their_tree(kind):
    rng, settings = np.random.default_rng(2), {"num_samples": 2, "max_iterations": 3}
    model, data, method = zoo.LDA(num_topics=2), rng.poisson(2.0, (8, 6)), "vb"
    if kind == "draws":
        model, data, method = zoo.PPCA(num_latents=1), rng.normal(size=(20, 3)), "nuts"
        settings = {"num_samples": 2, "num_warmup": 2, "num_chains": 1}
    model, rows = model_size.read_rows(model, (data,))
    tree = model_size._fit(model, rows.take(np.full(len(data), True)), method, 0, settings, rows.parts)
    assert "posterior" in tree.children and "log_density" not in tree.data_vars
