"""Each notebook is text with a paired .ipynb that says the same and holds no outputs.

It begins with goals and duration, and one import; it asserts what it claims, and ends with references and
versions; every picture is told in words.

The pair is compared without Jupytext, which the tests do not need: text cells are comments, magics are
commented out, cells are parted by ``# %%``. That the notebooks run is checked by ``.ci/run``, at small size.
"""

import ast
import json
import re
from pathlib import Path

import pytest

from notebooks._site.students import without_answers
from tests.benchmarks.notebooks import unannounced_warnings

pytestmark = pytest.mark.repo

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
PATHS = [path for kind in ("*.py", "*.ipynb", "kits/*.py", "kits/*.ipynb") for path in NOTEBOOKS.glob(kind)]
NAMES = sorted({path.relative_to(NOTEBOOKS).with_suffix("").as_posix() for path in PATHS} - {"conf"})
KITS = [name for name in NAMES if name.startswith("kits/")]
HEADER = re.compile(r"\A# ---\n(?:#.*\n)*?# ---\n")
EXERCISE = re.compile(r"exercise", re.IGNORECASE)
CELL = re.compile(
    r"^# %%(?P<kind> \[markdown\])?(?: mystnb=(?P<page>\{.*\}))?(?: tags=\[.*\])?\n", re.MULTILINE
)
CITED = re.compile(
    r"([A-Z]\w+)(?:,? and others|(?:, [A-Z]\w+)*,? and [A-Z]\w+)?,? \(?((?:19|20)\d\d)\b(?=[,);:. ]|$)"
)
REFERENCE = re.compile(r"- [A-Z][^()]* \((\d{4})\)\. .+\.")


def cells_of_text(text):
    """(kind, source) of each cell of a py:percent file, as they stand in the .ipynb."""
    body = HEADER.sub("", text)
    starts = list(CELL.finditer(body))
    assert starts and not body[: starts[0].start()].strip(), "something stands before the first cell"
    ends = [start.start() for start in starts[1:]] + [len(body)]
    cells = []
    for start, end in zip(starts, ends, strict=True):
        source = body[start.end() : end].strip("\n")
        if start["kind"]:
            cells.append(("markdown", re.sub(r"^# ?", "", source, flags=re.MULTILINE)))
        else:
            cells.append(("code", re.sub(r"^# (?=%\w)", "", source, flags=re.MULTILINE)))
    return cells


def alternatives_of_text(text):
    """For each cell of a py:percent file the words in place of its picture, None where it has none."""
    pages = (start["page"] for start in CELL.finditer(HEADER.sub("", text)))
    return [page and json.loads(page)["image"]["alt"] for page in pages]


def alternatives_of_pair(text):
    """The same of an .ipynb, where MyST-NB reads them."""
    pages = (cell["metadata"].get("mystnb") for cell in json.loads(text)["cells"])
    return [page and page["image"]["alt"] for page in pages]


def draw_pictures(sources):
    """Whether each code cell draws: by pyplot, by a function ``plot_...`` or by one of its own that does."""
    drawing, found = set(), []

    def draws(node, within):
        waiting = [node]
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.Call):
                called = getattr(node.func, "attr", getattr(node.func, "id", ""))
                if called in drawing | {"subplots"} or called.startswith("plot_"):
                    return True
            inner = ast.iter_child_nodes(node)
            waiting += [n for n in inner if within or not isinstance(n, ast.FunctionDef | ast.Lambda)]
        return False

    for source in sources:
        tree = ast.parse("\n".join(line for line in source.splitlines() if not line.startswith("%")))
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        drawing |= {node.name for node in functions if draws(node, within=True)}
        found.append(any(draws(n, within=False) for n in tree.body if not isinstance(n, ast.FunctionDef)))
    return found


def cells_of_pair(text):
    """(kind, source) of each cell of an .ipynb."""
    return [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(text)["cells"]]


def outputs_of(text):
    """Positions of the cells of an .ipynb that hold an output or say that they were run."""
    cells = json.loads(text)["cells"]
    return [
        i for i, cell in enumerate(cells) if cell.get("outputs") or cell.get("execution_count") is not None
    ]


def read(name, ending):
    return (NOTEBOOKS / f"{name}{ending}").read_text(encoding="utf-8")


def test_there_is_a_notebook():
    assert "old_faithful" in NAMES


@pytest.mark.parametrize("name", NAMES)
def test_pair_says_the_same(name):
    advice = f"run: jupytext --sync notebooks/{name}.py"
    assert (NOTEBOOKS / f"{name}.ipynb").is_file(), advice
    assert cells_of_pair(read(name, ".ipynb")) == cells_of_text(read(name, ".py")), advice
    assert alternatives_of_pair(read(name, ".ipynb")) == alternatives_of_text(read(name, ".py")), advice


@pytest.mark.parametrize("name", NAMES)
def test_pair_holds_no_outputs(name):
    assert outputs_of(read(name, ".ipynb")) == []


def claims_of(name):
    """The code of the section that asserts what the notebook claims; references and versions follow."""
    kind, source = cells_of_text(read(name, ".py"))[-3]
    assert kind == "code"
    return ast.parse(source)


@pytest.mark.parametrize("name", NAMES)
def test_last_section_asserts_what_the_notebook_claims(name):
    assert any(isinstance(node, ast.Assert) for node in ast.walk(claims_of(name)))


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_begins_with_goals_and_duration(name):
    kind, source = cells_of_text(read(name, ".py"))[0]
    title, goals, listed, duration = source.split("\n\n")[:4]
    assert kind == "markdown" and title.startswith("# ")
    assert goals == "**Goals.** After this notebook you can"
    assert len(re.findall(r"^- [a-z]", listed, re.MULTILINE)) >= 2 and listed.endswith(".")
    said = re.match(
        r"\*\*Duration\.\*\* [A-Z][^.]*(?:hour|hours)\b[^.]*\. "
        r"The computer takes about (a|\d+) minutes? at full size",
        " ".join(duration.split()),
    )
    assert said, duration
    record = json.loads((Path(__file__).parent / "reference" / "notebooks.json").read_text(encoding="utf-8"))
    key = f"{Path(name).name}, full"
    if key in record:  # the list of the course says which were measured
        seconds = record[key]["processor seconds"]
        assert (1 if said[1] == "a" else int(said[1])) == max(1, round(seconds / 60)), seconds


def unlisted(texts, references):
    """Works that are cited by author and year and are not among the references."""
    cited = {pair for text in texts for pair in CITED.findall(" ".join(text.split()))}
    return sorted(
        f"{author} ({year})"
        for author, year in cited
        if not any(author in line and f"({year})" in line for line in references)
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_ends_with_references_and_versions(name):
    cells = cells_of_text(read(name, ".py"))
    assert cells[-1] == ("code", "zoo.show_versions()")
    kind, source = cells[-2]
    heading, listed = source.split("\n\n", 1)
    references = re.sub(r"\n  ", " ", listed).splitlines()
    assert kind == "markdown" and heading == "## References"
    assert len(references) >= 2 and all(REFERENCE.fullmatch(line) for line in references), references
    assert unlisted([text for kind, text in cells[:-2] if kind == "markdown"], references) == []


def test_a_work_that_is_not_among_the_references_is_found():
    text = "As Yu (2006, section 9) says; see (Vehtari, Gelman and Gabry 2017) and Gelman and others (2020)."
    listed = [
        "- Vehtari, A., Gelman, A. and Gabry, J. (2017). Practical. *Journal* 1.",
        "- Yu, S. (2006). *T*.",
    ]
    assert unlisted([text], listed) == ["Gelman (2020)"]
    assert unlisted([text], listed[:1]) == ["Gelman (2020)", "Yu (2006)"]


@pytest.mark.parametrize("name", NAMES)
def test_every_picture_is_told_in_words(name):
    text = read(name, ".py")
    codes = [source if kind == "code" else "" for kind, source in cells_of_text(text)]
    told = alternatives_of_text(text)
    assert [bool(words) for words in told] == draw_pictures(codes), (
        "give the cell mystnb={'image': {'alt': ...}}"
    )
    sentences = [words for words in told if words]
    assert len(set(sentences)) == len(sentences)
    assert all(len(words) > 40 and words[0].isupper() and words.endswith(".") for words in sentences)


@pytest.mark.parametrize("name", NAMES)
def test_pictures_have_one_style(name):
    text = read(name, ".py")
    assert "plt.style" not in text
    assert not re.search(r"spines\[\[|frameon|constrained", text), "the style has it"


def test_cells_that_draw_are_found():
    assert draw_pictures(
        [
            "def f():\n    figure, axis = plt.subplots()\n    return figure",
            "f()",
            "x = [g() for g in ()]",
            "plots.plot_loadings(tree)",
            "if size == 'full':\n    figure = plt.subplots()",
            "later = lambda: f()",
        ]
    ) == [False, True, False, True, True, False]


@pytest.mark.parametrize("name", NAMES)
def test_the_set_up_is_one_import(name):
    codes = [source for kind, source in cells_of_text(read(name, ".py")) if kind == "code"]
    imports = [node for node in ast.parse(codes[0]).body if isinstance(node, ast.ImportFrom)]
    assert [node.module for node in imports] == ["inference.course"] and len(codes[0].splitlines()) <= 6


@pytest.mark.parametrize("name", KITS)
def test_ten_lines_of_code_at_most_stand_before_the_first_picture_of_a_kit(name):
    told = alternatives_of_text(read(name, ".py"))
    cells = cells_of_text(read(name, ".py"))
    drawn = next(i for i, words in enumerate(told) if words)
    assert sum(len(source.splitlines()) for kind, source in cells[: drawn + 1] if kind == "code") <= 10


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_is_checked_in_its_cell_or_by_the_next(name):
    cells = cells_of_text(read(name, ".py"))
    asked = [i for i, (kind, source) in enumerate(cells) if kind == "markdown" and EXERCISE.search(source)]
    answers = [
        i for i, (kind, source) in enumerate(cells) if kind == "code" and source.startswith("# Answer")
    ]
    assert asked and answers, "ask something (## Exercise), and answer it in a cell that begins with # Answer"
    for i in answers:
        checks = [cells[i][1]] + [cells[i + 1][1]] * cells[i + 1][1].startswith("# Check of exercise")
        asserted = any(isinstance(n, ast.Assert) for source in checks for n in ast.walk(ast.parse(source)))
        assert asserted, f"assert the answer there: {cells[i][1][:60]}"
        assert name not in KITS or len(checks) == 2, "in a kit the next cell checks"


def test_the_course_has_every_notebook_once_in_its_parts():
    text = (NOTEBOOKS / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\d+\. \[(\w+)\]\((\w+|kits/\w+)\.py\)", text, re.MULTILINE)
    assert all(name == Path(file).name for name, file in listed)
    assert sorted(file for _, file in listed) == NAMES, "put it in its place in notebooks/README.md"
    numbers = [int(number) for number in re.findall(r"^(\d+)\. ", text, re.MULTILINE)]
    assert numbers == list(range(1, len(NAMES) + 1))
    parts = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert parts == ["Mixtures", "Projections", "Exponential families", "Repulsion", "Text", "Ninety minutes"]


def test_the_course_gives_the_seconds_that_were_measured():
    """Processor seconds stand in brackets behind a notebook: those of the record, rounded."""
    record = json.loads((Path(__file__).parent / "reference" / "notebooks.json").read_text(encoding="utf-8"))
    text = (NOTEBOOKS / "README.md").read_text(encoding="utf-8")
    given = {
        f"{name}, {size}{data}": seconds
        for name, inside in re.findall(r"^\d+\. \[(\w+)\].* \(([^()]*)\)$", text, re.MULTILINE)
        for size, seconds, data in re.findall(r"(small|full) (\d+) s(, ZOO_DATA)?", inside)
    }
    measured = {
        key: f"{entry['processor seconds']:.0f}"
        for key, entry in record.items()
        if isinstance(entry, dict) and "processor seconds" in entry
    }
    assert measured and given == measured


@pytest.mark.parametrize("name", NAMES)
def test_a_student_copy_has_no_answer_and_says_what_is_expected(name):
    notebook = json.loads(read(name, ".ipynb"))
    copy = without_answers(notebook)
    changed = [
        ("".join(old["source"]), "".join(new["source"]))
        for old, new in zip(notebook["cells"], copy["cells"], strict=True)
        if old["source"] != new["source"]
    ]
    assert len(changed) == sum(old.startswith("# Answer") for old, _ in changed) > 0
    assert not any("".join(cell["source"]).startswith("# Answer") for cell in copy["cells"])
    for _, new in changed:
        assert new.startswith("# Your answer")
        assert all(isinstance(node, ast.Assert) for node in ast.parse(new).body)


def test_a_student_copy_keeps_the_checks_and_the_names_that_they_read():
    cell = {
        "cell_type": "code",
        "source": [
            "# Answer 1: six\n",
            "hidden = 2\n",
            "rank = sum(3 for n in range(hidden))\n",
            "assert rank\n",
        ],
    }
    last = {"cell_type": "code", "source": ["assert [n for n in [rank]] == [6]"]}
    copy = without_answers({"cells": [cell, last]})["cells"]
    assert "".join(copy[0]["source"]) == "# Your answer, which gives: rank\n\nassert rank"
    assert copy[1] == last


def test_a_warning_is_announced_by_its_cell():
    def cell(name, text="it has not converged\n", **metadata):
        output = {"output_type": "stream", "name": name, "text": text}
        return {"metadata": metadata, "outputs": [output]}

    cells = [cell("stdout"), cell("stderr", tags=["warns"]), {"metadata": {}}]
    assert unannounced_warnings({"cells": cells}) == []
    assert unannounced_warnings({"cells": [*cells, cell("stderr")]}) == ["it has not converged"]


def test_other_text_and_outputs_are_noticed():
    header = "# ---\n# jupyter:\n# ---\n\n"
    text = header + "# %% [markdown]\n# # Title\n#\n# Words.\n\n# %%\n# %matplotlib inline\nx = 1\n"
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "\n", "Words."]},
        {
            "cell_type": "code",
            "source": ["%matplotlib inline\n", "x = 1"],
            "outputs": [],
            "execution_count": None,
        },
    ]
    assert cells_of_pair(json.dumps({"cells": cells})) == cells_of_text(text)
    assert cells_of_pair(json.dumps({"cells": cells})) != cells_of_text(text.replace("x = 1", "x = 2"))
    assert cells_of_pair(json.dumps({"cells": cells})) != cells_of_text(text.replace("Words", "Other words"))
    assert outputs_of(json.dumps({"cells": cells})) == []
    cells[1]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "1"}]
    assert outputs_of(json.dumps({"cells": cells})) == [1]
