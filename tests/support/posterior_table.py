"""Every method of every model on the reference posteriors: bias, and effective draws per CPU second.

``python -m tests.support.posterior_table [--minutes M] [NAME ...]`` runs what
``tests/reference/posteriors/NAME.json`` lacks, cheap methods first, and writes each method as it ends, so
that the command goes on where it stopped; after M minutes of processor time it begins no further method.
A method that takes more than ``--limit`` minutes is stopped, which its record then says, and the command ends
with exit status 3: the same command goes on with the next. ``--again`` runs all anew. Each method runs twice,
with the seeds 1 and 2: the bias is that of the first run; processor time, without compilation, and what
`posterior_check` says of an exact sampler are those of the second. ``--draw`` makes the picture and the table
``tests/reference/posteriors.svg`` and ``.md`` of the records.
"""

import argparse
import contextlib
import json
import os
import threading
import time
from collections import defaultdict

import jax
import matplotlib
import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

import zoo
from inference.calibration import posterior_check
from inference.calibration.reference_posteriors import compared_quantities, scores
from inference.convergence.identifiable import kind_of
from tests.support.posterior_cases import ALL, METHODS_ON_POSTERIORS, fitted
from tests.tools.recording import REFERENCE, circumstances, code_of
from zoo import posteriors

FALSE_ALARMS = 1e-4  # of the check of one sampler on one posterior
CHEAP_FIRST = tuple("closed_form em map ep vb gibbs collapsed_gibbs tempered svi hmc nuts".split())
STOPPED = 3
PICTURE, TABLE = REFERENCE / "posteriors.svg", REFERENCE / "posteriors.md"
WORDS = (
    "Two grids, a row for each posterior and a column for each method: the largest bias of any quantity in "
    "posterior standard deviations, and effective draws per CPU second."
)
HEAD = f"""# Every method on the reference posteriors

![{WORDS}](posteriors.svg)

Small posteriors of all eleven models, {{exact}} of {{all}} of them with means known exactly, by listing all
labels or topics, and what each method finds. Written by `python -m tests.support.posterior_table --draw` from
the records in `tests/reference/posteriors`. The bias is the largest of all quantities, in posterior standard
deviations, with its standard error. Samplers of the posterior itself are checked, by `posterior_check` of
another run at a false-alarm rate of 1e-4: the largest |z| and its threshold. Effective draws are those of the
slowest quantity, for each second of processor time without compilation. Of {{rows}} pairs of posterior and
method {{lacking}} are not run yet: `python -m tests.support.posterior_table` goes on with them.

"""
COLUMNS = """| posterior | method | largest bias (sd) | check | draws per CPU s | of |
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
    second = fitted(case, method, options, seed=2)
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
    if method in case.exact:
        verdict = posterior_check(second, name, false_alarm_rate=FALSE_ALARMS)
        own["check"] = {
            "passed": verdict.passed,
            "largest_z": round(verdict.statistic, 2),
            "threshold": round(verdict.threshold, 2),
            "of": max(verdict.z, key=lambda quantity: abs(verdict.z[quantity])),
        }
    jax.clear_caches()  # each program holds memory maps, of which a process has 65 530
    return own


def is_done(own, exact):
    """Whether the record of a method is complete, or says that the method was stopped."""
    measured_and_checked = "cpu_seconds" in own and ("check" in own or not exact)
    return measured_and_checked or "stopped_after_cpu_seconds" in own


@contextlib.contextmanager
def limited(seconds, stopped, end=os._exit):
    """End the process, after a call of ``stopped``, when the block has used this much processor time.

    The loops of a fit run in compiled code, which no signal handler of Python interrupts; hence a thread.
    """
    begin, over, lock = time.process_time(), threading.Event(), threading.Lock()

    def watch():
        while not over.wait(0.5):
            with lock:
                if time.process_time() - begin > seconds and not over.is_set():
                    stopped()
                    end(STOPPED)
                    return

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        with lock:
            over.set()


def record_of(name):
    """The record of a posterior; empty if there is none."""
    path = METHODS_ON_POSTERIORS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def write(name, methods, made):
    """Write the record of a posterior, a line for each quantity; ``made``: the methods run by this code.

    The record is of this code once all are; till then it is as old as it was.
    """
    code = code_of(f"posteriors/{name}") if made >= methods.keys() else record_of(name).get("code")
    record = circumstances(f"python -m tests.support.posterior_table {name}", "arviz") | {
        "code": code,
        "methods": methods,
    }
    text = json.dumps(record, indent=1)
    biases = [own["bias"] for own in methods.values() if "bias" in own]
    for quantity in {q: None for bias in biases for q in bias}:
        for bias in biases:
            if quantity in bias:
                nested = json.dumps(bias[quantity], indent=1).replace("\n", "\n    ")
                text = text.replace(nested, json.dumps(bias[quantity]))
    METHODS_ON_POSTERIORS.mkdir(exist_ok=True)
    (METHODS_ON_POSTERIORS / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def rows(name):
    """(method, exact, its record; empty if it has not run) of a posterior, exact methods first."""
    case, done = ALL[name](), record_of(name).get("methods", {})
    for method in (*case.exact, *case.approximate):
        yield method, method in case.exact, done.get(method, {})


def worst_of(own):
    """(quantity, bias, standard error) of the largest bias in the record of a method."""
    quantity, worst = max(own["bias"].items(), key=lambda item: abs(item[1]["bias"]))
    return quantity, worst["bias"], worst["standard_error"]


def by_model():
    """The names of each model's posteriors."""
    models = {name: posteriors.load(name).model_name for name in ALL}
    return {model: [name for name in ALL if models[name] == model] for model in zoo.MODELS}


def _in_place_of_figures(own):
    """Why the record of a method has no figures."""
    if "stopped_after_cpu_seconds" in own:
        return f"stopped after {own['stopped_after_cpu_seconds'] / 60:.3g} CPU minutes"
    return "not run"


def _line(name, method, exact, own):
    """A row of the table."""
    kind = "" if exact else "approximate"
    if "bias" not in own:
        return f"| {name} | {method} | {_in_place_of_figures(own)} | {kind} |  |  |\n"
    quantity, bias, error = worst_of(own)
    check, speed = own.get("check"), own.get("ess_per_cpu_second")
    verdict = "not run" if exact else kind
    if check:
        verdict = f"{check['largest_z']:.1f} ({check['threshold']:.1f})" + (
            "" if check["passed"] else " **fails**"
        )
    draws = "" if speed is None else f"{speed:.0f}"
    size = f"{bias:+.3f} ± {error:.3f}".replace(" ", "\N{NO-BREAK SPACE}")
    return f"| {name} | {method} | {size} | {verdict} | {draws} | `{quantity}` |\n"


def table():
    """The page: a table for each model, and the methods that leave nothing to compare."""
    loaded = [posteriors.load(name) for name in ALL]
    held = [own for name in ALL for _, _, own in rows(name)]
    page = HEAD.format(
        exact=sum(own.exact for own in loaded),
        all=len(loaded),
        rows=len(held),
        lacking=sum(not own for own in held),
    )
    for model, names in by_model().items():
        page += f"## {zoo.MODELS[model]['class']}\n\n{COLUMNS}"
        page += "".join(_line(name, *row) for name in names for row in rows(name)) + "\n"
    page += "## Left out\n\n| posterior | methods | why |\n|---|---|---|\n"
    for name in ALL:
        left_out = ALL[name]().left_out
        for why in dict.fromkeys(left_out.values()):
            methods = ", ".join(method for method, own in left_out.items() if own == why)
            page += f"| {name} | {methods} | {why} |\n"
    return page


def _grid(axes, held, methods, norm, written, title):
    """Numbers in coloured cells: a row for each posterior, a column for each method."""
    values = np.array([[held.get((name, method), (np.nan, ""))[0] for method in methods] for name in written])
    axes.imshow(values, cmap="Blues", norm=norm, aspect="auto")
    axes.hlines(np.arange(1, len(written)) - 0.5, -0.5, len(methods) - 0.5, color="white", lw=1)
    axes.vlines(np.arange(1, len(methods)) - 0.5, -0.5, len(written) - 0.5, color="white", lw=1)
    for i, name in enumerate(written):
        for j, method in enumerate(methods):
            value, text = held.get((name, method), (np.nan, ""))
            dark = np.isfinite(value) and norm(value) > 0.6
            colour = "white" if dark else "black" if np.isfinite(value) else "0.4"
            weight = "bold" if text.endswith("!") else "normal"
            axes.text(j, i, text, ha="center", va="center", fontsize=7, color=colour, weight=weight)
    axes.set_xticks(range(len(methods)), methods, rotation=45, ha="left", rotation_mode="anchor", fontsize=8)
    axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
    axes.set_title(title, fontsize=10, pad=6)
    axes.spines[:].set_visible(False)


def draw():
    """Write the table and the picture: two grids, of largest biases and of effective draws per CPU second."""
    TABLE.write_text(table(), encoding="utf-8")
    groups = {model: names for model, names in by_model().items() if names}
    written = [name for names in groups.values() for name in names]
    biases, speeds = {}, {}
    for name in written:
        for method, exact, own in rows(name):
            short = "stopped" if "stopped_after_cpu_seconds" in own else "not run"
            biases[name, method] = speeds[name, method] = (np.nan, short)
            if "bias" in own:
                bias = abs(worst_of(own)[1])
                fails = exact and not own.get("check", {"passed": True})["passed"]
                biases[name, method] = (max(bias, 1e-3), f"{bias:.2f}" + "!" * fails)
                speed = own.get("ess_per_cpu_second")
                speeds[name, method] = (
                    (np.nan, "") if speed is None else (speed, f"{speed:,.0f}".replace(",", " "))
                )
    exact = ["collapsed_gibbs", "gibbs", "tempered", "hmc", "nuts"]
    methods = [*exact, "svi", "vb", "ep", "em", "map", "closed_form"]
    figure = Figure(figsize=(8.8, 0.19 * len(written) + 1.5), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[len(methods), len(exact) + 0.5])
    _grid(left, biases, methods, LogNorm(0.01, 4, clip=True), written, "Largest bias (posterior sd)")
    _grid(right, speeds, exact, LogNorm(10, 40_000, clip=True), written, "Draws (ESS) per CPU second")
    left.set_yticks(range(len(written)), written, fontsize=8)
    right.set_yticks([])
    left.axvline(len(exact) - 0.5, color="black", lw=1)
    place = -0.5
    for names in list(groups.values())[:-1]:
        place += len(names)
        for axes in (left, right):
            axes.axhline(place, color="0.5", lw=0.6)
    figure.supxlabel(
        "Left of the line: samplers that draw from the posterior itself; ! fails posterior_check.\n"
        "Empty: the method is of other models, or the table says why it is left out.",
        fontsize=8,
    )
    settings = {"svg.hashsalt": "posteriors", "svg.fonttype": "none", "font.family": "sans-serif"}
    with matplotlib.rc_context(settings):
        figure.savefig(PICTURE, metadata={"Date": None}, facecolor="white")


def lacking(names, methods, again):
    """(posterior, method) that the records lack, cheap methods first; last what lacks its check alone."""
    found = []
    for name in names:
        case, done = ALL[name](), record_of(name).get("methods", {})
        for method in (*case.exact, *case.approximate):
            own = done.get(method, {})
            wanted = again or not is_done(own, exact=method in case.exact)
            if wanted and (methods is None or method in methods):
                found.append(("cpu_seconds" in own, CHEAP_FIRST.index(method), len(found), name, method))
    return [pair[-2:] for pair in sorted(found)]


def main():
    """Run what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.posterior_table", description=__doc__)
    parser.add_argument("names", nargs="*", help="of posteriors; all by default")
    parser.add_argument("--minutes", type=float, default=np.inf, help="of processor time")
    parser.add_argument("--limit", type=float, default=np.inf, help="of one method, in minutes of it")
    parser.add_argument("--methods", nargs="*", help="run these only")
    parser.add_argument("--again", action="store_true", help="also what is recorded")
    parser.add_argument("--draw", action="store_true", help="draw the picture and run nothing")
    asked = parser.parse_args()
    if asked.draw:
        draw()
        return
    made = defaultdict(set)
    for name, method in lacking(asked.names or ALL, asked.methods, asked.again):
        if time.process_time() > 60 * asked.minutes:
            print("time is up; the same command goes on from here")
            return

        def record(own, name=name, method=method):
            made[name].add(method)
            write(name, record_of(name).get("methods", {}) | {method: own}, made[name])
            print(name, method, own.get("cpu_seconds", "stopped"), own.get("check", ""), flush=True)

        exact = method in ALL[name]().exact
        over = (
            {"exact": exact, "stopped_after_cpu_seconds": round(60 * asked.limit)}
            if asked.limit < np.inf
            else {}
        )
        with limited(60 * asked.limit, lambda record=record, over=over: record(over)):
            own = measured(name, method)
        record(own)


if __name__ == "__main__":
    main()
