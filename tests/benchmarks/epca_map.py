"""MAP of Bernoulli EPCA on a large table against randomised SVDs of the filled table; NUTS on a middling one.

Run ``python -m tests.benchmarks.epca_map`` (add ``nuts`` for the second part, some minutes). N = 20 000 rows,
D = 500, K = 10, 30 % of the cells hidden. Ten iterations of L-BFGS by ``inference.fit``, second call, in
float64 and in float32; scikit-learn's ``randomized_svd`` with its defaults on the table filled with column
means, in the same precision. CPU seconds of one thread, so that a busy machine does not decide; the least of
the calls counts. Memory is what the compiled step holds: data, state and temporaries, in tables of N x D.
NUTS: N = 1000, D = 50, K = 3 at the defaults; divergences, R-hat and bulk ESS of 100 fixed cells of Theta and
of its singular values. Written to tests/reference/benchmark_epca.json.
"""

import json
import os
import sys
import time

ROWS, COLUMNS, LATENTS, ITERATIONS = 20_000, 500, 10, 10
BARS = dict.fromkeys(("float64", "float32"), 5.0)
MEMORY_BAR = 4.0


def table(rows, columns, latents, hidden, seed=0):
    """Binary cells of a low-rank logistic model, some hidden."""
    import numpy as np

    rng = np.random.default_rng(seed)
    theta = 2 * rng.normal(size=(rows, latents)) @ rng.normal(size=(latents, columns)) / latents**0.5
    x = (rng.uniform(size=theta.shape) < 1 / (1 + np.exp(-theta))).astype(float)
    x[rng.uniform(size=x.shape) < hidden] = np.nan
    return x


def cpu_seconds(call, repeats):
    """CPU seconds of each call."""
    found = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        found.append(time.process_time() - start)
    return found


def held_by_a_step(model, x, dtype):
    """Bytes that the compiled step holds, over those of the table."""
    import jax
    import jax.numpy as jnp

    from inference.methods.map import build
    from inference.precision import in_precision
    from zoo.model import in_current_precision

    with in_precision(dtype):
        algorithm, own = build("random", 10), in_current_precision(model)
        data, keys = jnp.asarray(x), jax.random.split(jax.random.key(0), 1)
        state = jax.vmap(algorithm.init, (0, None, None))(keys, own, data)
        step = jax.jit(jax.vmap(algorithm.step, (0, 0, None, None)))
        memory = step.lower(keys, state, own, data).compile().memory_analysis()
    held = memory.temp_size_in_bytes + memory.argument_size_in_bytes + memory.output_size_in_bytes
    return held / (x.size * (8 if dtype == "float64" else 4))


def against_svd():
    """CPU seconds and memory by precision."""
    import numpy as np
    from sklearn.utils.extmath import randomized_svd

    import zoo
    from inference import fit

    x = table(ROWS, COLUMNS, LATENTS, 0.3)
    model = zoo.EPCA.from_data(x, family="bernoulli", num_latents=LATENTS)
    found = {}
    for dtype, bar in BARS.items():
        means = np.nanmean(x, axis=0)
        filled = (np.where(np.isnan(x), means, x) - means).astype(dtype)

        def ours(dtype=dtype):
            fit(model, x, method="map", max_iterations=ITERATIONS, tolerance=0, dtype=dtype, progress=False)

        cold = cpu_seconds(ours, 1)[0]
        warm = min(cpu_seconds(ours, 3))
        peer = min(cpu_seconds(lambda filled=filled: randomized_svd(filled, LATENTS, random_state=0), 5))
        held = held_by_a_step(model, x, dtype)
        found[dtype] = {
            "cold": cold,
            "second_call": warm,
            "randomised_svd": peer,
            "ratio": warm / peer,
            "bar": bar,
            "reached": warm / peer <= bar,
            "tables_held": held,
            "memory_reached": held <= MEMORY_BAR,
        }
        print(dtype, json.dumps(found[dtype]))
    return found


def nuts():
    """Divergences, R-hat and ESS of NUTS at its defaults."""
    import numpy as np

    import zoo
    from inference import fit
    from inference.convergence.r_hat import effective_sample_size, psrf_of

    x = table(1000, 50, 3, 0.0)
    start = time.perf_counter()
    tree = fit(zoo.EPCA(num_latents=3), x, method="nuts", num_warmup=500, num_samples=500, progress=False)
    seconds = time.perf_counter() - start
    rng = np.random.default_rng(1)
    rows, columns = rng.integers(0, 1000, 100), rng.integers(0, 50, 100)
    posterior = tree["posterior"]
    u, v = posterior["latents"].values, posterior["loadings"].values
    cells = (
        np.einsum("cdik,cdik->cdi", u[:, :, rows], v[:, :, columns]) + posterior["loc"].values[..., columns]
    )
    spectrum = np.linalg.svd(
        np.linalg.qr(u, mode="r") @ np.swapaxes(np.linalg.qr(v, mode="r"), -1, -2), compute_uv=False
    )
    draws = np.concatenate([cells, spectrum], axis=-1)
    found = {
        "divergences": int(tree["sample_stats"]["diverging"].sum()),
        "largest_rhat": max(psrf_of(draws[..., i], "rank") for i in range(draws.shape[-1])),
        "least_bulk_ess": min(effective_sample_size(draws[..., i], "bulk") for i in range(draws.shape[-1])),
        "seconds": seconds,
        "chains": 4,
        "warmup": 500,
        "draws": 500,
    }
    found["reached"] = (
        not found["divergences"] and found["largest_rhat"] < 1.02 and found["least_bulk_ess"] > 800
    )
    print("nuts", json.dumps(found))
    return found


def main():
    """Run the parts asked for, and keep the record of the other."""
    from tests.tools.recording import add_part_to_record  # imports NumPy, whose threads are settled by then

    for part in sys.argv[1:] or ["map"]:
        found = {"map": against_svd, "nuts": nuts}[part]()
        command = f"python -m tests.benchmarks.epca_map {part}"
        add_part_to_record("benchmark_epca", part, command, "scipy", "scikit-learn", **found)


if __name__ == "__main__":
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    main()
