"""Where the starts of VB of a mixture end, beside the best of hundreds of them.

Run ``python -m tests.benchmarks.mixture_starts``, or with the names of some tables. It writes
tests/reference/mixture_starts.json.

The best of a table is the highest of 200 starts without moves that begin as those of EM do, which were the
default before there were moves, and of 200 by default. Beside it stand the ends of the ten starts that a call
makes that does not say how many, and those of ten without moves: how many end within one nat of the best, the
median gap, and the steps and CPU seconds of each call, compiled before. Starts are told apart by the labels
that they give the rows first: the mean adjusted Rand index of two of the ten.

Tables are read as the command line reads them: those of the package, scikit-learn's iris, and drawn ones.
Customers, sensors, shops, parts and trips have planted groups; the survey has two traits and no groups.
"""

import itertools
import sys
import time
import warnings
from unittest import mock

import jax
import numpy as np
import pandas as pd
from sklearn.datasets import load_iris
from sklearn.metrics import adjusted_rand_score

import zoo
from inference import fit
from inference.fitting import in_memory
from inference.methods.mixture import starts, vb, vb_posterior
from tests.tools.recording import add_part_to_record
from zoo.datasets import load

COMMAND = "python -m tests.benchmarks.mixture_starts"
MANY, CLOSE = 200, 1.0  # starts; nats


def customers(rng):
    """600 customers of four segments, with missing cells."""
    segment = rng.choice(4, 600, p=[0.4, 0.3, 0.2, 0.1])
    income = np.log(np.array([28000, 52000, 34000, 120000]))[segment]
    words = np.array(["app", "web", "store"])
    channels = np.array([[0.8, 0.15, 0.05], [0.2, 0.6, 0.2], [0.03, 0.12, 0.85], [0.3, 0.6, 0.1]])
    frame = pd.DataFrame(
        {
            "age": rng.normal(np.array([28, 45, 63, 38])[segment], 5).round(),
            "income": np.exp(rng.normal(income, 0.2)).round(-2),
            "visits": rng.poisson(np.array([9, 3, 1, 4])[segment]),
            "channel": [rng.choice(words, p=channels[own]) for own in segment],
            "member": np.where(rng.random(600) < np.array([0.2, 0.6, 0.8, 0.95])[segment], "yes", "no"),
        }
    )
    for column, share in (("income", 0.12), ("age", 0.05), ("channel", 0.04)):
        frame.loc[rng.random(600) < share, column] = np.nan
    return frame


def sensors(rng):
    """2000 readings of three regimes; one column is skewed."""
    regime = np.repeat(rng.choice(3, 40, p=[0.6, 0.3, 0.1]), 50)
    return pd.DataFrame(
        {
            "temperature": rng.normal(np.array([55, 72, 91])[regime], 2).round(2),
            "vibration": np.exp(rng.normal(np.log(np.array([0.3, 0.5, 2.4]))[regime], 0.25)).round(3),
            "pressure": rng.normal(np.array([3.1, 3.4, 2.2])[regime], 0.12).round(2),
        }
    )


def shops(rng):
    """120 shops of three sizes."""
    size = rng.choice(3, 120)
    return pd.DataFrame(
        {
            "revenue": rng.normal(np.array([120, 340, 610])[size], 25).round(1),
            "staff": rng.poisson(np.array([6, 14, 25])[size]),
            "region": rng.choice(["North", "South"], 120),
        }
    )


def parts(rng):
    """500 parts of three kinds, beneath one strong direction of all."""
    kind = rng.choice(3, 500)
    x = 1.2 * rng.normal(size=(3, 10))[kind] + rng.normal(size=(500, 10))
    return x + 3 * rng.normal(size=(500, 1)) * rng.normal(size=(1, 10))


def trips(rng):
    """3000 trips of five kinds."""
    kind = rng.choice(5, 3000, p=[0.35, 0.25, 0.2, 0.15, 0.05])
    return 3 * rng.normal(size=(5, 6))[kind] + rng.normal(size=(3000, 6))


def survey(rng):
    """400 answers of two traits to twelve items, in five levels."""
    loadings = np.zeros((12, 2))
    loadings[:6, 0] = loadings[6:, 1] = 1.8
    loadings[[2, 8]] *= -1
    answers = rng.normal(size=(400, 2)) @ loadings.T + rng.logistic(size=(400, 12))
    levels = np.array(["a", "b", "c", "d", "e"])
    cells = levels[(answers[..., None] > np.array([-2.5, -0.8, 0.8, 2.5])).sum(-1)]
    return pd.DataFrame(cells, columns=[f"item_{i}" for i in range(12)])


DRAWN = {own.__name__: own for own in (customers, sensors, shops, parts, trips, survey)}


def table(name):
    """The table of a name."""
    if name in DRAWN:
        return DRAWN[name](np.random.default_rng(11))
    if name == "iris":
        return load_iris().data
    return load("toy_gaussians")["x"] if name == "toy" else load(name).frame()


TABLES = ("faithful", "toy", "iris", *DRAWN, "olive")


def as_before():
    """The starts of VB as they were before there were moves: those of EM."""
    vb.build.cache_clear()
    return mock.patch.object(vb, "kmeans_or_random", starts.mixed)


def run(x, number, **options):
    """The starts' ends, steps and CPU seconds, the starts' labels of the rows, by one call."""
    kept = {}
    ascend = in_memory.ascend

    def spy(*arguments, **keywords):
        kept.update(call=keywords, model=arguments[2])
        kept["run"] = ascend(*arguments, **keywords)
        return kept["run"]

    begin = time.process_time()
    with mock.patch.object(in_memory, "ascend", spy), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*has not converged")
        warnings.filterwarnings("ignore", message=".*column")
        tree = fit(
            zoo.Mixture(), x, method="vb", num_restarts=number, progress=False, num_samples=2, **options
        )
    seconds = time.process_time() - begin
    objective = kept["run"].trace["objective"]
    steps = np.isfinite(objective).sum(axis=1)
    ends = objective[np.arange(len(steps)), steps - 1]
    return ends, int(steps.sum()), seconds, kept, tree


def labels_of_starts(kept):
    """The most probable labels of the rows in every start, before a step."""
    call, model = kept["call"], kept["model"]
    (x,) = call["data"]
    with jax.enable_x64(True):
        begun = [
            vb_posterior.begin(
                lambda key, own, rows, n=n: vb.kmeans_or_random(n, key, own, rows),
                (),
                call["keys"][n],
                model,
                x,
            )
            for n in range(len(call["keys"]))
        ]
        return [np.asarray(vb_posterior.responsibilities(state, model, x)).argmax(1) for state in begun]


def figures(name):
    """What the record holds of a table."""
    x = table(name)
    with as_before():
        earlier = run(x, MANY, moves=())[0]
        run(x, 10, moves=())
        ten_before = run(x, 10, moves=())
    vb.build.cache_clear()
    many = run(x, MANY)[0]
    run(x, None)
    ten = run(x, None)
    best = max(earlier.max(), many.max())
    begun = labels_of_starts(ten[3])
    agreement = [adjusted_rand_score(a, b) for a, b in itertools.combinations(begun, 2)]
    found = {
        "rows_and_columns": list(np.shape(x)),
        "best_nats": round(float(best), 3),
        "best_of_200_by_default_and_as_before": [round(float(own.max()), 3) for own in (many, earlier)],
        "agreement_of_two_starts": round(float(np.mean(agreement)), 3),
    }
    for kind, (ends, steps, seconds, *_) in (("default", ten), ("as_before", ten_before)):
        found[kind] = {
            "within_one_nat_of_ten": int((ends > best - CLOSE).sum()),
            "median_gap_nats": round(float(np.median(best - ends)), 3),
            "steps": steps,
            "cpu_seconds_compiled_before": round(seconds, 2),
        }
    share = float((many > best - CLOSE).mean())
    return found | {"share_of_200_by_default_within_one_nat": share}


def main(names):
    """Record the tables of these names."""
    for name in names or TABLES:
        found = figures(name)
        print(name, found, flush=True)
        add_part_to_record("mixture_starts", name, COMMAND, "scikit-learn", **found)


if __name__ == "__main__":
    main(sys.argv[1:])
