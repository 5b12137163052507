"""Pictures of every model's report and of a comparison, as a reader sees them: to be looked at.

``python -m tests.tools.pages.pictures FOLDER [NAME ...]`` writes the pages to FOLDER and, of each, pictures
at 1280 and 390 pixels (first screen and whole page), light and dark, and printed (a PDF file); it prints what
`audit.js` measures. It needs Chromium, which it drives over a pipe.
"""

import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from tests.support.report_cases import PAGES, write_page_of
from tests.tools.pages.browser import CHROMIUM, Browser

__all__ = ["AUDIT", "main"]

AUDIT = Path(__file__).with_name("audit.js").read_text(encoding="utf-8")


def main(folder: str, names: Sequence[str] = ()) -> int:
    """Write pages and pictures; return the number of faults."""
    if CHROMIUM is None:
        raise SystemExit("there is no Chromium on this machine")
    warnings.simplefilter("ignore")
    out, count = Path(folder), 0
    out.mkdir(parents=True, exist_ok=True)
    with Browser() as browser:
        for name in names or PAGES:
            page = write_page_of(name, out)
            for width, dark in ((1280, False), (390, False), (1280, True), (390, True)):
                view = browser.open(page, width, dark=dark)
                found = view.run(AUDIT)
                faults = [*found["faults"], *view.console, *view.requests]
                label = f"{name}-{width}{'-dark' if dark else ''}"
                print(
                    f"{label}: {len(faults)} faults, {found['labels']} labels, contrast {found['least']:.1f}"
                )
                print(*(f"    {fault}" for fault in faults), sep="\n", end="\n" if faults else "")
                count += len(faults)
                view.picture(out / f"{label}-first.png", whole=False)
                view.picture(out / f"{label}.png")
                view.close()
            view = browser.open(page, 1280)
            size, printed = page.stat().st_size / 1e6, view.printed(out / f"{name}.pdf")
            print(f"{name}: {size:.2f} MB, {printed} printed pages", flush=True)
            view.close()
    return count


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1], sys.argv[2:]), 1))
