"""Pages in a real browser: the browser, what is measured in it, and the script that takes the pictures."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # as pytest does, for ``python -m tests.pages.pictures``
