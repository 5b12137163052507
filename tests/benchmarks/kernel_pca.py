"""Kernel PCA against scikit-learn's KernelPCA: whole fits, in one run.

Run ``python -m tests.benchmarks.kernel_pca`` in an environment with the extra ``bench``. N = 2000 rows of 64
columns, RBF kernel, ten components. Every solver of the peer is timed and the best one counts; runs of both
alternate, each after a first call that compiles and warms up, and the smallest time counts. Both are pinned
to one core, on which a thread never waits for another. The angle between the subspaces and the ratio are
printed and written to tests/reference/benchmark_kernel_pca.json.
"""

import os
import time

from tests.tools.recording import write_record

SIZE = {"num_rows": 2000, "num_features": 64, "num_latents": 10}
BAR, ANGLE_BAR = 1.5, 1e-6
REPEATS = 7


def pin():
    """One core, before NumPy or JAX are imported: both take their thread count from here."""
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:1]))
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"


def data():
    """Ten clusters in 64 columns: a spectrum that falls off after the tenth component."""
    import numpy as np

    rng = np.random.default_rng(0)
    locs = 2.0 * rng.normal(size=(10, SIZE["num_features"]))
    return locs[rng.integers(10, size=SIZE["num_rows"])] + rng.normal(
        size=(SIZE["num_rows"], SIZE["num_features"])
    )


def seconds(call):
    """Wall and CPU seconds of a call."""
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - wall, time.process_time() - cpu


def compare():
    """Seconds by solver, the angle between the subspaces, and sweeps of EM beside a dense solver."""
    import scipy.linalg
    from sklearn.decomposition import KernelPCA

    import zoo
    from inference import fit

    x, count = data(), SIZE["num_latents"]
    sized = zoo.KernelPCA(kernel="rbf", noise_variance=1e-5).with_sizes_from(x)
    length_scale = float(sized.kernel.length_scale)
    kernel = zoo.kernels.RBF(length_scale)
    model = zoo.KernelPCA(num_latents=count, kernel=kernel, noise_variance=1e-5)
    keywords = {"kernel": "rbf", "gamma": 0.5 / length_scale**2}

    def peer(solver):
        return KernelPCA(count, eigen_solver=solver, random_state=0, **keywords).fit(x)

    calls = {
        "ours": lambda: fit(model, x),
        "ours dense": lambda: fit(model, x, solver="dense"),
        "ours em, 20 sweeps": lambda: fit(
            model, x, method="em", max_iterations=20, tolerance=0, progress=False
        ),
        "scikit-learn arpack": lambda: peer("arpack"),
        "scikit-learn randomized": lambda: peer("randomized"),
        "scikit-learn dense": lambda: peer("dense"),
    }
    cold = {name: seconds(call)[0] for name, call in calls.items()}
    times = {name: [] for name in calls}
    for _ in range(REPEATS):
        for name, call in calls.items():
            times[name].append(seconds(call))
    best = {name: tuple(map(min, zip(*both, strict=True))) for name, both in times.items()}
    ours, theirs = fit(model, x)["variational"], peer("arpack")
    angle = scipy.linalg.subspace_angles(ours["gram_products"].to_numpy(), theirs.eigenvectors_)[0]
    return cold, best, float(angle)


def main():
    """Time, print, record."""
    pin()
    cold, best, angle = compare()
    rivals = {name: wall for name, (wall, _) in best.items() if name.startswith("scikit-learn")}
    rival = min(rivals, key=rivals.get)
    ratio = best["ours"][0] / rivals[rival]
    print(f"{'':<26}{'first call':>11}{'later':>9}{'CPU':>9}   (seconds)")
    for name, (wall, cpu) in best.items():
        print(f"{name:<26}{cold[name]:>11.3f}{wall:>9.3f}{cpu:>9.3f}")
    cpu_ratio = best["ours"][1] / best[rival][1]
    print(f"ratio to {rival}: {ratio:.2f} (bar {BAR}), of CPU time {cpu_ratio:.2f}")
    print(f"largest angle between the subspaces: {angle:.1e} rad (bar {ANGLE_BAR})")
    record = {
        "size": SIZE,
        "seconds": {
            name: {"first": cold[name], "later": best[name][0], "cpu": best[name][1]} for name in best
        },
        "best_peer": rival,
        "ratio": ratio,
        "ratio_of_cpu_time": cpu_ratio,
        "largest_angle": angle,
    }
    command = "python -m tests.benchmarks.kernel_pca"
    write_record("benchmark_kernel_pca", command, "scipy", "scikit-learn", **record)


if __name__ == "__main__":
    main()
