"""What a record in tests/reference says besides its figures: how it came about, and how to remake it.

A record carries a digest of the code that it describes, so that one that is older than the code is known:
``python -m tests.tools.recording`` lists them.
"""

import ast
import functools
import hashlib
import json
import os
import platform
import re
from importlib.metadata import version
from pathlib import Path

import numpy as np

REFERENCE = Path(__file__).parents[1] / "reference"
TOLD = frozenset(("command", "versions", "machine", "code"))  # of a record or a part, beside its figures
METHODS = "inference/methods/"
MIXTURES, TOPICS = (METHODS + "mixture",), (METHODS + "documents", METHODS + "lda", METHODS + "pcp")
PROJECTIONS = tuple(METHODS + name for name in ("linear_gaussian", "ppca", "sppca"))
CELLS = tuple(METHODS + name for name in ("epca", "paired"))
WHOLE = ("zoo", "inference")
FITS = (  # what `fit` imports; tests/test_architecture.py holds that no room above is
    *("zoo", "inference/driver", "inference/methods", "inference/convergence", "inference/fitting"),
    *("inference/inputs", "inference/results", "inference/numerics", "inference/symmetry"),
    *("inference/algorithm.py", "inference/coordinates.py", "inference/precision.py"),
    *("inference/processes.py", "inference/program_cache.py", "inference/settings.py"),
)
DESCRIBED = {  # by how the name of the record begins, the longest beginning counts
    "answers": WHOLE,
    "bad_inputs": WHOLE,
    "bayesian_cca": CELLS,
    "benchmark_": WHOLE,
    "benchmark_depcam": (METHODS + "depcam",),
    "benchmark_epca": CELLS,
    "benchmark_kernel_pca": (METHODS + "kernel_pca", "zoo/kernels"),
    "benchmark_lda": TOPICS,
    "benchmark_mixture": (*MIXTURES, "inference/driver"),
    "benchmark_numerics": ("inference/numerics", "zoo/gamma_functions.py"),
    "benchmark_ppca": PROJECTIONS,
    "benchmark_report": ("inference/report", "inference/plots", "inference/diagnostics"),
    "benchmark_sppca": PROJECTIONS,
    "benchmark_topic": TOPICS,
    "depcam": (METHODS + "depcam",),
    "epca": CELLS,
    "figure_10": CELLS,
    "figure_11": CELLS,
    "geweke_epca": CELLS,
    "geweke_hyperparameters": MIXTURES,
    "geweke_mixture": MIXTURES,
    "geweke_paired": CELLS,
    "gibbs_sppca": PROJECTIONS,
    "hostile_files": ("inference/results", "inference/driver/checkpoint.py", "zoo/datasets"),
    "kills": ("inference/driver", "inference/fitting", "inference/numerics/atomic_files.py"),
    "kernel_pca": (METHODS + "kernel_pca", "zoo/kernels"),
    "mcfa": (*MIXTURES, METHODS + "mcfa", METHODS + "linear_gaussian"),
    "mixture": MIXTURES,
    "first_tier": ("tests/benchmarks/first_tier.py", "tests/tools/mutants/mutants.toml"),
    "mutants": ("tests/tools/mutants/mutants.toml",),
    "notebooks": ("notebooks",),
    "paired": CELLS,
    "paper_kernel_pca": (METHODS + "kernel_pca", "zoo/kernels"),
    "paper_mixture": MIXTURES,
    "paper_projections": PROJECTIONS,
    "paper_topics": TOPICS,
    "pcp_corpora": TOPICS,
    "posteriors/": (*FITS, "inference/calibration/reference_posteriors.py"),
    "ppca": PROJECTIONS,
    "probit": ("zoo/linear_gaussian", METHODS + "sppca"),
    "relations": WHOLE,
    "same_numbers": FITS,
    "slow_tests": ("tests/tools/slow_tests.py",),  # each test has its day
    "sppca": PROJECTIONS,
    "topic_bars": TOPICS,
    "topic_tables": TOPICS,
}


def circumstances(command, *packages):
    """The command, the versions of Python and of what decides the figures, the machine and its load."""
    names = ("numpy", "jax", "numpyro", *packages)
    return {
        "command": command,
        "versions": {"python": platform.python_version()} | {name: version(name) for name in names},
        "machine": f"{_processor()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
    }


def _told(name, command, packages, figures):
    """What a record tells beside its figures, whose names must be others."""
    told = circumstances(command, *packages) | {"code": code_of(name)}
    if both := told.keys() & figures.keys():
        raise ValueError(f"figures named {sorted(both)} would overwrite how the record came about")
    return told


def write_record(name, command, *packages, **figures):
    """Write ``tests/reference/<name>.json`` anew."""
    content = _told(name, command, packages, figures) | figures
    (REFERENCE / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def add_to_record(name, command, *packages, **figures):
    """Put figures beside those that ``tests/reference/<name>.json`` holds under other names.

    Kept parts that do not tell how they came about are given what stood beside them, which is now of the new.
    """
    path = REFERENCE / f"{name}.json"
    kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    told = _told(name, command, packages, figures)
    own = {"code": None} | {key: kept.pop(key) for key in told if key in kept}
    others = {key: own | part if isinstance(part, dict) else part for key, part in kept.items()}
    content = told | others | figures
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def add_part_to_record(name, part, command, *packages, **figures):
    """Put one part beside those that other commands wrote: how it came about stands in it, not beside it."""
    path = REFERENCE / f"{name}.json"
    kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    told = circumstances(command, *packages) | {"code": code_of(name)}
    content = (kept or told) | {part: told | figures}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def mean_and_error(values, digits=5):
    """Mean and its standard error, which one value has not: NaN is no number of JSON."""
    values = np.asarray(values, float)
    found = {"mean": round(float(values.mean()), digits)}
    if len(values) > 1:
        found["standard_error"] = round(float(values.std(ddof=1) / len(values) ** 0.5), digits)
    return found


def code_of(name, digest=None):
    """The digest of each file or folder that a record describes: what runs, without docstrings and cards."""
    beginnings = [own for own in DESCRIBED if name.startswith(own)]
    digest = digest or _digest
    return {path: digest(REFERENCE.parents[1] / path) for path in DESCRIBED[max(beginnings, key=len)]}


def older_than_their_code():
    """Records whose code has changed since, and those that do not say what code they describe.

    Parts that say it speak for themselves; what stands beside them is of the code that the record names.
    """
    older, undated, digest = [], [], functools.cache(_digest)  # many records describe the whole
    for path in sorted(REFERENCE.rglob("*.json")):
        name = path.relative_to(REFERENCE).with_suffix("").as_posix()
        held = json.loads(path.read_text(encoding="utf-8"))
        told = [own["code"] for own in held.values() if isinstance(own, dict) and "code" in own]
        if len(told) < len(held.keys() - TOLD) or not told:
            told.append(held.get("code"))
        if None in told:
            undated.append(name)
        elif any(own != code_of(name, digest) for own in told):
            older.append(name)
    return older, undated


def _digest(path):
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    found = hashlib.sha256()
    for file in files:
        if file.suffix == ".py":
            found.update(_what_runs(file.read_text(encoding="utf-8")).encode())
        elif file.suffix in (".toml", ".css") and file.parent.name != "cards":
            found.update(file.read_bytes())
    return found.hexdigest()[:12]


def _what_runs(source):
    """The source without comments and docstrings, in one layout."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        documented = isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        if documented and ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
    return ast.unparse(tree)


def _processor():
    listed = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.*)", listed.read_text()) if listed.exists() else None
    return found[1] if found else platform.processor() or platform.machine()


if __name__ == "__main__":
    for title, names in zip(
        ("older than their code", "without a digest"), older_than_their_code(), strict=True
    ):
        print(f"{title}: {', '.join(names) or 'none'}")
