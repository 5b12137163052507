"""A function applied to all elements, block by block."""

import ast
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from zoo.in_blocks import map_in_blocks

pytestmark = pytest.mark.all_compiled  # draws in blocks and at once are equal bit by bit


def counted(function):
    """The function, and how often it was traced."""
    calls = []

    def one(element):
        calls.append(None)
        return function(element)

    return one, calls


@pytest.mark.parametrize("number", [0, 1, 7, 8, 9, 15, 16, 17, 500])
def test_results_are_those_of_all_at_once_and_the_function_is_traced_once(number):
    elements = {"a": jnp.arange(2.0 * number).reshape(number, 2), "b": jnp.arange(number)}
    one, calls = counted(lambda own: {"sum": own["a"].sum() + own["b"], "pair": own["a"] * 2})
    found = jax.jit(lambda given: map_in_blocks(one, given, 8))(elements)
    assert len(calls) == 1
    np.testing.assert_array_equal(found["sum"], elements["a"].sum(axis=1) + elements["b"])
    np.testing.assert_array_equal(found["pair"], elements["a"] * 2)


def test_what_a_batch_size_leaves_over_is_traced_twice():
    """The planted fault: as it was."""
    one, calls = counted(lambda own: own + 1.0)
    jax.jit(lambda given: jax.lax.map(one, given, batch_size=8))(jnp.arange(9.0))
    assert len(calls) == 2


def test_blocks_hold_at_most_so_many_and_are_as_equal_as_can_be():
    jaxpr = jax.make_jaxpr(lambda given: map_in_blocks(jnp.sin, given, 8))(jnp.arange(9.0))
    assert "f32[2,5]" in str(jaxpr)  # and not one of 8 and one of 1


def test_keys_are_elements_too():
    keys = jax.random.split(jax.random.key(0), 11)
    found = map_in_blocks(lambda key: jax.random.normal(key, (3,)), keys, 4)
    np.testing.assert_array_equal(found, jax.vmap(lambda key: jax.random.normal(key, (3,)))(keys))


def test_nothing_else_is_mapped_in_batches():
    """Where `jax.lax.map` has a ``batch_size`` the remainder is compiled apart: no module asks for one."""
    root = Path(__file__).parents[2]
    found = [
        f"{path.relative_to(root)}:{node.lineno}"
        for package in ("zoo", "inference")
        for path in sorted((root / package).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("jax.lax.map", "lax.map")
        and any(keyword.arg in ("batch_size", None) for keyword in node.keywords)
    ]
    assert found == []
