"""The audit of the papers: each numbered figure and table of the sources beside what was measured here."""

import json
import tomllib
from pathlib import Path

__all__ = ["BUILT", "VERDICTS", "read_audit", "read_items", "recorded", "write"]

REFERENCE = Path(__file__).parents[2] / "tests" / "reference"
#: What a verdict may be, and what it means.
VERDICTS = {
    "reproduced": "our numbers say what the source says",
    "in part": "some of it does, or only under conditions that the row states",
    "not reproduced": "our numbers say something else",
    "in a notebook": "redone in a notebook whose last cell asserts the finding; no record is kept",
    "illustration": "shows no result; drawn here as stated",
    "not tried": "the reason is stated",
}
#: Whether what a source has is in the zoo.
BUILT = ("here", "in part", "not here")
INTRODUCTION = """# The papers, figure by figure

Every numbered figure and table of the five sources: what it claims, what was run here, our number beside theirs, and the
verdict. Our numbers are read from the records in `tests/reference/` when this page is built.

{counts}

"""


def read_audit():
    """The rows, in the order of the sources.

    Returns:
        List of dicts with ``source``, ``number``, ``claim``, ``verdict`` and, where they apply, ``ran``, ``where``
        (a file that shows it), ``reason`` and ``values`` (``label``, ``record``, ``path``, ``theirs``).
    """
    return tomllib.loads((REFERENCE / "audit.toml").read_text(encoding="utf-8"))["row"]


def read_items():
    """What a reader of the sources would expect, item by item.

    Returns:
        List of dicts with ``source``, ``place``, ``claim``, ``built`` (one of `BUILT`) and, where they apply,
        ``where``, ``reason`` and ``quote`` (words of the source, verbatim).
    """
    return tomllib.loads((REFERENCE / "audit.toml").read_text(encoding="utf-8"))["item"]


def recorded(value):
    """A number of a row as its record has it, and the command that wrote the record.

    Args:
        value: one of the ``values`` of a row.

    Returns:
        The number, and the command.

    Raises:
        KeyError: the record has nothing at that path, or names no command.
    """
    record = json.loads((REFERENCE / value["record"]).read_text(encoding="utf-8"))
    found, command = record, record.get("command")
    for step in value["path"]:
        found = found[step]
        command = found.get("command", command) if isinstance(found, dict) else command
    if not isinstance(found, int | float) or command is None:
        raise KeyError(f"{value['record']} has no number with a command at {value['path']}")
    return found, command


def write(path):
    """Write the page.

    Args:
        path: of the file.
    """
    rows = read_audit()
    lines = ["| verdict | rows | meaning |", "| --- | --- | --- |"]
    for verdict, meaning in VERDICTS.items():
        lines.append(f"| {verdict} | {sum(row['verdict'] == verdict for row in rows)} | {meaning} |")
    page = INTRODUCTION.format(counts="\n".join(lines))
    for source in dict.fromkeys(row["source"] for row in rows):
        page += f"## {source}\n\n| number | verdict | claim | ours (theirs) | what was run |\n| --- | --- | --- | --- | --- |\n"
        page += "".join(_line(row) for row in rows if row["source"] == source) + "\n"
    page += _of_items(read_items())
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(page, encoding="utf-8")


def _of_items(items):
    """The second part of the page: all items, and what is missing with its reason."""
    counts = ", ".join(f"{sum(item['built'] == built for item in items)} {built}" for built in BUILT)
    page = f"# The papers, item by item\n\nWhat a reader of the sources would expect: {counts}.\n\n"
    for source in dict.fromkeys(item["source"] for item in items):
        page += f"## {source}, items\n\n| place | what it has | in the zoo | where, or why not |\n| --- | --- | --- | --- |\n"
        for item in items:
            if item["source"] == source:
                here = [item.get("where", ""), item.get("reason", "")]
                claim = item["claim"] + (f': "{item["quote"]}"' if "quote" in item else "")
                cells = [item["place"], claim, item["built"], "<br>".join(filter(None, here))]
                page += "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"
        page += "\n"
    return page


def _line(row):
    values, commands = [], []
    for value in row.get("values", ()):
        number, command = recorded(value)
        theirs = f" ({value['theirs']})" if "theirs" in value else ""
        values.append(f"{value['label']}: {number:.4g}{theirs}")
        commands.append(f"`{command}`")
    here = [row.get("ran", ""), row.get("reason", ""), *dict.fromkeys(commands)]
    here += [f"`{row['where']}`"] if "where" in row else []
    verdict = row["verdict"] if row["verdict"] == "illustration" else f"**{row['verdict']}**"
    cells = [row["number"], verdict, row["claim"], "<br>".join(values), "<br>".join(filter(None, here))]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"
