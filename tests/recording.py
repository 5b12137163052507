"""What a record in tests/reference says besides its figures: how it came about, and how to remake it."""

import json
import os
import platform
import re
from importlib.metadata import version
from pathlib import Path

REFERENCE = Path(__file__).parent / "reference"


def circumstances(command, *packages):
    """The command, the versions of Python and of what decides the figures, the machine and its load."""
    names = ("numpy", "jax", "numpyro", *packages)
    return {
        "command": command,
        "versions": {"python": platform.python_version()} | {name: version(name) for name in names},
        "machine": f"{_processor()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
    }


def write_record(name, command, *packages, **figures):
    """Write ``tests/reference/<name>.json`` anew."""
    content = circumstances(command, *packages) | figures
    (REFERENCE / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def add_to_record(name, command, *packages, **figures):
    """Put figures beside those that ``tests/reference/<name>.json`` holds under other names."""
    path = REFERENCE / f"{name}.json"
    kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    content = kept | circumstances(command, *packages) | figures
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _processor():
    listed = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.*)", listed.read_text()) if listed.exists() else None
    return found[1] if found else platform.processor() or platform.machine()
