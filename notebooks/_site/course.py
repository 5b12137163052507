"""The course: every notebook with its outputs, taken from a folder or executed at small size."""

import json
import re
from pathlib import Path

__all__ = ["facts_of", "write"]

LINK = re.compile(r"\((\w+)\.py\)")
HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
FACTS = (
    "*Part of the course: {part}. By {author}, version {version}, {licence} licence.* "
    "{{download}}`Download the notebook </{name}.ipynb>` to run it: it needs `pip install '.[notebooks]'` in a clone."
)
RECORD = re.compile(r"\[(tests/reference/[\w.]+)\]\(\.\./tests/reference/[\w.]+\)")


def write(notebooks, folder, outputs=None):
    """Write the notebooks with their outputs, and the page that lists them.

    Args:
        notebooks: the folder of the text files and their list, ``README.md``.
        folder: where to; it is made if missing.
        outputs: a folder that holds all notebooks executed, as ``tests.benchmarks.notebooks --keep`` leaves
            them; None executes at small size what is not in ``folder`` already and has not changed since.

    Raises:
        FileNotFoundError: ``outputs`` lacks a notebook.
    """
    folder.mkdir(parents=True, exist_ok=True)
    listed = (notebooks / "README.md").read_text(encoding="utf-8")
    names, facts = LINK.findall(listed), facts_of(listed, notebooks.parent / "CITATION.cff")
    for name in names:
        target = folder / f"{name}.ipynb"
        if outputs is not None:
            made = outputs / f"{name}.ipynb"
            if not made.exists():
                raise FileNotFoundError(
                    f"ZOO_SITE_OUTPUTS names {outputs}, which has no {name}.ipynb: make it by "
                    f"python -m tests.benchmarks.notebooks full {name} --keep {outputs}"
                )
            target.write_text(_page(made.read_text(encoding="utf-8"), facts[name]), encoding="utf-8")
        elif not _is_newer(target, notebooks / f"{name}.py"):
            from tests.benchmarks.notebooks import run_notebook

            print(f"executing {name} at small size", flush=True)
            run_notebook(notebooks / f"{name}.py", "small", keep=folder)
            made = target.read_text(encoding="utf-8")
            target.write_text(_page(made, facts[name]), encoding="utf-8")
    page = LINK.sub(r"(\1.ipynb)", RECORD.sub(r"`\1`", listed))
    page = re.sub(r"^(\d+)\. ", r"\1. ", page, flags=re.MULTILINE)
    entries = "\n".join(names)
    page += f"\n```{{toctree}}\n:hidden:\n\n{entries}\n```\n"
    (folder / "index.md").write_text(page, encoding="utf-8")


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
        found[1]: FACTS.format(
            part=[heading for start, heading in headings if start < found.start()][-1],
            author=author,
            version=version,
            licence=licence,
            name=found[1],
        )
        for found in LINK.finditer(listed)
    }


def _page(text, facts):
    """An executed notebook as a page: links lead to pages, and the facts stand below the title."""
    notebook = json.loads(LINK.sub(r"(\1.ipynb)", text))
    first = notebook["cells"][0]
    title, _, rest = "".join(first["source"]).partition("\n")
    first["source"] = f"{title}\n\n{facts}\n{rest}"
    return json.dumps(notebook, ensure_ascii=False)


def _is_newer(made: Path, source: Path) -> bool:
    return made.exists() and made.stat().st_mtime >= source.stat().st_mtime
