"""Sparse S2PPCA against its two sparse products and against scikit-learn's sparse PCA, in one run.

Run ``OPENBLAS_NUM_THREADS=1 python -m tests.benchmarks.sppca_sparse`` in an environment with the extra
``bench``; scipy's sparse products have one thread, and BLAS threads on busy cores slow both sides down.

N = 20 000 documents of M = 25 000 words, 0.3 % of the cells non-zero, tf-idf with rows of length one; 20
outputs, known of one row in ten; 20 latents. Everything is timed at a later call, ours and the peers' in
turn, and the smallest time counts. Sweeps run on the host with scipy's products, so a sweep may cost twice
its two products; a whole fit may cost twice scikit-learn's PCA (arpack) of the sparse matrix; beyond
the data a fit may hold (4 M + 8 N) K numbers; the cost of a sweep is linear in N and in M. Besides, what was
tried to make a fit cheaper, one change at a time (`attempts`): a start to a looser tolerance, a start without
the outputs, and single precision (against the same peer in double). Written to
tests/reference/benchmark_sppca_sparse.json.
"""

import ctypes
import time
import tracemalloc
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from unittest.mock import patch

from tests.tools.recording import write_record

SIZE = {"num_rows": 20_000, "num_features": 25_000, "num_latents": 20, "num_outputs": 20}
WORDS_PER_ROW, TOPICS = 75, 21
SWEEP_BAR, FIT_BAR, LINEAR_BAR = 2.0, 2.0, 1.15
REPEATS, FITS = 25, 3


def data():
    """Documents of one topic each over a background, tf-idf; outputs follow the topics."""
    import numpy as np
    import scipy.sparse as sp

    rng = np.random.default_rng(0)
    n, m = SIZE["num_rows"], SIZE["num_features"]
    background = 1 / (np.arange(m) + 300.0)
    topic = rng.integers(TOPICS, size=n)
    tokens, of_row = [], []
    for own in range(TOPICS):
        rows = np.flatnonzero(topic == own)
        weights = background * rng.gamma(0.4, size=m)
        size = len(rows), WORDS_PER_ROW * 115 // 100
        tokens.append(rng.choice(m, size=size, p=weights / weights.sum()).ravel())
        of_row.append(np.repeat(rows, size[1]))
    tokens, of_row = np.concatenate(tokens), np.concatenate(of_row)
    once = rng.integers(n, size=m), np.arange(m)  # every word occurs
    of_row, tokens = np.concatenate([of_row, once[0]]), np.concatenate([tokens, once[1]])
    counts = sp.csr_matrix((np.ones(len(tokens)), (of_row, tokens)), shape=(n, m))
    counts = counts[:, rng.permutation(m)]
    counts.sum_duplicates()
    weights = np.log(n / np.bincount(counts.indices, minlength=m))
    x = counts @ sp.diags(weights)
    x = sp.csr_matrix(sp.diags(1 / np.sqrt(x.multiply(x).sum(axis=1)).A1) @ x)
    x.sort_indices()
    y = rng.normal(size=(TOPICS, SIZE["num_outputs"]))[topic]
    y = y + 0.5 * rng.normal(size=y.shape)
    y[rng.random(n) > 0.1] = np.nan
    return x, y


def seconds(call):
    """Wall and CPU seconds of a call."""
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - wall, time.process_time() - cpu


def smallest(calls, repeats):
    """The smallest wall and CPU seconds of each call, the calls in turn, after a first round."""
    times = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(repeats):
        for name, call in calls.items():
            times[name].append(seconds(call))
    return {name: tuple(map(min, zip(*both, strict=True))) for name, both in times.items()}


def sweep_and_products(x, y, repeats):
    """Seconds of a sweep, and of X W and X'Z in the form that scipy is quickest with."""
    import jax
    import numpy as np

    import zoo
    from inference.methods.sppca.em import METHOD
    from inference.precision import in_precision

    with in_precision("float64"):
        model, (rows, _) = zoo.SPPCA(num_latents=SIZE["num_latents"]).encoded(x, y)
        model = model.with_sizes_from(rows, y)
        prepared = METHOD.prepare(model, (rows, y), None)
        algorithm = METHOD.build("random", acceleration="px")
        key = jax.random.key(0)
        state = [algorithm.init(key, model, *prepared)]

        def sweep():
            state[0], info = algorithm.step(key, state[0], model, *prepared)
            float(info.objective)

        rng, transposed = np.random.default_rng(0), x.T.tocsr()
        w, z = (rng.normal(size=(size, SIZE["num_latents"])) for size in x.shape[::-1])
        calls = {
            "sweep": sweep,
            "x w": lambda: x @ w,
            "x'z": lambda: x.T @ z,
            "x'z, transposed stored": lambda: transposed @ z,
        }
        found = smallest(calls, repeats)
    quickest = min(found["x'z"], found["x'z, transposed stored"])
    found["two products"] = tuple(a + b for a, b in zip(found["x w"], quickest, strict=True))
    return found


def resident(field):
    """Bytes from /proc/self/status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith(field)))


def extra_memory(call):
    """The most bytes held beyond those before the call: of arrays as Python sees them, and resident."""
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    call()
    most = resident("VmHWM") - before
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {"arrays": peak, "resident": most}


def compare():
    """All figures."""
    import numpy as np
    from sklearn.decomposition import PCA

    import zoo
    from inference import fit

    x, y = data()
    (n, m), k = x.shape, SIZE["num_latents"]
    sweeps = sweep_and_products(x, y, REPEATS)
    linear = {
        "rows": {num: sweep_and_products(x[:num], y[:num], REPEATS)["sweep"][0] for num in (n // 4, n // 2)},
        "columns": {num: sweep_and_products(x[:, :num], y, REPEATS)["sweep"][0] for num in (m // 4, m // 2)},
    }
    for name, full in (("rows", n), ("columns", m)):
        linear[name][full] = sweeps["sweep"][0]
        sizes = np.log(list(linear[name]))
        linear[f"exponent of {name}"] = float(np.polyfit(sizes, np.log(list(linear[name].values())), 1)[0])
    model, trees = zoo.SPPCA(num_latents=k), []
    fits = {
        "ours": lambda: trees.append(fit(model, x, y, method="em", progress=False)) or trees[-2:-1].clear(),
        "scikit-learn arpack": lambda: PCA(k, svd_solver="arpack", random_state=0).fit(x),
    }
    fits = smallest(fits, FITS)
    iterations, trees = trees[-1].attrs["num_iterations"], None
    memory = extra_memory(lambda: fit(model, x, y, method="em", progress=False))
    return x.nnz / (n * m), sweeps, linear, fits, iterations, memory


def attempts():
    """CPU seconds of a fit by ways of making it, over those of scikit-learn's PCA, and where each ends."""
    import numpy as np
    from sklearn.decomposition import PCA

    import zoo
    from inference import fit
    from inference.methods.linear_gaussian import sparse_em

    x, y = data()
    model, trees = zoo.SPPCA(num_latents=SIZE["num_latents"]), {}
    loose = partial(sparse_em.sparse_start, tolerance=0.2)
    ways = {  # what is changed, and the options of the call
        "in use": ({}, {}),
        "start to a tolerance of 0.2": ({"sparse_start": loose}, {}),
        "outputs not in the start": ({"OUTPUT_SWEEPS": 0}, {}),
        "single precision": ({}, {"dtype": "float32"}),
    }

    def fitted(name):
        changed, options = ways[name]
        with patch.multiple(sparse_em, **changed) if changed else nullcontext():
            trees[name] = fit(model, x, y, method="em", progress=False, **options)

    calls = {name: partial(fitted, name) for name in ways}
    calls["scikit-learn arpack"] = lambda: PCA(SIZE["num_latents"], svd_solver="arpack", random_state=0).fit(
        x
    )
    taken = {name: cpu for name, (_, cpu) in smallest(calls, FITS).items()}
    ends = {name: float(np.asarray(tree["trace"]["objective"]).ravel()[-1]) for name, tree in trees.items()}
    return {
        name: {
            "CPU seconds": taken[name],
            "to scikit-learn, CPU": taken[name] / taken["scikit-learn arpack"],
            "sweeps": int(tree.attrs["num_iterations"]),
            "log likelihood over that in use": ends[name] - ends["in use"],
        }
        for name, tree in trees.items()
    }


def main():
    """Time, print, record."""
    share, sweeps, linear, fits, iterations, memory = compare()
    tried = attempts()
    print(tried)
    k, limit = (
        SIZE["num_latents"],
        8 * (4 * SIZE["num_features"] + 8 * SIZE["num_rows"]) * SIZE["num_latents"],
    )
    ratios = {
        "sweep to two products": sweeps["sweep"][0] / sweeps["two products"][0],
        "sweep to two products, CPU": sweeps["sweep"][1] / sweeps["two products"][1],
        "fit to scikit-learn": fits["ours"][0] / fits["scikit-learn arpack"][0],
        "fit to scikit-learn, CPU": fits["ours"][1] / fits["scikit-learn arpack"][1],
        "arrays to allowance": memory["arrays"] / limit,
        "resident to allowance": memory["resident"] / limit,
    }
    print(f"{share:.4%} non-zero, K = {k}, a fit takes {iterations} sweeps; seconds, wall and CPU")
    for name, (wall, cpu) in (sweeps | fits).items():
        print(f"{name:<26}{wall:>9.4f}{cpu:>9.4f}")
    for name, ratio in ratios.items():
        print(f"{name:<30}{ratio:>7.2f}")
    print(f"bars: sweep {SWEEP_BAR}, fit {FIT_BAR}, memory 1, exponents {LINEAR_BAR}")
    print({name: value for name, value in linear.items() if name.startswith("exponent")})
    record = {
        "size": SIZE | {"share_non_zero": share},
        "seconds_wall_and_cpu": sweeps | fits,
        "num_sweeps_of_fit": iterations,
        "sweep_by_size": linear,
        "extra_bytes": memory | {"allowed": limit},
        "ratios": ratios,
        "attempts": tried,
        "bars": {"sweep": SWEEP_BAR, "fit": FIT_BAR, "memory": 1.0, "exponents": LINEAR_BAR},
    }
    command = "OPENBLAS_NUM_THREADS=1 python -m tests.benchmarks.sppca_sparse"
    write_record("benchmark_sppca_sparse", command, "scipy", "scikit-learn", **record)


if __name__ == "__main__":
    main()
