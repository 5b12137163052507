"""The mixture's program: one truth, with labels summed out or drawn."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from inference.numerics.programs import latent_names, log_prior
from tests.support.fit_requests import check_method
from tests.support.log_joint import log_joint
from zoo.answers import answer_of
from zoo.conjugate import GaussianWishart
from zoo.conjugate.resolution import rows_held
from zoo.intake.suitable_fields import suitable_fields
from zoo.mixture import Mixture

pytestmark = pytest.mark.usefixtures("in_double")

COMPONENTS = GaussianWishart(
    loc=[0.0, 1.0], mean_precision=0.5, scale_matrix=np.eye(2) / 3, degrees_of_freedom=3.0
)
FORMS = {
    "dirichlet": {"weight_prior": "dirichlet", "concentration": 1.5},
    "dirichlet, learnt": {"weight_prior": "dirichlet", "concentration": dist.Gamma(2.0, 1.0)},
    "sticks": {"weight_prior": "stick_breaking", "concentration": 1.5},
    "sticks, learnt": {"weight_prior": "stick_breaking", "concentration": dist.Gamma(2.0, 1.0)},
    "free last stick": {"weight_prior": "stick_breaking", "concentration": 1.5, "free_last_stick": True},
}
PROPER = [name for name in FORMS if name != "free last stick"]


def mixture(form, num_components=3):
    return Mixture(components=COMPONENTS, num_components=num_components, **FORMS[form])


def rows(num_rows=6, seed=0):
    return np.random.default_rng(seed).normal(size=(num_rows, 2))


def globals_of(model, x, seed=0):
    """Values of every site of the summed-out program, drawn from its prior."""
    sites = numpyro.handlers.trace(numpyro.handlers.seed(model, jax.random.key(seed))).get_trace(x)
    return {name: sites[name]["value"] for name in latent_names(model, x)}


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_explicit_summed_over_all_labelings_is_the_summed_out_program(form):
    model, x = mixture(form), rows(4)
    values = globals_of(model, x)
    labelings = jnp.array(list(itertools.product(range(3), repeat=4)))

    @jax.jit
    def both(labelings, values):
        explicit = jax.vmap(lambda c: log_joint(model.explicit, values | {"assignments": c}, x))
        return jax.nn.logsumexp(explicit(labelings)), log_joint(model, values, x)

    summed, own = both(labelings, values)
    np.testing.assert_allclose(summed, own, rtol=1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_hand_written_densities_are_those_of_the_program(form):
    model, x = mixture(form), rows()
    values = globals_of(model, x)
    joint = log_joint(model, values, x)
    np.testing.assert_allclose(
        model.log_likelihood(values, x).sum() + log_prior(model, values, x), joint, rtol=1e-12
    )
    labels = answer_of(model, "conditionals", values, x)["assignments"]
    conditional = jax.vmap(lambda c: log_joint(model.explicit, values | {"assignments": c}, x))
    flips = jnp.zeros((3, 6), int).at[:, 2].set(jnp.arange(3))
    np.testing.assert_allclose(jax.nn.softmax(conditional(flips)), labels.probs[2], rtol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("form", PROPER)
def test_prior_predictive_draws_labels_and_depends_on_the_key_only(form):
    model = mixture(form)
    run = jax.jit(
        lambda key: numpyro.handlers.trace(numpyro.handlers.seed(model, key)).get_trace(num_observations=7)[
            "x"
        ]["value"]
    )
    keys = jax.random.split(jax.random.key(0), 5)
    one = run(keys[0])
    assert one.shape == (7, 2) and np.isfinite(one).all()
    many = jax.vmap(run)(keys)
    np.testing.assert_allclose(many[0], one, rtol=1e-12)
    assert len(np.unique(many[:, 0, 0])) == 5
    sites = numpyro.handlers.trace(numpyro.handlers.seed(model, keys[0])).get_trace(num_observations=7)
    np.testing.assert_allclose(sites["x"]["value"], one, rtol=1e-12)  # eager equals compiled
    assert sites["assignments"]["value"].shape == (7,)
    precisions, covariances = sites["precisions"]["value"], sites["covariances"]["value"]
    np.testing.assert_allclose(precisions @ covariances, np.broadcast_to(np.eye(2), (3, 2, 2)), atol=1e-6)
    assert np.isclose(sites["weights"]["value"].sum(), 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_the_potential_is_finite_and_differentiable_at_random_points(form):
    model, x = mixture(form), rows()
    info = numpyro.infer.util.initialize_model(jax.random.key(1), model, model_args=(x,))
    at = jax.jit(jax.value_and_grad(info.potential_fn))
    for seed in range(3):
        leaves, structure = jax.tree.flatten(info.param_info.z)
        keys = jax.random.split(jax.random.key(seed), len(leaves))
        z = jax.tree.unflatten(
            structure, [jax.random.normal(k, leaf.shape) for k, leaf in zip(keys, leaves, strict=True)]
        )
        value, slope = at(z)
        assert np.isfinite(value) and all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slope))


def test_permuting_labels_leaves_dirichlet_mixtures_unchanged_and_sticks_not():
    order = jnp.array([2, 0, 1])
    model, x = mixture("dirichlet"), rows()
    values = globals_of(model, x)
    permuted = {name: value[order] for name, value in values.items()}
    np.testing.assert_allclose(log_joint(model, permuted, x), log_joint(model, values, x), rtol=1e-12)


def test_one_component_is_a_single_gaussian_under_either_prior():
    x = rows()
    for weight_prior in ("dirichlet", "stick_breaking"):
        model = Mixture(components=COMPONENTS, num_components=1, weight_prior=weight_prior)
        values = globals_of(model, x)
        single = dist.MultivariateNormal(values["locs"][0], precision_matrix=values["precisions"][0])
        np.testing.assert_allclose(model.log_likelihood(values, x), single.log_prob(x), rtol=1e-10)


@pytest.mark.slow
def test_numpyro_can_draw_the_graph_and_run_nuts_on_the_program():
    import graphviz

    model, x = mixture("sticks, learnt"), rows(12)
    drawing = numpyro.render_model(model, model_kwargs={"num_observations": 5}, render_distributions=True)
    assert isinstance(drawing, graphviz.Digraph)
    for name in (
        "concentration",
        "stick_decays",
        "locs",
        "precisions",
        "assignments",
        "x",
        "observations",
    ):
        assert name in drawing.source
    mcmc = numpyro.infer.MCMC(numpyro.infer.NUTS(model), num_warmup=5, num_samples=5, progress_bar=False)
    mcmc.run(jax.random.key(0), x)
    assert np.isfinite(mcmc.get_samples()["locs"]).all()


def test_a_truncation_that_is_too_short_warns_and_a_long_one_does_not():
    short = Mixture(
        components=COMPONENTS, num_components=10, concentration=1000.0, weight_prior="stick_breaking"
    )
    with pytest.warns(UserWarning, match="truncation is too short"):
        check_method(short, "vb")
    check_method(short, "collapsed_gibbs")  # which truncates nothing
    long = Mixture(components=COMPONENTS, num_components=20, concentration=1.0, weight_prior="stick_breaking")
    check_method(long, "vb")
    np.testing.assert_allclose(short.leftover_stick_mass, (1000 / 1001) ** 9)


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"num_components": 0}, ValueError, "num_components must be a whole number of at least 1; got 0"),
        ({"num_components": 2.5}, ValueError, "num_components must be a whole number"),
        (
            {"concentration": 0.0},
            ValueError,
            "concentration must be a positive number or a Gamma distribution; got 0.0",
        ),
        ({"concentration": np.nan}, ValueError, "concentration must be a positive number"),
        (
            {"concentration": 1e300},
            ValueError,
            "concentration must be at most 1e\\+10: .* rounding errors",
        ),
        ({"concentration": 1e-305}, ValueError, "concentration must be at least 1e-300: .*; got 1e-305"),
        ({"concentration": [1.0, 2.0]}, ValueError, "concentration must be a positive number"),
        (
            {"concentration": dist.LogNormal(0.0, 1.0)},
            ValueError,
            "may have a Gamma as its prior; got a LogNormal",
        ),
        (
            {"concentration": dist.Gamma(-1.0, 1.0, validate_args=False)},
            ValueError,
            "positive concentration and rate",
        ),
        (
            {"weight_prior": "chinese"},
            ValueError,
            "weight_prior must be one of dirichlet, stick_breaking; got 'chinese'",
        ),
        ({"free_last_stick": True}, ValueError, "goes with weight_prior"),
        (
            {"components": dist.Normal(0, 1)},
            TypeError,
            "components must be a prior from zoo.conjugate; got Normal",
        ),
    ],
)
def test_fields_outside_their_domain_are_refused(fields, error, message):
    with pytest.raises(error, match=message):
        Mixture(**({"components": COMPONENTS} | fields))


def test_a_call_without_data_says_what_is_missing():
    with pytest.raises(ValueError, match="components is not set"):
        Mixture()(num_observations=3)
    with pytest.raises(ValueError, match="num_observations"):
        mixture("dirichlet")()
    with pytest.raises(
        ValueError, match="is unnormalised and draws nothing: .* choose free_last_stick=False"
    ):
        mixture("free last stick")(num_observations=3)
    assert mixture("free last stick").prior == "unnormalised" and mixture("sticks").prior == "proper"


@pytest.mark.parametrize("weight_prior", ["dirichlet", "stick_breaking"])
def test_the_density_by_cluster_with_the_weights_is_that_of_the_row(weight_prior):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6, 2))
    model = Mixture.from_data(x, num_components=3, weight_prior=weight_prior)
    with jax.enable_x64(True):
        trace = numpyro.handlers.trace(numpyro.handlers.seed(model, 3)).get_trace(num_observations=6)
        values = {name: site["value"] for name, site in trace.items() if site["type"] == "sample"}
        by_cluster = np.asarray(answer_of(model, "log_density_by_cluster", values, x))
        weighted = by_cluster + np.asarray(model.weights.log_weights(values))
        wanted = np.asarray(model.log_likelihood(values, x))
    np.testing.assert_allclose(np.logaddexp.reduce(weighted, axis=1), wanted, rtol=1e-10)


def test_rows_of_components_are_counted_draw_by_draw():
    labels = np.random.default_rng(0).integers(0, 4, (2, 3, 7))
    counts = rows_held(labels, 5)
    for chain, draw in np.ndindex(2, 3):
        np.testing.assert_array_equal(counts[chain, draw], np.bincount(labels[chain, draw], minlength=5))


def test_rates_of_counts_have_the_columns_means_and_half_an_event_where_there_is_none():
    x = np.array([[1.0, 0.0], [3.0, 0.0], [5.0, 0.0], [7.0, 0.0]])
    components = suitable_fields(Mixture, [x])["components"]
    np.testing.assert_allclose(np.ravel(components.rate), [1 / 4, 1 / 0.125])


def test_the_prior_s_terms_of_components_with_rows_are_summed_over_their_parameters():
    model = Mixture.from_data(np.random.default_rng(0).normal(size=(6, 2)), num_components=3)
    density = answer_of(model, "prior_of_occupied", {"assignments": np.array([0, 2, 2, 0, 0, 2])}, None)
    terms = np.arange(12.0).reshape(3, 2, 2)
    assert float(density("precisions", jnp.asarray(terms))) == terms[[0, 2]].sum()
    assert float(density("locs", jnp.asarray(terms[:, 0]))) == terms[[0, 2], 0].sum()
    assert float(density("concentration", jnp.asarray(terms[0]))) == terms[0].sum()  # of no component
    assert answer_of(model, "prior_of_occupied", {}, None) is None
