"""The built documentation, read as a stranger would: links, pictures, names, and ten questions.

``python -m tests.tools.pages.site SITE`` reads every page of the folder that ``sphinx-build`` wrote and
prints what is wrong: a link that leads nowhere, something fetched from another host, a picture without words,
a plot without a picture, a public name without an entry, a question whose answer is more than three clicks
from the first page. With ``--browser PICTURES`` Chromium opens each page at 1280 and 390 pixels, light and
dark. Errors and warnings in its console, requests to other hosts and what is wider than the window are
faults; pictures of the first screens go to that folder.
"""

import argparse
import re
import sys
from collections import deque
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

__all__ = ["QUESTIONS", "SitePage", "clicks", "faults_of", "main", "read_site"]

_DRAWS = re.compile(r"^(inference\.)?plots\.plot_\w+\(.*\);?\s*\Z", re.MULTILINE)

#: What a stranger asks, and words that the page with the answer holds.
QUESTIONS = {
    "How do I fit my CSV?": "zoo fit mixture mine.csv",
    "Why is there no R-hat for VB?": "R-hat would be 1 whatever q is",
    "How do I resume a run?": "The same call resumes it, bit for bit",
    "How do I add a family of components?": "Any family is one argument more",
    "How do I cite it?": "CITATION.cff",
    "Which model for counts of words?": "topics and groups of documents at once",
    "How do I say which column is the id?": "--id customer",
    "My table does not fit into memory": "streams the data",
    "How do I check my own sampler?": "each conditional against the joint density",
    "What does `relabel` return?": "The same fit with one numbering of the components",
}
MOST_CLICKS = 3


class SitePage(HTMLParser):
    """A page of the site, read.

    Attributes:
        links: where anchors lead.
        assets: what a browser fetches for it.
        targets: all ids.
        wordless: pictures without words.
        text: its words, white space folded.
        undrawn: executed code that ends in a plot and has no picture below it.
    """

    def __init__(self, text):
        super().__init__()
        self.links, self.assets, self.targets, self.wordless, words = [], [], set(), [], []
        self._words, self._silent = words, 0
        self._depth, self._code_until, self._cells = 0, None, []
        self.feed(text)
        self.close()
        self.text = " ".join("".join(words).split())
        self.undrawn = [
            code.strip() for code, pictures in self._cells if not pictures and _DRAWS.search(code)
        ]

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.targets |= {attrs["id"]} if attrs.get("id") else set()
        if tag == "a" and attrs.get("href"):
            self.links.append(attrs["href"])
        if tag in ("script", "img", "source", "iframe") and attrs.get("src"):
            self.assets.append(attrs["src"])
        if tag == "link" and attrs.get("href") and "search" not in attrs.get("rel", ""):
            self.assets.append(attrs["href"])
        if tag == "div":
            self._depth += 1
            classes = (attrs.get("class") or "").split()
            if "cell_input" in classes:
                self._cells.append(["", 0])
                self._code_until = self._depth
        if tag in ("img", "svg", "object") and self._cells:
            self._cells[-1][1] += 1
        if tag == "img":  # where nobody gave words the page repeats the address
            words = (attrs.get("alt") or "").strip()
            if not words or words.rpartition("/")[2] == (attrs.get("src") or "").rpartition("/")[2]:
                self.wordless.append(attrs.get("src"))
        self._silent += tag in ("script", "style")

    def handle_endtag(self, tag):
        self._silent -= tag in ("script", "style")
        if tag == "div":
            if self._code_until == self._depth:
                self._code_until = None
            self._depth -= 1

    def handle_data(self, data):
        if self._code_until is not None:
            self._cells[-1][0] += data
        if not self._silent:
            self._words.append(data)


def read_site(folder):
    """Every page by its path below the folder."""
    pages = sorted(path for path in folder.rglob("*.html") if "_static" not in path.parts)
    return {path.relative_to(folder).as_posix(): SitePage(path.read_text(encoding="utf-8")) for path in pages}


def _place(page, link):
    """The path below the folder to which a link of a page leads, and the anchor; None for another host."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return None
    if not parts.path:
        return page, unquote(parts.fragment)
    steps = []
    for step in [*page.split("/")[:-1], *unquote(parts.path).split("/")]:
        if step == "..":
            steps.pop()
        elif step not in ("", "."):
            steps.append(step)
    return "/".join(steps), unquote(parts.fragment)


def clicks(pages, words):
    """How many clicks from the first page the nearest page with these words is; None if there is none."""
    wanted, seen, waiting = " ".join(words.split()), {"index.html"}, deque([("index.html", 0)])
    while waiting:
        name, depth = waiting.popleft()
        if wanted in pages[name].text:
            return depth
        for link in pages[name].links:
            place = _place(name, link)
            if place and place[0] in pages and place[0] not in seen:
                seen.add(place[0])
                waiting.append((place[0], depth + 1))
    return None


def faults_of(folder, names=()):
    """What is wrong with a built site, in lines.

    Args:
        folder: that holds ``index.html``.
        names: ids that some page must have, such as ``"inference.fit"``.
    """
    pages = read_site(folder)
    found, anchors = [], {name: page.targets for name, page in pages.items()}
    for name, page in pages.items():
        found += [f"{name}: a picture without words: {source}" for source in page.wordless]
        found += [f"{name}: no picture below {code.splitlines()[-1]}" for code in page.undrawn]
        for link in page.links + page.assets:
            place = _place(name, link)
            if place is None:
                if link in page.assets and urlsplit(link).scheme != "data":
                    found.append(f"{name}: fetched from another host: {link}")
            elif not (folder / place[0]).exists():
                found.append(f"{name}: nothing at {link}")
            elif place[1] and place[0] in anchors and place[1] not in anchors[place[0]]:
                found.append(f"{name}: no such place: {link}")
    there = set().union(*anchors.values())
    found += [f"no page describes {name}" for name in names if name not in there]
    for question, words in QUESTIONS.items():
        depth = clicks(pages, words)
        if depth is None or depth > MOST_CLICKS:
            found.append(f"{question} {'no answer' if depth is None else f'{depth} clicks'}")
    return sorted(set(found))


def _is_fault(said):
    """Whether a text of the console is an error or a warning, not a note such as the theme writes."""
    return not said.startswith(tuple(f'{{"type": "{kind}"' for kind in ("log", "info", "debug")))


def in_browser(folder, pictures):
    """Faults that Chromium finds, page by page, in lines; pictures of the first screens on the way."""
    from tests.tools.pages.browser import Browser

    found = []
    pictures.mkdir(parents=True, exist_ok=True)
    with Browser() as browser:
        for name in read_site(folder):
            for width, dark in ((1280, False), (390, False), (1280, True), (390, True)):
                view = browser.open(folder / name, width, dark=dark)
                wide = view.run("document.documentElement.scrollWidth - innerWidth")
                label = f"{name} at {width}{', dark' if dark else ''}"
                found += [f"{label}: {wide} pixels wider than the window"] * (wide > 0)
                found += [f"{label}: {said}" for said in [*filter(_is_fault, view.console), *view.requests]]
                picture = name.removesuffix(".html").replace("/", "-")
                view.picture(pictures / f"{picture}-{width}{'-dark' * dark}.png", whole=False)
                view.close()
    return found


def main(arguments=None):
    """Read a site and print its faults; the exit status is 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("site", type=Path)
    parser.add_argument("--browser", type=Path, metavar="PICTURES")
    asked = parser.parse_args(arguments)
    from notebooks._site.reference import MODULES, public_names

    names = [f"{module}.{name}" for module in MODULES for name in public_names(module)]
    found = faults_of(asked.site, names)
    if asked.browser is not None:
        found += in_browser(asked.site, asked.browser)
    print(*found, sep="\n", end="\n" if found else "")
    print(f"{len(read_site(asked.site))} pages, {len(names)} names, {len(found)} faults")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
