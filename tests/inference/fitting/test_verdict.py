"""Whether a fit has converged, from what its run recorded: nothing is fitted here."""

import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import zoo
from inference import fit
from inference.convergence.r_hat import Agreement
from inference.fitting import verdict
from inference.fitting.verdict import convergence_judgements, has_converged
from inference.methods import method_of
from inference.results.accessor import Fit
from tests.support.planted import planted_regression, planted_zoo, replaced
from zoo import conjugate
from zoo.conjugate.resolution import recorded_step
from zoo.intake import Column, Columns


@pytest.mark.parametrize(
    ("chain", "sweep", "believed"), [(0, 0, True), (1, 2, True), (0, 3, False), (1, 6, False)]
)
def test_a_state_of_probability_zero_is_no_fault_in_warm_up_alone(chain, sweep, believed, monkeypatch):
    """Two chains, three sweeps of warm-up and four draws, of which one sweep has no finite log joint."""
    right = Agreement(True, "", 1.0)
    monkeypatch.setattr(verdict, "judgement", lambda tree: right)
    objective = np.zeros((2, 7))
    objective[chain, sweep] = -np.inf
    request = SimpleNamespace(
        method=method_of(zoo.PPCA(num_latents=1), "nuts"), settings=SimpleNamespace(num_warmup=3)
    )
    run = SimpleNamespace(stop_reason="completed", trace={"objective": objective})
    converged, reasons = has_converged(request, run, xr.DataTree())
    assert converged is believed
    assert believed or "not finite at 1 of 8 kept sweeps" in reasons


def _with_clusters(number, *, heaped=False, kind="NormalGamma"):
    """A fit of two columns that rise together, with so many clusters."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 1)) + 0.3 * rng.normal(size=(300, 2)) + 5
    x[: 60 if heaped else 0, 0] = 0.0
    components = getattr(conjugate, kind).from_data(x)
    model = zoo.Mixture(components, number)
    posterior = xr.Dataset({"num_occupied": (("chain", "draw"), np.full((1, 10), number))})
    rows = xr.Dataset({"x": (("observation", "feature"), x)}, coords={"feature": ["age", "pay"]})
    return model, xr.DataTree.from_dict({"posterior": posterior, "observed_data": rows})


@pytest.mark.parametrize(
    ("number", "options", "said"),
    [
        (8, {}, "age with pay (0.9"),
        (7, {}, None),  # few enough to look at
        (8, {"kind": "GaussianWishart"}, None),  # a component has their correlation
        (8, {"kind": "GaussianWishart", "heaped": True}, "age is 0 in 20% of the rows"),
    ],
)
def test_many_clusters_may_be_pieces_of_fewer(number, options, said, monkeypatch):
    model, tree = _with_clusters(number, **options)
    monkeypatch.setattr(verdict, "model_of", lambda tree: model)
    monkeypatch.setattr(Fit, "columns", (None,))
    found = verdict._of_pieces(tree)
    assert (found is None) == (said is None)
    if said is not None:
        assert found.good is None and found.text.startswith("8 clusters may be pieces of fewer (")
        assert said in found.text and "act on no single cluster" in found.advice


def test_documents_have_no_columns_that_make_pieces(monkeypatch):
    """Their counts are stored as the nonzeros alone; a mixture of documents once ended in a KeyError."""
    model = zoo.Mixture(conjugate.MultinomialDirichlet.from_data(np.eye(4)), 8)
    _, tree = _with_clusters(8)
    tree["observed_data"] = xr.Dataset({"count": ("nonzero", np.ones(4))})
    monkeypatch.setattr(verdict, "model_of", lambda tree: model)
    monkeypatch.setattr(Fit, "columns", (None,))
    assert verdict._of_pieces(tree) is None


def test_rows_that_were_measured_again_and_again_make_pieces(monkeypatch):
    model, tree = _with_clusters(8, kind="GaussianWishart")
    monkeypatch.setattr(verdict, "model_of", lambda tree: model)
    columns = [Column("town", "text", ""), Column("age", "real", ""), Column("pay", "real", "")]
    for repeats in (0.0, 12.0):
        columns[0] = Column("town", "text", "", repeats=repeats)
        monkeypatch.setattr(Fit, "columns", (Columns(tuple(columns)),))
        found = verdict._of_pieces(tree)
        assert (found is None) == (repeats == 0.0)
    assert found.text == "8 clusters may be pieces of fewer (12 rows of each town, which are alike)"
    assert found.advice.startswith("act on no single cluster; fit a table with one row of each town")
    model, tree = _with_clusters(8)
    found = verdict._of_pieces(tree)
    assert "age with pay" in found.text and "12 rows of each town" in found.text


def _labelled(*, heaped, share=1.0, kind="GaussianWishart", columns=("acid", "oil"), missing=False, parted=0):
    """A fit by sampling whose third cluster holds the 20 rows that are 0 in a column of whole numbers.

    Of these ``parted`` are a cluster of their own.
    """
    rng = np.random.default_rng(0)
    x = np.round(rng.normal(size=(200, 2)) * 4 + 30)
    x[:20, 0] = 0.0 if heaped else x[:20, 0]
    labels = np.tile(np.where(np.arange(200) < 20, 2, np.arange(200) % 2), (2, 10, 1))
    labels[:, int(10 * share) :, :10] = 0  # in the other draws half of these rows are elsewhere
    labels[:, int(10 * share) :, 100] = 2
    labels[:, : int(10 * share), :parted] = 3
    model = zoo.Mixture(getattr(conjugate, kind).from_data(x), 5)
    posterior = xr.Dataset({"assignments": (("chain", "draw", "observation"), labels)})
    x[-1, 1] = np.nan if missing else x[-1, 1]
    rows = xr.Dataset({"x": (("observation", "feature"), x)}, coords={"feature": list(columns)})
    return model, xr.DataTree.from_dict({"posterior": posterior, "observed_data": rows})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"heaped": True}, "acid is 0 in all 20 rows"),
        ({"heaped": True, "kind": "NormalGamma"}, "acid is 0 in all 20 rows"),
        ({"heaped": True, "columns": (0, 1)}, "0 is 0 in all 20 rows"),  # columns without names
        ({"heaped": True, "share": 0.4}, None),  # a cluster of some draws
        ({"heaped": True, "parted": 6}, "acid is 0 in all 20 rows of 2 clusters"),
        ({"heaped": True, "parted": 6, "share": 0.4}, None),  # two clusters of some draws
        ({"heaped": False}, None),  # whole numbers are no spike
        ({"heaped": True, "kind": "PoissonGamma"}, None),  # counts are equal, and rightly so
    ],
)
def test_a_component_on_one_number_is_named_with_the_step(options, said, monkeypatch):
    columns = options.get("columns", ("acid", "oil"))
    model, tree = _labelled(**options)
    monkeypatch.setattr(verdict, "model_of", lambda tree: model)
    monkeypatch.setattr("inference.results.groups.model_of", lambda tree: model)
    found = verdict._of_spikes(tree)
    assert (found is None) == (said is None)
    if said is not None:
        assert found.text == f"Components sit on single numbers: {said}"
        assert (
            found.reason.startswith(f"some columns are recorded coarsely ({columns[0]} in steps of 1); ")
            and f"[{columns[0]!r}]" in found.advice
        )
        assert "say so, rounding=[1, 0]" in found.advice


@pytest.mark.parametrize("at", [-99.0, 31.0])  # 31 is among the other numbers
def test_a_number_far_from_all_others_may_be_a_missing_cell(at, monkeypatch):
    model, tree = _labelled(heaped=True)
    x = tree["observed_data"].x
    tree["observed_data"]["x"] = x.where(x != 0.0, at)
    monkeypatch.setattr(verdict, "model_of", lambda tree: model)
    monkeypatch.setattr("inference.results.groups.model_of", lambda tree: model)
    advice = verdict._of_spikes(tree).advice
    assert ("missing cells" in advice) == (at == -99.0)
    if at == -99.0:
        table = pd.DataFrame(tree["observed_data"].x.values, columns=["acid", "oil"])
        emptied = eval(re.search(r"x\.replace\(.*?\)", advice)[0], {"x": table, "np": np})
        assert emptied["acid"].isna().sum() == 20 and not emptied["oil"].isna().any()


def test_steps_of_columns_with_missing_cells_are_for_families_that_take_them(monkeypatch):
    found = {}
    for kind in ("GaussianWishart", "NormalGamma"):
        model, tree = _labelled(heaped=True, kind=kind, missing=True)
        monkeypatch.setattr(verdict, "model_of", lambda tree, model=model: model)
        monkeypatch.setattr("inference.results.groups.model_of", lambda tree, model=model: model)
        found[kind] = verdict._of_spikes(tree)
    assert "rounding" not in found["GaussianWishart"].advice  # which takes it of complete rows
    assert "rounding=[1, 0]" in found["NormalGamma"].advice


def test_steps_that_are_known_are_no_spike(monkeypatch):
    model, tree = _labelled(heaped=True)
    model = model.replaced(components=model.components.replaced(rounding=np.array([1.0, 0.0])))
    monkeypatch.setattr(verdict, "model_of", lambda tree: model)
    monkeypatch.setattr("inference.results.groups.model_of", lambda tree: model)
    assert verdict._of_spikes(tree) is None


@pytest.mark.parametrize(
    ("cells", "step"),
    [
        ([3.0, 5.0, 3.0, 5.0, 9.0, 9.0], 2.0),
        ([0.1, 0.4, 0.1, 0.4, 0.6, 0.6, np.nan], 0.1),
        ([1e6 + 0.25, 1e6, 1e6, 1e6 + 0.25, 1e6 + 1.0, 1e6 + 1.0], 0.25),
        ([4.0, 10.0, 4.0, 10.0, 19.0, 19.0], 3.0),  # 6 and 9: no difference is the step itself
        ([0.1, 0.4, 0.6], 0.0),  # no cell twice
        ([2.0, 2.0], 0.0),
    ],
)
def test_the_step_divides_all_differences(cells, step):
    assert recorded_step(np.array(cells)) == step


def test_numbers_that_share_no_step_have_none():
    cells = np.random.default_rng(0).normal(size=40)
    assert recorded_step(np.repeat(cells, 3)) == 0.0


@pytest.mark.parametrize(
    ("divided", "weight", "said"), [(19, None, None), (22, None, "11%"), (22, 0.5, None)]
)
def test_rows_that_may_be_of_another_cluster_are_cautioned_of(divided, weight, said):
    """Of a hundred rows so many are of either of two clusters; those of half the weight count half."""
    soft = np.tile([1.0, 0.0], (100, 1))
    soft[:divided] = 0.5
    held = xr.Dataset({"responsibilities": (("observation", "component"), soft)})
    rows = np.where(np.arange(100) < divided, 1.0 if weight is None else weight, 1.0)
    constants = xr.Dataset({} if weight is None else {"sample_weight": ("observation", rows)})
    draws = xr.Dataset({"weights": (("chain", "draw", "component"), [[[0.5, 0.5]] * 2])})
    tree = xr.DataTree.from_dict({"posterior": draws, "variational": held, "constant_data": constants})
    tree.attrs |= {"model": "mixture", "model_fields": "{}"}
    found = verdict._of_doubtful(tree)
    assert (found is None) == (said is None)
    if said:
        assert found.good is None and f"about {said} of the rows" in found.text
        assert found.reason.endswith("q is surer of them than the posterior, so that more may be")


def test_one_column_of_each_pair_and_those_with_one_number_are_to_be_left_out():
    x = pd.DataFrame(columns=["a", "b", "c", "d", "e", "f"])
    pairs = [np.array([0, 1]), np.array([1, 2]), np.array([4, 5])]
    advice = verdict._to_leave_out(x, ["f"], pairs)
    assert "x.drop(columns=['f', 'b'])" in advice  # e with f is settled by f, and both others by b
    assert advice.endswith(f"clusters remain; {verdict._DIRECTIONS}")
    few = verdict._to_leave_out(x.iloc[:, :2], [], pairs[:1])
    assert few == f"act on no single cluster; {verdict._DIRECTIONS}"  # one column would be left
    assert "epca" not in verdict._to_leave_out(x, ["f"], [])  # a number in many rows is no trend


def test_a_caution_on_starts_comes_after_others():
    """Its advice, more starts, does not make the clusters fewer."""
    starts, pieces = (verdict.Judgement(None, text, "r", "n") for text in ("Starts differ", "Pieces"))
    assert verdict.gravest([starts, pieces]) == pieces._replace(reason="r; also: starts differ")


def test_codes_of_categories_have_no_rank(monkeypatch):
    model, tree = _with_clusters(8)
    monkeypatch.setattr(verdict, "model_of", lambda tree: model)
    read = Columns((Column("age", "category", "", levels=("b", "a")), Column("pay", "real", "")))
    monkeypatch.setattr(Fit, "columns", (read,))
    assert verdict._of_pieces(tree) is None


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (np.repeat(np.arange(20), 3), "60 rows go by 20 names"),
        (np.append(np.arange(58), [3, 7]), None),  # two people of one name each
        (np.repeat(["a", "b", "c"], 20), None),  # groups, not things
        (np.tile(np.arange(30), 2), None),  # two tables put together, each numbered by pandas
        (np.tile(np.arange(1, 31), 2), "60 rows go by 30 names"),
        (None, None),
    ],
)
def test_rows_that_are_named_alike_are_no_evidence_of_their_own(names, told):
    rows = xr.Dataset({"x": (("observation", "feature"), np.zeros((60, 2)))})
    rows = rows if names is None else rows.assign_coords(observation=names)
    model = zoo.Mixture(num_components=2)
    tree = xr.DataTree.from_dict({"observed_data": rows})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verdict, "model_of", lambda tree: model)
        found = verdict._of_repeats(tree)
    assert (found is None) if told is None else told in found.text


@pytest.mark.parametrize(
    ("model", "scale"),
    [
        (zoo.EPCA(num_latents=1, family="bernoulli", ard=True), "loading_precision"),
        (zoo.EPCA(num_latents=1, family="bernoulli"), None),  # the scales are given
        (zoo.MCFA(num_components=1, num_latents=1), None),  # the latents are summed out
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_scales_that_map_maximises_along_with_latents_of_rows_are_doubted(model, scale):
    """Rule 12: the joint mode of a scale is not near its posterior."""
    x = (np.random.default_rng(0).normal(size=(30, 3)) > 0).astype(float)
    tree = fit(model, x, method="map", max_iterations=5, progress=False)
    told = [one for one in convergence_judgements(tree) if "mode over latents of every row" in one.text]
    assert [one.good for one in told] == [None] * bool(scale)
    assert all(one.text.endswith(f"do not use it for {scale}") and "gibbs" in one.advice for one in told)


def _autoregressive(shift, num_draws, correlation):
    """A fit of 20 quantities, four stationary chains of each; of the first, one chain is so far off."""
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(4, num_draws + 50, 20))
    for step in range(1, num_draws + 50):
        noise = np.sqrt(1 - correlation**2) * draws[:, step]
        draws[:, step] = correlation * draws[:, step - 1] + noise
    draws[0, :, 0] += shift
    posterior = xr.Dataset({"slope": (("chain", "draw", "feature"), draws[:, 50:])})
    return replaced(planted_regression(num_draws=num_draws), posterior=posterior)


@pytest.mark.parametrize(
    ("shift", "num_draws", "correlation", "word"),
    [
        (0.0, 500, 0.5, "Caution"),
        (0.6, 2000, 0.3, "Problem"),  # by 84 effective draws, with R-hat 1.040
        (0.7, 2000, 0.3, "Problem"),
        (0.0, 1000, 0.0, "Good"),
    ],
)
def test_right_chains_that_miss_a_bound_by_noise_are_a_caution(shift, num_draws, correlation, word):
    """Of right chains with 530 effective draws the largest of 800 R-hats was 1.018, and the bound is 1.05."""
    with planted_zoo():
        found = convergence_judgements(_autoregressive(shift, num_draws, correlation))[0]
    assert found.word == word, found
