"""The generative process of a model in equations, its program and its graph, by the sites that they share.

Equations are of the card (``process`` in ``zoo/cards/<model>.toml``), the program is its source, and the graph
and the lines that make each site are those of a run of the program on the data of the card's example.
"""

import ast
import io
import re
import sys
from fnmatch import fnmatch
from html import escape
from types import SimpleNamespace

import jax
import matplotlib as mpl
from numpyro import handlers
from numpyro.infer.initialization import init_to_sample
from numpyro.primitives import Messenger
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

import zoo
from inference.fitting.arguments import Call, read_call
from inference.plots.model_graph import draw_graph, in_words, program_graph
from inference.precision import double_precision
from zoo.cards import read_card, read_notes
from zoo.cards.program import parsed, program_lines

__all__ = ["lines_of_sites", "prepared", "request_of", "view"]

VIEW = """<div class="process">
<div class="process-left">
<ol class="process-equations">
{equations}
</ol>
<figure class="process-graph">
{graph}
<figcaption>The graph of the example: arrows lead to dependent sites, frames are plates, grey sites are data, dashed
ones computed from others.</figcaption>
</figure>
</div>
<div class="process-program highlight">
<pre tabindex="0">{program}</pre>
</div>
</div>
<p class="process-said" role="status"></p>
"""
EQUATION = """<li data-site="{sites}" tabindex="0">
<div class="process-equation">

${tex}$

</div>
<code>{name}</code>{when}
</li>"""


def request_of(model, *data, method="auto", **settings):
    """A model and its data as `fit` prepares them; nothing is fitted."""
    of_run = None, None, None, "float64", (), False, None
    request = read_call(Call(model, data, method, 0, settings, *of_run))
    return request.model, request.data


def prepared(name):
    """The model and the data of a card's example, as `fit` prepares them."""
    scope = {"zoo": zoo, "inference": SimpleNamespace(fit=request_of)}
    exec(read_notes(read_card(name)).usage.python, scope)
    return scope["tree"]


class _Places(Messenger):
    """Notes the frames from which each site of a program is made."""

    def __init__(self):
        super().__init__()
        self.found = {}

    def process_message(self, message):
        if message["type"] not in ("sample", "deterministic"):
            return
        frame, places = sys._getframe(1), self.found.setdefault(message["name"], [])
        while frame is not None:
            places.append((frame.f_code.co_filename, frame.f_lineno))
            frame = frame.f_back


@double_precision
def lines_of_sites(model, data, lines):
    """Which lines of a program make each site.

    Args:
        model: the model.
        data: its parts, as `fit` takes them.
        lines: of `zoo.cards.program.program_lines`.

    Returns:
        Site to the places of its lines in ``lines``, all lines of a statement.
    """
    places = {(str(line.file), line.number): place for place, line in enumerate(lines) if line.file}
    spans = {file: _statements(file) for file in {line.file for line in lines if line.file}}
    noted = _Places()

    def run():
        program = handlers.substitute(handlers.seed(model.explicit, 0), substitute_fn=init_to_sample)
        with noted:
            program(*data)

    jax.eval_shape(run)
    found = {}
    for site, frames in noted.found.items():
        own = set()
        for file, number in frames:
            if (file, number) in places:
                line = lines[places[file, number]]
                first, last = spans[line.file].get(number, (number, number))
                own |= {places[file, n] for n in range(first, last + 1) if (file, n) in places}
        found[site] = sorted(own)
    return found


def _statements(file):
    """Line to the first and last line of the smallest simple statement that holds it."""
    spans = {}
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Expr | ast.Return):
            for number in range(node.lineno, node.end_lineno + 1):
                first, last = spans.get(number, (0, sys.maxsize))
                if node.end_lineno - node.lineno < last - first:
                    spans[number] = node.lineno, node.end_lineno
    return spans


def sites_of(name, sites):
    """The sites of a program that an equation of a card is of; itself where the example has none of them."""
    return [site for site in sites if fnmatch(site, name)] or [name]


def view(name):
    """The three beside each other, as HTML with mathematics between dollar signs."""
    card = read_card(name)
    model, data = prepared(name)
    lines = program_lines(card.path, card.class_name)
    of_sites = lines_of_sites(model, data, lines)
    graph = program_graph(model, data)
    equations = "\n".join(
        EQUATION.format(
            sites=" ".join(sites_of(own.site, of_sites)),
            tex=own.tex,
            name=own.site,
            when=f" <span>{escape(own.when)}</span>" if own.when else "",
        )
        for own in read_notes(card).process
    )
    return VIEW.format(equations=equations, graph=_svg(graph), program=_program(lines, of_sites))


def _program(lines, of_sites):
    """The lines of a program in colours, each in a span with the sites that it makes."""
    text = "\n".join(line.text for line in lines)
    coloured = highlight(text, PythonLexer(stripnl=False), HtmlFormatter(nowrap=True)).splitlines()
    shown = []
    for place, line in enumerate(coloured[: len(lines)]):
        sites = [site for site, places in of_sites.items() if place in places]
        held = f' data-site="{" ".join(sites)}" tabindex="0"' if sites else ""
        shown.append(f"<span{held}>{line}</span>")
    return "\n".join(shown)


def _svg(graph):
    """The picture of a graph, whose symbols say of which site they are."""
    buffer = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "graph"}):
        draw_graph(graph).savefig(buffer, format="svg", metadata={"Date": None}, transparent=True)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r'<g id="site:([\w:]+)">', r'<g data-site="\1" tabindex="0">', text)
    text = re.sub(r' height="[\d.]+pt"', "", text, count=1)
    text = re.sub(r' width="([\d.]+pt)"', r' style="--drawn: \1"', text, count=1)
    label = escape(in_words(graph), quote=True)
    return text.replace("<svg", f'<svg role="img" aria-label="{label}"', 1).replace("\n", " ")
