"""Three models defined here and registered: everything works on them without a change anywhere else.

A mixture of unigrams, where each document has one topic::

    pi ~ Dirichlet(a, ..., a)
    beta_k ~ Dirichlet(e, ..., e), k = 1..K
    z_d ~ Categorical(pi), x_d ~ Multinomial(N_d, beta_{z_d})

a probabilistic PCA of centred data whose loadings have a ridge, with a given noise variance, and Student-t
rows about a common centre, of which nothing is written but the program and four facts.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import Array
from numpyro import handlers, sample
from scipy.sparse import csr_matrix
from scipy.special import gammaln, logsumexp
from scipy.stats import t

import inference
import zoo
from inference.algorithm import Algorithm, Ascent, Outcome
from inference.cli import main
from inference.diagnostics import compare, heldout, occupied, point_partition, summary
from inference.methods import nuts_hmc
from inference.plots import (
    plot_biplot,
    plot_loadings,
    plot_model_graph,
    plot_objective,
    plot_psrf_path,
    plot_topics,
)
from inference.report import report
from inference.topics import token_shares, top_words, topic_shares
from tests.support.fit_requests import request_of
from tests.support.log_joint import log_joint
from zoo.answers import Answers
from zoo.coordinates import Unit
from zoo.documents.answers import TopicAnswers
from zoo.documents.bags import ClusteredBags
from zoo.documents.topic_model import LENGTHS, TopicModel
from zoo.fields import continuing, positive, size, size_of, static
from zoo.linear_gaussian.rows import linear_gaussian, standard_normal
from zoo.model import Model, Roles, Table, in_current_precision
from zoo.programs import local
from zoo.sparse import SparseCounts

PLACE = Unit(1, (-1,), is_location=True)
pytestmark = pytest.mark.filterwarnings("ignore:.* by nuts has not converged")  # chains are short
SMALL = {"num_chains": 2, "num_warmup": 150, "num_samples": 60, "progress": False}


class UnigramsAnswers(TopicAnswers):
    """The topic of a document given its words."""

    def conditionals(self, model: Any, values: Mapping[str, Array], counts: Any) -> dict:
        words = values["topic_word_probs"], counts.shape[0]
        bags = ClusteredBags(jnp.log(values["topic_weights"]), jnp.eye(model.num_topics), *words)
        return {"doc_topics": dist.Categorical(logits=bags.by_cluster(counts))}

    def scores(self, model: Any, values: Mapping[str, Array], counts: Any, *, kind: str = "latent") -> Array:
        return self.conditionals(model, values, counts)["doc_topics"].probs

    def derived(self, model: Any, values: Mapping[str, Array]) -> dict[str, Array]:
        counts = jnp.bincount(values["doc_topics"], length=model.num_topics)
        return {"doc_topics": values["doc_topics"], "num_occupied": jnp.sum(counts > 0)}


@dataclass(frozen=True, eq=False)
class Unigrams(TopicModel):
    """Mixture of unigrams: one topic a document.

    Attributes:
        num_topics: K.
        topic_prior: a.
        word_smoothing: e.
        num_words: W; read off the data.
        num_tokens: length of each document; read off the data.
    """

    num_topics: int = size(2)
    topic_prior: Array = positive(1.5)
    word_smoothing: Array = positive(1.1)
    num_words: int | None = size_of("counts", 2)
    num_tokens: int | tuple[int, ...] | None = static(None, **LENGTHS)

    dims = {
        "topic_weights": ("topic",),
        "topic_word_probs": ("topic", "word"),
        "doc_topics": ("document",),
        "responsibilities": ("document", "topic"),
        "num_occupied": (),
        "counts": ("document", "word"),
    }
    symmetries = ("labels",)
    methods = ("em", "nuts")
    roles = TopicModel.roles._replace(cluster="doc_topics", weight="topic_weights")
    answers = UnigramsAnswers

    def program(self, counts: Any, rows: numpyro.plate) -> Array:
        weights = sample("topic_weights", self.weight_prior)
        with numpyro.plate("topics", self.num_topics):
            topics = sample("topic_word_probs", self.word_prior)
        with rows:
            topic = local("doc_topics", dist.Categorical(weights))
            words = ClusteredBags(
                jnp.log(weights), jnp.eye(self.num_topics), topics, rows.size, self.num_tokens
            )
            return sample("counts", words.of(topic), obs=counts)

    @property
    def weight_prior(self) -> dist.Distribution:
        return dist.Dirichlet(jnp.full(self.num_topics, self.topic_prior))

    @property
    def word_prior(self) -> dist.Distribution:
        return dist.Dirichlet(jnp.full(self.num_words, self.word_smoothing))


class RidgeAnswers(Answers):
    """The latents of a row given its cells."""

    def conditionals(self, model: Any, values: Mapping[str, Array], x: Array) -> dict[str, dist.Distribution]:
        precision = precision_of(model, values["loadings"])
        return {"latents": dist.MultivariateNormal(self.scores(model, values, x), precision_matrix=precision)}

    def scores(self, model: Any, values: Mapping[str, Array], x: Array, *, kind: str = "latent") -> Array:
        w = values["loadings"]
        return jnp.linalg.solve(precision_of(model, w), (x @ w).T / model.noise).T

    def scores_covariance(self, model: Any, values: Mapping[str, Array], x: Array) -> Array:
        inverse = jnp.linalg.inv(precision_of(model, values["loadings"]))
        return jnp.broadcast_to(inverse, (x.shape[0], *inverse.shape))

    def derived(self, model: Any, values: Mapping[str, Array]) -> dict[str, Array]:
        return {"latents": values["latents"]}


def precision_of(model: Any, w: Array) -> Array:
    """The precision of the latents of a row given its cells."""
    return w.T @ w / model.noise + jnp.eye(model.num_latents)


@dataclass(frozen=True, eq=False)
class RidgePCA(Model):
    """Probabilistic PCA of centred data with a ridge on the loadings.

    Attributes:
        num_latents: K.
        ridge: prior precision of each loading.
        noise: variance of each cell given the latents.
        num_features: D; read off the data.
    """

    num_latents: int = size(2)
    ridge: Array = positive(0.1)
    noise: Array = positive(0.1)
    num_features: int | None = size_of("x")

    dims = {
        "loadings": ("feature", "latent"),
        "latents": ("observation", "latent"),
        "x": ("observation", "feature"),
    }
    symmetries = ("rotation",)
    methods = ("em", "nuts")
    roles = Roles(latent="latents", loadings={"loadings": ""})
    answers = RidgeAnswers

    def program(self, x: Any, rows: numpyro.plate) -> Array:
        w = sample("loadings", self.loading_prior)
        with rows:
            z = local("latents", standard_normal(self.num_latents))
            return sample("x", linear_gaussian(w, jnp.zeros(self.num_features), self.noise, z), obs=x)

    @property
    def loading_prior(self) -> dist.Distribution:
        shape = self.num_features, self.num_latents
        return dist.Normal(0.0, 1.0 / jnp.sqrt(self.ridge)).expand(shape).to_event(2)


@dataclass(frozen=True, eq=False)
class RobustLocation(Model):
    """Student-t rows about a common centre.

    Attributes:
        degrees: of freedom.
        num_features: D; read off the data.
    """

    degrees: Array = positive(4.0)
    num_features: int | None = size_of("x")

    data = (Table("x", cells=("real",), stated_in="columns"),)
    dims = {"loc": ("feature",), "scale": ("feature",), "x": ("observation", "feature")}
    units = {"x": PLACE, "loc": PLACE, "scale": Unit(1, (-1,))}
    methods = ("nuts", "hmc", "svi", "map")

    def program(self, x: Any, rows: numpyro.plate) -> Array:
        loc = sample("loc", dist.Normal(0.0, 10.0).expand([self.num_features]).to_event(1))
        scale = sample("scale", dist.HalfNormal(1.0).expand([self.num_features]).to_event(1))
        with rows:
            return sample("x", dist.StudentT(self.degrees, loc, scale).to_event(1), obs=x)


class Info(NamedTuple):
    """Log posterior density before the step, in nats."""

    objective: Array


def em(init: Any, step: Any, conclude: Any) -> Ascent:
    """The declaration of an EM algorithm without options."""

    algorithm = Algorithm(init, step)
    return Ascent(
        strategies=("random",), build=lambda strategy: algorithm, start=_from_variables, conclude=conclude
    )


def _from_variables(key: Array, variables: Mapping[str, Array], model: Model, *data: Any) -> dict:
    sites = ("topic_weights", "topic_word_probs") if model.data[0].holds_documents else ("loadings",)
    return {site: jnp.asarray(variables[site]) for site in sites}


def _concluded(values: dict[str, Array], local: dict[str, Array]) -> Outcome:
    return Outcome({name: v[None, None] for name, v in values.items()}, values | local, is_point=True)


def start_unigrams(key: Array, model: Unigrams, counts: SparseCounts) -> dict:
    topics = jax.random.dirichlet(key, jnp.ones(counts.shape[1]), (model.num_topics,))
    return {"topic_weights": jnp.full(model.num_topics, 1.0 / model.num_topics), "topic_word_probs": topics}


def step_unigrams(key: Array, state: dict, model: Unigrams, counts: SparseCounts) -> tuple[dict, Info]:
    prior = in_current_precision(model)
    objective = jnp.sum(model.log_likelihood(state, counts)) + prior.weight_prior.log_prob(
        state["topic_weights"]
    )
    objective += jnp.sum(prior.word_prior.log_prob(state["topic_word_probs"]))
    r = model.scores(state, counts)
    tokens = jnp.zeros((counts.shape[1], model.num_topics), r.dtype)
    tokens = tokens.at[counts.word].add(counts.count[:, None] * r[counts.document]).T
    weights, topics = jnp.sum(r, axis=0) + prior.topic_prior - 1, tokens + prior.word_smoothing - 1
    new = {"topic_weights": weights, "topic_word_probs": topics}
    return {name: v / jnp.sum(v, axis=-1, keepdims=True) for name, v in new.items()}, Info(objective)


def conclude_unigrams(
    key: Array, state: dict, model: Unigrams, data: tuple, num_samples: int, keep_rows: bool
) -> Outcome:
    return _concluded(state, {"responsibilities": model.scores(state, *data)} if keep_rows else {})


def start_ridge(key: Array, model: RidgePCA, x: Array) -> dict:
    return {"loadings": jax.random.normal(key, (x.shape[1], model.num_latents), x.dtype)}


def step_ridge(key: Array, state: dict, model: RidgePCA, x: Array) -> tuple[dict, Info]:
    prior, z = in_current_precision(model), model.scores(state, x)
    objective = jnp.sum(model.log_likelihood(state, x))
    objective += prior.loading_prior.log_prob(state["loadings"])
    second = z.T @ z + x.shape[0] * jnp.linalg.inv(precision_of(prior, state["loadings"]))
    second += prior.noise * prior.ridge * jnp.eye(model.num_latents)
    return {"loadings": jnp.linalg.solve(second, z.T @ x).T}, Info(objective)


def conclude_ridge(
    key: Array, state: dict, model: RidgePCA, data: tuple, num_samples: int, keep_rows: bool
) -> Outcome:
    return _concluded(state, {"latents": model.scores(state, *data)} if keep_rows else {})


METHODS = {
    Unigrams: {"em": em(start_unigrams, step_unigrams, conclude_unigrams)},
    RidgePCA: {"em": em(start_ridge, step_ridge, conclude_ridge)},
    RobustLocation: {},
}


@pytest.fixture(scope="module", autouse=True)
def registered():
    for model, methods in METHODS.items():
        assert zoo.register(model, methods=methods) is model
    yield
    for model in METHODS:
        zoo.unregister(model)


@pytest.fixture(scope="module")
def documents():
    """Thirty documents of two kinds, ten of which are held out, and their kinds."""
    rng = np.random.default_rng(0)
    topics = np.array([[0.4, 0.3, 0.2, 0.05, 0.05], [0.05, 0.05, 0.2, 0.3, 0.4]])
    kinds = rng.integers(2, size=30)
    return csr_matrix(np.stack([rng.multinomial(25, topics[kind]) for kind in kinds])), kinds


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(40, 2)) @ (2 * rng.normal(size=(2, 4))) + 0.3 * rng.normal(size=(40, 4))
    return x - x.mean(0)


@pytest.fixture(scope="module")
def by_em(documents, rows):
    return {
        "unigrams": inference.fit(Unigrams(), documents[0][:20], progress=False, num_restarts=3),
        "ridgepca": inference.fit(RidgePCA(), rows[:30], progress=False, max_iterations=3000),
    }


@pytest.fixture(scope="module")
def by_nuts(documents, rows):
    return {
        "unigrams": inference.fit(Unigrams(), documents[0][:20], method="nuts", **SMALL),
        "ridgepca": inference.fit(RidgePCA(), rows[:30], method="nuts", **SMALL),
    }


@pytest.mark.slow
def test_the_method_registered_fits(by_em, documents, rows):
    tree, kinds = by_em["unigrams"], documents[1][:20]
    assert tree.attrs["model"] == "unigrams" and tree.attrs["method"] == "em" and tree.attrs["converged"] == 1
    found = tree["variational"]["responsibilities"].values.argmax(1)
    assert (found == kinds).all() or (found == 1 - kinds).all()
    tree = by_em["ridgepca"]
    assert tree.attrs["converged"] == 1
    w, model = tree["variational"]["loadings"].values, inference.model_of(tree)
    values, vectors = np.linalg.eigh(rows[:30].T @ rows[:30] / 30)
    directions = vectors[:, -2:] @ vectors[:, -2:].T
    np.testing.assert_allclose(directions @ w, w, atol=1e-3)  # a ridge shrinks and does not turn
    assert np.trace(w @ w.T) < (values[-2:] - float(model.noise)).sum()


@pytest.fixture(params=["by_em", pytest.param("by_nuts", marks=pytest.mark.slow)])
def trees(request):
    """Both models by the method that is registered, and by NUTS."""
    return request.getfixturevalue(request.param)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*has not converged")
def test_summary_report_and_plots(trees, documents, tmp_path):
    kinds = documents[1][:20]
    for name, tree in trees.items():
        assert len(summary(tree)) and plot_objective(tree).axes and plot_model_graph(tree).axes
        path = report(tree, tmp_path / f"{name}.html")
        said = path.read_text(encoding="utf-8")
        assert zoo.MODELS[name]["title"] in said and "Convergence" in said and "Results" in said
    tree = trees["unigrams"]
    assert occupied(tree).attrs["mode"] == 2
    partition = point_partition(tree).values
    assert (partition == kinds).all() or (partition == 1 - kinds).all()
    assert plot_topics(tree).axes
    assert set(top_words(tree, 2).loc[0]) in ({0, 1}, {3, 4})
    np.testing.assert_allclose(topic_shares(tree).sum(axis=1), 1.0)
    tokens = token_shares(tree)
    np.testing.assert_allclose(tokens.sum(axis=1), 1.0)
    assert (tokens.max(axis=1) > 0.95).mean() > 0.9
    assert plot_loadings(trees["ridgepca"]).axes and plot_biplot(trees["ridgepca"]).axes


@pytest.mark.slow
def test_chains_are_judged_by_invariants(by_nuts):
    assert all(plot_psrf_path(tree).axes for tree in by_nuts.values())
    invariants = {name.partition("[")[0] for name in summary(by_nuts["unigrams"]).index}
    assert {"num_occupied", "word_probs", "same_cluster", "lp"} <= invariants
    assert "singular_values[1]" in summary(by_nuts["ridgepca"]).index


@pytest.mark.slow
def test_new_rows(trees, documents, rows):
    shares = inference.transform(trees["unigrams"], documents[0][20:])
    assert shares.dims == ("document", "topic")
    found = shares.values.argmax(1)
    assert (found == documents[1][20:]).all() or (found == 1 - documents[1][20:]).all()
    for protocol in ("likelihood", "completion"):
        score = heldout(trees["unigrams"], documents[0][20:], protocol=protocol)
        assert -np.log(5) < float(score["mean"]) < -1.0
    with pytest.raises(ValueError, match="has no bound: score it by 'likelihood' or 'completion'"):
        heldout(trees["unigrams"], documents[0][20:], protocol="bound")
    assert inference.transform(trees["ridgepca"], rows[30:]).shape == (10, 2)
    assert inference.log_density(trees["ridgepca"], rows[30:]).shape == (10,)
    assert float(heldout(trees["ridgepca"], rows[30:])["mean"]) > -8


def test_the_density_of_new_documents_is_the_one_by_hand(by_em, documents):
    stored = by_em["unigrams"]["variational"]
    weights, topics = stored["topic_weights"].values, stored["topic_word_probs"].values
    counts = documents[0][20:].toarray()
    coefficients = gammaln(counts.sum(1) + 1) - gammaln(counts + 1).sum(1)
    by_hand = logsumexp(counts @ np.log(topics).T + np.log(weights), axis=1) + coefficients
    scores = inference.log_density(by_em["unigrams"], documents[0][20:])
    np.testing.assert_allclose(scores.values, by_hand, rtol=1e-10)


def test_a_program_and_four_facts_are_a_model(rows, tmp_path):
    x = rows + 3.0
    model = RobustLocation.from_data(x)
    drawn = handlers.seed(model, 0)(num_observations=5)
    assert model.num_features == 4 and drawn.shape == (5, 4)
    with pytest.raises(ValueError, match="degrees must be a positive number; got -1.0"):
        RobustLocation(degrees=-1.0)
    tree = inference.fit(RobustLocation(), x[:30], method="map", progress=False, seed=1)
    loc, scale = (tree["posterior"][name].values[0, 0] for name in ("loc", "scale"))
    np.testing.assert_allclose(loc, np.median(x[:30], axis=0), atol=0.6)
    by_hand = t.logpdf(x[30:], 4.0, loc, scale).sum(axis=1)
    np.testing.assert_allclose(inference.log_density(tree, x[30:]).values, by_hand, rtol=1e-6)
    inference.save(tree, tmp_path / "fit.nc")
    back = inference.load(tmp_path / "fit.nc")
    assert type(inference.model_of(back)) is RobustLocation and len(summary(back))
    drawn = inference.extend(back, "prior", num_samples=3, seed=0)["prior"]["loc"]
    assert drawn.dims[-1] == "feature"
    path = report(back, tmp_path / "page.html")
    assert "Student-t rows about a common centre" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("stated", ["columns", "common"])
def test_a_table_says_in_which_coordinates_its_program_is(rows, stated):
    """Log joint and draws follow the data's unit and origin; planted: numbers of the data themselves."""
    data = (Table("x", cells=("real",), stated_in=stated),)
    kind = dataclass(frozen=True, eq=False)(
        type("Stated", (RobustLocation,), {"data": data, "__annotations__": {}})
    )
    s = np.array([1e-5, 1.0, 30.0, 1e6]) if stated == "columns" else 1e3
    o = np.array([5.0, -1e3, 1e6, 0.0])
    moved = rows * s + o
    plain, other = kind.from_data(rows), kind.from_data(moved)
    assert np.shape(other.x_scale) == ((4,) if stated == "columns" else ())
    np.testing.assert_allclose(other.x_scale, plain.x_scale * s)
    np.testing.assert_allclose(other.x_origin, plain.x_origin * s + o, atol=1e-6 * np.max(s))
    kept = continuing(kind(), other)  # a fit that goes on with other rows stays in these coordinates
    assert kept.x_scale is other.x_scale and kept.x_origin is other.x_origin
    values = {"loc": np.array([0.3, -0.2, 1.0, 0.0]), "scale": np.array([1.0, 0.5, 2.0, 0.1])}

    def joint(model, x, **values):
        return float(log_joint(model, values, x))

    with jax.enable_x64(True):
        inner = joint(plain, rows, **values)
        outer = {"loc": values["loc"] * s + o, "scale": values["scale"] * s}
        lost = (len(rows) + 2) * np.log(s * np.ones(4)).sum()
        np.testing.assert_allclose(joint(other, moved, **outer), inner - lost, rtol=1e-9)
        as_passed = kind.from_data(moved, standardize=False)
        assert as_passed.x_scale is None and abs(joint(as_passed, moved, **outer) - inner + lost) > 1
        drawn = [handlers.seed(model, 0)(num_observations=3) for model in (plain, other)]
        np.testing.assert_allclose(drawn[1], drawn[0] * s + o, rtol=1e-9, atol=1e-9 * np.max(s))


@pytest.mark.slow
def test_a_program_and_four_facts_are_sampled(rows):
    tree = inference.fit(RobustLocation(), rows, progress=False)
    assert tree.attrs["method"] == "nuts" and tree.attrs["converged"] == 1


def test_files(by_em, documents, tmp_path):
    for name, tree in by_em.items():
        inference.save(tree, tmp_path / f"{name}.nc")
        back = inference.load(tmp_path / f"{name}.nc")
        assert type(inference.model_of(back)) is zoo.model_class(name)
        assert inference.model_of(back).num_tokens == (25,) * 20 if name == "unigrams" else True
    zoo.unregister(Unigrams)
    try:
        with pytest.raises(ValueError, match="'unigrams'.* call.* zoo.register"):
            inference.load(tmp_path / "unigrams.nc")
        with pytest.raises(ValueError, match="'unigrams'"):
            inference.model_of(by_em["unigrams"])
        with pytest.raises(ValueError, match="Unigrams is not a model of the zoo: call zoo.register"):
            inference.fit(Unigrams(), documents[0])
    finally:
        zoo.register(Unigrams, methods=METHODS[Unigrams])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*has not converged")
def test_compared_with_models_of_the_zoo(by_nuts, rows, tmp_path, capsys):
    ppca = zoo.PPCA(num_latents=1, loading_prior="gaussian")
    other = inference.fit(ppca, rows[:30], method="nuts", **SMALL)
    table = compare({"ridge": by_nuts["ridgepca"], "ppca": other})
    assert list(table.index) == ["ridge", "ppca"]
    np.savetxt(tmp_path / "rows.csv", rows, delimiter=",", header="a,b,c,d", comments="")
    call = ["compare", str(tmp_path / "rows.csv"), "--models", "ridgepca", "ppca", "--methods", "em"]
    assert main(call) == 0
    lines = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
    assert ["ridgepca", "em"] in lines and ["ppca", "em"] in lines


def test_listed_and_shown(capsys):
    assert main(["list"]) == 0
    said = capsys.readouterr().out
    assert "unigrams" in said and "Mixture of unigrams: one topic a document" in said
    assert main(["show", "ridgepca"]) == 0
    said = capsys.readouterr().out
    assert (
        "class" not in zoo.MODELS["ridgepca"]["title"]
        and "def program" in said
        and "def loading_prior" in said
    )


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ([[1.0, np.inf], [0.0, 1.0]], "x must be finite or NaN .*row 0, column 1 is inf"),
        ([[1.0, 2.0, 3.0]], "x must have 2 columns, as the model has; got 3"),
        ([[1.0, np.nan], [0.0, np.nan]], "column 1 of x is missing in all rows"),
    ],
)
def test_what_data_are_refused_follows_from_the_table(x, message):
    with pytest.raises(ValueError, match=message):
        RobustLocation(num_features=2).check(np.array(x))


def test_methods_registered_with_a_model_refuse_it_and_give_way_to_others():
    """A method for every model does so by a check of the author's; the first one names what auto takes."""

    def check(model, settings):
        if model.degrees <= 2:
            raise ValueError(f"{settings.name} needs a variance: give degrees above 2")

    def otherwise(model, data, is_refused):
        return "svi" if is_refused or len(data[0]) > 100 else ""

    x = np.random.default_rng(0).normal(size=(120, 2))
    own = {"nuts": replace(nuts_hmc.METHODS["nuts"], check=check, otherwise=otherwise)}
    zoo.register(RobustLocation, methods=own)
    try:
        with pytest.raises(ValueError, match="^nuts needs a variance: give degrees above 2$"):
            inference.fit(RobustLocation(degrees=1.0), x, method="nuts")
        names = [
            request_of(RobustLocation(degrees=d), x[:n]).name for d, n in ((4.0, 9), (4.0, 120), (1.0, 9))
        ]
        assert names == ["nuts", "svi", "svi"]
    finally:
        zoo.register(RobustLocation, methods={})


def test_what_cannot_be_registered():
    method = METHODS[RidgePCA]

    def variant(**attributes):
        return type(attributes.pop("name", "Variant"), (RidgePCA,), attributes)

    with pytest.raises(TypeError, match=r"subclass of zoo.model.Model; got \{\}"):
        zoo.register({}, methods=method)
    with pytest.raises(ValueError, match="name of a model of the zoo"):
        zoo.register(variant(name="PPCA"), methods=method)
    with pytest.raises(ValueError, match=r"name of a model of the zoo \(epca\)"):
        zoo.register(variant(name="Bepca"), methods=method)
    with pytest.raises(ValueError, match="RidgePCA is registered already, by "):
        zoo.register(variant(name="RidgePCA", __module__="elsewhere"), methods=method)
    with pytest.raises(ValueError, match="missing: em"):
        zoo.register(variant(), methods={})
    with pytest.raises(ValueError, match="not among them: gibbs"):
        zoo.register(variant(), methods=method | {"gibbs": method["em"]})
    with pytest.raises(ValueError, match="Variant.methods is empty"):
        zoo.register(variant(methods=()), methods={})
    with pytest.raises(ValueError, match="Variant.dims must give the dims of every variable"):
        zoo.register(variant(dims={}), methods=method)
    with pytest.raises(ValueError, match="Variant.roles names groups, document, neither"):
        zoo.register(variant(roles=Roles(cluster="groups", scores=("document", "topic"))), methods=method)
    assert "variant" not in zoo.MODELS and zoo.registered_methods("ppca") == {}
    assert set(zoo.registered_methods("ridgepca")) == {"em"}
    assert json.dumps(zoo.MODELS["ridgepca"])
