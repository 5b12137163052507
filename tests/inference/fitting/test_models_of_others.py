"""Models that an outside author gets wrong are refused with what to change, before a good verdict on them."""

import re
from contextlib import nullcontext
from dataclasses import Field, dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import sample

import inference
import zoo
from inference.algorithm import Algorithm, Ascent, Outcome, as_one_draw
from inference.calibration import relation_check
from inference.diagnostics import heldout, invariants, profiles, summary, summary_text
from inference.fitting.models_of_others import check_outcome
from inference.report.predictive import _leave_one_out
from tests.support.log_joint import log_joint
from zoo.answers import Answers, TypicalCells
from zoo.coordinates import Unit
from zoo.fields import numbers, positive, size, size_of
from zoo.model import Model, Roles, Table
from zoo.programs import LOG_ROWS, local

PLACE = Unit(1, (-1,), is_location=True)
QUIET = {"progress": False}


def a_kind(name, program, **facts):
    """A model class of rows x, registered by the test that makes it."""
    dims = {"x": ("observation", "feature"), **facts.pop("dims")}
    fields = {"num_features": size_of("x")} | {n: f for n, f in facts.items() if isinstance(f, Field)}
    fields["__annotations__"] = {n: int | None if n.startswith("num_") else Any for n in fields}
    own = {"program": program, "dims": dims, "methods": ("map", "nuts"), "__module__": __name__}
    return dataclass(frozen=True, eq=False)(type(name, (Model,), fields | own | facts))


@pytest.fixture
def registered():
    made = []

    def register(kind, **methods):
        made.append(zoo.register(kind, methods=methods))
        return kind

    yield register
    for kind in made:
        zoo.unregister(kind)


def located(self, x: Any, rows: Any) -> Any:
    """Unit noise about a centre whose prior is a standard normal: both are numbers with the data's unit."""
    loc = sample("loc", dist.Normal(0.0, 1.0).expand([self.num_features]).to_event(1))
    with rows:
        return sample("x", dist.Normal(loc, 1.0).to_event(1), obs=x)


LOC = {"dims": {"loc": ("feature",)}, "units": {"x": PLACE, "loc": PLACE}}
STATED = (Table("x", stated_in="columns"),)
FAR = 1000 + 50 * np.random.default_rng(0).normal(size=(20, 2))


@pytest.mark.parametrize("stated", [True, False])
def test_the_objective_is_the_log_joint_of_the_model_that_is_stored(registered, stated):
    """As passed, the prior of the centre pulls it from 1 000 to 952; in deviations hardly at all."""
    kind = registered(a_kind("Stated", located, data=STATED, **LOC))
    tree = inference.fit(kind(standardize=stated), FAR, method="map", **QUIET)
    loc = tree["posterior"]["loc"].values[0, 0]
    with jax.enable_x64(True):
        joint = float(log_joint(inference.model_of(tree), {"loc": loc}, jnp.asarray(FAR)))
    assert tree["trace"]["objective"].values[-1] == pytest.approx(joint, rel=1e-9)
    pulled = FAR.sum(0) / (len(FAR) + 1)
    assert np.allclose(loc, pulled, rtol=1e-6) is not stated


def test_units_that_the_program_contradicts_are_refused(registered):
    kind = registered(a_kind("Unstated", located, **LOC))
    with pytest.raises(ValueError, match=r"units of Unstated do not hold.*log density of loc.*stated_in"):
        inference.fit(kind(), FAR, method="map", **QUIET)


def test_units_that_hold_are_taken_and_one_wrong_power_among_them_is_not(registered):
    """The numbers of the program are fields with units; planted: the noise counts as a variance."""

    def program(self, x: Any, rows: Any) -> Any:
        loc = sample("loc", dist.Normal(self.centre, self.width).expand([self.num_features]).to_event(1))
        with rows:
            return sample("x", dist.Normal(loc, self.noise).to_event(1), obs=x)

    for power, name in ((1, "Right"), (2, "Wrong")):
        fields = {"centre": numbers(900.0, unit=Unit(1, (), is_location=True))}
        fields |= {"width": positive(80.0, unit=Unit(1)), "noise": positive(50.0, unit=Unit(power))}
        kind = registered(a_kind(name, program, **fields, **LOC))
        if name == "Wrong":
            with pytest.raises(ValueError, match="units of Wrong do not hold.*log density of x is"):
                inference.fit(kind(), FAR, method="map", **QUIET)
        else:
            tree = inference.fit(kind(), FAR, method="map", **QUIET)
            precision = np.array([1 / 80**2, len(FAR) / 50**2])
            expected = np.stack([np.full(2, 900.0), FAR.mean(0)]).T @ precision / precision.sum()
            np.testing.assert_allclose(tree["posterior"]["loc"].values[0, 0], expected, rtol=1e-6)


def test_a_table_that_is_stated_in_columns_needs_units():
    with pytest.raises(ValueError, match=r"Unitless states x in coordinates.*Unitless.units"):
        zoo.register(a_kind("Unitless", located, data=STATED, dims=LOC["dims"]), methods={})


@pytest.mark.parametrize("method", ["map", "nuts", "svi"])
def test_a_program_that_takes_no_missing_cell_names_the_first(registered, method):
    kind = registered(a_kind("Whole", located, dims=LOC["dims"], methods=("map", "nuts", "svi")))
    x = FAR - 1000
    inference.fit(kind(), x, method="map", **QUIET)  # what is found right is not found so for gaps
    x[3, 1] = np.nan
    with pytest.raises(ValueError, match=r"row 3, column 1 of x.*\.mask\(~jnp\.isnan\(x\)\)"):
        inference.fit(kind(), x, method=method, **QUIET)


@pytest.mark.parametrize("form", [np.asarray, pd.DataFrame])
def test_a_new_row_with_a_gap_is_refused_as_a_fitted_one_is(registered, form):
    """Its density was minus infinity without a word."""
    tree = inference.fit(
        registered(a_kind("Whole", located, dims=LOC["dims"]))(), FAR - 1000, **QUIET, method="map"
    )
    new = FAR[:4] - 1000
    assert np.isfinite(inference.log_density(tree, form(new))).all()
    new[2, 1] = np.nan
    with pytest.raises(ValueError, match=r"Whole has no density .* row 2, column 1 of x.*\.mask"):
        inference.log_density(tree, form(new))


def test_a_program_that_leaves_missing_cells_out_is_fitted(registered):
    def program(self, x: Any, rows: Any) -> Any:
        loc = sample("loc", dist.Normal(0.0, 100.0).expand([self.num_features]).to_event(1))
        with rows:
            cells = dist.Normal(loc, 1.0)
            if x is not None:
                cells = cells.expand(x.shape).mask(~jnp.isnan(x))
            return sample("x", cells.to_event(1), obs=x)

    kind = registered(a_kind("Gappy", program, dims=LOC["dims"]))
    x = FAR - 1000
    x[3, 1] = np.nan
    tree = inference.fit(kind(), x, method="map", **QUIET)
    np.testing.assert_allclose(tree["posterior"]["loc"].values[0, 0], np.nanmean(x, axis=0), rtol=0.01)
    assert np.isfinite(inference.log_density(tree, x[3:4]).values).all()
    assert "filled_cells" not in profiles(tree)  # nothing fills them
    summary(tree)


def kept(self, x: Any, rows: Any) -> Any:
    """One latent a row, which is drawn where the rows are given too; the noise is no normal one."""
    w = sample("loadings", dist.Normal(0.0, 1.0).expand([self.num_features, 1]).to_event(2))
    with rows:
        z = local("latents", dist.Normal(0.0, 1.0).expand([1]).to_event(1), sums_out=False)
        return sample("x", dist.StudentT(3.0, z @ w.T, 0.5).to_event(1), obs=x)


class KeptAnswers(Answers):
    """Of latents that are drawn."""

    def sums_out_locals(self, model: Any) -> bool:
        """Whether they are summed out: no."""
        return False


LATENT = {
    "dims": {"loadings": ("feature", "latent"), "latents": ("observation", "latent")},
    "symmetries": ("rotation",),
    "roles": Roles(latent="latents", loadings={"loadings": ""}),
}


def test_latents_that_are_kept_must_be_said_to_be_before_a_run_is_lost(registered):
    x = np.random.default_rng(0).normal(size=(30, 3))
    kind = registered(a_kind("Unsaid", kept, **LATENT))
    with pytest.raises(ValueError, match=r"Unsaid draws latents of every row.*sums_out_locals"):
        inference.fit(kind(), x, method="nuts", **QUIET)
    kind = registered(a_kind("Said", kept, answers=KeptAnswers, **LATENT))
    tree = inference.fit(kind(), x, method="map", **QUIET)
    assert "posterior_predictive" in inference.extend(tree, "posterior_predictive").children


class ScoredAnswers(KeptAnswers):
    """With a density of rows, here of the mean latent alone: what counts is that there is one."""

    def log_rows(self, model: Any, values: Any, *data: Any) -> Any:
        """Log density of each row."""
        return dist.StudentT(3.0, 0.0, 0.5).log_prob(data[0]).sum(-1)


@pytest.mark.parametrize("answers", [KeptAnswers, ScoredAnswers])
@pytest.mark.filterwarnings("ignore")
def test_held_out_rows_are_advised_where_they_can_be_scored(registered, answers):
    """An author was sent to `heldout`, which has no density of a row whose latents are drawn."""
    x = np.random.default_rng(0).normal(size=(30, 3))
    tree = inference.fit(
        registered(a_kind("Told", kept, answers=answers, **LATENT))(), x, method="map", **QUIET
    )
    with pytest.raises(ValueError, match="its answers define none; latents .* are in tree"):
        inference.transform(tree, x)
    (judgement,), _ = _leave_one_out(tree, provisional=False)
    if answers is ScoredAnswers:
        assert judgement.advice.endswith("inference.diagnostics.heldout")
        assert np.isfinite(heldout(tree, x[:5])["mean"])
    else:
        assert judgement.advice.endswith(remedy := f"give its answers {LOG_ROWS}")
        with pytest.raises(ValueError, match=re.escape(remedy)):
            heldout(tree, x[:5])


def test_noise_that_no_variance_tells_is_not_taken_for_none(registered):
    """Half of each column is noise; with it named the shares say so, else they are not of the cells."""

    def summed_out(name):
        def program(self, x: Any, rows: Any) -> Any:
            w = sample("loadings", dist.Normal(0.0, 1.0).expand([self.num_features, 1]).to_event(2))
            covariance = w @ w.T + getattr(self, name) * jnp.eye(self.num_features)
            with rows:
                return sample("x", dist.MultivariateNormal(0.0, covariance), obs=x)

        return program

    rng = np.random.default_rng(1)
    x = rng.normal(size=(300, 1)) * np.ones(3) + rng.normal(size=(300, 3))
    for name, known in (("noise_variance", True), ("spread", False)):
        kind = a_kind(f"Of{known}", summed_out(name), **{name: positive(1.0)}, **LATENT)
        tree = inference.fit(registered(kind)(), x, method="map", **QUIET)
        found, tables = invariants(tree), profiles(tree)
        share = tables["latents"]["share"].iloc[0]
        if known:
            assert share == pytest.approx(0.5, abs=0.1)
            np.testing.assert_allclose(found["marginal_covariance"].values[0, 0], np.cov(x.T), atol=0.4)
        else:
            assert "of natural parameters" in tables["latents"].attrs["note"]
            assert "explained_covariance" in found and "marginal_covariance" not in found


def labelled(name, derives):
    def conditionals(self, model: Any, values: Any, x: Any) -> dict:
        cells = dist.Poisson(values["rate"][:, 0]).log_prob(x[:, :1])
        return {name: dist.Categorical(logits=jnp.log(values["weights"]) + cells)}

    def typical_cells(self, model: Any, values: Any) -> tuple:
        return (TypicalCells("mean", np.arange(1), values["rate"], jnp.sqrt(values["rate"])),)

    def program(self, x: Any, rows: Any) -> Any:
        w = sample("weights", dist.Dirichlet(jnp.ones(2)))
        rate = sample("rate", dist.Gamma(1.0, 0.1).expand([2, 1]).to_event(2))
        with rows:
            c = local(name, dist.Categorical(w))
            if c is not None:
                return sample("x", dist.Poisson(rate[c]).to_event(1), obs=x)
            each = dist.Poisson(rate).to_event(1)
            return sample("x", dist.MixtureSameFamily(dist.Categorical(w), each), obs=x)

    own = {"conditionals": conditionals, "typical_cells": typical_cells}
    own |= {"derived": lambda self, model, values: {name: values[name]}} if derives else {}
    return a_kind(
        f"Counts{name.title()}{derives}",
        program,
        num_components=size(2),
        data=(Table("x", cells=("count",)),),
        dims={
            "weights": ("component",),
            "rate": ("component", "feature"),
            name: ("observation",),
            "responsibilities": ("observation", "component"),
        },
        symmetries=("labels",),
        roles=Roles(cluster=name, weight="weights", scores=("observation", "component")),
        answers=type("Labels", (Answers,), own),
    )


@pytest.mark.parametrize("derives", [True, False])
@pytest.mark.parametrize("name", ["label", "assignments"])
def test_labels_have_the_name_of_their_role_and_need_nothing_derived(registered, name, derives):
    kind = registered(labelled(name, derives))
    x = np.random.default_rng(0).poisson(np.repeat([2.0, 20.0], 40))[:, None]
    tree = inference.fit(kind(), x, method="map", **QUIET)
    assert summary_text(tree).startswith("Two clusters")
    assert tree["posterior"][name].dims == ("chain", "draw", "observation")
    stored = tree["posterior"][name].values[0, 0]
    assert (inference.predict(tree, x).values == stored).all() and len(np.unique(stored)) == 2


class Info(NamedTuple):
    objective: Any


def by_hand(conclude, info=Info):
    def step(key: Any, state: Any, model: Any, x: Any) -> tuple:
        loc = jnp.sum(x, axis=0) / (x.shape[0] + 1)
        return {"loc": loc}, info(-0.5 * jnp.sum((x - state["loc"]) ** 2) - 0.5 * jnp.sum(state["loc"] ** 2))

    def start(key: Any, variables: Any, model: Any, *data: Any) -> dict:
        return {"loc": jnp.asarray(variables["loc"])}

    algorithm = Algorithm(lambda key, model, x: {"loc": x[0]}, step)
    return Ascent(strategies=("random",), build=lambda strategy: algorithm, start=start, conclude=conclude)


def outcome(posterior):
    def conclude(key: Any, state: Any, model: Any, data: Any, num_samples: int, keep_rows: bool) -> Outcome:
        return Outcome(posterior(state), state, is_point=True)

    return conclude


@pytest.mark.parametrize(
    ("posterior", "said"),
    [
        (lambda state: {}, "conclude leaves out 'loc', a site of the program"),
        (
            lambda state: state,
            r"conclude gives 'loc' the shape \(2,\); wanted: chains, draws and then \(2,\)",
        ),
        (lambda state: as_one_draw({"loc": state["loc"][:1]}), r"the shape \(1, 1, 1\); wanted"),
    ],
)
def test_what_a_method_concludes_is_held_against_the_sites_of_the_program(registered, posterior, said):
    kind = a_kind("ByHand", located, dims=LOC["dims"], methods=("em",))
    kind = registered(kind, em=by_hand(outcome(posterior)))
    with pytest.raises(ValueError, match=said):
        inference.fit(kind(), FAR - 1000, **QUIET)


def test_a_step_without_an_objective_is_refused_by_name(registered):
    kind = a_kind("NoObjective", located, dims=LOC["dims"], methods=("em",))
    kind = registered(kind, em=by_hand(outcome(as_one_draw), lambda value: {"gain": value}))
    with pytest.raises(TypeError, match="NamedTuple of what is recorded, with objective"):
        inference.fit(kind(), FAR - 1000, **QUIET)


@pytest.mark.parametrize(
    ("cells", "bad", "said"),
    [
        (("count",), 3.5, "x must hold counts; row 2, column 0 is 3.5"),
        (("count",), -1.0, "x must hold counts; row 2, column 0 is -1"),
        (("positive",), 0.0, "x must hold positive numbers; row 2, column 0 is 0"),
        (("yes/no", "count"), 0.5, "x must hold 0 or 1 or counts; row 2, column 0 is 0.5"),
    ],
)
def test_cells_of_other_kinds_than_a_table_declares_are_refused(registered, cells, bad, said):
    kind = registered(a_kind("Kinds", located, dims=LOC["dims"], data=(Table("x", cells=cells),)))
    x = np.ones((4, 2))
    inference.fit(kind(), x, method="map", **QUIET)
    x[2, 0] = bad
    with pytest.raises(ValueError, match=said):
        inference.fit(kind(), x, method="map", **QUIET)


def test_numbers_by_column_are_stored_with_the_names_of_the_columns(registered):
    kind = registered(a_kind("Scaled", located, data=STATED, **LOC))
    tree = inference.fit(kind(), pd.DataFrame(FAR, columns=["a", "b"]), method="map", **QUIET)
    for name in ("x_scale", "x_origin"):
        assert list(tree["constant_data"][name]["feature"].values) == ["a", "b"]


def test_objectives_with_prior_densities_follow_the_units_of_the_data(monkeypatch):
    """The relation knows the Jacobian of the parameters; planted: one of a nat."""
    x = np.random.default_rng(0).normal(size=(40, 3)) @ np.diag([3.0, 2.0, 1.0])
    model = zoo.PPCA(num_latents=1, loading_prior="ard", noise="diagonal", standardize=True)
    assert relation_check(model, "em", (x,), "rescaled")
    assert relation_check(model, "em", (x,), "other_units")
    monkeypatch.setattr("inference.calibration.relations._log_jacobian_of_sites", lambda tree, change: 1.0)
    assert not relation_check(model, "em", (x,), "rescaled")


@pytest.mark.parametrize("num_draws", [1, 100_000])
def test_latents_of_rows_may_be_left_out_where_their_draws_are_too_many(registered, num_draws):
    kind = a_kind("Large", kept, answers=KeptAnswers, methods=("em",), **LATENT)
    registered(kind, em=by_hand(outcome(as_one_draw)))
    x = np.zeros((1000, 3))
    found = Outcome({"loadings": np.zeros((1, num_draws, 3, 1))}, {}, is_point=True)
    call = SimpleNamespace(model=kind.from_data(x), data=(x,), name="em", stream=None, keep=())
    told = nullcontext() if num_draws > 1 else pytest.raises(ValueError, match="leaves out 'latents'")
    with told:
        check_outcome(call, SimpleNamespace(outcome=found))
