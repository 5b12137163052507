"""What a report page holds, read by Python's HTML parser: its structure, links and pictures."""

import re
from html import unescape
from html.parser import HTMLParser

__all__ = ["Page"]

_EMPTY = ("img", "meta", "br")  # elements that are never closed
_ADDRESSES = ("src", "href", "data", "action", "srcset")


class Page(HTMLParser):
    """A page, read.

    Attributes:
        open: elements that were not closed.
        headings: texts of ``h2``.
        captions: texts of tables' captions.
        links: where anchors lead.
        targets: all ids, in order.
        addresses: whatever a browser could fetch.
        alts: the words of each picture, empty where it has none.
        meta: name (or ``http-equiv``) to content of ``meta`` elements.
        front: the words of the verdicts on the first screen.
        state: ``"good"``, ``"open"`` or ``"bad"``, of the gravest of them.
        facts: the facts on the first screen.
        judged: kind (``"good"``, ``"open"``, ``"bad"``) and words of every verdict, the first screen's first.
        loose_tables: tables outside of a box that scrolls.
        blocks: id of each section to how many paragraphs, tables, figures and listings it holds.
    """

    def __init__(self, text):
        super().__init__()
        self.open, self.headings, self.captions = [], [], []
        self.links, self.addresses, self.alts = [], [], []
        self.targets, self.meta, self.loose_tables = [], {}, 0
        self.blocks, self._section, self._scrolls = {}, None, []
        self.text = text
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.addresses += [attrs[name] for name in _ADDRESSES if name in attrs]
        self.targets += [attrs["id"]] if "id" in attrs else []
        if tag == "meta" and "content" in attrs:
            self.meta[attrs.get("name") or attrs["http-equiv"]] = attrs["content"]
        self.loose_tables += tag == "table" and not any(self._scrolls)
        if tag == "section":
            self._section = attrs["id"]
            self.blocks[self._section] = 0
        elif self._section and tag in ("p", "table", "figure", "pre"):
            self.blocks[self._section] += 1
        if tag == "a":
            self.links.append(attrs["href"])
        if tag == "img":
            self.alts.append(attrs.get("alt", ""))
        if tag not in _EMPTY:
            self.open.append(tag)
            self._scrolls.append(attrs.get("class") == "scroll")

    def handle_endtag(self, tag):
        self._scrolls.pop()
        assert self.open.pop() == tag, f"{tag} closes another element"

    def handle_data(self, data):
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)
        elif self.open[-2:] == ["caption", "b"]:
            self.captions.append(data)

    @property
    def verdicts(self):
        """The verdicts in plain words."""
        return [words for _, words in self.judged]

    @property
    def judged(self):
        """Kind and plain words of each verdict, the one on the first screen first."""
        verdict = r'<(p|details) class="verdict (?:front )?(\w+)">(.*?)</\1>'  # a good one may be folded
        found = re.findall(verdict, re.sub("</(summary|span)>", " ", self.text), re.DOTALL)
        return [(kind, " ".join(unescape(re.sub("<.*?>", "", part)).split())) for _, kind, part in found]

    @property
    def state(self):
        """Kind of the gravest verdict on the first screen."""
        kinds = [kind for kind, _ in self.judged[: self._fronts]]
        return max(kinds, key=("good", "open", "bad").index)

    @property
    def front(self):
        """Words of the verdicts on the first screen."""
        return " ".join(words for _, words in self.judged[: self._fronts])

    @property
    def _fronts(self):
        return self.text.count(' class="verdict front ')

    @property
    def facts(self):
        """Facts on the first screen."""
        shown = re.search(r'<dl class="facts">(.*?)</dl>', self.text, re.DOTALL)[1]
        return {
            unescape(name): unescape(value)
            for name, value in re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", shown, re.DOTALL)
        }

    def assert_needs_no_other(self):
        """Whole, every link leads to a place in it, nothing is fetched, every picture has words."""
        assert self.open == [] and len(set(self.targets)) == len(self.targets)
        assert self.links and all(link.removeprefix("#") in self.targets for link in self.links)
        assert all(address.startswith(("#", "data:image/png;base64,")) for address in self.addresses)
        own = re.sub(r"base64,[A-Za-z0-9+/=]+", "", self.text)
        own = own.replace("http-equiv", "")
        assert not any(word in own for word in ("http", "@import")) and own.count("<script") == 1
        assert all(len(alt) > 20 for alt in self.alts)
