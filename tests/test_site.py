"""The sources of the documentation: what the build relies on (``.ci/run`` builds it)."""

import ast
import importlib
import itertools
import json
import os
import re
import unicodedata
from pathlib import Path

import pytest

import inference
import zoo
from notebooks._site import course
from notebooks._site.audit import BUILT, VERDICTS, read_audit, read_items, recorded, verdict_of
from notebooks._site.models import PICTURES
from notebooks._site.reference import MODULES, public_names
from tests.benchmarks.notebooks import notebooks_by_name
from tests.tools.pages.site import QUESTIONS, SitePage, clicks, faults_of, read_site
from zoo.cards import read_card, read_notes

pytestmark = pytest.mark.repo

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
SLIDES = sorted((NOTEBOOKS / "kits" / "slides").glob("*.md"))
PAGES = sorted([*(NOTEBOOKS / "guide").glob("*.md"), NOTEBOOKS / "gallery.md", *SLIDES])
MOST_OF_OUTPUTS = 700_000  # bytes of a notebook; all of the course are in every clone
CELL = re.compile(r"```\{code-cell\} python\n(?:---\n.*?---\n)?(.*?)```", re.DOTALL)


def test_the_reference_has_every_module_that_users_import_from():
    faces = {f"inference.{name}" for name in inference._MODULES} | {f"zoo.{name}" for name in zoo._SUBMODULES}
    assert faces | {"zoo", "inference"} == set(MODULES)
    assert all(public_names(module) for module in MODULES)


#: One thing of the field that two papers name differently.
SAME = {("psrf", "rhat")}


def interface_faults(text):
    """What the page of the interface lists and is not exported, or the other way round, and names twice."""
    rows = re.findall(r"^\| `([\w.]+)` \|[^|]*\| (.*) \|$", text, re.MULTILINE)
    listed = {module: re.findall(r"`(\w+)`", names) for module, names in rows}
    faults = [f"{module} is not listed" for module in sorted(set(MODULES) - set(listed))]
    for module, names in listed.items():
        exported = importlib.import_module(module).__all__
        faults += [f"{module}.{name}" for name in sorted(set(names) ^ set(exported))]
        faults += [f"{module}.{name} twice" for name in sorted({n for n in names if names.count(n) > 1})]
    return faults


def test_the_guide_lists_the_interface_and_nothing_else():
    text = (NOTEBOOKS / "guide" / "interface.md").read_text(encoding="utf-8")
    assert interface_faults(text) == []
    assert interface_faults(text.replace("`predict`", "`foretell`")) == [
        "inference.foretell",
        "inference.predict",
    ]
    assert interface_faults(text.replace("`predict`", "`predict`, `fit`")) == ["inference.fit twice"]
    assert interface_faults(text.replace("| `zoo` |", "| zoo |")) == ["zoo is not listed"]


def test_every_object_of_the_interface_has_one_name():
    homes = {}
    for module in MODULES:
        for name, value in public_names(module).items():
            if callable(value):
                homes.setdefault(id(value), []).append(name)
    assert {tuple(names) for names in homes.values() if len(names) > 1} == SAME


def test_every_model_has_an_example_with_a_picture():
    plots = importlib.import_module("inference.plots")
    assert set(PICTURES) == set(zoo.MODELS)
    for call, words in PICTURES.values():
        assert re.match(r"plots\.(\w+)\(", call)[1] in plots.__all__ and words


def test_every_page_of_the_guide_is_in_its_list_once():
    text = (NOTEBOOKS / "guide" / "index.md").read_text(encoding="utf-8")
    listed = re.search(r":maxdepth: 1\n\n(.*?)```", text, re.DOTALL)[1].split()
    assert sorted([*listed, "index"]) == [path.stem for path in sorted((NOTEBOOKS / "guide").glob("*.md"))]


def test_every_notebook_says_its_part_of_the_course_and_can_be_downloaded():
    listed = (NOTEBOOKS / "README.md").read_text(encoding="utf-8")
    facts = course.facts_of(listed, NOTEBOOKS.parent / "CITATION.cff")
    paths = notebooks_by_name()
    assert sorted(facts) == sorted(paths)
    for name, path in paths.items():
        file = path.relative_to(NOTEBOOKS).with_suffix(".ipynb").as_posix()
        assert f"{{download}}`Download the notebook </{file}>`" in facts[name]
        assert re.match(r"\*Part of the course: [A-Z][a-z ]+\. By the authors .*, version \d", facts[name])


def test_outputs_of_full_size_are_shown_as_long_as_the_code_is_theirs(tmp_path):
    def write(path, text, code, outputs):
        path.parent.mkdir(exist_ok=True)
        cells = [{"cell_type": "markdown", "source": [f"# {path.stem}\n", "\n", text]}]
        cells.append({"cell_type": "code", "source": code, "outputs": outputs})
        path.write_text(json.dumps({"cells": cells}), encoding="utf-8")

    (tmp_path / "CITATION.cff").write_text((NOTEBOOKS.parent / "CITATION.cff").read_text("utf-8"), "utf-8")
    source = tmp_path / "notebooks"
    for name, place in {"same": "", "changed": "kits/", "missing": ""}.items():
        write(source / place / f"{name}.ipynb", "See [one](../same.py), [it](../guide/x.md).", ["x = 1"], [])
        write(source / "_outputs" / f"{name}.ipynb", "Older.", f"x = {1 + (name != 'same')}", ["full"])
        write(tmp_path / "small" / f"{name}.ipynb", "Small.", "x = 1", ["small"])
    (source / "_outputs" / "missing.ipynb").unlink()
    listed = "## Part\n\n1. [a](same.py)\n2. [b](kits/changed.py)\n3. [c](missing.py)\n"
    (source / "README.md").write_text(listed, encoding="utf-8")
    course.write(source, tmp_path / "built", tmp_path / "small")
    for name, outputs in {"same": "full", "changed": "small", "missing": "small"}.items():
        text, code = json.loads((tmp_path / "built" / f"{name}.ipynb").read_text("utf-8"))["cells"]
        assert code["outputs"] == [outputs]
        assert (course.SMALL in text["source"]) == (outputs == "small")
        assert ("See [one](same.ipynb), [it](../../guide/x.md)." in text["source"]) == (outputs == "full")
    with pytest.raises(FileNotFoundError, match=r"which has no changed\.ipynb"):
        course.write(source, tmp_path / "built", tmp_path / "nowhere")


@pytest.mark.parametrize("path", sorted((NOTEBOOKS / "_outputs").glob("*.ipynb")), ids=lambda path: path.stem)
def test_recorded_outputs_are_light_and_name_no_folder(path):
    assert path.stem in notebooks_by_name() and path.stat().st_size < MOST_OF_OUTPUTS
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"/(?:home|root|work|site-packages)/", re.sub(r'"image/png": "[^"]*"', "", text))


@pytest.mark.parametrize("path", SLIDES, ids=lambda path: path.stem)
def test_the_plan_of_a_kit_knows_its_slides(path):
    plan = (NOTEBOOKS / "guide" / f"teach_{path.stem}.md").read_text(encoding="utf-8")
    assert f'<a href="../slides/{path.stem}.html">' in plan
    slides = len(re.findall(r"^##? ", path.read_text(encoding="utf-8"), re.MULTILINE))
    rows = re.findall(r"^\| (\d+) to (\d+) \|.*\| (.*) \|$", plan, re.MULTILINE)
    minutes = [(int(begin), int(end)) for begin, end, _ in rows]
    assert minutes[0][0] == 0 and minutes[-1][1] == 90
    assert all(end == begin for (_, end), (begin, _) in itertools.pairwise(minutes))
    shown = []
    for words in re.findall(r"slides? (\d+(?:(?:, | to | and )\d+)*)", "; ".join(row[2] for row in rows)):
        numbers = [int(number) for number in re.findall(r"\d+", words)]
        shown += range(numbers[0], numbers[-1] + 1)
    assert shown == list(range(1, slides + 1)), "each slide has its minutes, once and in order"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_code_of_the_guide_imports_what_there_is(path):
    text = path.read_text(encoding="utf-8")
    if "{code-cell}" in text:
        assert text.startswith("---\nfile_format: mystnb\n"), "else the cells are not executed"
    for cell in CELL.findall(text):
        for node in ast.walk(ast.parse(cell)):
            if isinstance(node, ast.ImportFrom):
                module = importlib.import_module(node.module)
                assert all(hasattr(module, alias.name) for alias in node.names), ast.unparse(node)


def write_site(folder, change=lambda name, text: text):
    """A site of three pages that has nothing wrong."""
    answers = "".join(f"<p>{words}</p>" for words in QUESTIONS.values())
    pages = {
        "index.html": '<a href="guide/a.html">a</a><a href="https://example.org">elsewhere</a>',
        "guide/a.html": '<a href="../b.html#zoo.Mixture">b</a><img src="../b.png" alt="words">',
        "b.html": f'<p id="zoo.Mixture">x</p>{answers}',
    }
    (folder / "guide").mkdir()
    (folder / "b.png").write_bytes(b"")
    for name, text in pages.items():
        (folder / name).write_text(change(name, text), encoding="utf-8")
    return folder


def test_a_site_without_faults_has_none(tmp_path):
    site = write_site(tmp_path)
    assert faults_of(site, ["zoo.Mixture"]) == []
    assert clicks(read_site(site), QUESTIONS["How do I cite it?"]) == 2


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("guide/a.html", "guide/other.html", "nothing at"),
        ("#zoo.Mixture", "#zoo.Other", "no such place"),
        ('alt="words"', 'alt=""', "a picture without words"),
        ('alt="words"', 'alt="b.png"', "a picture without words"),
        ('src="../b.png"', 'src="https://example.org/b.png"', "from another host"),
        ('id="zoo.Mixture"', 'id="other"', "no page describes zoo.Mixture"),
        ("The same call resumes it, bit for bit", "something else", "no answer"),
    ],
)
def test_planted_faults_of_a_site_are_found(tmp_path, old, new, said):
    site = write_site(tmp_path, lambda name, text: text.replace(old, new))
    assert any(said in fault for fault in faults_of(site, ["zoo.Mixture"]))


# the audit of the papers


NUMBERED = {  # what the sources number: figures, then tables
    "Yu (2006)": (
        [
            f"{chapter}.{number}"
            for chapter, last in ((1, 3), (2, 3), (3, 10), (4, 4), (5, 4), (6, 6), (7, 4), (9, 4))
            for number in range(1, last + 1)
        ],
        ["2.1", "2.2", "3.1", "7.1", "7.2", "7.3", "7.4", "9.1", "9.2"],
    ),
    "Virtanen (2010)": ([str(n) for n in range(1, 13)], ["1", "2", "3"]),
    "Qiao et al.": ([str(n) for n in range(1, 10)], []),
    "Yu et al. (2006)": (["1", "2"], ["1"]),
    "Morrison (2016)": (["4"], []),
}


def test_the_audit_has_every_numbered_figure_and_table_once():
    rows = read_audit()
    for source, (figures, tables) in NUMBERED.items():
        wanted = [f"Figure {n}" for n in figures] + [f"Table {n}" for n in tables]
        assert sorted(row["number"] for row in rows if row["source"] == source) == sorted(wanted)
    assert {row["source"] for row in rows} == set(NUMBERED)


@pytest.mark.parametrize("row", read_audit(), ids=lambda row: f"{row['source']}, {row['number']}")
def test_a_row_of_the_audit_says_where_its_verdict_comes_from(row):
    assert row["verdict"] in VERDICTS
    for value in row.get("values", ()):
        number, command = recorded(value)
        assert abs(number) < 1e6 and command
    if row["verdict"] in ("not tried", "not reproduced", "in part", "other settings"):
        assert row.get("reason"), "say why"
    if row["verdict"] in ("not reproduced", "reproduced"):
        assert row.get("values"), "our number beside theirs"
    if row["verdict"] != "not tried":
        assert (NOTEBOOKS.parent / row["where"]).exists() and row["ran"]


def test_every_item_of_the_papers_has_a_place_a_verdict_and_where_it_is_or_a_reason():
    items, rows = read_items(), read_audit()
    assert len(items) >= 189 and {item["source"] for item in items} == set(NUMBERED)
    assert len({(item["source"], item["place"], item["claim"]) for item in items}) == len(items)
    for item in items:
        assert item["built"] in BUILT and item["place"] and item["claim"]
        assert ("verdict" in item) != ("rows" in item), item
        assert verdict_of(item, rows) in VERDICTS, item
        assert bool(item.get("where")) == (item["built"] != "not here"), item
        assert item["built"] == "here" or item.get("reason"), item
        verdict, files = item.get("verdict"), item.get("where", "") + " " + item.get("test", "")
        assert verdict != "not tried" or item.get("reason"), item
        assert (verdict == "checked") == ("test" in item), item
        told = ("reproduced", "in part", "not reproduced", "other settings", "in a notebook")
        assert verdict not in told or item.get("ran"), item
        for path in re.findall(r"[\w/]+\.(?:py|json|md|toml)\b", files):
            assert (NOTEBOOKS.parent / path).exists(), item
        for value in item.get("values", ()):
            recorded(value)


def test_an_item_has_one_verdict():
    """An item once had those of a picture and of the figure beside it, so that counts exceeded the items."""
    rows = [
        {"source": "a", "number": n, "verdict": v}
        for n, v in enumerate(("illustration", "checked", "in part"))
    ]
    assert verdict_of({"source": "a", "rows": [0]}, rows) == "illustration"
    assert verdict_of({"source": "a", "rows": [0, 1]}, rows) == "checked"
    with pytest.raises(ValueError, match="several"):
        verdict_of({"source": "a", "place": "1.1", "rows": [1, 2]}, rows)


def test_numbers_of_ours_stand_in_records_and_not_in_prose():
    """A number of a reason that no record has says so."""
    for own in read_audit() + read_items():
        assert not re.search(r"\d\.\d\d", own.get("reason", "")) or "without a record" in own["reason"], own


PAPERS = {  # the folder that ZOO_PAPERS names has their texts under these names
    "Yu (2006)": "yu-2006-dissertation.txt",
    "Virtanen (2010)": "virtanen-2010-thesis.txt",
    "Qiao et al.": "qiao-et-al-depcam.txt",
    "Yu et al. (2006)": "yu-et-al-2006-sppca.txt",
    "Morrison (2016)": "morrison-2016-lecture-projection-pca.txt",
}


def plain(text):
    """Text as its words are compared: one kind of quotation mark, no ligatures, no marks of emphasis."""
    text = unicodedata.normalize("NFKC", text).translate({0x2018: "'", 0x2019: "'", 0x201C: '"', 0x201D: '"'})
    text = re.sub(r"(?<=\w)[-\u00ad]\n+(?=[a-z])", "", text)
    return " ".join(text.replace("*", "").split())


def paper(source):
    """The text of a source."""
    return (Path(os.environ["ZOO_PAPERS"]) / PAPERS[source]).read_text(encoding="utf-8")


needs_papers = pytest.mark.skipif(
    "ZOO_PAPERS" not in os.environ, reason="ZOO_PAPERS names no folder with the papers"
)


@needs_papers
def test_quotations_are_those_of_the_papers():
    held = {source: plain(paper(source)) for source in PAPERS}
    quoted = [own for own in read_audit() + read_items() if "quote" in own]
    missing = [own["quote"] for own in quoted if plain(own["quote"]) not in held[own["source"]]]
    assert len(quoted) > 80 and not missing, missing


def sections_of(source):
    """Text of each numbered section of a thesis, that of its subsections in it."""
    found, now = {}, ""
    for line in paper(source).splitlines():
        heading = re.match(r"(\d(?:\.\d){0,2})\s+[A-Z]", line)
        now = heading[1] if heading and len(line) < 110 and "|" not in line else now
        for end in range(1, len(now) + 1, 2):
            found[now[:end]] = found.get(now[:end], "") + line + "\n"
    return {number: plain(text) for number, text in found.items()}


@needs_papers
def test_a_quotation_stands_in_the_section_that_its_item_names():
    """Captions aside, which the texts move."""
    held = {source: sections_of(source) for source in ("Yu (2006)", "Virtanen (2010)")}
    wrong, seen = [], 0
    for own in read_items():
        place = re.sub(r"(?:Table|Rem\.) [\d.]+", "", own["place"])
        named = re.findall(r"(?<![\d(.])\d(?:\.\d){0,2}(?![\d)])", place)
        if own["source"] in held and "quote" in own and named and "Fig" not in own["place"]:
            texts, seen = [held[own["source"]].get(number, "") for number in named], seen + 1
            wrong += [] if any(plain(own["quote"]) in text for text in texts) else [own["place"]]
    assert seen > 30 and not wrong, wrong


@needs_papers
def test_numbers_of_the_papers_are_printed_there():
    """Each number that stands beside ours as theirs."""
    held = {source: plain(paper(source)) for source in PAPERS}
    pairs = [
        (own["source"], number)
        for own in read_audit() + read_items()
        for value in own.get("values", ())
        for number in re.findall(r"\d+(?:\.\d+)?", value.get("theirs", ""))
    ]
    missing = [
        (source, number)
        for source, number in pairs
        if not re.search(rf"(?<![\d.]){re.escape(number)}(?!\d)", held[source])
    ]
    assert len(pairs) > 60 and not missing, missing


def cited(place):
    """Equations, sections and numbered things that a place names, as the texts print them."""
    found = re.findall(r"\(\d+(?:\.\d+)?\)", place)
    found += re.findall(r"(?:Algorithm|Theorem|Table|Figure|Proposition) [\dIVX.]*[\dIVX]", place)
    return found + [
        own for own in re.findall(r"(?<![\d(.])\d\.\d(?:\.\d)?(?![\d)])", place) if own not in str(found)
    ]


@needs_papers
def test_what_a_card_or_the_audit_cites_is_in_the_papers():
    """Each equation, section, algorithm, theorem, table and figure that a card or an item names.

    Claims name their source once a card, or not at all: any of the papers has to have theirs.
    """
    short = {"Yu (2006)": "Yu (2006)", "Virtanen (2010)": "Virtanen (2010)", "Qiao et al.": "Qiao et al."}
    short |= {"Yu et al. (2006)": "Yu et al. (2006)", "Morrison (2016)": "Morrison (2016)"}
    places = [(item["source"], item["place"]) for item in read_items()]
    claimed = set()
    for card in zoo.MODELS:
        notes = read_notes(read_card(card))
        claimed.update(own for claim in notes.claims for own in cited(claim.paper))
        for own in notes.corrections + notes.remarks:
            for place in own.place.split("; "):
                (source,) = [name for name in short if place.startswith(name)]
                places.append((short[source], place.removeprefix(source)))
    texts = {source: re.sub(r"\\tag\{(\d+)\}", r"(\1)", paper(source)) for source in PAPERS}
    missing = [(source, own) for source, place in places for own in cited(place) if own not in texts[source]]
    missing += [own for own in sorted(claimed) if not any(own in text for text in texts.values())]
    assert len(places) > 250 and len(claimed) > 30 and not missing, missing
    assert "(3.99)" in cited("Yu (2006), (3.99)") and "(3.99)" not in texts["Yu (2006)"]


def test_a_number_that_no_record_has_is_refused():
    with pytest.raises(KeyError):
        recorded({"record": "mixture_toy_bound.json", "path": ["median"]})


@pytest.mark.parametrize(
    ("output", "undrawn"),
    [
        ("", ["fit()\nplots.plot_mixture(tree);"]),
        ('<div class="cell_output"><img src="a.png" alt="rows"/></div>', []),
    ],
)
def test_a_plot_without_a_picture_is_found(output, undrawn):
    """A semicolon once kept every picture of the gallery from its page."""
    code = '<div class="cell_input"><div><pre>fit()\n<span>plots</span>.plot_mixture(tree);</pre></div></div>'
    page = SitePage(f'<div class="cell">{code}{output}</div><p>plots.plot_trace(draws)</p>')
    assert page.undrawn == undrawn
