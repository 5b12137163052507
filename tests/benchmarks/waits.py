"""What a person waits for, against another checkout of this project: CPU seconds of whole commands.

Run ``python -m tests.benchmarks.waits FOLDER [NAMES] [--record]`` with FOLDER a checkout of the commit to
compare with, such as ``git worktree add FOLDER 2e5181ea``. ``customers`` (600 rows of mixed columns with
gaps) and ``survey`` (400 rows of twelve answers in words) are ``zoo fit mixture``, imports, tables and file
included; ``plot_mixture`` draws 40 clusters, ``sample`` draws 1000 rows from an estimator, of both the
call alone. ``cold`` begins with an empty cache of compiled programs, ``warm`` with the one that the cold run
has left. The checkouts take turns. Written to tests/reference/benchmark_waits.json.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.side_by_side import spent_by_children
from tests.tools.recording import add_to_record

FITTED = ("customers", "survey")
CALLS = {
    "plot_mixture": """
locs = rng.uniform(-40, 40, (40, 2))
x = locs[rng.integers(40, size=1200)] + rng.normal(size=(1200, 2))
options = {"method": "vb", "num_restarts": 1, "progress": False}
tree = inference.fit(zoo.Mixture.from_data(x, num_components=40), x, **options)
import inference.plots
call = lambda: inference.plots.plot_mixture(tree)
""",
    "sample": """
from inference.estimators import MixtureEstimator
own = MixtureEstimator(num_components=5, random_state=0).fit(rng.normal(size=(300, 2)))
call = lambda: own.sample(1000)
""",
}
CALL = """
import time, warnings
warnings.simplefilter("ignore")
import numpy as np, inference, zoo
inference.compile_cache()
rng = np.random.default_rng(0)
{made}
began = time.process_time()
call()
print(time.process_time() - began)
"""


def tables(folder):
    """Write the two drawn tables."""
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(11)
    group = rng.choice(4, 600, p=[0.4, 0.3, 0.2, 0.1])
    words = np.array(["app", "web", "store"])
    shares = np.array([[0.8, 0.15, 0.05], [0.2, 0.6, 0.2], [0.03, 0.12, 0.85], [0.3, 0.6, 0.1]])
    income = np.array([28000, 52000, 34000, 120000])[group] * np.exp(0.2 * rng.normal(size=600))
    days = pd.to_timedelta(rng.integers(0, 2500, 600), unit="D")
    table = pd.DataFrame(
        {
            "customer_id": [f"K{i:05d}" for i in range(600)],
            "age": rng.normal(np.array([28, 45, 63, 38])[group], 5).round(),
            "income": income.round(-2),
            "visits": rng.poisson(np.array([9, 3, 1, 4])[group]),
            "channel": [rng.choice(words, p=shares[k]) for k in group],
            "member": np.where(rng.random(600) < np.array([0.2, 0.6, 0.8, 0.95])[group], "yes", "no"),
            "since": (pd.Timestamp("2018-01-01") + days).strftime("%Y-%m-%d"),
            "country": "DE",
        }
    )
    for column, share in (("income", 0.12), ("age", 0.05), ("channel", 0.04)):
        table.loc[rng.random(600) < share, column] = np.nan
    table.to_csv(Path(folder, "customers.csv"), index=False)
    traits, loadings = rng.normal(size=(400, 2)), np.kron(np.eye(2), np.full((6, 1), 1.8))
    loadings[[2, 8]] *= -1
    scores = traits @ loadings.T + rng.logistic(size=(400, 12))
    levels = np.array(["strongly disagree", "disagree", "neutral", "agree", "strongly agree"])
    answers = levels[(scores[..., None] > np.array([-2.5, -0.8, 0.8, 2.5])).sum(-1)]
    answers = pd.DataFrame(
        answers, columns=[f"{kind}_{i + 1}" for kind in ("price", "service") for i in range(6)]
    )
    answers.mask(rng.random(answers.shape) < 0.05).to_csv(Path(folder, "survey.csv"), index=False)


def once(checkout, name, folder, cache):
    """CPU seconds of one command, or of the call in its process."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("JAX_", "ZOO_"))}
    kept |= {"PYTHONPATH": str(checkout), "ZOO_COMPILE_CACHE": cache, "MPLBACKEND": "Agg"}
    fit = ["-m", "zoo", "fit", "mixture", f"{name}.csv", "--out", "fit.nc", "--force", "--seed", "0"]
    command = fit if name in FITTED else ["-c", CALL.format(made=CALLS[name])]
    before = spent_by_children()
    done = subprocess.run([sys.executable, *command], cwd=folder, env=kept, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{name} in {checkout}:\n{done.stderr[-2000:]}")
    return spent_by_children() - before if name in FITTED else float(done.stdout.split()[-1])


def measure(here, there, name):
    """CPU seconds in each checkout, cold and warm, and their ratios."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        tables(folder)
        caches = {side: str(Path(folder, side)) for side in ("then", "now")}
        for state in ("cold", "warm"):
            for side, checkout in (("then", there), ("now", here)):
                found[f"{state}_{side}"] = round(once(checkout, name, folder, caches[side]), 2)
            found[f"{state}_ratio"] = round(found[f"{state}_now"] / found[f"{state}_then"], 3)
    return found


def main():
    """Measure what is asked for; a line each, recorded if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="a checkout of the commit to compare with")
    parser.add_argument("names", nargs="*", help=f"of {', '.join((*FITTED, *CALLS))} (default: all)")
    parser.add_argument("--record", action="store_true")
    arguments = parser.parse_args()
    here, there = Path(__file__).resolve().parents[2], arguments.folder.resolve()
    for name in arguments.names or (*FITTED, *CALLS):
        found = measure(here, there, name)
        print(name, found, flush=True)
        if arguments.record:
            add_to_record(
                "benchmark_waits", "python -m tests.benchmarks.waits FOLDER --record", **{name: found}
            )


if __name__ == "__main__":
    main()
