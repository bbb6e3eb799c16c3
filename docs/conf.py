"""Sphinx configuration; ``tox -e docs`` runs the pages' code and builds them."""

from __future__ import annotations

import inspect
import operator
import os
import re
import textwrap
import warnings
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import matplotlib.pyplot as plt
from sphinx.application import Sphinx

import gpflow_gam.gam.plotting
import gpflow_gam.sklearn
from gpflow_gam import __version__

project = "gpflow_gam"
release = version = __version__
extensions = [
    "myst_parser",  # the page of results
    "sphinx_design",  # cards
    "sphinx.ext.autodoc",
    "sphinx.ext.doctest",
    "sphinx-mathjax-offline",  # mathematics shows without a network, too
    "sphinx.ext.viewcode",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build"]

sphinx_gallery_conf = {
    "examples_dirs": "../examples/gallery",
    "gallery_dirs": "gallery",
    "within_subsection_order": "FileNameSortKey",
    "image_srcset": ["2x"],
    "reset_modules": (),  # which would undo the style below
    "capture_repr": (),  # examples print what is to be read
    "download_all_examples": False,
    "show_signature": False,
    "write_computation_times": False,
}
plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
warnings.formatwarning = lambda message, category, *_: (  # pages name no machine's folders
    textwrap.fill(f"{category.__name__}: {message}", 88) + "\n"
)

html_theme = "furo"
html_show_copyright = False  # the licence is in the repository
html_title = f"gpflow_gam {release}"
html_static_path = ["_static"]
html_css_files = ["tables.css"]
pygments_dark_style = "github-dark"

autodoc_default_options = {
    "members": True,
    "show-inheritance": True,
    # scikit-learn generates these, with references to its own pages
    "exclude-members": "set_fit_request, set_predict_request, set_score_request",
}
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"

# Code on the pages is executed; hyperparameters that another platform rounds otherwise must not
# fail it, so outputs are printed coarsely.
doctest_test_doctest_blocks = ""
doctest_global_setup = """
import gpflow
import numpy as np
import tensorflow as tf
import gpflow_gam as gg
"""


def _without_gpflow_pages(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Docstrings inherited from GPflow point to pages of its documentation, not of ours."""
    lines[:] = [re.sub(r":doc:`[^`]*`", "GPflow's documentation", line) for line in lines]


# They stand here, and not in docstrings, so that the package stays small. A function or class that
# has one is public, and no other is in the reference; errors share one.
_FILE = Path(__file__).with_name("reference") / "examples.txt"
_EXAMPLES = dict(
    re.findall(r"^(\S+)\n((?: {4}.*\n|\n)+)", _FILE.read_text(encoding="utf-8"), re.MULTILINE)
)

_PUBLIC = {id(operator.attrgetter(name)(gpflow_gam)) for name in _EXAMPLES}


def _without_internal_names(
    app: Sphinx, what: str, name: str, obj: object, skip: bool, options: object
) -> bool | None:
    if what != "module" or not (inspect.isclass(obj) or inspect.isfunction(obj)):
        return None
    error = inspect.isclass(obj) and issubclass(obj, Exception)
    return None if error or id(obj) in _PUBLIC else True


def _with_example(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """The reference shows an example of each name that has one, and the doctest builder runs it."""
    app.env.note_dependency(str(_FILE))
    if code := _EXAMPLES.get(name.removeprefix("gpflow_gam.")):
        lines += ["", "*Example*", "", ".. testcode::", "", *code.rstrip().splitlines(), ""]
        if "print" in code:  # what it prints is not shown, and may be anything
            lines += [".. testoutput::", "    :hide:", "    :options: +ELLIPSIS", "", "    ...", ""]


def _interactive_page(app: Sphinx, error: Exception | None) -> None:
    """The page that the guide shows is made as the guide says."""
    if error is None and app.builder.name == "html":
        day = "s(hr, bs='cc', period=24, by=C(workingday)) + C(workingday)"
        formula = f"bikers ~ s(temp) + s(hum) + {day} + weathersit"
        gam = gpflow_gam.GAM(formula, family="negative_binomial")
        gam.fit(gpflow_gam.datasets.bikeshare())
        gpflow_gam.serving.export(gam, app.outdir / "bikes.html", overwrite=True)


def setup(app: Sphinx) -> None:
    app.connect("build-finished", _interactive_page)
    app.connect("autodoc-process-docstring", _without_gpflow_pages)
    app.connect("autodoc-process-docstring", _with_example)
    app.connect("autodoc-skip-member", _without_internal_names)
