"""The sections of a report on assumptions and on the run."""

import dataclasses
import json
import sys
import textwrap
from itertools import takewhile

import numpy as np
import xarray as xr

from inference.convergence.identifiable import draws_of, kind_of, symmetries_of
from inference.plots.model_graph import draw_graph, graph_of, in_words
from inference.report.page import Code, Paragraph, Picture, Section, one_column
from inference.results.files import model_of
from zoo import MODELS

__all__ = ["assumed", "done", "run_facts", "title_of"]


def assumed(tree: xr.DataTree) -> Section:
    """Return the section on assumptions: generative process, fields, priors, graph and symmetries."""
    model = model_of(tree)
    name = tree.attrs.get("model", "")
    blocks = []
    if name in MODELS:
        blocks.append(Paragraph(f"{MODELS[name]['title']}. {MODELS[name]['paper']}."))
        process = _first_literal_block(sys.modules[type(model).__module__].__doc__ or "")
        blocks += [Code(process)] if process else []
    if not tree.attrs.get("generative", 1):
        method = tree.attrs.get("method")
        text = f"The method {method!r} is a projection: of this program it uses the data alone."
        blocks.append(Paragraph(text))
    blocks += [one_column("Fields and priors", dict(_fields(model))), _graph(tree)]
    if symmetries := ", ".join(symmetries_of(tree)):
        text = f"Symmetries of the posterior: {symmetries}. Nothing below depends on them unless it is noted."
        blocks.append(Paragraph(text))
    return Section("Assumed", blocks)


def _graph(tree: xr.DataTree) -> Picture | Paragraph:
    if "observed_data" not in tree.children:
        return Paragraph("No graph of the program: drawing it takes the data, which this fit left out.")
    graph = graph_of(tree)
    caption = (
        "The program: arrows lead to dependent symbols, frames are plates, grey symbols data; dashed: "
        "computed from others; square: a factor of the prior, or of a likelihood that is no density of rows."
    )
    return Picture("model-graph", caption, in_words(graph), draw_graph(graph))


def _first_literal_block(docstring: str) -> str:
    """Lines indented after the first ``::``: by convention, the generative process."""
    _, _, after = docstring.partition("::\n")
    block = takewhile(lambda line: not line.strip() or line.startswith(" "), after.splitlines())
    return textwrap.dedent("\n".join(block)).strip("\n")


def _fields(assumptions: object, prefix: str = "") -> list[tuple[str, str]]:
    """List field names (dotted for nested priors) with abbreviated values."""
    found = []
    for field in dataclasses.fields(assumptions):
        if not field.init or field.name.startswith("_"):
            continue
        value = getattr(assumptions, field.name)
        nested = value if isinstance(value, tuple) else (value,)
        if nested and all(dataclasses.is_dataclass(part) for part in nested):
            for number, part in enumerate(nested):
                place = f"{field.name}[{number}]" if isinstance(value, tuple) else field.name
                found.append((prefix + place, type(part).__name__))
                found += _fields(part, f"{prefix}{place}.")
        else:
            found.append((prefix + field.name, _short(value)))
    return found


def _short(value: object) -> str:
    if hasattr(value, "arg_constraints"):  # a NumPyro distribution
        names = (name for name in value.arg_constraints if hasattr(value, name))
        arguments = ", ".join(f"{name}={_short(getattr(value, name))}" for name in names)
        return f"{type(value).__name__}({arguments})"
    if isinstance(value, tuple) and len(value) > 16 and all(isinstance(part, int) for part in value):
        return f"{len(value)} numbers, from {min(value)} to {max(value)}"
    if isinstance(value, str | bool | int | tuple | type(None)):
        return str(value)
    array = np.asarray(value)
    if array.dtype == object:
        return str(value)
    if array.size <= 16:
        return np.array2string(array, precision=4, separator=", ", suppress_small=False).replace("\n", "")
    return f"array of shape {array.shape}, from {array.min():.4g} to {array.max():.4g}"


def run_facts(tree: xr.DataTree) -> dict[str, str]:
    """Collect method, data, draws, time, seed, settings and versions of a run; unknown ones are left out.

    Args:
        tree: a fit.

    Returns:
        Name to words: ``method``, ``data``, ``draws``, ``iterations``, ``time``, ``seed``, ...
    """
    attrs, sizes, kind = tree.attrs, draws_of(tree).sizes, kind_of(tree)
    facts = {"method": str(attrs.get("method", "not recorded"))}
    first = model_of(tree).data_names[0]
    if "observed_data" in tree.children and first in tree["observed_data"]:
        shape = tree["observed_data"][first].shape
        facts["data"] = f"{shape[0]} rows, {shape[1]} features"
    elif "observed_data" in tree.children and "count" in tree["observed_data"]:
        cells = tree["observed_data"].to_dataset()
        facts["data"] = (
            f"{cells.attrs['num_documents']} rows, {cells.attrs['num_words']} columns, "
            f"{cells.sizes['nonzero']} cells that are not zero"
        )
    facts["draws"] = {
        "sampling": f"{sizes['chain']} chains of {sizes['draw']} draws",
        "variational": f"{sizes['draw']} independent draws from q",
        "point": "one point estimate",
    }[kind]
    counted, reason = (attrs.get(name, "not recorded") for name in ("num_iterations", "stop_reason"))
    facts["iterations"] = f"{counted}; stopped: {reason}"
    if "sampling_time" in attrs:
        facts["time"] = f"{float(attrs['sampling_time']):.1f} s"
    facts |= {name: str(attrs[name]) for name in ("seed", "dtype", "left_out") if str(attrs.get(name, ""))}
    facts["settings"] = ", ".join(f"{name}={value}" for name, value in _options(tree).items())
    versions = [(name, value) for name, value in attrs.items() if name.startswith("version_")]
    facts["versions"] = ", ".join(f"{name.removeprefix('version_')} {value}" for name, value in versions)
    return {name: value for name, value in facts.items() if value}


def done(tree: xr.DataTree) -> Section:
    """Return the section on the run: method, data, time, settings, and how to repeat it."""
    facts = one_column("The run", run_facts(tree))
    return Section("Done", [facts, Paragraph("To repeat it:"), Code(_command(tree))])


def _command(tree: xr.DataTree) -> str:
    """Return the recorded command that made the fit, or Python that repeats it from its file."""
    if "command" in tree.attrs:
        return str(tree.attrs["command"])
    keywords = {name: tree.attrs[name] for name in ("method", "seed", "dtype") if name in tree.attrs}
    keywords |= {name: value for name, value in _options(tree).items() if name != "learnt_from"}
    by_need = keywords.pop("drops_starts", False)
    if by_need:  # of a call that names neither the number of starts nor a strategy
        del keywords["num_restarts"], keywords["init"]
    lines = ["from inference import fit, load, model_of", 'old = load("FIT.nc")  # this fit']
    if keywords.get("init") == "given":
        del keywords["init"]
        lines.append("# the start was given by the caller and is not part of the fit: add init=...")
    arguments = {name: repr(value) for name, value in keywords.items()}
    if isinstance(keywords.get("seed"), str):  # a key, recorded as its two words
        lines.append("import jax")
        arguments["seed"] = f"jax.random.wrap_key_data(jax.numpy.array({keywords['seed']}, dtype='uint32'))"
    if "constant_data" in tree.children and "sample_weight" in tree["constant_data"]:
        arguments["sample_weight"] = 'old["constant_data"]["sample_weight"]'
    listed = ", ".join(f"{name}={value}" for name, value in arguments.items())
    if "observed_data" in tree.children:
        names = tree["observed_data"].data_vars
        data = "".join(f'old["observed_data"]["{name}"].to_pandas(), ' for name in names)
    else:
        names = ", ".join(model_of(tree).data_names)
        lines.append(f"# the fit does not hold its data: {names}")
        data = f"{names}, "
    if "observed_data" in tree.children and "num_documents" in tree["observed_data"].attrs:
        lines += ["import zoo", 'cells = old["observed_data"].to_dataset()']
        data = (
            'zoo.SparseCounts(cells["document"], cells["word"], cells["count"], '
            '(cells.attrs["num_documents"], cells.attrs["num_words"])), '
        )
    call = f"tree = fit(model_of(old), {data}{listed})"
    whole = {"break_long_words": False, "break_on_hyphens": False}  # every line break is inside brackets
    return "\n".join([*lines, *textwrap.wrap(call, 90, subsequent_indent="    ", **whole)])


def _options(tree: xr.DataTree) -> dict:
    return json.loads(tree.attrs.get("options", "{}"))


def title_of(tree: xr.DataTree) -> str:
    """Return the full name of a fit's model.

    Args:
        tree: a fit.
    """
    name = tree.attrs.get("model", "model")
    return MODELS[name]["title"] if name in MODELS else str(name)
