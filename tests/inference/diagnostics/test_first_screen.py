"""The first screen: one sentence, the verdict, intervals that say of what they are, nothing twice."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest

import inference
import zoo
from inference.convergence.partitions import memberships
from inference.diagnostics import leave_one_out, profiles, summary, summary_text
from inference.diagnostics.first_screen import _MEANINGS, first_screen
from inference.diagnostics.profile_parts import intervals
from inference.diagnostics.profile_tables import profile_cells
from inference.diagnostics.text_pictures import bar, scatter
from inference.fitting.verdict import verdict
from inference.symmetry import components
from tests.support.planted import planted_mixture, planted_regression, planted_zoo, replaced
from tests.support.report_cases import FITS, fitted

FIRST = {
    "mixture": r"\w+ clusters?; .* of (the )?\d+ rows .*doubtful",
    "depcam": r"\w+ clusters?; .* of (the )?\d+ rows .*doubtful",
    "pcp": r"\w+ clusters?; .* of (the )?\d+ documents .*doubtful .*; \w+ topics?, the largest with \d+ %",
    "lda": r"\w+ topics?, the largest with \d+ % of all words",
    "plsi": r"\w+ topics?, the largest with \d+ % of all words",
    "mcfa": r"\w+ clusters?; .* of (the )?\d+ rows .*doubtful.*; \w+ latents?, which explains? \d+ %",
    "kernelpca": r"\w+ latents?\.",
    "paired": r"\w+ shared latents?",
}


@pytest.mark.parametrize("name", FITS)
def test_a_screen_of_every_model_begins_in_words_and_says_nothing_twice(name):
    tree, width = fitted(name), 80
    screen = first_screen(tree, details=True, width=width)
    opening, text = screen.opening, str(screen)
    said = FIRST.get(name, r"\w+ (shared )?latents?.*, (which explains?|the first with) \d+ %")
    assert re.match(said, " ".join(opening.split())), opening
    judged = verdict(tree)
    assert f"{judged.word}: {judged.text}" in " ".join(opening.split())
    assert tree.attrs["verdict"] == f"{judged.word}: {judged.text}"
    assert max(map(len, text.splitlines())) <= width + 8  # a single wide column cannot be wrapped
    assert not {"nan", "inf"} & set(re.findall(r"\w+", text.lower()))
    lines = [line for line in text.splitlines() if len(line) > 30]
    assert len(lines) == len(set(lines))
    for row in summary(tree).index:
        variable = str(row).partition("[")[0]
        if any(variable.startswith(known) for known in _MEANINGS):
            assert re.search(
                rf"(?m)^{re.escape(variable)} +[a-z]|of {re.escape(variable)}", screen.details
            ), row
    assert "lp " not in screen.answers and "same_cluster" not in screen.answers


@pytest.fixture(scope="module")
def kernel_draws():
    x = np.random.default_rng(0).normal(size=(20, 3))
    model = zoo.KernelPCA(num_latents=1, kernel="rbf", noise_variance=0.1, latent_variance=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it has not converged
        return inference.fit(
            model, x, method="hmc", num_warmup=20, num_samples=30, num_chains=2, progress=False
        )


def test_draws_of_kernel_latents_have_a_screen_of_their_own_scores(kernel_draws):
    """They have no coefficients to project rows with, as point estimates do."""
    drawn = kernel_draws["posterior"]["latents"].to_numpy().reshape(60, 20)
    drawn = drawn * np.sign(drawn @ drawn[0])[:, None]
    rows = profiles(kernel_draws)["extreme_rows"]
    found = {key[1]: row for key, row in rows["row"].items() if key[2] == 1}
    ends = {int(drawn.mean(0).argmin()), int(drawn.mean(0).argmax())}
    assert set(found.values()) == ends
    assert "on the scale of the kernel's Gram matrix" in rows.attrs["note"]
    assert f"row numbers: {found['low']}," in summary_text(kernel_draws, details=True)


def test_latents_under_a_kernel_explain_the_outputs_alone():
    """Inputs have no cells there: "100 % of the variance of the cells" was said of the outputs."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 3))
    model = zoo.SPPCA(num_latents=1, kernel="rbf", noise_variance_x=0.1)
    tree = inference.fit(model, x, x[:, :2] + rng.normal(size=(20, 2)), max_iterations=20, tolerance=1e-2)
    assert " % of the variance of y" in summary_text(tree)


def test_what_needs_loadings_or_a_density_is_refused_of_kernels(kernel_draws):
    with pytest.raises(ValueError, match="KernelPCA has no density of rows"):
        leave_one_out(kernel_draws)
    with pytest.raises(ValueError, match="components need draws of latents and loadings"):
        components(kernel_draws)


def test_a_command_in_the_advice_is_filled_as_it_is_worded_and_not_broken(monkeypatch):
    """Commands are longer than the calls they stand for, and are copied from the screen."""
    judged = verdict(fitted("mixture"))._replace(
        good=None, advice="fit x.drop(columns=['a', 'b']) and look " * 4
    )
    monkeypatch.setattr("inference.diagnostics.first_screen.verdict", lambda tree: judged)
    command = f"--families {'long-name=leave_out,' * 3}b=leave_out"
    opening = first_screen(
        fitted("mixture"), width=80, worded=lambda text: text.replace("x.drop(columns=['a', 'b'])", command)
    ).opening
    assert " ".join(opening.split()).count(command) == 4
    assert command.split()[1] in opening and max(map(len, opening.splitlines())) <= 80


def test_doubtful_rows_are_those_below_nine_tenths():
    """Counted by hand from the probabilities of the rows: .9 exactly is not doubtful."""
    tree = fitted("mixture")
    soft = tree["variational"]["responsibilities"].copy(deep=True)
    rest = (1.0 - np.array([0.9, 0.899, 0.6])) / (soft.shape[1] - 1)
    soft.values[:] = np.eye(soft.shape[1])[0]
    soft.values[1:4] = rest[:, None]
    soft.values[1:4, 0] = [0.9, 0.899, 0.6]
    soft.values[-20:] = np.eye(soft.shape[1])[1]
    held = tree["variational"].to_dataset().assign(responsibilities=soft)
    planted = replaced(tree, variational=held)
    assert profiles(planted)["clusters"].attrs["doubtful"] == 2
    assert f"Two clusters; 2 of {soft.shape[0]} rows are doubtful" in summary_text(planted)
    held["responsibilities"].values[1:4] = np.eye(soft.shape[1])[0]
    assert "none of the" in summary_text(replaced(tree, variational=held))
    assert memberships(planted).shape == soft.shape


def test_an_interval_holds_its_estimate():
    """The mean of a skewed quantity lies outside of its quantiles."""
    drawn = np.r_[np.full(96, 0.18), np.full(4, 0.0)][:, None]
    found = intervals(drawn, "variational", 0.9)
    assert found["lb"] <= found["mean"] <= found["ub"]
    table = pd.DataFrame({"share": found["mean"], "lb": found["lb"], "ub": found["ub"]})
    assert profile_cells(table)["share"].tolist() == ["17 % (17 to 18 %)"]


def test_a_row_of_two_thousand_has_a_share():
    """One that is not 0.0 % with an interval from 0.1 to 0.1 %, on the other side of a rounding."""
    shares = np.array([0.9994, 5e-4, 5.5e-5])
    table = pd.DataFrame({"share": shares, "lb": shares * (1 - 1e-9), "ub": shares * (1 + 1e-9)})
    assert profile_cells(table)["share"].tolist() == ["100 %", "0.05 %", "<0.01 %"]


@pytest.fixture(scope="module")
def totalled():
    """A positive column and a real one, with their totals as a last row."""
    rng = np.random.default_rng(5)
    group = rng.integers(0, 3, 60)
    revenue = np.exp(rng.normal(np.log([120, 340, 900])[group], 0.15))
    table = pd.DataFrame({"revenue": revenue, "staff": 10.0 * group + rng.normal(size=60)})
    table.loc[60] = table.sum()
    table.loc[3, "revenue"] = np.nan
    families = {"revenue": "lognormal", "staff": "gaussian"}
    model, options = zoo.Mixture(num_components=6), {"num_restarts": 2, "progress": False}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*has not converged")
        return inference.fit(model, table, method="vb", families=families, num_samples=400, **options)


def test_shares_of_rows_and_mixing_proportions_are_told_apart(totalled):
    """The interval of the proportion is that of the weights, which is wider than that of these rows."""
    table, weights = profiles(totalled)["clusters"], totalled["posterior"]["weights"].to_numpy()[0]
    by_size = np.argsort(-totalled["variational"]["responsibilities"].sum("observation").to_numpy())
    for component, (_, row) in zip(by_size, table.iterrows(), strict=False):
        own = weights[:, component]
        assert row["proportion"] == pytest.approx(own.mean())
        assert (row["proportion_lb"], row["proportion_ub"]) == pytest.approx(
            tuple(np.quantile(own, [0.05, 0.95]))
        )
        assert row["proportion_ub"] - row["proportion_lb"] > row["ub"] - row["lb"]
    text = summary_text(totalled)
    assert "share of these rows" in text and "mixing proportion" in text and "usually too narrow" in text


def test_a_total_row_overflows_nothing(totalled):
    """Draws of the cluster of a total are beyond all numbers: medians are averaged by their logarithms."""
    posterior = totalled["posterior"].to_dataset().copy(deep=True)
    posterior["covariances_0"].values[0, ::40, :, 0, 0] = 1e9  # of logarithms: their exponentials overflow
    posterior["locs_0"].values[0, ::40, :, 0] += 1e3
    planted = replaced(totalled, posterior=posterior)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = profiles(planted)
        text = summary_text(planted)
    values = found["cluster_values"].xs("revenue", level="column")
    assert set(values.index.get_level_values("quantity")) == {"median"}
    assert np.isfinite(values[["mean", "lb", "ub", "others"]].to_numpy()).all() and "inf" not in text.split()
    assert np.isfinite(found["filled_cells"]["mean"]).all()
    assert not np.isinf(values["spread"]).any() and values["spread"].isna().any()


def test_a_median_is_that_of_the_rows(totalled):
    """Of the largest cluster, within its interval, which has a share of false alarms of one in ten."""
    tree, soft = totalled, totalled["variational"]["responsibilities"].to_numpy()
    largest = np.flatnonzero(soft.argmax(1) == soft.sum(0).argmax())
    rows = totalled["observed_data"]["x"].to_numpy()[largest, 0]
    found = profiles(tree)["cluster_values"].xs("revenue", level="column").iloc[0]
    assert found["mean"] == pytest.approx(np.exp(np.nanmean(np.log(rows))), rel=0.05)
    spread = np.nanstd(np.log(rows))
    assert found["spread"] == pytest.approx(found["mean"] * np.sinh(spread), rel=0.3)


def test_a_scatter_has_a_mark_where_rows_lie():
    x = np.array([[0.0, 0.0], [10.0, 5.0], [10.0, 5.0], [10.0, 5.0], [np.nan, 3.0]])
    lines = scatter(x, ["0", "1", "1", "?", "2"], ["a", "b"], 40).splitlines()
    assert max(map(len, lines)) <= 40 and lines[0].strip() == "b"
    assert lines[1].startswith("5 |") and lines[1].endswith("1") and lines[12].startswith("0 | 0")
    assert "2" not in "".join(lines) and "?" not in "".join(lines)
    assert lines[-1].split() == ["0", "a", "10"]
    assert len(bar(0.0)) == 0 and len(bar(1e-6)) == 1 and len(bar(0.5)) == 15 and len(bar(1.0)) == 30


def test_a_constant_column_is_drawn():
    assert "0" in scatter(np.array([[1.0, 2.0], [3.0, 2.0]]), ["0", "0"], ["a", "b"], 60)


def test_draws_of_several_numbers_are_told_in_the_sentence():
    with planted_zoo():
        text = summary_text(planted_mixture(), width=500)
        assert (
            re.search(r"clusters? \(in the draws \d to \d, most often \d: \d+ %\)", text)
            or "in the draws" not in text
        )
        alone = first_screen(planted_regression(num_draws=500))
        assert alone.opening.startswith("Good: The chains agree") and alone.answers == ""


def test_options_ask_for_the_table_alone(totalled):
    text = summary_text(totalled, interval="hdi", probability=0.8)
    assert text.lstrip().startswith("mean") and "hdi80_lb" in text and "Next:" not in text


def test_numbers_that_name_rows_are_no_row_numbers():
    """Respondent 1003 is no row 1003: only rows that are counted from 0 are said to be numbers."""
    tree = fitted("ppca")
    named = tree.map_over_datasets(
        lambda group: (
            group.assign_coords(observation=group["observation"] + 1001)
            if "observation" in group.coords
            else group
        )
    )
    assert "low end, row numbers: " in summary_text(tree)
    assert "low end, rows: " in summary_text(named)
