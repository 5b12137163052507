"""Every method of every model on the reference posteriors: bias, and effective draws per CPU second.

``python -m tests.posterior_table [--minutes M] [NAME ...]`` runs what
``tests/reference/posteriors/NAME.json`` lacks, posterior by posterior, and writes each method as it ends, so
that the command goes on where it stopped; after M minutes of processor time it begins no further method.
``--again`` runs all anew. Each method runs twice, with the seeds 1 and 2; processor time is that of the
second run, without compilation. ``--draw`` makes the picture and the table
``tests/reference/posteriors.svg`` and ``.md`` of the records.
"""

import argparse
import json
import time

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from inference.calibration.reference_posteriors import compared_quantities, scores
from inference.convergence.identifiable import kind_of
from tests.posterior_cases import ALL, METHODS_ON_POSTERIORS, fitted
from tests.recording import REFERENCE, circumstances, code_of
from zoo import posteriors

PICTURE, TABLE = REFERENCE / "posteriors.svg", REFERENCE / "posteriors.md"
HEAD = """# Every method on the reference posteriors

Written by `python -m tests.posterior_table --draw` from the records in [posteriors](posteriors). The bias
is the largest of all quantities, in posterior standard deviations, with its standard error; effective draws
are those of the slowest quantity, for each second of processor time without compilation.

| posterior | method | draws from it | largest bias (sd) | of | effective draws per CPU second |
|---|---|---|---|---|---|
"""


def bias_of(tree, posterior):
    """Bias of each quantity and its standard error, in posterior sds, z, and ESS (0 of an estimate)."""
    draws = {q: own for q, own in compared_quantities(tree).items() if q in posterior.reference}
    found = scores(draws, posterior)
    for quantity, own in found.items():
        if np.ptp(draws[quantity]) == 0:  # one estimate, or a distribution that has shrunk to a point
            own["standard_error"] = posterior.reference[quantity].mcse / posterior.reference[quantity].sd
    return found


def measured(name, method):
    """What a method finds of a posterior, as the record holds it."""
    case, posterior = ALL[name](), posteriors.load(name)
    options = (case.exact | case.approximate)[method]
    tree = fitted(case, method, options, seed=1)
    found = bias_of(tree, posterior)
    begin = time.process_time()
    fitted(case, method, options, seed=2)
    seconds = time.process_time() - begin
    own = {
        "exact": method in case.exact,
        "cpu_seconds": round(seconds, 3),
        "bias": {
            quantity: {key: float(f"{score[key]:.4g}") for key in ("bias", "standard_error")}
            for quantity, score in found.items()
        },
    }
    if kind_of(tree) == "sampling":
        least = min(score["ess"] for score in found.values())
        own |= {"smallest_ess": round(least), "ess_per_cpu_second": float(f"{least / seconds:.3g}")}
    return own


def record_of(name):
    """The record of a posterior; empty if there is none."""
    path = METHODS_ON_POSTERIORS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def write(name, methods):
    """Write the record of a posterior, a line for each quantity."""
    record = circumstances(f"python -m tests.posterior_table {name}", "arviz") | {
        "code": code_of(f"posteriors/{name}"),
        "methods": methods,
    }
    text = json.dumps(record, indent=1)
    for quantity in {q: None for own in methods.values() for q in own["bias"]}:
        for own in methods.values():
            if quantity in own["bias"]:
                nested = json.dumps(own["bias"][quantity], indent=1).replace("\n", "\n    ")
                text = text.replace(nested, json.dumps(own["bias"][quantity]))
    METHODS_ON_POSTERIORS.mkdir(exist_ok=True)
    (METHODS_ON_POSTERIORS / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def rows():
    """(posterior, method, exact, largest bias in sds, its error, quantity, ESS per CPU second or None)."""
    for name in posteriors.names():
        for method, own in record_of(name).get("methods", {}).items():
            quantity, worst = max(own["bias"].items(), key=lambda item: abs(item[1]["bias"]))
            yield (
                name,
                method,
                own["exact"],
                worst["bias"],
                worst["standard_error"],
                quantity,
                own.get("ess_per_cpu_second"),
            )


def draw():
    """A point for each method and posterior: its largest bias, and beside it ESS per CPU second."""
    table = list(rows())
    names = sorted({row[0] for row in table}, reverse=True)
    methods = sorted({row[1] for row in table})
    marks = dict(zip(methods, "osD^v<>PX*hd", strict=False))
    figure = Figure(figsize=(11, 0.28 * len(names) + 1.5), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for method in methods:
        own = [row for row in table if row[1] == method]
        places = [names.index(row[0]) for row in own]
        left.plot([max(abs(row[3]), 1e-3) for row in own], places, marks[method], label=method, ms=5)
        timed = [(row[6], place) for row, place in zip(own, places, strict=True) if row[6]]
        if timed:
            right.plot(*zip(*timed, strict=True), marks[method], ms=5)
    left.set(xscale="log", xlabel="largest bias (posterior sd)", yticks=range(len(names)), yticklabels=names)
    right.set(xscale="log", xlabel="effective draws per CPU second")
    left.grid(axis="y", alpha=0.3)
    right.grid(axis="y", alpha=0.3)
    figure.legend(loc="outside upper center", ncols=len(methods), frameon=False)
    with matplotlib.rc_context({"svg.hashsalt": "posteriors"}):
        figure.savefig(PICTURE, metadata={"Date": None})
    lines = [
        f"| {name} | {method} | {'yes' if exact else 'no'} | {bias:+.3f} ± {error:.3f} | `{quantity}` | "
        f"{'' if speed is None else f'{speed:.0f}'} |\n"
        for name, method, exact, bias, error, quantity, speed in table
    ]
    TABLE.write_text(HEAD + "".join(lines), encoding="utf-8")


def main():
    """Run what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.posterior_table", description=__doc__)
    parser.add_argument("names", nargs="*", help="of posteriors; all by default")
    parser.add_argument("--minutes", type=float, default=np.inf, help="of processor time")
    parser.add_argument("--methods", nargs="*", help="run these only")
    parser.add_argument("--again", action="store_true", help="also what is recorded")
    parser.add_argument("--draw", action="store_true", help="draw the picture and run nothing")
    asked = parser.parse_args()
    if asked.draw:
        draw()
        return
    for name in asked.names or ALL:
        case = ALL[name]()
        for method in (*case.exact, *case.approximate):
            done = record_of(name).get("methods", {})
            if ("cpu_seconds" in done.get(method, {}) and not asked.again) or (
                asked.methods and method not in asked.methods
            ):
                continue
            if time.process_time() > 60 * asked.minutes:
                print("time is up; the same command goes on from here")
                return
            write(name, done | {method: measured(name, method)})
            print(name, method, flush=True)


if __name__ == "__main__":
    main()
