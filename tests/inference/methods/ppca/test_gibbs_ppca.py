"""Gibbs for PPCA: its conditionals against the program, its moves, joint invariance, agreement with NUTS."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.handlers import seed, trace

import zoo
from inference import fit, model_of, predict
from inference.calibration import conditional_check, geweke
from inference.methods.gibbs_sweep import Move
from inference.methods.ppca import gibbs
from inference.methods.ppca.gibbs import algorithm_of, blocks_of
from inference.precision import in_precision
from tests.support.ppca_cases import projected_rows, with_holes

KINDS = {
    "student isotropic": {"loading_prior": "gaussian", "degrees_of_freedom": 4.0},
    "student ard diagonal": {"loading_prior": "ard", "noise": "diagonal", "degrees_of_freedom": 4.0},
    "normal ard": {"loading_prior": "ard"},
    "normal diagonal": {"loading_prior": "gaussian", "noise": "diagonal"},
}


def model_of_kind(kind, **fields):
    """A model with a prior strong enough for prior and posterior to be alike."""
    shared = {"num_latents": 2, "num_features": 3, "loading_variance": 0.7, "loc_mean": [0.4, -0.2, 0.1]}
    shared |= {"ard_concentration": 3.0, "ard_rate": 2.0, "loc_variance": 2.0, "noise_concentration": 3.0}
    return zoo.PPCA(noise_rate=2.0, **(shared | KINDS[kind] | fields))


def draw_of(model, num_rows=6):
    """Values of all sites, and data with holes that agree with them."""
    with in_precision():
        sites = trace(seed(model.explicit, 3)).get_trace(num_observations=num_rows)
        values = {name: np.asarray(s["value"]) for name, s in sites.items() if s["type"] == "sample"}
    x = np.array(values.pop("x"))
    x[1, 2] = x[4, 0] = np.nan
    return values, x


# One of the slowest: a program a block, and nothing else proves the sampler's blocks.
@pytest.mark.cases_by_default(1)
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_conditionals_are_those_of_the_program(kind):
    model = model_of_kind(next(name for name, fields in KINDS.items() if fields == kind))
    values, x = draw_of(model)
    for block in gibbs.plain_blocks_of(model):
        verdict = conditional_check(model, block, values, (x,), num_draws=4)
        assert verdict.passed, (block.__name__, verdict)


def test_wrong_conditionals_of_student_rows_are_found():
    """Planted: columns and noise that do not see the rows' weights; rows whose cells are not all counted."""
    model = model_of_kind("student isotropic")
    values, x = draw_of(model)

    def unweighted(block):
        def wrong(values, model, x):
            return block({name: value for name, value in values.items() if name != "row_precision"}, model, x)

        return wrong

    def fewer(values, model, x):
        found = gibbs.rows(values, model, x)
        own = found["row_precision"]
        return found | {"row_precision": type(own)(own.concentration - 0.5, own.rate)}

    for wrong in (unweighted(gibbs.columns), unweighted(gibbs.noise), fewer):
        assert not conditional_check(model, wrong, values, (x,), num_draws=4).passed


@pytest.mark.parametrize("kind", ["student isotropic", "normal ard"])
def test_moves_change_no_row(kind):
    """Latents times loadings plus mean stay to rounding, all three move, and nothing else."""
    model = model_of_kind(kind)
    values, x = draw_of(model)
    with in_precision():
        values = jax.tree.map(jnp.asarray, values)
        for block in blocks_of(model):
            if not isinstance(block, Move):
                continue
            moved = jax.jit(lambda v, own=block: own.apply(jax.random.key(1), v, model, jnp.asarray(x)))(
                values
            )
            predictors = [np.asarray(v["latents"] @ v["loadings"].T + v["loc"]) for v in (values, moved)]
            np.testing.assert_allclose(*predictors, atol=1e-12)
            changed = {name for name in values if np.abs(np.asarray(moved[name] - values[name])).max() > 1e-3}
            assert changed - {"loc"} == {"latents", "loadings"}


def test_a_flat_prior_is_refused():
    with pytest.raises(ValueError, match="gibbs needs a proper prior: give the model loading_prior='ard'"):
        fit(zoo.PPCA(), projected_rows(), method="gibbs")


def _unweighted_of(model):
    """Planted: the noise does not see the rows' weights."""

    def noise(values, model, x):
        return gibbs.noise({n: v for n, v in values.items() if n != "row_precision"}, model, x)

    return tuple(noise if block is gibbs.noise else block for block in blocks_of(model))


def _forgetful_of(model):
    """Planted: the shear takes the latents for standard ones."""

    def wrong(key, values, model, x):
        ones = {**values, "row_precision": jnp.ones_like(values["row_precision"])}
        return {**gibbs.shear(key, ones, model, x), "row_precision": values["row_precision"]}

    blocks = blocks_of(model)
    return tuple(Move(wrong) if block == Move(gibbs.shear) else block for block in blocks)


def _functionals(values):
    """What no rotation changes, and what an error in a block would move."""
    found = {
        "noise": jnp.mean(values["noise_variance"]),
        "squared_loadings": jnp.sum(values["loadings"] ** 2),
        "loc": values["loc"][0],
        "squared_latents": jnp.sum(values["latents"] ** 2),
    }
    if "row_precision" in values:
        found["log_row_precision"] = jnp.mean(jnp.log(values["row_precision"]))
    if "loading_precision" in values:
        found["log_loading_precision"] = jnp.mean(jnp.log(values["loading_precision"]))
    return found


SIZES = {"num_observations": 4, "num_draws": 4000, "num_rounds": 5}


def _joint(model, blocks):
    run = {"key": jax.random.key(0), "functionals": _functionals, **SIZES}
    return geweke(model, algorithm_of(blocks), **run)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_geweke(kind):
    """Joint invariance of the whole sweep (false alarm rate 0.01)."""
    verdict = _joint(model_of_kind(kind), blocks_of)
    assert verdict.passed, verdict


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [_unweighted_of, _forgetful_of])
def test_geweke_finds_planted_errors(wrong):
    assert not _joint(model_of_kind("student isotropic"), wrong).passed


@pytest.mark.slow
def test_gibbs_and_nuts_agree_on_student_rows():
    """Means of noise, mean and E[W W'] and of the odd rows' weights, five Monte Carlo errors."""
    x = with_holes(projected_rows(25))
    x[:2] += 15.0
    prior = {"loading_prior": "gaussian", "noise_concentration": 2.0, "noise_rate": 0.3}
    model = zoo.PPCA(num_latents=2, degrees_of_freedom=4.0, **prior)
    run = {"num_chains": 4, "num_warmup": 500, "num_samples": 2000, "progress": False}
    trees = [fit(model, x, method=method, seed=seed_, **run) for method, seed_ in (("gibbs", 0), ("nuts", 1))]
    found = []
    for tree in trees:
        assert tree.attrs["converged"] == 1, tree.attrs["why_not_converged"]
        draws = tree["posterior"]
        w = draws["loadings"].values
        gram = np.einsum("csdk,csek->csde", w, w)
        parts = [draws["noise_variance"].values[..., None], draws["loc"].values]
        parts += [gram.reshape(*gram.shape[:2], -1), np.log(draws["row_precision"].values[..., :5])]
        own = np.concatenate(parts, axis=-1)
        batches = own.reshape(4, 20, 100, -1).mean(axis=2).reshape(80, -1)  # of 100 draws
        found.append((batches.mean(axis=0), batches.std(axis=0, ddof=1) / np.sqrt(len(batches))))
    error = np.sqrt(found[0][1] ** 2 + found[1][1] ** 2)
    assert (np.abs(found[0][0] - found[1][0]) < 5 * error).all()


def test_a_fit_has_the_rows_weights_and_goes_on():
    """A short run: sites, dims, prediction of a hole; a start at given values keeps them."""
    x = with_holes(projected_rows(12))
    x[0] += 20.0
    model = zoo.PPCA(num_latents=2, degrees_of_freedom=4.0, loading_prior="gaussian")
    run = {"num_chains": 1, "num_warmup": 20, "num_samples": 20, "progress": False}
    with pytest.warns(UserWarning, match="has not converged"):
        tree = fit(model, x, method="gibbs", **run)
    draws = tree["posterior"]
    assert draws["row_precision"].dims == ("chain", "draw", "observation")
    assert np.argmin(draws["row_precision"].mean(("chain", "draw")).values) == 0
    assert np.isfinite(predict(tree, x)).all()
    with in_precision():
        given = {"noise_variance": np.array(0.2), "row_precision": np.full(12, 3.0)}
        state = gibbs.start(jax.random.key(0), given, model_of(tree), jnp.asarray(x))
    for name, value in given.items():
        np.testing.assert_array_equal(state.values[name], value)
