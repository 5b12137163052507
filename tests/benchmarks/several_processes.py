"""One fit shared by several processes on this machine: seconds of a step, against one process.

Run ``python -m tests.benchmarks.several_processes`` on a quiet machine (some minutes). It writes
tests/reference/benchmark_several_processes.json. Each fit is made twice in the same processes, and the second
is timed: nothing is compiled in it. A step that is large uses several cores in one process already, so that
two processes on two cores need not be faster; the record says what they are. Processor seconds are those of
all processes together, waiting for each other included.

The objectives must agree between numbers of processes, those of mixtures in batches excepted, whose rows
pass in another order.
"""

import argparse
import json
import os
import sys
import tempfile
import time
import warnings
from pathlib import Path

from tests.support.processes import sharing
from tests.tools.recording import write_record

OTHER_ORDER = "mixture vb in batches"
NEAR = 1e-10  # relative, between numbers of processes
ROOT = Path(__file__).parents[2]
ROWS, FEATURES, COMPONENTS, STEPS = 400_000, 10, 20, 20
DOCUMENTS, WORDS, TOPICS, TOPIC_STEPS = 4_000, 5_000, 20, 20
CHAINS, SWEEPS, CHAIN_ROWS = 4, 300, 5_000


def fits(number, count):
    """Name to a fit of this process's share, without arguments."""
    import numpy as np
    import scipy.sparse

    import zoo
    from inference import fit

    rng = np.random.default_rng(0)
    locs = 3 * rng.normal(size=(COMPONENTS, FEATURES))
    x = locs[rng.integers(COMPONENTS, size=ROWS)] + rng.normal(size=(ROWS, FEATURES))
    shares = rng.dirichlet(np.full(TOPICS, 0.1), DOCUMENTS) @ rng.dirichlet(np.full(WORDS, 0.05), TOPICS)
    words = scipy.sparse.csr_matrix(np.stack([rng.multinomial(120, share) for share in shares]))
    rows, documents = (np.array_split(np.arange(size), count)[number] for size in (ROWS, DOCUMENTS))
    plain = {"tolerance": 0, "num_restarts": 1, "num_samples": 1}
    mixture = zoo.Mixture(num_components=COMPONENTS)
    of_batches = plain | {"max_iterations": 3, "batch_size": ROWS // 20}
    sweeps = {"num_chains": CHAINS, "num_warmup": 0, "num_samples": SWEEPS, "chain_method": "sequential"}
    return {
        "mixture vb": lambda: fit(mixture, x[rows], max_iterations=STEPS, **plain),
        "mixture vb in batches": lambda: fit(mixture, x[rows], **of_batches),
        "lda vb": lambda: fit(
            zoo.LDA(num_topics=TOPICS), words[documents], max_iterations=TOPIC_STEPS, **plain
        ),
        "mixture gibbs": lambda: fit(mixture, x[:CHAIN_ROWS], method="gibbs", **sweeps),
    }


def timed(file):
    """In each of the processes: the second of two equal fits; process 0 writes what it found."""
    import inference

    number, count = inference.join_processes()
    found = {}
    for name, run in fits(number, count).items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # so few steps have not converged
            run()
            begun = time.perf_counter(), time.process_time()
            tree = run()
        seconds, processor = time.perf_counter() - begun[0], time.process_time() - begun[1]
        found[name] = {
            "seconds": seconds,
            "processor seconds": processor,
            "objective": float(tree["trace"]["objective"].to_numpy().ravel()[-1]),
        }
    Path(f"{file}.{number}").write_text(json.dumps(found))


def compared(counts):
    """Figures by fit and number of processes."""
    figures = {}
    for count in counts:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "found"
            command = [sys.executable, __file__, "--file", str(file)]
            paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
            with sharing(count, command, env=os.environ | {"PYTHONPATH": paths}) as every:
                answers = [process.communicate() for process in every]
            if any(process.returncode for process in every):
                raise RuntimeError(answers)
            parts = [json.loads(Path(f"{file}.{number}").read_text()) for number in range(count)]
        for name, first in parts[0].items():
            figures.setdefault(name, {})[f"{count} processes"] = {
                "seconds": round(first["seconds"], 3),
                "processor seconds": round(sum(part[name]["processor seconds"] for part in parts), 3),
                "objective": first["objective"],
            }
    for name, by_count in figures.items():
        one, *others = by_count.values()
        for other in others:
            other["speed-up"] = round(one["seconds"] / other["seconds"], 2)
            other["apart"] = abs(other["objective"] / one["objective"] - 1)
            if name != OTHER_ORDER and other["apart"] > NEAR:
                raise RuntimeError(f"{name}: objectives {one['objective']} and {other['objective']}")
    return figures


def main():
    """Time, print and record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--file", help="used inside a process")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    given = parser.parse_args()
    if given.file:
        timed(given.file)
        return
    figures = compared(given.processes)
    print(json.dumps(figures, indent=1))
    write_record("benchmark_several_processes", "python -m tests.benchmarks.several_processes", fits=figures)


if __name__ == "__main__":
    main()
