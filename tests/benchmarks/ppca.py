"""PPCA's closed form against scikit-learn's PCA, in one run.

Run ``python -m tests.benchmarks.ppca`` in an environment with the extra ``bench``. N = 2000 rows of 64
columns, ten latents. Every solver of the peer is timed and the best one counts; runs alternate, each after a
first call, and the smallest time counts, of wall and of CPU seconds. All are pinned to one core. The solver
(`inference.methods.ppca.closed_form.tipping_bishop`) and scikit-learn's ``fit`` both give arrays; the whole
``inference.fit``, which besides checks the data and makes a tree with latents, BIC and the data, stands
beside them. The angle between the subspaces and the ratios are printed and written to
tests/reference/benchmark_ppca.json.
"""

from tests.benchmarks.kernel_pca import pin, seconds
from tests.tools.recording import write_record

SIZE = {"num_rows": 2000, "num_features": 64, "num_latents": 10}
BAR, ANGLE_BAR = 1.5, 1e-6
REPEATS = 60
SOLVERS = ("full", "covariance_eigh", "arpack", "randomized")


def data():
    """Ten latents of falling strength and unit noise."""
    import numpy as np

    rng = np.random.default_rng(0)
    n, d, k = SIZE.values()
    strengths = np.linspace(6.0, 2.0, k)
    return (rng.normal(size=(n, k)) * strengths) @ rng.normal(size=(k, d)) / 4 + rng.normal(size=(n, d))


def compare():
    """First and best seconds by solver, and the angle between the subspaces."""
    import scipy.linalg
    from sklearn.decomposition import PCA

    import zoo
    from inference import fit
    from inference.methods.ppca.closed_form import tipping_bishop

    x, count = data(), SIZE["num_latents"]
    model = zoo.PPCA(num_latents=count)

    def peer(solver):
        return PCA(count, svd_solver=solver, random_state=0).fit(x)

    calls = {
        "ours": lambda: tipping_bishop(x, count),
        "ours, whole fit": lambda: fit(model, x),
        "ours, whole fit by em": lambda: fit(model, x, method="em", progress=False),
    } | {f"scikit-learn {solver}": (lambda solver=solver: peer(solver)) for solver in SOLVERS}
    cold = {name: seconds(call)[0] for name, call in calls.items()}
    times = {name: [] for name in calls}
    for _ in range(REPEATS):
        for name, call in calls.items():
            times[name].append(seconds(call))
    best = {name: tuple(map(min, zip(*both, strict=True))) for name, both in times.items()}
    directions = peer("full").components_.T
    angle = scipy.linalg.subspace_angles(tipping_bishop(x, count).loadings, directions)[0]
    return cold, best, float(angle)


def main():
    """Time, print, record."""
    pin()
    cold, best, angle = compare()
    rivals = {name: wall for name, (wall, _) in best.items() if name.startswith("scikit-learn")}
    rival = min(rivals, key=rivals.get)
    ratios = {name: best[name][0] / rivals[rival] for name in best if name.startswith("ours")}
    print(f"{'':<30}{'first call':>12}{'later':>10}{'CPU':>10}   (milliseconds)")
    for name, (wall, cpu) in best.items():
        print(f"{name:<30}{1e3 * cold[name]:>12.2f}{1e3 * wall:>10.3f}{1e3 * cpu:>10.3f}")
    for name, ratio in ratios.items():
        print(f"{name} to {rival}: {ratio:.2f}" + (f" (bar {BAR})" if name == "ours" else ""))
    print(f"largest angle between the subspaces: {angle:.1e} rad (bar {ANGLE_BAR})")
    record = {
        "size": SIZE,
        "milliseconds": {
            name: {"first": 1e3 * cold[name], "later": 1e3 * best[name][0], "cpu": 1e3 * best[name][1]}
            for name in best
        },
        "best_peer": rival,
        "ratio": ratios["ours"],
        "ratio_of_whole_fit": ratios["ours, whole fit"],
        "largest_angle": angle,
    }
    command = "python -m tests.benchmarks.ppca"
    write_record("benchmark_ppca", command, "scipy", "scikit-learn", **record)


if __name__ == "__main__":
    main()
