"""The first screen of a report, and its sections on the run and on the model."""

import dataclasses
import json
import shlex
import sys
import textwrap
from itertools import takewhile
from pathlib import Path

import numpy as np
import xarray as xr

from inference.convergence.identifiable import draws_of, kind_of
from inference.fitting.verdict import Judgement
from inference.plots.model_graph import draw_graph, graph_of, in_words
from inference.report.page import Code, Front, Paragraph, Picture, Section, ShownTable, one_column
from inference.results.files import model_of
from inference.results.groups import columns_of, group_or_empty
from zoo import MODELS
from zoo.checks import listed
from zoo.model import Model

_MOST_NAMES = 6  # of columns on the first screen
_MINUTE = 60.0


def front_of(tree: xr.DataTree, verdict: Judgement, found: str) -> Front:
    """Return the first screen of a report: what was found, the verdict, data, model, method and run."""
    facts = run_facts(tree)
    model = f"{title_of(tree)}{_sizes(model_of(tree))}"
    method = f"{facts['method']}: {facts['draws']}"
    shown = {"Data": data_in_words(tree), "Model": model, "Method": method}
    shown |= {"Date": facts.get("date", "not recorded"), "File": file_of(tree)}
    shown |= {"Seed": facts.get("seed", "not recorded"), "Time": facts.get("time", "not recorded")}
    return Front(heading_of(tree), verdict, shown, found)


def heading_of(tree: xr.DataTree) -> str:
    """Return a short heading for a fit: data, if they have a name, model and method."""
    name, method = tree.attrs.get("data_name"), tree.attrs.get("method", "an unnamed method")
    fit = f"{tree.attrs.get('model', 'model')} by {method}"
    return f"{name}: {fit}" if name else fit


def file_of(tree: xr.DataTree) -> str:
    """Return the name of the file that a fit was loaded from."""
    source = tree.encoding.get("source")
    return Path(source).name if source else "not loaded from a file"


def data_in_words(tree: xr.DataTree) -> str:
    """Describe the data of a fit: their name, size and columns."""
    said = run_facts(tree).get("data", "not stored in this fit")
    if "observed_data" in tree.children:
        cells = tree["observed_data"].to_dataset()
        tables = {str(name): values for name, values in cells.data_vars.items() if values.ndim == 2}
        names = {name: _names(values) for name, values in tables.items()}
        listed = {
            name: f" ({', '.join(own)})" if 0 < len(own) <= _MOST_NAMES else "" for name, own in names.items()
        }
        if len(tables) == 1:
            said += "".join(listed.values())
        elif tables:
            said = f"{next(iter(tables.values())).shape[0]} rows; "
            said += "; ".join(f"{name}: {_counted(values)}{listed[name]}" for name, values in tables.items())
    name = tree.attrs.get("data_name")
    return f"{name}: {said}" if name else said


def _counted(values: xr.DataArray) -> str:
    """The number of columns of a table, in the word for them."""
    noun, size = str(values.dims[-1]).partition("_")[0], values.shape[1]
    return f"{size} {noun}{'s' if size != 1 else ''}"


def _names(values: xr.DataArray) -> list[str]:
    """Names of the columns of a table; empty where they are only numbered."""
    column = values.dims[-1]
    labels = values[column].values if column in values.coords else np.zeros(0, int)
    return [] if labels.dtype.kind in "iu" else [str(label) for label in labels]


def _sizes(model: Model) -> str:
    """The sizes that were chosen for a model, in brackets."""
    names = [field.name for field in dataclasses.fields(model) if field.name in _CHOSEN_SIZES]
    held = {name: getattr(model, name) for name in names}
    said = ", ".join(f"{name}={value}" for name, value in held.items() if value is not None)
    return f" ({said})" if said else ""


_CHOSEN_SIZES = tuple(
    f"num_{noun}" for noun in ("components", "clusters", "topics", "latents", "shared", "specific")
)


def model_section(tree: xr.DataTree) -> Section:
    """Return the section on the model: generative process, fields, priors, graph and symmetries."""
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
    if symmetries := ", ".join(model.exact_symmetries):
        text = f"The posterior does not change under these symmetries: {symmetries}."
        blocks.append(Paragraph(f"{text} Nothing on this page depends on them unless it is noted."))
    return Section("Model", blocks)


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
    """Collect method, data, draws, time, seed, settings and versions of a run; unknown ones are left out."""
    attrs, sizes, kind = tree.attrs, draws_of(tree).sizes, kind_of(tree)
    facts = {"method": str(attrs.get("method", "not recorded"))}
    held = group_or_empty(tree, "observed_data")
    shapes = {name: held[name].shape for name in model_of(tree).data_names if name in held}
    if shapes:
        (rows, *_), *_ = shapes.values()
        of = listed(f"{shape[1]} features of {name}" for name, shape in shapes.items() if len(shape) > 1)
        facts["data"] = f"{rows} rows, {of.partition(' of ')[0] if len(shapes) == 1 else of}"
    elif "count" in group_or_empty(tree, "observed_data"):
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
    if "looks" in attrs:
        facts["looks"] = _looks(json.loads(attrs["looks"]))
    if "sampling_time" in attrs:
        facts["time"] = _duration(float(attrs["sampling_time"]))
    if "created_at" in attrs:
        facts["date"] = str(attrs["created_at"]).replace("T", " ").replace("+00:00", " UTC")
    told = ("classes", "size", "seed", "dtype", "left_out")
    facts |= {name: str(attrs[name]) for name in told if str(attrs.get(name, ""))}
    facts["settings"] = ", ".join(f"{name}={value}" for name, value in _options(tree).items())
    versions = [(name, value) for name, value in attrs.items() if name.startswith("version_")]
    facts["versions"] = ", ".join(f"{name.removeprefix('version_')} {value}" for name, value in versions)
    return {name: value for name, value in facts.items() if value}


def _looks(found: list[dict]) -> str:
    """How often a run was looked at, and what was seen."""
    if not found:
        return "none: the run ended before the first"
    passed = [str(number) for number, look in enumerate(found, start=1) if look["passed"]]
    said = f"{len(found)}, every {found[0]['draws']} draws; passed: {', '.join(passed) or 'none'}"
    return f"{said} (two in a row end the run); largest R-hat at the last {found[-1]['r_hat']:.3f}"


def _duration(seconds: float) -> str:
    if seconds < 2 * _MINUTE:
        return f"{seconds:.1f} s"
    minutes = round(seconds / _MINUTE)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def run_section(tree: xr.DataTree) -> Section:
    """Return the section on the run: method, data, time, settings, and how to repeat it."""
    facts = one_column("The run", run_facts(tree))
    return Section("Run", [facts, *_columns(tree), Paragraph("To repeat it:"), Code(_command(tree))])


def _columns(tree: xr.DataTree) -> list[ShownTable]:
    """What the columns of tables were taken to hold; nothing of arrays."""
    try:
        table = columns_of(tree)
    except ValueError:  # arrays, whose cells are taken as they are
        return []
    if table.index.get_level_values("data").nunique() == 1:
        table = table.droplevel("data")
    if not table["levels"].any():
        table = table.drop(columns="levels")
    note = "the kind decides the family; to read a column in another way: fit(..., families={COLUMN: KIND})"
    return [ShownTable("Columns, as they were read", table, ("kind",), note)]


def _is_ours(command: str) -> bool:
    """Whether a command that came with a file runs `zoo` and nothing else, in whatever shell it is pasted."""
    try:
        words = shlex.split(command)
    except ValueError:
        return False
    return words[:2] == ["zoo", "fit"] and shlex.join(words) == command and command.isprintable()


def _command(tree: xr.DataTree) -> str:
    """Return the recorded command that made the fit, or Python that repeats it from its file."""
    if "command" in tree.attrs and _is_ours(command := str(tree.attrs["command"])):
        return command
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
        words = list(map(int, json.loads(keywords["seed"])))
        arguments["seed"] = f"jax.random.wrap_key_data(jax.numpy.array({words}, dtype='uint32'))"
    if "sample_weight" in group_or_empty(tree, "constant_data"):
        arguments["sample_weight"] = 'old["constant_data"]["sample_weight"]'
    listed = ", ".join(f"{name}={value}" for name, value in arguments.items())
    if "observed_data" in tree.children:
        names = tree["observed_data"].data_vars
        numbers = _reads_words(tree)
        lines += ["# the tables as they were read: words are the numbers of their levels"] if numbers else []
        form = "to_numpy" if numbers else "to_pandas"
        data = "".join(f'old["observed_data"][{json.dumps(str(name))}].{form}(), ' for name in names)
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


def _reads_words(tree: xr.DataTree) -> bool:
    """Whether a table of the fit held more than numbers, so that its cells were encoded."""
    read = [columns for columns in tree.fit.columns if columns is not None]
    return any(column.levels or column.origin for columns in read for column in columns.kept)


def _options(tree: xr.DataTree) -> dict:
    return json.loads(tree.attrs.get("options", "{}"))


def title_of(tree: xr.DataTree) -> str:
    """Return the full name of a fit's model."""
    name = tree.attrs.get("model", "model")
    return MODELS[name]["title"] if name in MODELS else str(name)
