"""L-BFGS: a quadratic in few steps, a valley, the edge of a domain, lanes side by side."""

import jax
import jax.numpy as jnp
import numpy as np

from inference.numerics.lbfgs import lbfgs_init, lbfgs_step
from inference.precision import in_precision


def minimised(loss, point, steps):
    step = jax.jit(lambda state: lbfgs_step(state, loss))
    state = step(lbfgs_init(point, 8))
    values = [float(state.value)]
    for _ in range(steps):
        state = step(state)
        values.append(float(state.value))
    return state, np.array(values)


def test_quadratics_and_the_valley_of_rosenbrock():
    scales = np.array([1.0, 3.0, 10.0, 50.0])
    with in_precision():
        state, values = minimised(
            lambda p: jnp.sum(jnp.asarray(scales) * (p["a"] - 2) ** 2), {"a": jnp.zeros(4)}, 25
        )
        np.testing.assert_allclose(state.point["a"], 2, atol=1e-7)
        assert (np.diff(values) <= 1e-12).all()
        valley = lambda p: 100 * (p[1] - p[0] ** 2) ** 2 + (1 - p[0]) ** 2  # noqa: E731
        state, values = minimised(valley, jnp.array([-1.2, 1.0]), 60)
        np.testing.assert_allclose(state.point, 1, atol=1e-6)
        assert (np.diff(values) <= 1e-12).all()


def test_curvatures_that_differ_by_ten_to_the_seven_cost_few_steps():
    """Twelve coordinates of curvature 1 and forty of 1e7: with one number as scale it takes two thousand."""
    with in_precision():
        curvatures = np.where(np.arange(52) < 12, 1.0, 1e7)
        curvatures = jnp.asarray(curvatures * np.random.default_rng(0).uniform(0.5, 2.0, 52))
        _, values = minimised(lambda x: 0.5 * jnp.sum(curvatures * (x - 1) ** 2), jnp.zeros(52), 250)
        assert values[-1] < 1e-6


def test_the_first_step_evaluates_the_start_and_stays_there():
    """Also where the start is outside the domain: then it stays without a finite value."""
    with in_precision():
        loss = lambda x: jnp.sum(x - jnp.log(x))  # noqa: E731
        for start in (jnp.array([0.01, 3.0]), jnp.array([-1.0, 3.0])):
            state = lbfgs_step(lbfgs_init(start, 8), loss)
            np.testing.assert_array_equal(state.point, start)
            assert not state.steps.any() and not state.inverse_products.any()
            if start[0] > 0:
                value, gradient = jax.value_and_grad(loss)(start)
                assert state.value == value
                np.testing.assert_array_equal(state.gradient, gradient)
            else:
                assert not np.isfinite(state.value)


def test_steps_stay_inside_a_domain_and_lanes_are_alone():
    """x - log x ends at 1 from either side, never beyond the wall at 0; two lanes as each by itself."""

    def loss(x):
        return jnp.sum(x - jnp.log(x))

    with in_precision():
        starts = jnp.array([[0.01, 3.0], [50.0, 1e-4]])
        alone = [minimised(loss, start, 40)[0] for start in starts]
        lanes = jax.vmap(lambda s: lbfgs_init(s, 8))(starts)
        step = jax.jit(jax.vmap(lambda state: lbfgs_step(state, loss)))
        for _ in range(41):
            lanes = step(lanes)
        np.testing.assert_allclose(lanes.point, 1, atol=1e-6)
        np.testing.assert_allclose(lanes.point, [state.point for state in alone], atol=1e-8)


def test_a_direction_that_climbs_is_replaced_by_the_gradients_and_the_search_wants_a_decrease():
    """A negative diagonal points uphill; the first trial along the gradient ends as high as it began."""
    with in_precision():
        loss = lambda x: jnp.sum(x**2)  # noqa: E731
        state = lbfgs_step(lbfgs_init(jnp.array([0.3]), 8), loss)
        turned = lbfgs_step(state._replace(scale=-state.scale), loss)
        assert float(turned.value) < 0.99 * float(state.value)
        level = lbfgs_step(lbfgs_init(jnp.array([0.5 - 1e-9]), 8), loss)
        level = lbfgs_step(level._replace(scale=-level.scale), loss)
        assert float(level.value) < 0.99 * 0.25
