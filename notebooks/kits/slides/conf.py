"""The slides of the kits: ``pip install '.[docs]' && sphinx-build -W -b revealjs notebooks/kits/slides slides``.

Cells are executed, so that every number and picture on a slide is computed. The folder that is built needs no
network: reveal.js and its fonts come with sphinx-revealjs, MathJax with the site.
"""

import os

os.environ |= {"TQDM_DISABLE": "1", "PYTHONWARNINGS": "ignore:IProgress not found"}

project = "Probabilistic model zoo"
author = "The authors of the probabilistic model zoo"
language = "en"
extensions = ["myst_nb", "sphinx_revealjs"]
source_suffix = {".md": "myst-nb"}
root_doc = "mixtures"
exclude_patterns = ["jupyter_execute"]

nb_execution_mode = "inline"  # which computes numbers in sentences too
nb_execution_timeout = 900
nb_execution_raise_on_error = True
nb_remove_code_source = True
nb_output_stderr = "remove-warn"  # a warning on a slide is a fault
nb_mime_priority_overrides = [
    ("revealjs", "text/html", 10),
    ("revealjs", "image/png", 20),
    ("revealjs", "text/plain", 30),
]
myst_enable_extensions = ["dollarmath", "colon_fence", "attrs_inline"]
suppress_warnings = ["toc.not_included", "mystnb.unknown_mime_type"]

mathjax_path = "mathjax-3.2.2-tex-svg.js"
revealjs_static_path = ["../../_static"]
revealjs_style_theme = "white"
revealjs_css_files = ["slides.css"]
revealjs_script_conf = {
    "hash": True,
    "slideNumber": "c/t",
    "scrollActivationWidth": 600,
    "transition": "none",
}
revealjs_script_plugins = [{"name": "RevealNotes", "src": "revealjs/plugin/notes/notes.js"}]
