"""One evaluation of DEPCAM's objective with its gradients beside the plain expression, and a sweep.

Run ``python -m tests.benchmarks.depcam``. USPS's size: N = 7291 binary rows of 256 columns, K = 10 components
of d = 8 latents each, float64. The plain expression is what no evaluation can do without: two products, one
log1p-exp and one sigmoid a cell and component, jitted. Both run in turn on one core; CPU times are compared,
the smallest of each counts. Half the rows and half the components say whether cost is linear. Then a short
fit counts the evaluations of its sweeps. Bars: 1.5 times the plain expression, at most 8 evaluations a sweep
in the median, half the size between 0.4 and 0.6 of the cost. Written to
tests/reference/benchmark_depcam.json.
"""

import os
import time
import warnings

from tests.tools.recording import write_record
from zoo.answers import start_of

SIZE = {"num_rows": 7291, "num_features": 256, "num_components": 10, "num_latents": 8}
BAR, EVALUATIONS_BAR = 1.5, 8
REPEATS, SWEEPS = 5, 12


def pin():
    """One core, before NumPy or JAX are imported: both take their thread count from here."""
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:1]))
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"


def data(num_rows):
    """Binary rows about ten prototypes, one cell in ten turned."""
    import numpy as np

    rng = np.random.default_rng(0)
    prototypes = rng.uniform(size=(10, SIZE["num_features"])) < 0.5
    turned = rng.uniform(size=(num_rows, SIZE["num_features"])) < 0.1
    return (prototypes[rng.integers(10, size=num_rows)] ^ turned).astype(float)


def calls(num_rows, num_components):
    """Functions without arguments: an evaluation of ours, and the plain expression, at the same values."""
    import jax
    import jax.numpy as jnp

    import zoo
    from inference.methods.depcam.em import evaluate

    x = jnp.asarray(data(num_rows))
    model = zoo.DEPCAM(num_components=num_components, num_latents=SIZE["num_latents"])
    values = start_of(model, jax.random.key(0), x)
    values["bases"] = values.pop("carriers")

    @jax.jit
    def plain(y, w, b, r, x):
        theta = jnp.einsum("nkd,kfd->nkf", y, w) + b
        height = jnp.sum(x[:, None] * theta - jnp.logaddexp(theta, 0.0), axis=-1)
        residual = x[:, None] - jax.nn.sigmoid(theta)
        return height, jnp.einsum("nkf,nkd->kfd", residual, r[..., None] * y)

    ours, zero = jax.jit(evaluate), jnp.zeros((1, 1))
    now = ours(values, model, x, zero)
    w, r = values["bases"] * values["scales"][:, None], now.responsibilities
    given = values["latents"], w, values["offsets"], r, x
    gap = jnp.abs(plain(*given)[1] - now.sums.loadings).max() / jnp.abs(now.sums.loadings).max()
    assert float(gap) < 1e-10, gap  # the same gradient
    return {
        "ours": lambda: jax.block_until_ready(ours(values, model, x, zero)),
        "plain": lambda: jax.block_until_ready(plain(*given)),
    }


def cpu_seconds(functions):
    """The least CPU seconds of each of a few calls in turn."""
    times = {name: [] for name in functions}
    for _ in range(REPEATS):
        for name, call in functions.items():
            before = time.process_time()
            call()
            times[name].append(time.process_time() - before)
    return {name: min(values) for name, values in times.items()}


def evaluations():
    """How many evaluations the sweeps of a fit of a tenth of the rows make."""
    import numpy as np

    import zoo
    from inference import fit

    model = zoo.DEPCAM(num_components=SIZE["num_components"], num_latents=SIZE["num_latents"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so few sweeps do not converge
        options = dict(method="em", max_iterations=SWEEPS, tolerance=0, clamped_sweeps=3, progress=False)
        tree = fit(model, data(SIZE["num_rows"] // 10), **options)
    counts = tree["trace"]["num_evaluations"].to_numpy()
    return float(np.median(counts)), int(counts.max())


def main():
    """Time, print, record."""
    pin()
    from inference.precision import in_precision

    n, k = SIZE["num_rows"], SIZE["num_components"]
    found = {}
    with in_precision():
        for name, (rows, components) in {
            "whole": (n, k),
            "half_n": (n // 2, k),
            "half_k": (n, k // 2),
        }.items():
            found[name] = cpu_seconds(calls(rows, components))
    ratio = found["whole"]["ours"] / found["whole"]["plain"]
    halves = {name: found[name]["ours"] / found["whole"]["ours"] for name in ("half_n", "half_k")}
    median, most = evaluations()
    print(f"one evaluation {found['whole']['ours']:.2f} CPU s, plain {found['whole']['plain']:.2f}")
    parts = f"half the rows {halves['half_n']:.2f}, half the components {halves['half_k']:.2f} of the cost"
    print(f"ratio {ratio:.2f} (bar {BAR}); {parts}")
    print(f"evaluations a sweep: median {median:g} (bar {EVALUATIONS_BAR}), at most {most}")
    write_record(
        "benchmark_depcam",
        "python -m tests.benchmarks.depcam",
        size=SIZE,
        cpu_seconds=found,
        ratio_to_plain=ratio,
        cost_of_half=halves,
        evaluations_per_sweep={"median": median, "largest": most, "sweeps": SWEEPS},
    )


if __name__ == "__main__":
    main()
