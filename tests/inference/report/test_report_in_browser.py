"""Reports of every model and of several fits in a real browser.

Every section is there, the console silent, nothing leaves the page, nothing is wider than a phone.
"""

import functools
import json
import re
import shutil
import subprocess
import warnings

import pytest
from processes import LIMIT
from report_cases import FITS, ROWS, fitted

import inference
import zoo
from inference.report import report, report_comparison

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

OWN = re.compile(r"^https?://[^/]*(google|gvt1|chromium)")  # what the browser asks its makers by itself

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine"),
]


def opened(page, folder, *options):
    """The document as the browser built it, its console, and the addresses that it asked for."""
    log = folder / "net.json"
    command = [
        BROWSER,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--enable-logging=stderr",
        "--dump-dom",
    ]
    command += ["--disable-background-networking", f"--user-data-dir={folder / 'profile'}"]
    done = subprocess.run(
        [*command, f"--log-net-log={log}", *options, page.as_uri()],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=True,
    )
    asked = re.findall(r'"url":"((?:https?|wss?|ftp)://[^"]*)"', log.read_text(encoding="utf-8"))
    return done.stdout, re.findall(r"CONSOLE.*", done.stderr), asked


PAGES = [*FITS, "several"]


@functools.cache
def written(name, folder):
    """A page: the report of a fit, or one on two fits of the same rows."""
    path = folder / f"{name}.html"
    if name in FITS:
        return report(fitted(name), path)
    model = zoo.Mixture.from_data(ROWS, num_components=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        other = inference.fit(model, ROWS, method="vb", max_iterations=5, num_samples=50, progress=False)
        return report_comparison({"em": fitted("mixture"), "vb": other}, path, held_out=(ROWS[:5],))


@pytest.fixture(scope="module", params=PAGES)
def page(request, tmp_path_factory):
    return written(request.param, tmp_path_factory.getbasetemp())


def test_the_page_is_whole_silent_and_alone(page, tmp_path):
    document, console, asked = opened(page, tmp_path)
    titles = re.findall(r"<h2>(.*?)</h2>", document)
    several = ["Fitted", "Predicted", "Agreement", "File em", "File vb"]
    assert titles == (several if page.stem == "several" else ["Assumed", "Done", "Believed", "Found", "Fits"])
    assert console == []
    assert not [url for url in asked if not OWN.search(url)]


def test_a_page_that_is_neither_is_noticed(tmp_path):
    bad = tmp_path / "bad.html"
    bad.write_text('<h2>A</h2><img src="http://127.0.0.1:9/fit.png"><script>console.error("no")</script>')
    _, console, asked = opened(bad, tmp_path)
    assert len(console) >= 1 and any("fit.png" in url for url in asked)


def test_nothing_is_wider_than_a_phone(page, tmp_path):
    """The page measures itself at 390 pixels and says so in its title."""
    probe = tmp_path / "probe.html"
    script = (
        "<script>document.title = JSON.stringify([document.documentElement.scrollWidth, innerWidth])</script>"
    )
    text = page.read_text(encoding="utf-8").replace("</body>", script + "</body>")
    probe.write_text(text, encoding="utf-8")
    document, _, _ = opened(probe, tmp_path, "--window-size=500,900")
    wide, window = json.loads(re.search(r"<title>(\[.*?\])</title>", document)[1])
    assert wide <= window
