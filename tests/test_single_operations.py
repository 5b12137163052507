"""Single operations, which NumPy does in the default run, have the types and values of compiled ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax, monitoring

from tests.support import single_operations
from tests.support.single_operations import VERSION

_compiled = []


def _note(name, seconds, **about):
    if name.endswith("backend_compile_duration"):
        _compiled.append(about.get("fun_name"))


monitoring.register_event_duration_secs_listener(_note)

NUMBERS = np.linspace(0.1, 0.9, 7)
OPERATIONS = {
    "double": lambda: jnp.exp(jnp.asarray(NUMBERS)),
    "single": lambda: jnp.exp(jnp.asarray(NUMBERS, jnp.float32)),
    "weak": lambda: jnp.exp(2.0),
    "integer": lambda: jnp.arange(5)[::-1] // 2,
    "logical": lambda: jnp.asarray(NUMBERS) > 0.3,
    "key": lambda: jax.random.key_data(jax.random.key(3)),
    "drawn": lambda: jax.random.normal(jax.random.key(3), (2, 3)),
    "solved": lambda: jnp.linalg.cholesky(jnp.eye(3) + 0.1),
    "held in double": lambda: _in_double()[1:],
}


def _in_double():
    with jax.enable_x64(True):
        return jnp.asarray(NUMBERS)


def _both(operation, monkeypatch):
    """The result by NumPy and the compiled one, each with the number of programs compiled for it."""
    found = []
    for most in (single_operations.MOST, -1):
        monkeypatch.setattr(single_operations, "MOST", most)
        single_operations._is_single.cache_clear()
        jax.clear_caches()
        _compiled.clear()
        found.append((operation(), len(_compiled)))
    single_operations._is_single.cache_clear()
    return found


@pytest.mark.skipif(jax.__version_info__[:2] != VERSION, reason="this JAX compiles every operation")
@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_by_numpy_is_the_compiled_one(name, double, monkeypatch):
    with jax.enable_x64(double):
        (ours, none), (theirs, some) = _both(OPERATIONS[name], monkeypatch)
    assert none == 0 < some
    assert (ours.dtype, ours.weak_type) == (theirs.dtype, theirs.weak_type)
    assert np.asarray(ours).dtype == np.asarray(theirs).dtype
    single = "float32" in (theirs.dtype, NUMBERS.dtype) or not double
    np.testing.assert_allclose(ours, theirs, rtol=1e-6 if single else 1e-13)


def test_a_loop_is_compiled():
    jax.clear_caches()
    _compiled.clear()
    jax.jit(lambda x: lax.fori_loop(0, 3, lambda _, y: y * 2.0, x))(jnp.ones(()))
    assert _compiled
