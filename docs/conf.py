"""The documentation site: Sphinx over the pages of the repository, by `make docs`.

The source folder is the repository itself, so that links which work on GitHub work on the site.
"""

import argparse
import os
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

os.environ["COLUMNS"] = "88"  # of the help texts of `l3`

project = "L3"
copyright = "the L3 developers"
html_title = "L3"
html_theme = "furo"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_gallery.gen_gallery",
]
root_doc = "README"
include_patterns = ["*.md", "docs/**", "benchmarks/results/**", "tests/fuzz/README.md"]
myst_heading_anchors = 4
myst_ref_domains = ["std"]  # a link to a file is none to a name of Python
default_role = "py:obj"
add_module_names = False
autodoc_default_options = {"members": True, "imported-members": True, "undoc-members": True}
autodoc_member_order = "bysource"
napoleon_use_ivar = True
python_maximum_signature_line_length = 88
# What L3 works with and does not need; the reference can be built without it.
autodoc_mock_imports = [
    "imageio",
    "litdata",
    "numcodecs",
    "streaming",
    "torch",
    "webdataset",
    "zarr",
]
linkcheck_anchors = False
sphinx_gallery_conf = {
    "examples_dirs": "examples/gallery",
    "gallery_dirs": "docs/gallery",
    "filename_pattern": "",  # all of them
    "plot_gallery": "RUN_GALLERY" in os.environ,
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_signature": False,
    "write_computation_times": False,
}

CONTENTS = """
```{toctree}
:hidden:
:caption: Use

docs/install
docs/first-steps
docs/dali
docs/pytorch
docs/my-data
docs/other-decoders
docs/gallery/index
docs/integrations
docs/datasets
docs/liquid
docs/cli
docs/c
OTHERS
```

```{toctree}
:hidden:
:caption: Reference

docs/operators
docs/reference/python
docs/reference/cli
docs/reference/c
docs/format
docs/conformance
```

```{toctree}
:hidden:
:caption: Inside
:glob:

docs/benchmarks
docs/claims
docs/dev/notes/*
docs/dev/*
benchmarks/results/*
benchmarks/results/*/*
tests/fuzz/README
CONTRIBUTING
SECURITY
CHANGELOG
```
"""


class Commands(SphinxDirective):  # type: ignore[misc]
    """A section for each command of `l3`, with its help."""

    def run(self) -> list[nodes.Node]:
        """The sections."""
        from l3dali.cli import make_parser

        sections: list[nodes.Node] = []
        actions = make_parser()._actions
        (commands,) = (a for a in actions if isinstance(a, argparse._SubParsersAction))
        for name, command in commands.choices.items():
            text = command.format_help()
            sections.append(nodes.section("", nodes.title(text=f"l3 {name}"), ids=[f"l3-{name}"]))
            sections[-1] += nodes.literal_block(text, text, language="text")
        return sections


def add_contents(app: Sphinx, page: str, source: list[str]) -> None:
    """Adds the contents of the site to its first page; pages that they do not name, too."""
    if page == root_doc:
        pages = sorted(f"docs/{path.stem}" for path in Path(__file__).parent.glob("*.md"))
        others = "\n".join(name for name in pages if f"{name}\n" not in CONTENTS)
        source[0] += CONTENTS.replace("OTHERS", others)


def unlink_folders(app: Sphinx, page: nodes.document) -> None:
    """Makes plain text of links to folders, which GitHub alone can show."""
    here = Path(app.env.doc2path(app.env.docname)).parent
    for node in list(page.findall(addnodes.pending_xref)):
        if node["reftype"] == "myst" and (here / node["reftarget"]).is_dir():
            node.replace_self(node.children)


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_directive("l3-commands", Commands)
    app.connect("source-read", add_contents)
    app.connect("doctree-read", unlink_folders)
    return {"parallel_read_safe": True}
