"""Pages of every model and of several fits in Chromium, driven over a pipe: what a reader can see and reach.

At 1280 and at 390 pixels, in light and dark, no label is clipped or covered, no decisive column is off the
screen, every word stands out from its ground, and the structure is what a screen reader needs
(`tests/tools/pages/audit.js`). The console is silent, nothing is asked for, and the page reads the same
without scripts. Faults are planted, one of each kind, and must be found.
"""

import pytest
from matplotlib.axis import Tick
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from inference.report.page import to_png
from tests.support.report_cases import PAGES, write_page_of
from tests.tools.pages.browser import CHROMIUM, Browser
from tests.tools.pages.pictures import AUDIT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
]


@pytest.fixture(scope="module")
def browser():
    with Browser() as running:
        yield running


@pytest.fixture(scope="module", params=PAGES)
def page(request, tmp_path_factory):
    folder = tmp_path_factory.getbasetemp()
    path = folder / f"{request.param}.html"
    return path if path.exists() else write_page_of(request.param, folder)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_a_page_can_be_read(page, browser, width, dark):
    view = browser.open(page, width, dark=dark)
    found = view.run(AUDIT)
    assert found["faults"] == [] and found["least"] >= 4.5 and found["labels"] > 50
    assert view.console == [] and view.requests == []
    view.close()


def test_a_page_prints_and_is_small(page, browser, tmp_path):
    """On white, without what only a screen needs; under a megabyte."""
    assert page.stat().st_size < 1e6
    view = browser.open(page, 1280, media="print", dark=True)
    assert view.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert view.run("document.querySelector('nav').checkVisibility()") is False
    assert 1 <= view.printed(tmp_path / "page.pdf") <= 20
    view.close()


def test_the_verdict_and_the_facts_are_on_the_first_screen(page, browser):
    """The verdict with its reason and next step on a phone; the facts too on a wide screen."""
    view = browser.open(page, 390)
    below = "Math.ceil(document.querySelector('{}').getBoundingClientRect().bottom)"
    assert view.run(below.format(".front")) < 844
    view.close()
    view = browser.open(page, 1280)
    assert view.run(below.format(".facts")) < 900
    view.close()


def test_the_page_reads_the_same_without_scripts(page, browser):
    """Scripts add buttons and take no word away."""
    texts = []
    for scripts in (True, False):
        view = browser.open(page, 1280, scripts=scripts)
        texts.append(view.run("document.querySelector('.layout').innerText"))
        assert view.run("document.querySelectorAll('button').length > 0") is scripts
        view.close()
    assert texts[0] == texts[1]


@pytest.mark.parametrize("name", PAGES)
def test_labels_of_pictures_are_whole_and_apart(name, tmp_path, monkeypatch):
    """By their boxes: no text of a picture leaves it, and no two labels of an axis lie on each other."""
    figures = {}

    def drawn(figure):
        figures[len(figures)] = figure
        return to_png(figure)

    monkeypatch.setattr("inference.report.page.to_png", drawn)
    write_page_of(name, tmp_path)
    assert figures and [fault for figure in figures.values() for fault in faults_of(figure)] == []


def faults_of(figure):
    """Texts of a figure that are cut at its edge, and labels of one axis that overlap."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer, edge, found = canvas.get_renderer(), figure.bbox, []
    drawn = []
    for axes in filter(lambda one: one.axison, figure.axes):
        for axis, limits, place in ((axes.xaxis, axes.get_xlim(), 0), (axes.yaxis, axes.get_ylim(), 1)):
            low, high = sorted(limits)
            labels = [label for label in axis.get_ticklabels() if label.get_visible() and label.get_text()]
            labels = [label for label in labels if low - 1e-9 <= label.get_position()[place] <= high + 1e-9]
            boxes = [label.get_window_extent(renderer) for label in labels]
            drawn += labels
            for i in range(len(labels) - 1):
                first, second = boxes[i : i + 2]
                across = min(first.x1, second.x1) - max(first.x0, second.x0)
                down = min(first.y1, second.y1) - max(first.y0, second.y0)
                if across > 1 and down > 1:
                    found.append(f"overlap: {labels[i].get_text()!r} and {labels[i + 1].get_text()!r}")
    ticks = {label for tick in figure.findobj(Tick) for label in (tick.label1, tick.label2)}
    for text in [*drawn, *(text for text in figure.findobj(Text) if text not in ticks)]:
        if text.get_visible() and text.get_text().strip():
            box = text.get_window_extent(renderer)
            out = max(edge.x0 - box.x0, box.x1 - edge.x1, edge.y0 - box.y0, box.y1 - edge.y1)
            found += [f"cut by {out:.0f}: {text.get_text()!r}"] if out > 1.5 else []
    return found


def test_a_cut_and_a_covered_label_are_found():
    figure = Figure(figsize=(2, 2))
    axis = figure.subplots()
    axis.set_xticks([0.5, 0.52], ["a long label", "another label"])
    axis.set_title("a title that is far too long for a picture of two inches")
    assert {fault.split()[0].rstrip(":") for fault in faults_of(figure)} == {"cut", "overlap"}


PLANTED = {
    "wider than the window": "<div class='wide'></div>",
    "clipped": "<p class='cut'>words that no reader can see whole</p>",
    "overlaps": "<p>one line of words</p><p class='up'>another line</p>",
    "contrast": "<p class='grey'>grey on white</p>",
    "without scope": "<table><caption>t</caption><thead><tr><th>a</th></tr></thead>"
    "<tbody><tr><th scope='row'>b</th></tr></tbody></table>",
    "without alternative text": "<img src='data:,' alt=''>",
    "a level is skipped": "<h4>too deep</h4>",
    "decisive column": "<div class='scroll' tabindex='0'><table><caption>t</caption><thead><tr>"
    "<th scope='col'>a</th><th scope='col'>b</th></tr></thead><tbody><tr><th scope='row' class='far'>b</th>"
    "<td class='decisive'>c</td></tr></tbody></table></div>",
    "leads nowhere": "<a href='#nowhere'>link</a>",
    "inline style": "<p style='margin: 0'>styled</p>",
}
RULES = """<style>body { background: white; color: black; } .scroll { overflow-x: auto; }
.wide { width: 3000px; height: 1px; } .cut { width: 4rem; white-space: nowrap; overflow: hidden; }
.up { margin-top: -2.1rem; } .grey { color: #999999; } .far { min-width: 3000px; }</style>"""


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found(fault, browser, tmp_path):
    whole = "<!DOCTYPE html><html lang='en'><title>t</title>{}<body><header><h1>t</h1></header><nav></nav>"
    for body, expected in ((PLANTED[fault], True), ("<p>nothing wrong</p>", False)):
        path = tmp_path / f"{expected}.html"
        path.write_text(whole.format(RULES) + f"<main>{body}</main></body></html>", encoding="utf-8")
        view = browser.open(path, 390)
        faults = view.run(AUDIT)["faults"]
        assert any(fault in found for found in faults) is expected, faults
        view.close()


def test_a_request_and_a_message_are_noticed(browser, tmp_path):
    bad = tmp_path / "bad.html"
    bad.write_text('<h2>A</h2><img src="http://127.0.0.1:9/fit.png"><script>console.error("no")</script>')
    view = browser.open(bad, 1280)
    assert any("fit.png" in url for url in view.requests) and any('"no"' in said for said in view.console)
    view.close()


def test_a_script_that_a_page_did_not_bring_does_not_run(browser, tmp_path):
    """The policy stops markup that escaping would have let through."""
    text = write_page_of("hostile", tmp_path).read_text(encoding="utf-8")
    bad = tmp_path / "bad.html"
    bad.write_text(
        text.replace("</main>", "<script>document.title = 'run'</script></main>"), encoding="utf-8"
    )
    view = browser.open(bad, 1280)
    assert view.run("document.title") != "run" and any("Content Security Policy" in c for c in view.console)
    view.close()
    view = browser.open(tmp_path / "hostile.html", 1280)
    assert view.run("document.querySelectorAll('script').length") == 1 and view.requests == []
    assert "<script>alert(1)</script>" in view.run("document.body.innerText")
    view.close()


def test_tables_sort_and_pictures_open_by_keyboard(browser, tmp_path):
    view = browser.open(write_page_of("mixture", tmp_path), 1280)
    view.run(
        "window.table = [...document.querySelectorAll('table')].find(t => t.tBodies[0].rows.length > 4);"
        "window.cells = () => [...table.tBodies[0].rows].map(r => r.cells[1].textContent);"
        "table.tHead.rows[0].cells[1].querySelector('button').focus()"
    )
    numbers = sorted(map(_number, view.run("cells()")))
    for direction, expected in (("descending", numbers[::-1]), ("ascending", numbers)):
        view.press("Enter", 13)
        assert view.run("table.tHead.rows[0].cells[1].getAttribute('aria-sort')") == direction
        assert list(map(_number, view.run("cells()"))) == expected
    view.run("document.querySelector('.zoom').focus()")
    view.press("Enter", 13)
    assert view.run("document.querySelector('dialog').open") is True
    assert view.run("document.querySelector('dialog img').naturalWidth > 300") is True
    view.press("Escape", 27)
    assert view.run("document.querySelector('dialog').open") is False
    assert view.run("document.activeElement.className") == "zoom"
    view.close()


def _number(text):
    try:
        return float(text.split()[0])
    except ValueError:
        return float("-inf")
