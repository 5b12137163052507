"""Rows from files against rows in memory: memory, processor time and the same fit; documents from texts.

Run ``python -m tests.benchmarks.streams`` (about ten minutes of processor time); ``--rows 1000000`` for fewer
rows, ``--files`` and ``--texts`` run one part. ``ZOO_DATA`` names the folder that holds ``news20.npz``. It
writes tests/reference/benchmark_streams.json.

Ten columns of doubles from fifty Gaussians are written to one ``.npy`` file and to a folder of Parquet files
and fitted by VB of 20 Gaussians, in three passes of batches of 100 000 rows, through the public function. All
runs have the same priors, those of the first million rows. Figures: the peak of the memory that is resident
(pages of files included) above what it was after the imports; the processor time of the second
pass against that of steps over the first million rows in memory, per row, without their start and their end;
and by how much a fit to the first million rows from files differs from one to the same rows in memory, in
the same batches. Then all rows are scored from the Parquet files into one, by each function that scores.

Documents: the counts of twenty newsgroups are written as texts, a file each, words numbered, and fitted from
that folder by LDA and PCP; the same words and counts in memory, in their order, must give the same objective.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

from tests.benchmarks.mixture_minibatch import Memory, mixture_of_gaussians
from tests.tools.recording import add_to_record

ROOT = Path(__file__).parents[2]
ROWS, FIRST, BATCH, COMPONENTS, PASSES = 10_000_000, 1_000_000, 100_000, 20, 3
ROWS_OF_FILE = 500_000
TOPICS, CLUSTERS, DOCUMENTS = 20, 20, 1000  # of news: topics, clusters, documents per batch
BARS = {"gigabytes": 1.5, "pass_over_step": 1.5, "difference": 1e-9, "news_gigabytes": 2.0}


class Resident(Memory):
    """The peak of resident memory, pages of files included, while it is watched."""

    counted = "VmRSS"

    @property
    def gigabytes(self):
        return (self.peak - self.before) / 1e6


def write_rows(folder, num_rows):
    """The rows as one array and as Parquet files of half a million."""
    import numpy as np
    import pandas as pd

    (folder / "parquet").mkdir()
    file = np.lib.format.open_memmap(folder / "rows.npy", "w+", np.float64, (num_rows, 10))
    held, begin, number = [], 0, 0
    for rows in mixture_of_gaussians(num_rows):
        file[begin : begin + len(rows)] = rows
        begin += len(rows)
        held.append(rows)
        if sum(map(len, held)) >= ROWS_OF_FILE or begin == num_rows:
            table = pd.DataFrame(np.concatenate(held), columns=[f"c{place}" for place in range(10)])
            table.to_parquet(folder / "parquet" / f"{number:03d}.parquet")
            held, number = [], number + 1
    file.flush()


def _model(folder):
    import numpy as np

    import zoo

    first = np.load(folder / "rows.npy", mmap_mode="r")[:FIRST]
    return zoo.Mixture.from_data(np.array(first), num_components=COMPONENTS)


def _of_passes(source, model, **call):
    """A fit from a source, and the processor seconds at which each reading of batches began."""
    from inference import fit
    from inference.inputs.streams import RowStream

    began, pieces = [], RowStream._pieces

    def timed(stream):
        began.append(time.process_time())
        return pieces(stream)

    RowStream._pieces = timed
    try:
        tree = fit(model, source, batch_size=BATCH, tolerance=0, num_samples=10, seed=0, **call)
    finally:
        RowStream._pieces = pieces
    return tree, began


def from_files(folder, kind):
    """Three passes over all rows of one kind of file."""
    from inference import open_rows

    source = folder / ("rows.npy" if kind == "npy" else "parquet")
    model = _model(folder)
    with Resident() as memory:
        begin = time.process_time()
        tree, began = _of_passes(source, model, max_iterations=PASSES)
        seconds = time.process_time() - begin
    objective = tree["trace"]["objective"].to_numpy()
    last = began[-PASSES:]
    return {
        "rows": open_rows(source).num_rows,
        "gigabytes_above_import": memory.gigabytes,
        "processor_seconds": seconds,
        "processor_seconds_of_each_pass_but_the_last": [b - a for a, b in zip(last, last[1:], strict=False)],
        "objective": objective.tolist(),
    }


def in_memory(folder):
    """Steps over the first million rows in memory, and the fits to them from files."""
    import numpy as np

    from inference import fit

    x, model = np.array(np.load(folder / "rows.npy", mmap_mode="r")[:FIRST]), _model(folder)

    def seconds_of(steps):
        begin = time.process_time()
        fit(model, x, max_iterations=steps, tolerance=0, num_samples=10, num_restarts=1, seed=0)
        return time.process_time() - begin

    seconds_of(2)  # compiles
    few, many = seconds_of(2), seconds_of(8)
    np.save(folder / "first.npy", x)
    files = sorted((folder / "parquet").iterdir())[: FIRST // ROWS_OF_FILE]
    held = _of_passes(x, model, max_iterations=PASSES)[0]
    found = {"processor_seconds_of_a_step": (many - few) / 6}
    for kind, source in (("npy", folder / "first.npy"), ("parquet", files)):
        tree = _of_passes(source, model, max_iterations=PASSES)[0]
        pairs = [(tree["trace"]["objective"], held["trace"]["objective"])]
        pairs += [(tree["variational"][name], value) for name, value in held["variational"].items()]
        found[f"largest_relative_difference_{kind}"] = max(
            float(np.max(np.abs(a.to_numpy() - b.to_numpy())) / max(np.max(np.abs(b.to_numpy())), 1e-300))
            for a, b in pairs
        )
    return found


def scored(folder):
    """All rows scored from the Parquet files into one by each function, and the first million in memory.

    The first million come first: memory is counted above what that has left resident.
    """
    import numpy as np
    import pyarrow.parquet

    import inference
    from inference.diagnostics import heldout

    first = np.array(np.load(folder / "rows.npy", mmap_mode="r")[:FIRST])
    tree = inference.fit(
        _model(folder), folder / "parquet", batch_size=BATCH, max_iterations=1, tolerance=0, num_samples=10
    )
    to_file = {"out": folder / "scores.parquet"}
    ways = {
        "transform": (inference.transform, to_file),
        "predict": (inference.predict, to_file),
        "log_density": (inference.log_density, to_file),
        "heldout": (heldout, {}),
    }
    found = {}
    for name, (score, written) in ways.items():
        score(tree, first[:BATCH])  # compiles
        begin = time.process_time()
        score(tree, first)
        of_first = time.process_time() - begin
        with Resident() as memory:
            begin = time.process_time()
            answer = score(tree, folder / "parquet", **written)
            seconds = time.process_time() - begin
        rows = pyarrow.parquet.read_metadata(answer).num_rows if written else int(answer["num_rows"])
        found[name] = {
            "rows": rows,
            "gigabytes_above_fit": memory.gigabytes,
            "processor_seconds": seconds,
            "processor_seconds_of_the_first_million_in_memory": of_first,
        }
    return found


def write_texts(folder):
    """Twenty newsgroups as texts of numbered words, a file each."""
    import numpy as np

    from zoo.datasets import load

    counts = load("news20")["counts"].tocsr()
    (folder / "news").mkdir()
    for number in range(counts.shape[0]):
        row = counts[number]
        words = np.repeat(row.indices, row.data.astype(int))
        (folder / "news" / f"{number:06d}").write_text(" ".join(f"w{word:06d}" for word in words))
    return counts


def of_texts(folder, name):
    """A fit from the folder, and one to the counts in memory in the same order."""
    import numpy as np

    import zoo
    from inference import fit
    from zoo.datasets import load

    sizes = {"num_topics": TOPICS} | ({"num_clusters": CLUSTERS} if name == "pcp" else {})
    model = (zoo.LDA if name == "lda" else zoo.PCP)(**sizes)
    call = {"batch_size": DOCUMENTS, "max_iterations": PASSES, "tolerance": 0, "num_samples": 2, "seed": 0}
    with Resident() as memory:
        begin = time.process_time()
        tree = fit(model, folder / "news", **call)
        seconds = time.process_time() - begin
    counts = load("news20")["counts"].tocsr()
    used = np.asarray(counts.sum(axis=0)).ravel() > 0
    held = fit(model, lambda: iter([counts[:, used]]), **call)
    objectives = (each["trace"]["objective"].to_numpy() for each in (tree, held))
    first, second = objectives
    return {
        "documents": int(counts.shape[0]),
        "words": int(used.sum()),
        "gigabytes_above_import": memory.gigabytes,
        "processor_seconds": seconds,
        "objective": first.tolist(),
        "largest_relative_difference_of_objective": float(np.max(np.abs(first / second - 1))),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--files", action="store_true")
    parser.add_argument("--texts", action="store_true")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.inside:
        warnings.simplefilter("ignore")  # so few passes do not converge
        _inside(asked.inside, Path(asked.folder), asked.rows)
        return
    every = not (asked.files or asked.texts)
    figures = {}
    with tempfile.TemporaryDirectory() as folder:

        def inside(part):
            options = ["--inside", part, "--folder", folder, "--rows", str(asked.rows)]
            command = [sys.executable, "-m", "tests.benchmarks.streams", *options]
            environment = os.environ | {"PYTHONPATH": str(ROOT)}
            run = subprocess.run(
                command, check=True, capture_output=True, text=True, cwd=ROOT, env=environment
            )
            result = json.loads(run.stdout.splitlines()[-1])
            print(part, json.dumps(result), flush=True)
            return result

        if every or asked.files:
            inside("write_rows")
            figures = {name: inside(name) for name in ("memory", "npy", "parquet", "scored")}
            step = figures["memory"]["processor_seconds_of_a_step"] / FIRST
            for kind in ("npy", "parquet"):
                passes = figures[kind]["processor_seconds_of_each_pass_but_the_last"]
                figures[kind]["pass_over_step"] = passes[-1] / figures[kind]["rows"] / step
        if every or asked.texts:
            inside("write_texts")
            figures |= {f"news_{name}": inside(name) for name in ("lda", "pcp")}
    rows = "" if asked.rows == ROWS else f" --rows {asked.rows}"
    command = f"python -m tests.benchmarks.streams{rows}"
    add_to_record("benchmark_streams", command, "pyarrow", "pandas", **figures, bars=BARS)


def _inside(part, folder, num_rows):
    import numpy as np  # noqa: F401 - what a fit imports counts as imported
    import pyarrow.dataset

    import inference

    inference.fit, inference.transform, pyarrow.dataset.dataset  # noqa: B018 - imports what they need
    result = {}
    if part == "write_rows":
        write_rows(folder, num_rows)
    elif part == "write_texts":
        write_texts(folder)
    elif part in ("lda", "pcp"):
        result = of_texts(folder, part)
    elif part in ("npy", "parquet"):
        result = from_files(folder, part)
    else:
        result = {"memory": in_memory, "scored": scored}[part](folder)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
