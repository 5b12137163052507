"""Every notebook, run from its first cell to its last assertion; the seconds it took.

Run from the root, with the extra ``notebooks`` installed: ``python -m tests.benchmarks.notebooks small``
runs all notebooks at small size (what ``.ci/run`` does), ``... full old_faithful which_prior`` two of them
at full size. ``--record`` writes the seconds to tests/reference/notebooks.json, beside those of other
notebooks, as soon as a notebook is through; ``--keep FOLDER`` leaves the executed notebooks there. What
``full NAME --keep notebooks/_outputs`` left is on the site, as long as the notebook's code stays as it was.

Processor seconds are those of the notebook's own process, compilation included; the wall clock also counts
what else the machine did. At small size programs run for milliseconds, so the compiler leaves its
optimisations out, as it does in the default tests. Programs compiled in one notebook are not kept for the
next, unless ``JAX_COMPILATION_CACHE_DIR`` says so; then nothing is recorded. Where ``ZOO_DATA`` names a
folder of data sets, full size takes them, and the record says so.
"""

import argparse
import base64
import os
import re
import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from io import BytesIO
from pathlib import Path

from PIL import Image

from tests.tools.recording import add_to_record

__all__ = ["main", "notebooks_by_name", "run_notebook", "unannounced_warnings"]

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
QUICK = "--xla_backend_optimization_level=0"
_FOLDERS = re.compile(r"/\S*/(?=\w+\.py:\d+: )")
LONGEST = {"small": 1800, "full": 7200}  # seconds for a cell, on a machine that does other things as well


def run_notebook(path, size, keep=None):
    """Execute one notebook.

    Args:
        path: its text file.
        size: ``"small"`` or ``"full"``.
        keep: folder for the executed notebook, written also when a cell fails.

    Returns:
        Processor seconds, seconds by the clock, and the number of code cells.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed; the message holds it.
        RuntimeError: at small size a cell that is not tagged ``warns`` wrote to the standard error.
    """
    import jupytext
    import nbclient
    import nbformat

    notebook = jupytext.read(path)
    environment = os.environ | {"ZOO_NOTEBOOK_SIZE": size, "MPLBACKEND": "Agg"}
    if size == "small" and QUICK not in environment.get("XLA_FLAGS", ""):
        environment["XLA_FLAGS"] = f"{environment.get('XLA_FLAGS', '')} {QUICK}".strip()
    client = nbclient.NotebookClient(
        notebook,
        timeout=LONGEST[size],
        kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},
    )
    begin, spent = time.perf_counter(), _children_seconds()
    try:
        client.execute(env=environment)
    finally:
        if keep is not None:
            nbformat.write(light(notebook), Path(keep) / f"{path.stem}.ipynb")
    if size == "small" and (warned := unannounced_warnings(notebook)):
        raise RuntimeError(f"{path.stem} writes to the standard error unannounced: {warned}")
    number = sum(cell.cell_type == "code" for cell in notebook.cells)
    return _children_seconds() - spent, time.perf_counter() - begin, number


def light(notebook):
    """The executed notebook, its pictures with a palette and its warnings without folders."""
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", ()):
            if png := output.get("data", {}).get("image/png"):
                picture = Image.open(BytesIO(base64.b64decode(png))).convert("RGB")
                output["data"]["image/png"] = _with_palette(picture)
            if output.output_type == "stream":
                output["text"] = _FOLDERS.sub("", output["text"])
    return notebook


def _with_palette(picture):
    kept = BytesIO()
    picture.quantize(128, dither=Image.Dither.NONE).save(kept, "png", optimize=True)
    return base64.b64encode(kept.getvalue()).decode()


def notebooks_by_name():
    """Path of each text file by its name, in order: the course, and the kits."""
    paths = [path for folder in (".", "kits") for path in (NOTEBOOKS / folder).glob("*.py")]
    return {path.stem: path for path in sorted(paths) if path.name != "conf.py"}  # that of the site


def unannounced_warnings(notebook):
    """What cells that are not tagged ``warns`` wrote to the standard error."""
    return [
        output["text"].strip()
        for cell in notebook["cells"]
        if "warns" not in cell["metadata"].get("tags", ())
        for output in cell.get("outputs", ())
        if output["output_type"] == "stream" and output["name"] == "stderr"
    ]


def main(arguments=None):
    """Run the notebooks that are asked for; the first that fails ends it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("size", choices=sorted(LONGEST))
    parser.add_argument("names", nargs="*", help="notebooks without ending; all, when there are none")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--keep", type=Path, metavar="FOLDER")
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="notebooks at a time; default 1")
    asked = parser.parse_args(arguments)
    known = notebooks_by_name()
    unknown = sorted(set(asked.names) - set(known))
    if unknown:
        parser.error(f"there is no notebook {', '.join(unknown)}; there are {', '.join(known)}")
    if asked.record and "JAX_COMPILATION_CACHE_DIR" in os.environ:
        parser.error(
            "seconds are recorded without a cache of compiled programs: unset JAX_COMPILATION_CACHE_DIR"
        )
    if asked.record and asked.at_once > 1:
        parser.error("seconds are recorded of one notebook at a time: leave out --at-once")
    if asked.keep is not None:
        asked.keep.mkdir(parents=True, exist_ok=True)
    names = asked.names or list(known)
    run = partial(_with_load, size=asked.size, keep=asked.keep)
    with ProcessPoolExecutor(asked.at_once) as pool:
        ran = pool.map(run, map(known.get, names))  # ends what waits, when one fails
        for name, (load, processor, clock, cells) in zip(names, ran, strict=True):
            print(f"{name}: {cells} cells, {processor:.0f} s of processor time, {clock:.0f} s", flush=True)
            if asked.record:
                with_data = asked.size == "full" and bool(os.environ.get("ZOO_DATA"))
                entry = {
                    "processor seconds": round(processor, 1),
                    "seconds": round(clock, 1),
                    "load before": round(load, 1),
                    "ZOO_DATA": with_data,
                }
                key = f"{name}, {asked.size}" + (", ZOO_DATA" if with_data else "")
                command = "python -m tests.benchmarks.notebooks SIZE [NAME ...] --record"
                add_to_record("notebooks", command, "nbclient", **{key: entry})
    return 0


def _with_load(path, size, keep):
    """The load of the machine before a notebook, and what `run_notebook` gave."""
    return os.getloadavg()[0], *run_notebook(path, size, keep)


def _children_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main())
