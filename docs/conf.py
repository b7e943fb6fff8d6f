"""The documentation site: Sphinx over the pages of the repository, by `make docs`.

The source folder is the repository itself, so that links which work on GitHub work on the site.
Nothing is compiled: Sphinx reads the Python sources, with mocks of compiled modules and of
libraries.
"""

import argparse
import inspect
import os
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.pycode.parser import VariableCommentPicker
from sphinx.util.docutils import SphinxDirective
from sphinx.util.inspect import stringify_signature

ROOT = Path(__file__).parent.parent
os.environ["COLUMNS"] = "88"  # of the help texts of `l3`

_project = (ROOT / "pyproject.toml").read_text()
project = "L3"
copyright = "the L3 developers"
release = version = re.search(r'^version = "(.*)"$', _project, re.M)[1]  # type: ignore[index]
html_title = f"L3 {release}"
html_theme = "furo"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_gallery.gen_gallery",
]
root_doc = "README"
include_patterns = ["*.md", "docs/**", "benchmarks/results/**", "tests/*/README.md"]
myst_heading_anchors = 4
myst_ref_domains = ["std"]  # a link to a file is none to a name of Python
default_role = "py:obj"
add_module_names = False
autodoc_default_options = {"members": True, "imported-members": True, "undoc-members": True}
autodoc_member_order = "bysource"
napoleon_use_ivar = True
python_maximum_signature_line_length = 88
autodoc_mock_imports = [
    "imagecodecs",
    "imageio",
    "litdata",
    "monai",
    "netpbmfile",
    "numcodecs",
    "streaming",
    "tifffile",
    "torch",
    "webdataset",
    "zarr",
]
linkcheck_anchors = False
sphinx_gallery_conf = {
    "examples_dirs": "examples/gallery",
    "gallery_dirs": "docs/gallery",
    "filename_pattern": "",  # all of them
    "plot_gallery": False,  # `make gallery` draws the pictures
    "remove_config_comments": True,
    "download_all_examples": False,
    "show_signature": False,
    "write_computation_times": False,
}

# The sources, and what stands for compiled modules and for DALI, which only some modules import.
sys.path.insert(0, str(ROOT / "python"))
_dali = MagicMock(__version__="0")
_build_info = ModuleType("l3dali._build_info")
vars(_build_info).update(VERSION=release, DALI_VERSIONS=("0",))
sys.modules |= {"l3dali._native": MagicMock(), "l3dali._build_info": _build_info}
sys.modules |= {"nvidia": MagicMock(dali=_dali), "nvidia.dali": _dali}
_data_node = type("DataNode", (), {"__module__": "nvidia.dali.data_node"})
sys.modules["nvidia.dali.data_node"] = MagicMock(DataNode=_data_node)

# In their order; other pages in docs/ follow the how-tos.
CONTENTS = {
    "Start": "install first-steps gallery/index",
    "How to": "dali pytorch my-data datasets liquid view integrations other-decoders c",
    "Reference": """operators reference/python cli reference/cli reference/c image-formats format
        conformance ../SECURITY""",
    "Explanation": "how-it-works benchmarks claims",
    "About": "../CHANGELOG dev/index",
}
# What developers read is on the site behind one page, and full-text search leaves it out.
OF_DEVELOPERS = re.compile(r"docs/dev/|benchmarks/|tests/|CONTRIBUTING")


class Commands(SphinxDirective):  # type: ignore[misc]
    """A section for each command of `l3`, with its help."""

    def run(self) -> list[nodes.Node]:
        """The sections."""
        from l3dali.cli import make_parser

        sections: list[nodes.Node] = []
        actions = make_parser()._actions
        (commands,) = (a for a in actions if isinstance(a, argparse._SubParsersAction))
        for name, command in commands.choices.items():
            text = command.format_help().partition("\n\n")[2]  # what follows the usage
            text = text.partition("\nexit codes:")[0]  # cli.md has them
            text = re.sub(r"positional arguments:\n|options:\n(?=  -h)|  -h, --help .*\n", "", text)
            sections.append(nodes.section("", nodes.title(text=f"l3 {name}"), ids=[f"l3-{name}"]))
            sections[-1] += nodes.literal_block(text, text, language="text")
        return sections


def add_contents(app: Sphinx, page: str, source: list[str]) -> None:
    """Adds the contents of the site to its first page, and those of developers to theirs."""
    if page == root_doc:
        found = {path.stem for path in (ROOT / "docs").glob("*.md")}
        parts = {caption: names.split() for caption, names in CONTENTS.items()}
        parts["How to"] += sorted(found - {name for names in parts.values() for name in names})
        for caption, names in parts.items():
            pages = [f"docs/{n}".replace("docs/../", "") for n in names if "/" in n or n in found]
            source[0] += toctree(pages, caption)
    elif page == "docs/dev/index":
        others = sorted(name for name in app.env.found_docs if OF_DEVELOPERS.match(name))
        source[0] += toctree([f"/{name}" for name in others if name != page])


def toctree(pages: list[str], caption: str = "") -> str:
    """A list of pages that is not shown in the text."""
    lines = ["", "```{toctree}", ":hidden:", *([f":caption: {caption}"] if caption else []), ""]
    return "\n".join([*lines, *pages, "```", ""])


def fix_signature(
    app: Sphinx, what: str, name: str, found: Any, options: Any, signature: str, result: str
) -> tuple[str, str] | None:
    """Drops the fields of results, which follow; bases that are mocks hide `__init__`."""
    if name in ("l3dali.Info", "l3dali.plugin.CacheStatistics"):
        return "", ""
    if signature == "(*args: Any, **kwargs: Any)":
        own = inspect.signature(found.__init__)
        own = own.replace(parameters=list(own.parameters.values())[1:])
        return stringify_signature(own, show_return_annotation=False), ""
    return None


def note_operators(app: Sphinx, page: nodes.document) -> None:
    """Lets search and references find the operators as functions of Python."""
    if app.env.docname == "docs/operators":
        for section in page.findall(nodes.section):
            name = section[0].astext()
            if name.startswith("fn.l3."):
                name = name.replace("fn.l3.", "l3dali.fn.")
                app.env.domains.python_domain.note_object(name, "function", section["ids"][0])


def limit_search(app: Sphinx, env: BuildEnvironment) -> None:
    """Keeps the pages of developers out of full-text search."""
    for page in env.found_docs:
        if OF_DEVELOPERS.match(page):
            env.metadata[page]["no-search"] = ""


def unlink_folders(app: Sphinx, page: nodes.document) -> None:
    """Makes plain text of links to folders, which GitHub alone can show."""
    here = Path(app.env.doc2path(app.env.docname)).parent
    for node in list(page.findall(addnodes.pending_xref)):
        if node["reftype"] == "myst" and (here / node["reftarget"]).is_dir():
            node.replace_self(node.children)


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    VariableCommentPicker.is_overload = lambda *_: False  # one signature for each function
    app.add_directive("l3-commands", Commands)
    app.connect("autodoc-process-signature", fix_signature)
    app.connect("source-read", add_contents)
    app.connect("doctree-read", note_operators)
    app.connect("doctree-read", unlink_folders)
    app.connect("env-updated", limit_search)
    return {"parallel_read_safe": True}
