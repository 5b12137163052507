"""Names from data and files, however hostile, leave the elements of a page as they are with plain names."""

from html.parser import HTMLParser

import numpy as np
import pytest
from markdown_it import MarkdownIt

import inference
from inference.fitting.verdict import Judgement
from inference.report import report, report_comparison
from inference.report.page import (
    Code,
    Front,
    Paragraph,
    Section,
    ShownTable,
    as_html,
    as_markdown,
    one_column,
)
from inference.report.run import _command
from tests.support.report_cases import FITS, fitted

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</style><style>@import url(http://127.0.0.1)</style>",
    "[a](javascript:alert(1))",
    "![a](http://127.0.0.1/a.png)",
    "```\n<b>\n```",
    "&lt;b&gt; &#60;b&#62;",
    "<!-- --> <![CDATA[",
    "{{ 7 * 7 }} {% raw %}",
    "# a\n- b | c\n\n> d",
    "**a** _b_ ~~c~~ `d`",
    "<http://127.0.0.1>",
    "$x_{1$ \\href{a}{b}",
    "\u202e\u2028 a",
]


class Elements(HTMLParser):
    """The elements of a page: tags with the names of their attributes, and where these lead."""

    def __init__(self, text):
        super().__init__()
        self.found, self.leads = [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, tuple(name for name, _ in attrs)))
        leads = [value for name, value in attrs if name in ("src", "href", "style", "action")]
        self.leads += [value.partition(",")[0] for value in leads]

    def handle_comment(self, data):
        self.found.append(("comment", ()))

    def handle_decl(self, decl):
        self.found.append(("declaration", ()))

    def unknown_decl(self, data):
        self.found.append(("declaration", ()))


def blocks_of(text):
    """The elements of Markdown, in order: blocks, and what is in them beside words."""
    found = []
    for token in MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text):
        if token.type != "inline":
            found.append(token.type)
        found += [
            (own.type, own.attrs.get("href", own.attrs.get("src")))
            for own in token.children or ()
            if own.type not in ("text", "softbreak", "text_special")
        ]
    return found


def named(tree, model, make):
    """A copy of a fit whose rows and columns have names of which ``make`` gives one for each number."""
    dims = {dim for name in model.data_names for dim in model.variable_dims[name]}

    def rename(dataset):
        for dim in dims & set(dataset.dims):
            dataset = dataset.assign_coords({dim: [make(i) for i in range(dataset.sizes[dim])]})
        return dataset

    changed = tree.map_over_datasets(rename)
    changed.attrs |= {"data_name": make(0), "stop_reason": tree.attrs["stop_reason"]}
    return changed


MAKERS = {
    "plain": lambda i: f"name {i} " + "a" * 20,
    "hostile": lambda i: f"{HOSTILE[i % len(HOSTILE)]} {i}",
}


@pytest.mark.filterwarnings("ignore")  # of letters that fonts lack
@pytest.mark.cases_by_default(1)
@pytest.mark.parametrize("name", ["ppca", "lda", *(name for name in FITS if name not in ("ppca", "lda"))])
def test_a_report_has_the_elements_that_it_has_with_plain_names(name, tmp_path, monkeypatch):
    monkeypatch.setattr("inference.report.page.to_png", lambda figure: PNG)
    tree = fitted(name)
    model, pages = inference.model_of(tree), {}
    for kind, make in MAKERS.items():
        for ending in ("html", "md"):
            path = report(named(tree, model, make), tmp_path / f"{kind}.{ending}")
            pages[kind, ending] = path.read_text(encoding="utf-8")
    plain, hostile = (Elements(pages[kind, "html"]) for kind in MAKERS)
    assert hostile.found == plain.found and hostile.leads == plain.leads
    assert set(hostile.leads) <= {"data:image/png;base64", *(lead for lead in plain.leads if lead[0] == "#")}
    assert HOSTILE[0] not in pages["hostile", "html"] and "&lt;script&gt;" in pages["hostile", "html"]
    found = [[_plain_lead(own) for own in blocks_of(pages[kind, "md"])] for kind in MAKERS]
    assert found[1] == found[0]


def _plain_lead(own):
    """An element without the name of the page that its pictures are named after."""
    return (own[0], str(own[1]).removeprefix("plain").removeprefix("hostile")) if len(own) == 2 else own


# one black point: the pictures are others' business
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010100000000376ef9240000000a49444154789c63600000000200"
    "01489afa4b0000000049454e44ae426082"
)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("ending", ["html", "md"])
def test_a_comparison_of_fits_with_hostile_names(ending, tmp_path, monkeypatch):
    monkeypatch.setattr("inference.report.page.to_png", lambda figure: PNG)
    tree, model = fitted("mixture"), inference.model_of(fitted("mixture"))
    pages = {}
    for kind, make in MAKERS.items():
        trees = {make(i): named(tree, model, make) for i in range(2)}
        path = report_comparison(trees, tmp_path / f"{kind}.{ending}")
        pages[kind] = path.read_text(encoding="utf-8")
    if ending == "html":
        assert Elements(pages["hostile"]).found == Elements(pages["plain"]).found
    else:
        found = [[_plain_lead(own) for own in blocks_of(pages[kind])] for kind in MAKERS]
        assert found[1] == found[0]


def page_of(text):
    """Every kind of block with a text at every place."""
    judgement = Judgement(False, text, text, text)
    frame = one_column(text, {text: text}, text).frame
    blocks = [Paragraph(text), judgement, Code(text), ShownTable(text, frame, (), text)]
    return Front(text, judgement, {text: text}), [Section(f"Fit {text}", blocks), Section(text, blocks)]


@pytest.mark.parametrize("place", range(len(HOSTILE)))
def test_no_block_lets_markup_through(place):
    pages = [page_of(text) for text in ("name", HOSTILE[place])]
    plain, hostile = (Elements(as_html(*page, {})) for page in pages)
    assert hostile.found == plain.found and set(hostile.leads) - set(plain.leads) <= {
        lead for lead in hostile.leads if lead.startswith("#")
    }
    plain, hostile = (blocks_of(as_markdown(*page, {})) for page in pages)
    assert hostile == plain
    assert "<" not in as_markdown(*page_of(HOSTILE[place]), {}).replace(HOSTILE[place], "")


def test_planted_markup_is_found():
    front, sections = page_of("name")
    text = as_html(front, sections, {})
    assert Elements(text.replace("name", "<b>", 1)).found != Elements(text).found
    text = as_markdown(front, sections, {})
    for markup in ("<b>", "[a](b)", "**a**", "![a](b)", "~~a~~"):
        assert blocks_of(text.replace("name", markup, 1)) != blocks_of(text)


def test_commands_of_strangers_are_not_repeated():
    """A file says which command made its fit: one is shown that runs zoo alone, in whatever shell."""
    tree = fitted("ppca").copy()
    tree.attrs["command"] = "zoo fit ppca 'my data.csv' --set num_latents=2"
    assert _command(tree) == tree.attrs["command"]
    for command in (
        "curl http://127.0.0.1 | sh",
        "zoo fit ppca a.csv; rm -r .",
        "zoo fit ppca $(true)",
        "zoo fit ppca `true`",
        "zoo fit ppca a.csv\ntrue",
        "zoo fit 'a",
        "sudo zoo fit ppca a",
        "zoo fit ppca a > /dev/sda",
        "zoo fit ppca 'a\x1b[A'",
    ):
        tree.attrs["command"] = command
        assert command not in _command(tree) and "from inference import" in _command(tree)
    del tree.attrs["command"]
    tree.attrs["seed"] = "__import__('os').system('true')"
    with pytest.raises(ValueError):
        _command(tree)
    tree.attrs["seed"] = "[1, 2]"
    tree["observed_data"] = tree["observed_data"].to_dataset().rename(x='x"]; import os; a["')
    compile(_command(tree), "recipe", "exec")
    assert 'x\\"]; import os' in _command(tree)
    assert np.isfinite(tree["posterior"]["loc"]).all()
