"""A tree that was cut: rows of a fit may be shown and predicted, and tell nothing of its posterior."""

import numpy as np
import pytest

import zoo
from inference import extend, fit, log_density, log_evidence, predict
from inference.diagnostics import compare, leave_one_out, prior_sensitivity, profiles, summary_text
from inference.report import report

SETTINGS = {"num_samples": 100, "num_warmup": 100, "num_chains": 2, "progress": False, "seed": 0}
pytestmark = pytest.mark.filterwarnings("ignore:.*has not converged")


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return rng.normal(size=(40, 1)) * [2.0, 1.0, 1.0] + rng.normal(size=(40, 3))


@pytest.fixture(scope="module")
def of_latents(rows):
    return fit(zoo.PPCA(num_latents=1, loading_prior="gaussian"), rows, method="gibbs", **SETTINGS)


@pytest.fixture(scope="module")
def of_clusters(rows):
    return fit(zoo.Mixture.from_data(rows, num_components=2), rows, method="gibbs", **SETTINGS)


STATEMENTS = {
    "log_evidence": lambda tree, path: log_evidence(tree),
    "prior_sensitivity": lambda tree, path: prior_sensitivity(tree, force=True),
    "summary_text": lambda tree, path: summary_text(tree),
    "profiles": lambda tree, path: profiles(tree),
    "report": lambda tree, path: report(tree, path / "fit.md"),
    "compare": lambda tree, path: compare({"cut": tree, "another": tree}),
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_rows_that_were_cut_off_are_missed(name, of_latents, tmp_path):
    """The evidence of 25 of 40 rows was 40 to 150 standard errors off, and called good."""
    cut = of_latents.isel(observation=slice(0, 25))
    with pytest.raises(ValueError, match=r"holds 25 of the 40 rows .* take the whole tree, or fit these"):
        STATEMENTS[name](cut, tmp_path)
    STATEMENTS[name](of_latents.isel(draw=slice(None, None, 2)), tmp_path)


def test_some_rows_of_a_mixture_are_not_all_its_clusters(of_clusters):
    with pytest.raises(ValueError, match="holds 10 of the 40 rows"):
        summary_text(of_clusters.isel(observation=slice(0, 10)))


def test_some_rows_can_still_be_scored_and_predicted(of_latents, rows):
    cut = of_latents.isel(observation=slice(0, 25))
    np.testing.assert_array_equal(leave_one_out(cut).elpd_i, leave_one_out(of_latents).elpd_i[:25])
    for question in (log_density, predict):
        np.testing.assert_array_equal(question(cut, rows), question(of_latents, rows))


@pytest.mark.parametrize("question", [predict, log_density])
@pytest.mark.parametrize(
    "made, found",
    [
        ("of_latents", "its model has 3 of the dim 'feature' and its group 'posterior' has 1"),
        ("of_clusters", "its group 'posterior' has 1 of the dim 'feature' and 3 of 'feature_2'"),
    ],
)
def test_a_tree_without_some_columns_is_no_fit(question, made, found, rows, request):
    cut = request.getfixturevalue(made).isel(feature=[0])
    with pytest.raises(ValueError, match=f"not a whole fit: {found}; take the one"):
        question(cut, rows)


@pytest.mark.parametrize("question", [lambda tree, rows: extend(tree, "log_prior"), log_density, predict])
@pytest.mark.parametrize("dim", ["chain", "draw"])
def test_a_dim_of_the_draws_that_is_lost_is_named(question, dim, of_clusters, rows):
    """Some of these gave a bare KeyError."""
    with pytest.raises(ValueError, match=rf"lacks \['{dim}'\]: .* tree\.isel\({dim}=\[0\]\)"):
        question(of_clusters.isel({dim: 0}), rows)
    question(of_clusters.isel({dim: [0]}), rows[:3])  # others are warned of: clusters are none there
