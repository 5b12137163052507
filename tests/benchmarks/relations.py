"""Every relation for every model by every method at tiny size, and the record of the outcome.

Run ``python -m tests.benchmarks.relations`` to check all cases of tests/support/relation_cases.py, or those
that are named (CASE, CASE/METHOD or CASE/METHOD/RELATION); each model and method in a process of its own, so
that compiled programs do not pile up. ``--record`` writes tests/reference/relations.json: for each relation
that holds the largest error relative to the spread and its threshold, or the smallest p-value and its
threshold; for each that does not, the reason; and the CPU seconds of each model and method all of whose
relations were checked. Two devices are made of the CPU.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time

from tests.tools.recording import REFERENCE, circumstances, code_of

COMMAND = "python -m tests.benchmarks.relations"
RECORD = REFERENCE / "relations.json"
#: Programs of twenty rows take longer to compile than to run.
QUICK = {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0".strip()}


def outcomes(case, method, *names):
    """Relation to what came of it: ``"error"`` or ``"p"``, and ``"threshold"``, or ``"no"`` and the reason.

    All relations, or those named.
    """
    import jax
    import numpyro

    numpyro.set_host_device_count(2)
    from inference.calibration import relation_check, relations
    from inference.calibration.relation_changes import RELATIONS
    from tests.support.relation_cases import CASES, options_of, relation_of

    make, data, _ = CASES[case]
    model, found = relations.sized(make, data), {}
    for name in names or RELATIONS:
        relation = relation_of(model, method, name)
        said = relations.outcome_of(model, method, relation)
        if said.startswith("no: "):
            found[name] = {"no": said.removeprefix("no: ")}
            continue
        try:
            options = options_of(method, name, said)
            verdict = relation_check(make, method, data, relation, seed=3, **options)
        except Exception as error:  # a call that fails is an outcome, and the others are still checked
            found[name] = {"passed": False, "raised": f"{type(error).__name__}: {str(error)[:200]}"}
        else:
            worst = verdict.errors or verdict.p_values
            pick = max if verdict.errors else min
            found[name] = {
                "passed": verdict.passed,
                "error" if verdict.errors else "p": float(f"{verdict.statistic:.2g}"),
                "threshold": float(f"{verdict.threshold:.2g}"),
                "of": pick(worst, key=worst.get),
            }
        jax.clear_caches() if relation.single_precision else None
    return found


def _chosen(methods, named):
    """(case, method) to the relations that are named with them, which are all if there are none."""
    pairs = {(case, method): [] for case, own in methods.items() for method in own}
    if not named:
        return pairs
    wanted = {}
    for case, method, relation in ([*name.split("/"), "", ""][:3] for name in named):
        for pair in pairs:
            if pair[0] == case and method in ("", pair[1]):
                wanted.setdefault(pair, []).extend([relation] if relation else [])
    return wanted


def _spent_by_children():
    """CPU seconds of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(argv=None):
    """Check, and record if asked.

    Returns:
        The number of relations that failed, at most 1.
    """
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("cases", nargs="*", help="case, case/method or case/method/relation (default: all)")
    parser.add_argument("--record", action="store_true", help="write the record anew")
    parser.add_argument("--one", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.one:
        print("\n" + json.dumps(outcomes(*arguments.one)))
        return 0
    from tests.support.relation_cases import CASES

    chosen = _chosen({case: CASES[case].methods for case in CASES}, arguments.cases)
    record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.is_file() else {}
    kept, seconds, failed = record.get("outcomes", {}), record.get("cpu_seconds", {}), 0
    for (case, method), names in chosen.items():
        began, spent = time.monotonic(), _spent_by_children()
        call = [sys.executable, "-W", "ignore", "-m", __spec__.name, "--one", case, method, *names]
        run = subprocess.run(call, capture_output=True, text=True, check=False, env=os.environ | QUICK)
        if run.returncode:
            raise RuntimeError(f"{case} by {method}: {run.stderr[-2000:]}")
        found = json.loads(run.stdout.splitlines()[-1])
        kept[f"{case}/{method}"] = (kept.get(f"{case}/{method}", {}) if names else {}) | found
        if not names:
            seconds[f"{case}/{method}"] = round(_spent_by_children() - spent)
        wrong = {name: outcome for name, outcome in found.items() if not outcome.get("passed", True)}
        failed += len(wrong)
        held = sum(outcome.get("passed", False) for outcome in found.values())
        print(f"{case} by {method}: {held} hold, {time.monotonic() - began:.0f} s", flush=True)
        for name, outcome in wrong.items():
            print(f"    {name} FAILED: {outcome}", flush=True)
        if arguments.record:
            told = circumstances(f"{COMMAND} --record")
            if not arguments.cases and (case, method) == [*chosen][-1]:  # now all is of this code
                told |= {"code": code_of("relations")}
            content = told | {"cpu_seconds": seconds, "outcomes": kept}
            RECORD.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(f"{failed} failed")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
