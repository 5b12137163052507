"""``python -m zoo``: the command line from a clone, without installing."""

import sys

from zoo.cli import main

if __name__ == "__main__":
    sys.exit(main())
