"""The audit of the papers: each numbered figure and table of the sources beside what was measured here."""

import json
import tomllib
from pathlib import Path

__all__ = ["BUILT", "VERDICTS", "read_audit", "read_items", "recorded", "verdict_of", "write"]

REFERENCE = Path(__file__).parents[2] / "tests" / "reference"
#: What a verdict may be, and what it means.
VERDICTS = {
    "reproduced": "run on the source's settings, where it has some: our numbers say what the source says",
    "in part": "some of it does, or only under conditions that the row states",
    "not reproduced": "our numbers say something else",
    "other settings": "not run on the source's settings; what was run, and what it says, is stated",
    "in a notebook": "redone in a notebook or a page of the guide which asserts the finding; no record is kept",
    "checked": "a formula, a model or an algorithm, which a test compares with an independent computation",
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
        List of dicts with ``source``, ``number``, ``claim``, ``verdict`` and, where they apply, ``quote`` (words of
        the source, verbatim), ``ran``, ``where`` (a file that shows it), ``reason`` and ``values`` (``label``,
        ``record``, ``path``, ``theirs``).
    """
    return tomllib.loads((REFERENCE / "audit.toml").read_text(encoding="utf-8"))["row"]


def read_items():
    """What a reader of the sources would expect, item by item.

    Returns:
        List of dicts with ``source``, ``place``, ``claim``, ``built`` (one of `BUILT`), ``verdict`` or ``rows``
        (numbers of the figures and tables whose verdicts it has) and, where they apply, ``where``, ``test`` (the file
        that checks it), ``ran``, ``reason``, ``quote`` and ``values``.
    """
    return tomllib.loads((REFERENCE / "audit.toml").read_text(encoding="utf-8"))["item"]


def verdict_of(item, rows):
    """The verdict of an item, or that of the figures and tables that it is shown by.

    Args:
        item: one of `read_items`.
        rows: those of `read_audit`.

    Returns:
        One of `VERDICTS`. Pictures beside a figure with a result do not count.

    Raises:
        ValueError: the rows have several verdicts, so that the item needs one of its own.
    """
    if "rows" not in item:
        return item["verdict"]
    held = {(row["source"], row["number"]): row["verdict"] for row in rows}
    found = {held[item["source"], number] for number in item["rows"]}
    found = found - {"illustration"} or found
    if len(found) > 1:
        raise ValueError(f"{item['place']} has several verdicts, {sorted(found)}: give it its own")
    return found.pop()


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
    page += _of_items(read_items(), rows)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(page, encoding="utf-8")


def _of_items(items, rows):
    """The second part of the page: all items, and what is missing with its reason."""
    counts = ", ".join(f"{sum(item['built'] == built for item in items)} {built}" for built in BUILT)
    verdicts = [verdict_of(item, rows) for item in items]
    counts += "; by verdict " + ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in VERDICTS)
    page = f"# The papers, item by item\n\nWhat a reader of the sources would expect, {len(items)} items: {counts}.\n\n"
    for source in dict.fromkeys(item["source"] for item in items):
        page += f"## {source}, items\n\n| place | what it has | in the zoo | verdict | ours | where, what was run, or why not |\n"
        page += "| --- | --- | --- | --- | --- | --- |\n"
        for item in items:
            if item["source"] == source:
                values, commands = _values(item)
                shown = [f"see {' and '.join(item['rows'])}"] if "rows" in item else []
                tested = [f"`{item['test']}`"] if "test" in item else []
                here = [
                    item.get("where", ""),
                    *tested,
                    item.get("ran", ""),
                    item.get("reason", ""),
                    *shown,
                    *commands,
                ]
                claim = item["claim"] + (f': "{item["quote"]}"' if "quote" in item else "")
                verdict = verdict_of(item, rows)
                cells = [
                    item["place"],
                    claim,
                    item["built"],
                    verdict,
                    values,
                    "<br>".join(filter(None, here)),
                ]
                page += "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"
        page += "\n"
    return page


def _values(row):
    """Our numbers beside theirs, and the commands that wrote the records."""
    values, commands = [], []
    for value in row.get("values", ()):
        number, command = recorded(value)
        theirs = f" ({value['theirs']})" if "theirs" in value else ""
        values.append(f"{value['label']}: {number:.4g}{theirs}")
        commands.append(f"`{command}`")
    return "<br>".join(values), list(dict.fromkeys(commands))


def _line(row):
    values, commands = _values(row)
    here = [row.get("ran", ""), row.get("reason", ""), *commands]
    here += [f"`{row['where']}`"] if "where" in row else []
    verdict = row["verdict"] if row["verdict"] == "illustration" else f"**{row['verdict']}**"
    cells = [row["number"], verdict, row["claim"], values, "<br>".join(filter(None, here))]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"
