"""The documentation site: ``pip install '.[docs]' && sphinx-build -W notebooks site``.

What can be read off the code is written when the site is built, into ``notebooks/_built``: a page for each
model (its card and a worked example), the reference of every public name, and the course with its outputs.
The course has the outputs in ``notebooks/_outputs``; a notebook whose code has changed since these were
recorded is executed at small size, unless ``ZOO_SITE_OUTPUTS`` names a folder that has it
(``python -m tests.benchmarks.notebooks small --keep FOLDER``).
"""

import os
import re
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from notebooks._site import audit, course, models, posteriors, reference  # noqa: E402 - the root must be importable first
from zoo import __version__  # noqa: E402

project = "Probabilistic model zoo"
author = "The authors of the probabilistic model zoo"
copyright = author  # noqa: A001 - the name that Sphinx asks for
version = release = __version__
language = "en"

extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "myst_nb", "sphinx_design"]
exclude_patterns = [
    "_site",
    "_static",
    "_outputs",
    "_built/course/small",
    "_built/extra",
    "kits",
    "jupyter_execute",
    ".jupyter_cache",
    "README.md",
    "*.ipynb",
    "**.ipynb_checkpoints",
]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb", ".rst": "restructuredtext"}
default_role = "code"  # docstrings write `name` for what they name
templates_path = ["_site/templates"]

# Pages that compute are executed when the site is built; the course comes with its outputs
nb_execution_mode = "force"
nb_execution_excludepatterns = ["_built/course/*"]
nb_execution_timeout = 900
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
suppress_warnings = ["mystnb.unknown_mime_type"]  # cards of fits offer a form for terminals beside the HTML

autodoc_typehints = "none"  # the docstrings give shapes and units, which are worth more
autodoc_member_order = "alphabetical"
autodoc_default_options = {"show-inheritance": True}
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True  # named tuples document their fields once

html_theme = "pydata_sphinx_theme"
html_title = project
html_static_path = ["_static"]
html_extra_path = ["_built/extra"]  # the slides
html_css_files = ["site.css"]
html_js_files = [("process.js", {"defer": "defer"})]
html_show_sourcelink = False
html_context = {"default_mode": "auto"}  # without it the theme's script writes an error at the first visit
html_sidebars = {
    "gallery": [],
    "_built/audit": [],
    "_built/posteriors": [],
    "_built/models/[!i]*": [],  # of a model, which has three views beside each other
}  # pages without others beside them
html_theme_options = {
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "secondary_sidebar_items": {"**": ["page-toc"], "guide/which_model": [], "_built/posteriors": []},  # wide
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "footer_start": ["copyright"],
    "footer_end": [],
}
mathjax_path = "mathjax-3.2.2-tex-svg.js"  # in _static: no other host is asked


def setup(app):
    """Write what the build makes from the code, before Sphinx looks for its sources."""
    built = HERE / "_built"
    outputs = os.environ.get("ZOO_SITE_OUTPUTS")
    models.write(built / "models")
    reference.write(built / "reference")
    audit.write(built / "audit.md")
    posteriors.write(built / "posteriors.md")
    course.write(HERE, built / "course", Path(outputs) if outputs else None)
    slides = [HERE / "kits" / "slides", built / "extra" / "slides"]
    slides[1].mkdir(parents=True, exist_ok=True)  # which html_extra_path asks for at once
    building = subprocess.Popen(  # a minute of one core, while Sphinx reads the pages
        [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "revealjs", "-d", built / "slides", *slides]
    )
    app.connect("env-updated", partial(_wait_for_slides, building))
    os.environ.setdefault("ZOO_NOTEBOOK_SIZE", "small")
    os.environ |= {"TQDM_DISABLE": "1", "PYTHONWARNINGS": "ignore:IProgress not found"}
    warnings.filterwarnings("ignore", r"os\.fork\(\) was called")  # with -j: the children compute nothing
    app.connect("autodoc-skip-member", _is_of_scikit_learn)
    app.connect("autodoc-process-docstring", _fields_in_one_entry, priority=600)  # after napoleon
    return {"parallel_read_safe": True}


def _wait_for_slides(building, app, env):
    """Wait until the slides are there, which are copied with the pages; CalledProcessError where they failed."""
    if building.wait():
        raise subprocess.CalledProcessError(building.returncode, building.args)
    return []


def _fields_in_one_entry(app, what, name, obj, options, lines):
    """Keep ``a, b: ...`` of a docstring together: Sphinx would read a type ``a`` of a field ``b``."""
    lines[:] = [
        re.sub(r"^:ivar \w+(, \w+)+:", lambda names: names[0].replace(", ", ","), line) for line in lines
    ]


def _is_of_scikit_learn(app, what, name, obj, skip, options):
    """Leave out the methods that scikit-learn adds to each estimator, ``set_fit_request`` and the like."""
    return True if name.startswith("set_") and name.endswith("_request") else None
