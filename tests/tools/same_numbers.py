"""Compare the numbers of small fits with their record, bit for bit: every model by every method.

``python -m tests.tools.same_numbers`` compares each fit with tests/reference/same_numbers.json, on the
machine and with the versions that the file names; ``--record`` writes the file anew, all of it or the cases
that are named; ``--list`` lists the cases; ``--answers`` records, for the comparison to rounding alone, what
one fit by each method of a model answers about new rows, and the log densities of all programs, each at one
point (tests/reference/answers.json). A refactoring must leave every case equal; whoever changes a
number records it again and says in the commit which and why.

Of each fit the file keeps the last objective (exact, in hexadecimal), the groups with their variables and
dims, a SHA-256 of each group's values, and of each variable the four numbers of ``fit_cases.outline``, which
the default tests compare to rounding. Timings and versions are left out.
"""

import argparse
import hashlib
import json
import os
import sys

os.environ["XLA_FLAGS"] = (
    f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2".strip()
)

import jax  # noqa: E402 - after the number of devices is fixed
import numpy as np  # noqa: E402
import pytest  # noqa: E402

from tests.support.fit_cases import ANSWERED, CASES, GROUPS, answers, fitted, log_densities, outline  # noqa: E402
from tests.support.single_operations import done_by_numpy  # noqa: E402
from tests.tools.recording import REFERENCE, circumstances, code_of, write_record  # noqa: E402

RECORD = REFERENCE / "same_numbers.json"
ATTRIBUTES = (
    "model",
    "model_fields",
    "method",
    "converged",
    "stop_reason",
    "num_iterations",
    "left_out",
    "seed",
)


def digest(tree):
    """What is kept of a fit."""
    groups = {name: tree[name].to_dataset() for name in GROUPS if name in tree.children}
    objective = groups["trace"]["objective"].to_numpy().ravel()
    return {
        "objective": float(objective[np.isfinite(objective)][-1]).hex(),
        "attributes": {name: str(tree.attrs.get(name)) for name in ATTRIBUTES},
        "variables": {
            name: {str(v): list(map(str, group[v].dims)) for v in sorted(map(str, group.data_vars))}
            for name, group in groups.items()
        },
        "sha256": {name: _sha256(group) for name, group in groups.items()},
        "outline": {group: _words(told) for group, told in outline(tree).items()},
    }


def _words(told):
    return {name: " ".join(f"{number:.10g}" for number in numbers) for name, numbers in told.items()}


def _sha256(group):
    found = hashlib.sha256()
    for name in sorted(map(str, group.data_vars)):
        values = group[name].to_numpy()
        values = values.astype(str) if values.dtype.kind in "OT" else np.ascontiguousarray(values)
        found.update(f"{name} {group[name].dims} {values.dtype} {values.shape}".encode())
        found.update(values.tobytes())
    return found.hexdigest()[:16]


def whole(tree):
    """The fit.

    Raises:
        KeyboardInterrupt: it was interrupted: its numbers are of no run that ended.
    """
    if tree.attrs["stop_reason"].startswith("interrupted"):
        raise KeyboardInterrupt
    return tree


def differences(before, now):
    """What differs between two digests, as words."""
    return [
        f"{aspect}.{name}: {before[aspect].get(name)} -> {now[aspect].get(name)}"
        for aspect in ("attributes", "variables", "sha256")
        for name in sorted(before[aspect].keys() | now[aspect].keys())
        if before[aspect].get(name) != now[aspect].get(name)
    ] + (
        [f"objective: {before['objective']} -> {now['objective']}"]
        if before["objective"] != now["objective"]
        else []
    )


def record_answers(names):
    """Write down answers and log densities of these cases beside those of the others."""
    file = REFERENCE / "answers.json"
    kept = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    fits, programs = kept.get("fits", {}), kept.get("programs", {})
    with pytest.MonkeyPatch.context() as patch:
        done_by_numpy(patch)  # as in the test
        for name in names:
            if (densities := log_densities(name)) is not None:
                told = " ".join(f"{number:.12g}" for number in densities)
                if told not in [other for case, other in programs.items() if case != name]:
                    programs[name] = told
    for name in names:
        if name in ANSWERED:
            fits[name] = _words(answers(name, whole(fitted(name))))
            print(name, flush=True)
            jax.clear_caches()
    write_record("answers", "python -m tests.tools.same_numbers --answers", fits=fits, programs=programs)


def main(argv=None):
    """Compare, or record.

    Returns:
        1 if a fit differs from its record, 2 if the record is of other versions or another machine.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.tools.same_numbers", description=__doc__)
    parser.add_argument("cases", nargs="*", help="the cases whose names begin so (default: all)")
    parser.add_argument("--record", action="store_true", help="write the record anew")
    parser.add_argument("--answers", action="store_true", help="record answers and programs, and stop")
    parser.add_argument("--list", action="store_true", help="list the cases")
    arguments = parser.parse_args(argv)
    chosen = [name for name in CASES if not arguments.cases or name.startswith(tuple(arguments.cases))]
    if arguments.list:
        print("\n".join(chosen))
        return 0
    if arguments.answers:
        record_answers(chosen)
        return 0
    here = circumstances("python -m tests.tools.same_numbers --record") | {"code": code_of("same_numbers")}
    record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {"fits": {}}
    if arguments.cases:  # the others stay as old as they are
        here["code"] = record.get("code")
    if not arguments.record and _where(record) != _where(here):
        print(f"recorded with {_where(record)}\nhere {_where(here)}: bits may differ for that alone")
    changed = 0
    for name in chosen:
        try:
            now = digest(whole(fitted(name)))
        except Exception as error:  # a case that fails is a difference, and the others are still compared
            found = [f"{type(error).__name__}: {error}"]
        else:
            found = (
                []
                if arguments.record
                else differences(record["fits"][name], now)
                if name in record["fits"]
                else ["new"]
            )
            if arguments.record:
                record["fits"][name] = now
                RECORD.write_text(
                    json.dumps(here | {"fits": record["fits"]}, indent=1) + "\n", encoding="utf-8"
                )
        changed += bool(found)
        print(f"{name}: {'; '.join(found) or ('recorded' if arguments.record else 'equal')}", flush=True)
        jax.clear_caches()  # each compiled program holds memory maps, of which a process has 65 530
    print(f"{len(chosen) - changed} of {len(chosen)} {'recorded' if arguments.record else 'equal'}")
    return 0 if not changed else 2 if _where(record) != _where(here) else 1


def _where(circumstances_of):
    """The versions and the processor, without the load."""
    return circumstances_of.get("versions"), circumstances_of.get("machine", "").split(", load")[0]


if __name__ == "__main__":
    sys.exit(main())
