"""The course: every notebook with its outputs, recorded at full size, taken from a folder or made at small size."""

import json
import re

__all__ = ["facts_of", "with_outputs", "write"]

LINK = re.compile(r"\((kits/|\.\./)?(\w+)\.py\)")
HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
FACTS = (
    "*Part of the course: {part}. By {author}, version {version}, {licence} licence.* "
    "{{download}}`Download the notebook </{name}.ipynb>` to run it: it needs `pip install '.[notebooks]'` in a clone."
)
SMALL = "*The outputs below are of the small size. Numbers in the text are of the full size.*"
RECORD = re.compile(r"\[(tests/reference/[\w.]+)\]\(\.\./tests/reference/[\w.]+\)")


def write(notebooks, folder, outputs=None):
    """Write the notebooks with their outputs, and the page that lists them.

    Outputs that were recorded at full size are taken where they are of the code that the notebook has now.

    Args:
        notebooks: the folder of the text files, of their list ``README.md``, and of ``_outputs``.
        folder: where to; it is made if missing.
        outputs: a folder that holds the other notebooks executed, as ``tests.benchmarks.notebooks --keep``
            leaves them; None executes these at small size, unless ``folder`` has them already.

    Raises:
        FileNotFoundError: ``outputs`` lacks a notebook.
    """
    folder.mkdir(parents=True, exist_ok=True)
    listed = (notebooks / "README.md").read_text(encoding="utf-8")
    facts = facts_of(listed, notebooks.parent / "CITATION.cff")
    for place, name in LINK.findall(listed):
        source, target = notebooks / place / f"{name}.ipynb", folder / f"{name}.ipynb"
        notebook = json.loads(source.read_text(encoding="utf-8"))
        recorded = with_outputs(notebook, notebooks / "_outputs" / f"{name}.ipynb")
        if recorded is None:
            made = outputs / f"{name}.ipynb" if outputs else _small(name, source, folder / "small")
            if not made.exists():
                raise FileNotFoundError(
                    f"ZOO_SITE_OUTPUTS names {outputs}, which has no {name}.ipynb: make it by "
                    f"python -m tests.benchmarks.notebooks small {name} --keep {outputs}"
                )
            notebook = json.loads(made.read_text(encoding="utf-8"))
        page = _page(recorded or notebook, facts[name] + ("" if recorded else f" {SMALL}"))
        target.write_text(page, encoding="utf-8")
    page = LINK.sub(r"(\2.ipynb)", RECORD.sub(r"`\1`", listed)).replace("(guide/", "(../../guide/")
    page = re.sub(r"^(\d+)\. ", r"\1. ", page, flags=re.MULTILINE)
    entries = "\n".join(facts)
    page += f"\n```{{toctree}}\n:hidden:\n\n{entries}\n```\n"
    (folder / "index.md").write_text(page, encoding="utf-8")


def with_outputs(notebook, recorded):
    """A notebook with outputs that were recorded for the same code; None where there are none.

    Args:
        notebook: as in its file, without outputs; its text cells may have changed since the recording.
        recorded: path of the executed notebook.
    """
    if not recorded.exists():
        return None
    ran = [
        cell
        for cell in json.loads(recorded.read_text(encoding="utf-8"))["cells"]
        if cell["cell_type"] == "code"
    ]
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    if ["".join(cell["source"]) for cell in ran] != ["".join(cell["source"]) for cell in code]:
        return None
    for cell, run in zip(code, ran, strict=True):
        cell["outputs"] = run["outputs"]
    return notebook


def _small(name, source, folder):
    """The notebook executed at small size, unless it is there already and is no older than its source."""
    from tests.benchmarks.notebooks import run_notebook

    made, text = folder / f"{name}.ipynb", source.with_suffix(".py")
    folder.mkdir(exist_ok=True)
    if not (made.exists() and made.stat().st_mtime >= text.stat().st_mtime):
        print(f"executing {name} at small size", flush=True)
        run_notebook(text, "small", keep=folder)
    return made


def facts_of(listed, citation):
    """The line below the title of each notebook: its part of the course, authors, version, and a download.

    Args:
        listed: the text of the list of the course, whose headings are its parts.
        citation: the file ``CITATION.cff``.

    Returns:
        Dict from the name of a notebook to the line, in MyST's Markdown.
    """
    cited = citation.read_text(encoding="utf-8")
    author, version, licence = (
        re.search(rf"^ *(?:- )?{key}: (.+)$", cited, re.MULTILINE)[1]
        for key in ("name", "version", "license")
    )
    author = author[0].lower() + author[1:]
    headings = [(found.start(), found[1]) for found in HEADING.finditer(listed)]
    return {
        found[2]: FACTS.format(
            part=[heading for start, heading in headings if start < found.start()][-1],
            author=author,
            version=version,
            licence=licence,
            name=(found[1] or "") + found[2],
        )
        for found in LINK.finditer(listed)
    }


def _page(notebook, facts):
    """An executed notebook as a page: links lead to pages, and the facts stand below the title."""
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            text = LINK.sub(r"(\2.ipynb)", "".join(cell["source"]))
            cell["source"] = text.replace("(../guide/", "(../../guide/")
    first = notebook["cells"][0]
    title, _, rest = first["source"].partition("\n")
    first["source"] = f"{title}\n\n{facts}\n{rest}"
    return json.dumps(notebook, ensure_ascii=False)
