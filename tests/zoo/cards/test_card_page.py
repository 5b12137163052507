"""A model's card: usage that works, a note for each method, figures that were measured, no raw markup."""

import dataclasses
import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import inference
import zoo
from inference.cli import main
from inference.cli.options import parse
from inference.cli.selection import select
from inference.cli.settings import parse_settings, resolve, terms_of
from tests.tools.recording import TOLD
from zoo import MODELS
from zoo.cards import markup, read_card, read_notes
from zoo.cards.page import card_as_markdown, card_as_text, card_sections
from zoo.datasets import catalogue

ROOT = Path(__file__).parents[3]
NUMBER = re.compile(r"-?\d+\.\d+")
PROGRAM = re.compile(r"^(## )?Program\n.*", re.MULTILINE | re.DOTALL)
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def toml(name):
    """A card's file as it stands."""
    return tomllib.loads((ROOT / "zoo" / "cards" / f"{name}.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", MODELS)
def test_every_method_says_what_it_costs_and_when_to_use_it(name):
    card, own, generic = read_card(name), toml(name), toml("generic")
    assert set(own["methods"]) <= set(card.methods) <= set(own["methods"]) | set(generic["methods"])
    notes = read_notes(card)
    assert tuple(notes.methods) == card.methods
    assert all(note.cost and note.when for note in notes.methods.values())
    written = [*own["methods"].values(), *generic["methods"].values()]
    assert all(set(note) == {"when", "cost"} for note in written)


def test_every_file_of_notes_belongs_to_a_model_and_has_known_parts():
    files = {path.stem for path in (ROOT / "zoo" / "cards").glob("*.toml")}
    assert files == {*MODELS, "generic"}
    for name in MODELS:
        assert {"corrections"} >= {"process", "usage", "methods", "claims", "remarks", "corrections"} ^ set(
            toml(name)
        )
        assert set(toml(name)["usage"]) == {"python", "command"}
    assert set(toml("generic")) == {"symbols", "methods", "corrections", "remarks"}
    for shared in toml("generic")["corrections"] + toml("generic")["remarks"]:
        assert len(shared["models"]) > 1 and set(shared["models"]) <= set(MODELS)


# usage


def called(usage, fit):
    """The model, the data and the options with which the lines call `inference.fit`."""
    calls = []

    def recorded(model, *data, **options):
        calls.append((model, data, options))
        return fit(model, *data, **options)

    names = {"zoo": zoo, "inference": SimpleNamespace(fit=recorded)}
    exec(compile(usage.python, "usage", "exec"), names)
    (call,) = calls
    return *call, names["tree"]


@pytest.mark.parametrize("name", MODELS)
def test_both_lines_of_usage_make_the_same_model_of_the_same_data(name):
    card = read_card(name)
    usage = read_notes(card).usage
    model, data, options, _ = called(usage, lambda *_, **__: None)
    program, *words = shlex.split(usage.command)
    line = parse(words)
    assert program == "zoo" and line.command == "fit" and line.model == name
    assert catalogue()[line.files[0]]["kind"] in ("shipped", "generated")  # nobody has to get anything
    assert options.pop("method", "auto") == line.method and not options
    assert line.method in ("auto", *card.methods)
    x, y = (None if text is None else terms_of("--x", text) for text in (line.x, line.y))
    _, selected = select(line.files[0], x, y, [terms_of("--views", view) for view in line.views])
    settings = parse_settings(line.set, tuple(card.fields), name)
    other = getattr(zoo, MODELS[name]["class"]).from_data(*selected, **resolve(settings))
    assert type(model) is type(other)
    assert [np.shape(part)[0] for part in data] == [np.shape(part)[0] for part in selected]
    read = (own.encoded(*parts) for own, parts in ((model, data), (other, selected)))
    mine, other = (own.with_sizes_from(*parts) for own, parts in read)
    for field in dataclasses.fields(model):
        ours, theirs = (getattr(filled, field.name) for filled in (mine, other))
        if field.init and not dataclasses.is_dataclass(ours):  # nested priors are read off the same data
            assert str(ours) == str(theirs), field.name


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_usage_ends_in_a_fit_that_has_converged(name):
    *_, tree = called(read_notes(read_card(name)).usage, inference.fit)
    assert tree.attrs["model"] == name and tree.attrs["converged"]


# text and page


@pytest.mark.parametrize("name", MODELS)
def test_text_and_page_say_the_same_and_all_of_it(name):
    card = read_card(name)
    text, page = card_as_text(card), card_as_markdown(card)
    titles = [section.title for section in card_sections(card) if section.title]
    assert [line for line in text.splitlines() if line in titles] == titles
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == titles
    assert {"Usage", "Fields", "Shapes", "Symmetries", "Methods", "Program"} <= set(titles)
    assert read_notes(card).usage.python.splitlines()[-1] in text

    def words(some):
        return re.sub(r"^```.*$|[`#|*\\\s-]", "", some, flags=re.MULTILINE)

    plain = re.sub(r"\$(.+?)\$", lambda found: markup.plain_math(found[1]), PROGRAM.sub("", page))
    assert words(PROGRAM.sub("", text)) == words(plain)
    assert card.program in page and card.program in re.sub(r"^    ", "", text, flags=re.MULTILINE)
    assert "~" in card.module_docstring and "Symmetr" in card.module_docstring


@pytest.mark.parametrize("width", [60, 80, 100])
@pytest.mark.parametrize("name", MODELS)
def test_no_line_above_the_program_is_wider_than_the_terminal(name, width):
    text = PROGRAM.sub("", card_as_text(read_card(name), width))
    long = [line for line in text.splitlines() if len(line) > max(width, 80)]
    assert not long
    if width < 80:  # of a narrow one, but for lines to copy and tables of many columns
        narrow = [line for line in text.splitlines() if len(line) > width and not line.startswith("    ")]
        assert not narrow


RAW = re.compile(r":\w+:`|``|::(?=\s|$)|^\.\. |:ref:|:math:|\xa0|\\1|^=+( +=+)+", re.MULTILINE)


@pytest.mark.parametrize("name", MODELS)
def test_a_card_shows_no_markup_of_docstrings(name):
    card = read_card(name)
    assert RAW.search(card.module_docstring)  # there is something to convert
    text = PROGRAM.sub("", card_as_text(card, 80))
    assert not RAW.search(text) and "`" not in text and "**" not in text
    assert not re.search(r"\\[a-zA-Z{]", text)
    page = PROGRAM.sub("", card_as_markdown(card))
    assert not RAW.search(FENCED.sub("", page)) and not re.search(":math:|::$", page, re.MULTILINE)
    tables = [line for line in page.splitlines() if line.startswith("| ")]
    assert len(tables) > 5 and len({line.count(" | ") for line in tables}) == 2  # symbols, shapes


def test_each_part_of_a_docstring_becomes_text_and_markdown():
    docstring = r"""A title, with ``code``, `zoo.lda`, **weight**, :class:`zoo.LDA`, <w> and a < b.

Process of :math:`\lambda_{dk} \le m s^{1/2}`::

    x  ~ Normal(0, 1)          because

    y  = x

* one
  and more
* two

======  =====
letter  means
======  =====
a       ``x | y``
        and more
        b
c       d
======  =====

Example::

    >>> 1 + 1
    2
"""
    blocks = markup.parse(docstring)
    assert (
        markup.as_text(blocks, 40)
        == """\
A title, with code, zoo.lda, weight,
zoo.LDA, <w> and a < b.

Process of lambda_dk <= m s^(1/2):

    x  ~ Normal(0, 1)          because

    y  = x

- one and more
- two

    letter  means
    ------  --------------------
    a       x | y and more b
    c       d

Example:

    >>> 1 + 1
    2"""
    )
    assert (
        markup.as_markdown(blocks)
        == r"""A title, with `code`, `zoo.lda`, **weight**, `zoo.LDA`, \<w> and a < b.

Process of $\lambda_{dk} \le m s^{1/2}$:

```text
x  ~ Normal(0, 1)          because

y  = x
```

- one and more
- two

| letter | means |
| --- | --- |
| a | `x \| y` and more b |
| c | d |

Example:

```text
>>> 1 + 1
2
```"""
    )
    (wide,) = markup.parse("A::\n\n    x  ~ Normal(0, 1)          because")[1:]
    assert markup.as_text([wide], 30) == "    x  ~ Normal(0, 1)\n           because"


@pytest.mark.parametrize(
    ("formula", "text"),
    [
        (r"\sum_k \pi_k", "sum_k pi_k"),
        (r"Z = V (\Lambda/m - s^2)_+^{1/2} R", "Z = V (Lambda/m - s^2)_+^(1/2) R"),
        (r"\sum_{j>K} \lambda_j / \{m (M - K)\}", "sum_(j>K) lambda_j / {m (M - K)}"),
        (r"x_d \sim \mathrm{Multinomial}(N_d, \theta_d' \beta)", "x_d ~ Multinomial(N_d, theta_d' beta)"),
        (r"\frac{a + b}{2} \times |z|^{-m}", "(a + b)/(2) x |z|^(-m)"),
    ],
)
def test_formulas_are_readable_in_a_terminal(formula, text):
    assert markup.plain_math(formula) == text


# papers

PAGES = ("tests/reference/README.md", "tests/reference/changes_in_detail.md")


def leaves(content):
    """All numbers of a record."""
    if isinstance(content, dict | list):
        for own in content.values() if isinstance(content, dict) else content:
            yield from leaves(own)
    elif isinstance(content, int | float) and not isinstance(content, bool):
        yield content


def is_recorded(figure, record):
    """Whether a number of the record, or a hundred times it, is this one to the places that are printed."""
    places = len(figure.partition(".")[2])
    numbers = [*leaves(json.loads(record.read_text(encoding="utf-8")))]
    either_way = (1 - 1e-9, 1 + 1e-9, 100 - 1e-7, 100 + 1e-7)  # a half is rounded up or down
    shown = {
        f"{size * unit:.{places}f}" for own in numbers for size in (own, abs(own)) for unit in either_way
    }
    return figure in shown


def test_a_figure_that_no_record_has_is_told(tmp_path):
    """Planted: a figure with a wrong last place, and one with more places than the record."""
    record = tmp_path / "record.json"
    record.write_text('{"a": {"errors": [0.1234, -0.05, 0.1175], "is": true}}')
    assert all(is_recorded(own, record) for own in ("0.123", "-0.05", "0.05", "12.3", "0.117", "0.118"))
    assert not any(is_recorded(own, record) for own in ("0.124", "-0.123", "0.12345", "1.0"))


def test_figures_of_claims_stand_where_measurements_are():
    known = "".join((ROOT / name).read_text(encoding="utf-8") for name in PAGES)
    for name in MODELS:
        for claim in read_notes(read_card(name)).claims:
            record = ROOT / "tests" / "reference" / claim.record
            assert not claim.record or record.is_file(), claim.record
            figures = NUMBER.findall(claim.here)
            unknown = [own for own in figures if own not in known]
            assert all(claim.record and is_recorded(own, record) for own in unknown), (name, unknown)
            assert claim.here.endswith(".") and claim.paper.endswith(".")


FIGURE = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?e-\d+|(?<![\w.])-?\d+\.\d+")
STATISTICS = {"max": np.max, "mean": np.mean}


def at(value, path):
    """The numbers at a path of a record, in which ``*`` takes all parts."""
    if not path:
        return np.array(list(value.values()) if isinstance(value, dict) else value, dtype=float).ravel()
    if path[0] == "*":
        return np.concatenate([at(part, path[1:]) for name, part in value.items() if name not in TOLD])
    return at(value[int(path[0]) if isinstance(value, list) else path[0]], path[1:])


def figure_of(entry):
    """The number that an entry of claims.toml leads to."""
    record = json.loads((ROOT / "tests" / "reference" / entry["record"]).read_text(encoding="utf-8"))
    numbers = at(record, entry["path"]) / (at(record, entry["over"]) if "over" in entry else 1.0)
    if "of" in entry:
        return STATISTICS[entry["of"]](numbers)
    (number,) = numbers
    return number


def is_rounded(number, figure):
    """Whether a figure is the number, rounded to the figure's digits."""
    mantissa, _, exponent = figure.partition("e")
    unit = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    return abs(abs(number) - abs(float(figure))) <= 0.5001 * unit


def read_sources():
    return tomllib.loads((ROOT / "tests/reference/claims.toml").read_text(encoding="utf-8"))["figure"]


@pytest.mark.repo
@pytest.mark.parametrize("entry", read_sources(), ids=lambda own: f"{own['model']} {own['figure']}")
def test_a_figure_of_a_claim_is_that_of_its_record(entry):
    """Planted: the same figure with another last digit is not."""
    if "unrecorded" in entry:
        assert set(entry) == {"model", "figure", "unrecorded"}
        return
    number, figure = figure_of(entry), entry["figure"]
    assert is_rounded(number, figure), number
    mantissa, _, exponent = figure.partition("e")
    other = mantissa[:-1] + str((int(mantissa[-1]) + 2) % 10) + (f"e{exponent}" if exponent else "")
    assert not is_rounded(number, other)


@pytest.mark.repo
@pytest.mark.parametrize("name", MODELS)
def test_every_figure_of_a_claim_has_its_source(name):
    known = {entry["figure"] for entry in read_sources() if entry["model"] == name}
    claims = read_notes(read_card(name)).claims
    assert {figure for claim in claims for figure in FIGURE.findall(claim.here)} <= known, (
        "say in tests/reference/claims.toml where it is from"
    )


PLACE = re.compile(
    r"^(Yu \(2006\)|Yu et al\. \(2006\)|Virtanen \(2010\)|Qiao et al\.|Morrison \(2016\))[^:]*, .*"
    r"(\(\d+(\.\d+)?\)|[Ss]ections? [\dI]|Table|Figure|Algorithm|Theorem|chapter \d|gradient|terms|"
    r"components|rotations|Q_|Kullback|<log|multiplier|dimensionality)"
)


@pytest.mark.parametrize("name", MODELS)
def test_every_model_says_what_is_wrong_in_its_papers_and_where(name):
    notes = read_notes(read_card(name))
    said = notes.corrections + notes.remarks
    assert said and all(PLACE.search(own.place) for own in said)
    assert all(own.right.endswith(".") and len(own.right) > 20 for own in said)
    assert notes.claims
    text = " ".join(card_as_text(read_card(name)).split())
    assert ("Corrections to the papers" in text) == bool(notes.corrections)
    assert ("Remarks on the papers" in text) == bool(notes.remarks)
    assert all(own.right.replace("`", "") in text for own in said)


# where it runs


def test_a_page_is_written(tmp_path, capsys):
    assert main(["show", "s2ppca", "--out", str(tmp_path / "sppca.md")]) == 0
    assert (tmp_path / "sppca.md").read_text().startswith("# sppca: Supervised")
    assert main(["show", "s2ppca", "--out", str(tmp_path / "sppca.pdf")]) == 2
    assert "ending in .md" in capsys.readouterr().err


def test_the_card_is_as_wide_as_the_terminal_within_reason(monkeypatch, capsys):
    widest = {}
    for columns in (20, 80, 100, 300):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert main(["show", "plsi"]) == 0
        lines = PROGRAM.sub("", capsys.readouterr().out).splitlines()
        widest[columns] = max(map(len, lines))
    assert widest[20] < widest[80] <= 80 < widest[100] <= 100 < widest[300] <= 110


@pytest.mark.parametrize("arguments", [["list"], ["show", "paired"]])
def test_cards_need_nothing_but_the_sources_and_the_standard_library(arguments, tmp_path):
    path = f"import sys; sys.path.insert(0, {str(ROOT)!r})"
    code = f"{path}; from inference.cli import main; sys.exit(main({arguments}))"
    bare = [sys.executable, "-I", "-S", "-c", code]
    run = subprocess.run(bare, capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 0 and "ecca" in run.stdout, run.stderr
