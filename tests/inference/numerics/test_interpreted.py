"""Programs that NumPy runs give what their compiled forms give."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.scipy import special
from jax.scipy.linalg import solve_triangular

from inference.numerics.compiled import compiled
from inference.numerics.interpreted import _DONE, _needed, _parts, evaluate, worth_compiling

pytestmark = pytest.mark.all_compiled
X = np.random.default_rng(0).normal(size=(3, 4))
SQUARE = X @ X.T + np.eye(3)
COUNTS = np.array([[3, -2, 7], [1, 0, -5]])
PLACES = np.array([2, 0, 5, -1])
IN_BOUNDS, DROPPED = "promise_in_bounds", "drop"


def carried(x):
    def add(total, line):
        return total + line.sum(), total * line

    return lax.scan(add, 0.0, x), lax.scan(add, 1.0, x, reverse=True), lax.scan(add, 2.0, x[:0])


def of_halves(x):
    return lax.cond(x[0, 0] > 9, lambda x: x, lambda x: -x, x), lax.switch(5, [jnp.sin, jnp.cos], x)


@jax.custom_vjp
def doubled(x):
    return 2 * x


doubled.defvjp(lambda x: (2 * x, None), lambda rest, g: (g,))


@jax.custom_batching.custom_vmap
def trebled(x):
    return 3 * x


@trebled.def_vmap
def _(size, batched, x):
    return 3 * x, True


scattered = {
    "set": lambda x: (
        x.at[1, 2].set(9.0),
        x.at[jnp.array([2, 0])].set(x[:2]),
        x.at[7, 0].set(1.0, mode=DROPPED),
    ),
    "add": lambda x: (x.at[jnp.array([1, 1, 0])].add(x), x.at[:, jnp.array([0, 9])].add(1.0, mode=DROPPED)),
    "mul": lambda x: x.at[jnp.array([1, 1])].mul(x[:2]),
    "least": lambda x: x.at[jnp.array([1, 1])].min(x[:2]),
    "most": lambda x: x.at[jnp.array([1, 1])].max(x[:2]),
    "rows": lambda x: jax.vmap(lambda line, k: line.at[k].add(2.0))(x, jnp.array([3, 0, 1])),
    "clipped": lambda x: x.at[jnp.array([9])].set(x[:1], mode="clip"),
}
gathered = {
    "places": lambda x: (x[PLACES], x[1], x[:, PLACES], x[jnp.array([0, 2]), jnp.array([3, 1])]),
    "filled": lambda x: jnp.take(x, PLACES, axis=0, mode="fill"),
    "whole": lambda x: jnp.take(jnp.array(COUNTS), PLACES, axis=1, mode="fill"),
    "rows": lambda x: jax.vmap(lambda line, k: line[k])(x, jnp.array([3, 0, 1])),
    "windows": lambda x: jax.vmap(lambda k: lax.dynamic_slice(x, (k, 0), (2, 3)))(jnp.arange(4)),
    "along": lambda x: jnp.take_along_axis(x, jnp.argsort(x, axis=1), axis=1),
}
WORDS = np.arange(6, dtype=np.uint32).reshape(3, 2)


def keys_of(x):
    return jax.random.wrap_key_data(WORDS + (x[0, 0] > 9))


CASES = (
    scattered
    | gathered
    | {
        "arithmetic": lambda x: (
            x + 1,
            x - 2,
            x * x,
            x / 3,
            -x,
            abs(x),
            jnp.sign(x),
            x**2,
            x**-3,
            x**5,
            lax.square(x),
        ),
        "powers": lambda x: (abs(x) ** 0.3, jnp.cbrt(x), lax.rsqrt(abs(x)), jnp.sqrt(abs(x)), x**0),
        "whole numbers": lambda x: (
            COUNTS // jnp.array([2]),
            lax.div(COUNTS, -2 * jnp.ones_like(COUNTS)),
            COUNTS % 3,
        ),
        "remainders": lambda x: (
            lax.rem(COUNTS, 3 * jnp.ones_like(COUNTS)),
            jnp.mod(x, 0.3),
            lax.rem(x, x * 0 + 0.3),
        ),
        "exponentials": lambda x: (
            jnp.exp(x),
            jnp.exp2(x),
            jnp.expm1(x),
            jnp.log(abs(x)),
            jnp.log1p(abs(x)),
            jax.nn.sigmoid(x),
        ),
        "angles": lambda x: (jnp.sin(x), jnp.cos(x), jnp.tan(x), jnp.arctan2(x, 1 + x), jnp.tanh(x)),
        "special": lambda x: (
            special.erf(x),
            special.erfc(x),
            special.erfinv(x / 5),
            special.gammaln(x),
            special.digamma(x),
        ),
        "incomplete": lambda x: (
            special.gammainc(abs(x), 2.0),
            special.gammaincc(abs(x), 2.0),
            special.betainc(abs(x), 2.0, 0.3),
        ),
        "order": lambda x: (
            jnp.maximum(x, 0),
            jnp.minimum(x, 0),
            x > 0,
            x >= 0,
            x < 0,
            x <= 0,
            x == x[0],
            x != x[0],
            jnp.clip(x, -1, 1),
            lax.clamp(-1.0, x, 1.0),
        ),
        "logic": lambda x: (
            (x > 0) & (x < 1),
            (x > 0) | (x < -1),
            (x > 0) ^ (x > 1),
            ~(x > 0),
            jnp.isfinite(x),
            ~COUNTS * jnp.ones(1),
        ),
        "rounding": lambda x: (
            jnp.floor(x),
            jnp.ceil(x),
            jnp.round(4 * x),
            lax.round(4 * x),
            x.astype(int),
            x.astype(jnp.float32),
            (x > 0).astype(float),
        ),
        "shifts": lambda x: (
            jnp.array(COUNTS) << 2,
            jnp.array(COUNTS) >> 1,
            lax.shift_right_logical(COUNTS, 1 + 0 * COUNTS),
            lax.bitcast_convert_type(x, jnp.int64),
        ),
        "shapes": lambda x: (
            x.T,
            x.reshape(2, 6),
            x[::-1, ::2],
            x[None, :, None],
            jnp.squeeze(x[:1]),
            jnp.broadcast_to(x[:, None], (3, 2, 4)),
            jnp.flip(x, 1),
        ),
        "parts": lambda x: (
            jnp.concatenate([x, x[:1]]),
            jnp.stack([x, -x], 1),
            jnp.split(x, [1, 3], axis=1),
            jnp.unstack(x),
        ),
        "edges": lambda x: (
            jnp.pad(x, ((1, 2), (0, 1))),
            lax.pad(x, 7.0, ((-1, 2, 1), (1, -2, 2))),
            jnp.arange(5),
            jnp.eye(3),
        ),
        "windows of one": lambda x: (
            lax.dynamic_slice(x, (5, 1), (2, 2)),
            lax.dynamic_update_slice(x, x[:2, :2], (2, 1)),
        ),
        "sums": lambda x: (
            x.sum(),
            x.sum(1),
            x.mean(0),
            x.prod(0),
            x.max(1),
            x.min(),
            (x > 0).all(0),
            (x > 0).any(),
            COUNTS.sum() + jnp.array(COUNTS).sum(0),
        ),
        "empty sums": lambda x: (
            x[:0].sum(0),
            x[:0].prod(0),
            lax.reduce_max(x[:0], (0,)),
            (x[:0] > 0).all(0),
        ),
        "running": lambda x: (
            jnp.cumsum(x, 1),
            jnp.cumprod(x, 0),
            lax.cummax(x),
            lax.cummin(x, 1),
            lax.cumlogsumexp(x, 1, reverse=True),
        ),
        "places of the extreme": lambda x: (x.argmax(), x.argmax(1), x.argmin(0), jnp.argsort(x[0])),
        "sorting": lambda x: (jnp.sort(x, 0), lax.sort((COUNTS % 2, COUNTS), dimension=1, num_keys=2)),
        "choices": lambda x: (jnp.where(x > 0, x, -1), lax.select_n(jnp.array(2), x, 2 * x, 3 * x)),
        "products": lambda x: (
            x @ x.T,
            jnp.einsum("ij,ik->ijk", x, x),
            jnp.einsum("nij,nkj->nik", x[None] * jnp.ones((2, 1, 1)), x[None] * jnp.ones((2, 1, 1))),
            COUNTS.T @ jnp.array(COUNTS),
            x[:, :0] @ x[:, :0].T,
            x[0] @ x[0],
        ),
        "matrices": lambda x: (
            jnp.linalg.cholesky(SQUARE + 0 * x[0, 0]),
            jnp.linalg.cholesky(jnp.stack([-SQUARE, SQUARE * x[0, 0] ** 2])),
        ),
        "triangles": lambda x: [
            solve_triangular(SQUARE + 0 * x[0, 0], x, lower=lower, trans=trans, unit_diagonal=unit)
            for lower in (True, False)
            for trans in (0, 1)
            for unit in (True, False)
        ],
        "triangles on the right": lambda x: [
            lax.linalg.triangular_solve(jnp.array(SQUARE), x.T, lower=True, transpose_a=turned)
            for turned in (True, False)
        ],
        "factors": lambda x: (
            jnp.linalg.eigh(jnp.stack([SQUARE, 2 * SQUARE]) + 0 * x[0, 0]),
            lax.linalg.eigh(SQUARE + jnp.tril(x[:, :3]), lower=False, symmetrize_input=False),
            jnp.linalg.svd(x, full_matrices=False),
            jnp.linalg.svd(x.T, compute_uv=False),
            jnp.linalg.qr(x.T),
            jnp.linalg.qr(x.T, mode="complete")[1],
        ),
        "solutions": lambda x: (
            jnp.linalg.solve(SQUARE[::-1] + 0 * x[0, 0], x),
            jnp.linalg.inv(jnp.stack([SQUARE, SQUARE[::-1]]) + 0 * x[0, 0]),
            jnp.linalg.slogdet(jnp.stack([SQUARE, SQUARE[::-1]]) + 0 * x[0, 0]),
        ),
        "derivatives": lambda x: jax.grad(lambda x: jnp.sum(x * jnp.exp(x) + x))(x),
        "platforms": lambda x: lax.platform_dependent(x, cuda=jnp.exp, cpu=lambda x: -x, default=jnp.sin),
        "repeated": lambda x: jnp.tile(x, (2, 3)),
        "searches": lambda x: (
            lax.while_loop(lambda c: c[0].sum() < 90 + x[0, 0], lambda c: (c[0] + abs(x), c[1] + 1), (x, 0)),
            jax.vmap(lambda a: lax.while_loop(lambda y: y < 9, lambda y: y + a**2 + 1, a))(x[0]),
            jax.vmap(lambda a: lax.while_loop(lambda y: y[1] < 9, lambda y: y + a**2 + 1, a))(x),
        ),
        "loops": carried,
        "branches": of_halves,
        "rules": lambda x: (
            doubled(x),
            jax.nn.relu(x),
            jax.nn.softmax(x),
            lax.stop_gradient(x),
            lax.optimization_barrier(x),
            jnp.copy(x),
        ),
        "rule of a batch": lambda x: (trebled(x), jax.vmap(trebled)(x)),
        "bits": lambda x: [
            jax.random.bits(jax.random.wrap_key_data(WORDS[0]), (3, 5), f"uint{n}") for n in (8, 32, 64)
        ],
        "draws": lambda x: jax.vmap(lambda key, line: jax.random.normal(key) + line)(keys_of(x), x),
        "choices of keys": lambda x: [
            jax.random.key_data(key) for key in (keys_of(x)[::-1], jax.random.split(keys_of(x)[1], (2, 2)))
        ],
        "seeds": lambda x: [
            jax.random.key_data(jax.random.key(seed + (x[0, 0] > 9).astype(seed.dtype)))
            for seed in (jnp.array(2**40 + 3), jnp.array(-5), jnp.array(-5, jnp.int32))
        ],
        "folded keys": lambda x: jax.random.uniform(jax.random.fold_in(keys_of(x)[0], jnp.argmax(x)), (4,)),
        "gamma variables": lambda x: (
            jax.random.gamma(keys_of(x)[0], jnp.abs(x)),
            jax.vmap(jax.random.loggamma)(keys_of(x), jnp.abs(x)),
        ),
        "categories": lambda x: jax.random.categorical(keys_of(x)[0], x, shape=(9, 3)),
        "closed": lambda x: jax.lax.map(lambda line: jax.nn.logsumexp(line), x),
    }
)


def operations(jaxpr):
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for part in _parts(equation):
            yield from operations(_needed(part))


def both(function, x):
    """What NumPy gives, and what XLA does."""
    traced = jax.jit(function).trace(x)
    found = evaluate(traced.jaxpr, [x])
    return traced, found, jax.tree.leaves(jax.jit(function)(x))


def test_the_inverse_of_a_triangle_is_a_triangle_exactly():
    """Laws refuse a factor that has rounding errors on the other side of its diagonal."""
    a = np.random.default_rng(0).normal(size=(4, 5, 5))
    for lower, side in ((True, np.tril), (False, np.triu)):
        traced = jax.jit(
            lambda x, lower=lower: solve_triangular(x, np.broadcast_to(np.eye(5), x.shape), lower=lower)
        ).trace(a)
        (found,) = evaluate(traced.jaxpr, [a])
        np.testing.assert_array_equal(found, side(found))
        np.testing.assert_allclose(side(a) @ found, np.broadcast_to(np.eye(5), a.shape), atol=1e-4)


@pytest.mark.parametrize("name", CASES)
def test_operation_gives_what_xla_gives(name):
    with jax.enable_x64(True):
        _, found, expected = both(CASES[name], X)
        for mine, its in zip(found, expected, strict=True):
            assert mine.dtype == its.dtype
            np.testing.assert_allclose(mine, its, rtol=1e-9, atol=1e-11)


def test_every_operation_is_compared_above():
    with jax.enable_x64(True):
        met = {one for case in CASES.values() for one in operations(_needed(jax.make_jaxpr(case)(X).jaxpr))}
    assert set(_DONE) <= met, set(_DONE) - met


def test_half_as_many_bits_stay_so():
    _, found, expected = both(lambda x: jnp.exp(x).sum(0) @ x.T, X.astype(np.float32))
    assert found[0].dtype == expected[0].dtype == np.float32
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5)


@pytest.mark.parametrize("is_little", [True, False])
def test_large_or_unknown_programs_are_compiled(is_little):
    rows = 10 if is_little else 10**7
    traced = jax.jit(lambda x: jnp.log(x).sum()).trace(jnp.ones(rows))
    assert worth_compiling(traced.jaxpr) != is_little
    looped = jax.jit(lambda x: lax.while_loop(lambda x: x.sum() < 9, jnp.log, x)).trace(jnp.ones(rows // 10))
    assert worth_compiling(looped.jaxpr) != is_little
    drawn = jax.jit(jax.random.normal).trace(jax.random.key(0, impl="rbg"))
    assert worth_compiling(drawn.jaxpr)


def test_matrices_without_factors_give_nan():
    squares = np.stack([SQUARE, np.full((3, 3), np.nan), 2 * SQUARE])
    for factored in (jnp.linalg.eigh, jnp.linalg.svd):
        with jax.enable_x64(True):
            _, found, expected = both(factored, squares)
        for mine, its in zip(found, expected, strict=True):
            np.testing.assert_allclose(mine, its, rtol=1e-9, atol=1e-11)
        assert np.isnan(found[0][1]).all()
        assert np.isfinite(found[0][[0, 2]]).all()


def test_keys_go_in_and_come_out():
    keys = jax.random.wrap_key_data(WORDS)
    traced = jax.jit(jax.vmap(jax.random.split)).trace(keys)
    (found,) = evaluate(traced.jaxpr, [keys])
    expected = jax.vmap(jax.random.split)(keys)
    assert found.dtype == keys.dtype
    np.testing.assert_array_equal(jax.random.key_data(found), jax.random.key_data(expected))


def test_compiled_once_does_not_compile_little(monkeypatch):
    calls = []
    real = evaluate
    monkeypatch.setattr("inference.numerics.compiled.evaluate", lambda *args: calls.append(1) or real(*args))

    def scaled(how, x, *, times=2, **unused):
        return {"found": how(x) * times}

    quick = compiled(scaled, once=True, static_argnums=0, static_argnames="times")
    for value in (1.0, X, jnp.ones(3)):
        np.testing.assert_allclose(quick(jnp.exp, value, times=3)["found"], 3 * np.exp(value), rtol=1e-6)
    np.testing.assert_allclose(quick(jnp.exp, x=X, times=2)["found"], 2 * np.exp(X), rtol=1e-6)
    assert len(calls) == 4
    jax.jit(lambda x: quick(jnp.exp, x))(X)
    assert len(calls) == 4
