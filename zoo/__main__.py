"""Run the command line as ``python -m zoo``, from a clone without installation."""

import sys

from inference.cli import main

if __name__ == "__main__":
    sys.exit(main())
