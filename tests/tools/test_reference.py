"""Every public name of Python has a docstring and stands in docs/reference/python.rst."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "python"
PAGE = (ROOT / "docs" / "reference" / "python.rst").read_text()
# docs/operators.md has the operators of `fn` and `dynamic`, by tests/tools/test_docs.py.
NOT_PUBLIC = {"arguments", "atomic", "console", "driver", "dynamic", "fn", "parts", "signatures"}
FILES = {path.stem for path in (PACKAGE / "l3dali").glob("[!_]*.py")} | {"torch"}
NOT_PUBLIC |= {"threads"}
MODULES = ["l3dali", *(f"l3dali.{name}" for name in sorted(FILES - NOT_PUBLIC))]


@functools.cache
def _source(module: str) -> str:
    path = PACKAGE / module.replace(".", "/")
    return (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text()


@functools.cache
def _nodes(module: str) -> list[ast.stmt]:
    return ast.parse(_source(module)).body


def _public(module: str) -> list[str]:
    """What `__all__` lists."""
    for node in _nodes(module):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    raise AssertionError(f"{module} has no __all__")


def _origin(module: str, name: str) -> str:
    """The module that defines the name."""
    for node in _nodes(module):
        if (
            isinstance(node, ast.ImportFrom)
            and str(node.module).startswith("l3dali.")
            and any(alias.name == name for alias in node.names)
        ):
            return _origin(str(node.module), name)
    return module


def _is_data(node: ast.stmt, name: str) -> bool:
    if isinstance(node, ast.Assign):
        return ast.unparse(node.targets[0]) == name
    return isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == name


def _docstring(module: str, name: str) -> str:
    """Of data, the comment that Sphinx takes for one: behind `#:`, on its line or above."""
    text = ""
    for node in _nodes(module):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name:
            text = ast.get_docstring(node) or ""  # of overloads only the last has one
        if _is_data(node, name):
            above, line = _source(module).splitlines()[node.lineno - 2 : node.lineno]
            text = line.partition("#:")[2] or above[2:] * above.startswith("#:")
    return text


NAMES = [(module, name) for module in MODULES for name in _public(module)]
# Sphinx takes all of a module with a docstring, but for data of other modules.
WHOLE = re.findall(r"^\.\. automodule:: (\S+)$", PAGE, re.MULTILINE)
IN_REFERENCE = {
    *re.findall(r"^\.\. auto(?:class|data|function):: (\S+)$", PAGE, re.MULTILINE),
    *(
        f"{origin}.{name}"
        for module, name in NAMES
        if module in WHOLE
        for origin in [_origin(module, name)]
        if origin == module or not any(_is_data(node, name) for node in _nodes(origin))
    ),
}


def test_modules_are_found() -> None:
    assert {"l3dali.codec", "l3dali.torch", "l3dali.pillow", "l3dali.zarr"} <= set(MODULES)
    assert len(NAMES) > 50


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_name_stands_in_the_reference(module: str, name: str) -> None:
    origin = _origin(module, name)
    assert f"{origin}.{name}" in IN_REFERENCE
    assert _docstring(origin, name)
