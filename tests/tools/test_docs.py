"""docs/operators.md follows the schemas, and the examples of the how-to pages run as printed."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import shutil
import subprocess
import sys
from operator import attrgetter
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest
from dali_tools import make_image
from engines import ROOT
from nvidia.dali import backend, fn

import l3dali
from l3dali import cli

pytestmark = pytest.mark.dali

REFERENCE = ROOT / "docs" / "operators.md"
HOW_TO = ("first-steps", "dali", "pytorch", "my-data", "other-decoders")
EXAMPLES = {
    f"{name}-{i}": code
    for name in HOW_TO
    for i, code in enumerate(
        re.findall(r"```python\n(.*?)```", (ROOT / "docs" / f"{name}.md").read_text(), re.DOTALL)
    )
    if "s3://" not in code  # tests/integrations runs it
}
SECTIONS = dict(
    re.findall(r"^## fn\.l3\.([\w.]+)\n((?:(?!## ).*\n)*)", REFERENCE.read_text(), re.MULTILINE)
)


def test_reference_is_up_to_date() -> None:
    tool = ROOT / "tools" / "operator_reference.py"
    result = subprocess.run([sys.executable, tool, "--check"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr or f"run python {tool.relative_to(ROOT)}"


def _operators() -> set[str]:
    """Their names, as "decode" and "readers.file"."""
    names = {name for name in dir(fn.l3) if not name.startswith("_")} - {"readers"}
    return names | {f"readers.{name}" for name in dir(fn.l3.readers) if not name.startswith("_")}


def _schema(name: str) -> Any:
    *modules, own = name.split(".")
    return backend.GetSchema("__".join(["l3", *modules, own.title().replace("_", "")]))


def test_each_argument_is_documented() -> None:
    """Independent of the tool: a section for each operator, with all arguments of its schema."""
    assert SECTIONS.keys() == _operators()
    shared = REFERENCE.read_text().partition("\n## Arguments of all decoders\n")[2]
    for name, text in SECTIONS.items():
        text += shared if name.startswith("decode") else ""
        schema = _schema(name)
        arguments = set(schema.GetArgumentNames()) - {"bytes_per_sample_hint", "preserve"}
        for argument in arguments:
            if not schema.IsDeprecatedArg(argument):
                assert f"`{argument}`" in text, (name, argument)


def _stub_arguments(module: str) -> dict[str, list[set[str]]]:
    """Of each function of the module, the keyword arguments of its overloads."""
    stub = (Path(l3dali.__file__).parent / f"{module}.pyi").read_text()
    groups: dict[str, set[str]] = {"TypedDict": set()}
    found: dict[str, list[set[str]]] = {}
    for node in ast.parse(stub).body:
        if isinstance(node, ast.ClassDef) and node.name == "readers":
            for reader in node.body:
                assert isinstance(reader, (ast.ClassDef, ast.FunctionDef))
                group = re.findall(r"Unpack\[(\w+)\]", ast.unparse(reader))[0]
                found[f"readers.{reader.name}"] = [groups[group]]
        elif isinstance(node, ast.ClassDef):
            own = {ast.unparse(n.target) for n in node.body if isinstance(n, ast.AnnAssign)}
            groups[node.name] = own | groups[ast.unparse(node.bases[0])]
        elif isinstance(node, ast.FunctionDef):
            assert node.args.kwarg is not None
            assert node.args.kwarg.annotation is not None
            group = ast.unparse(node.args.kwarg.annotation).removeprefix("Unpack[")[:-1]
            arguments = {argument.arg for argument in node.args.kwonlyargs} | groups[group]
            found.setdefault(node.name, []).append(arguments)
    return found


@pytest.mark.parametrize("public", ["fn", "dynamic"])
def test_types_are_those_of_the_operators(public: str) -> None:
    """Independent of the tool: DALI's own signatures have the same arguments."""
    stubs = _stub_arguments(public)
    module = importlib.import_module(f"l3dali.{public}")
    assert {name.lower() for name in stubs} == _operators()
    for name, overloads in stubs.items():
        operator = attrgetter(name)(module)
        if public == "fn":
            assert operator is attrgetter(name)(fn.l3)
        parameters = inspect.signature(operator).parameters.values()
        keywords = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}
        keywords -= {"_backend", "enable_checkpointing"}  # of every reader in dynamic mode
        schema = _schema(name)
        deprecated = {k for k in keywords if schema.HasArgument(k) and schema.IsDeprecatedArg(k)}
        for of_overload in overloads:
            assert of_overload == keywords - deprecated, name


def test_types_say_that_dali_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvidia", None)
    for name in ("plugin", "fn", "dynamic"):
        monkeypatch.delitem(sys.modules, f"l3dali.{name}", raising=False)
    for public in ("fn", "dynamic"):
        with pytest.raises(ImportError, match=r"^l3dali\.plugin needs NVIDIA DALI: pip install"):
            importlib.import_module(f"l3dali.{public}")


@pytest.mark.slow
def test_type_checker_knows_the_operators(tmp_path: Path) -> None:
    """As pyright does, it refuses names not exported."""
    code = """
import l3dali.dynamic
import l3dali.fn
import nvidia.dali.experimental.dynamic as ndd
from nvidia.dali import types
from nvidia.dali.data_node import DataNode

def graph(encoded: DataNode) -> None:
    l3 = l3dali.fn
    image = l3.decode(encoded, device="mixed", on_error="zero")
    window, status = l3.decode_crop(encoded, crop=(64, 64), return_status=True)
    reveal_type(l3.decode_slice(encoded, image, status, axis_names="HW", return_status=True))
    l3.decode(encoded, output_type=types.DALIImageType.RGB, dtype=types.DALIDataType.FLOAT)
    l3.decode(encoded, on_eror="zero")
    l3.decode(encoded, on_error="nil")
    l3.decode(encoded, cache_size="big")
    l3.peek_shape(encoded, device="mixed")

def batches(files: ndd.Batch, file: ndd.Tensor) -> None:
    l3 = l3dali.dynamic
    reveal_type(l3.decode_crop(files, crop=(64, 64), dtype=ndd.float32, device="gpu"))
    reveal_type(l3.decode_random_crop(file, rng=ndd.random.RNG(1), return_status=True))
    l3.decode_random_crop(files, seed=1)
"""
    (tmp_path / "graph.py").write_text(code)
    command = [sys.executable, "-m", "mypy", f"--cache-dir={ROOT / 'build/mypy'}"]
    command += ["--follow-imports=silent", "--check-untyped-defs", "--no-implicit-reexport"]
    command += ["graph.py"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    lines = code.splitlines()
    found = re.findall(r"^graph.py:(\d+): error: ", result.stdout, re.MULTILINE)
    assert [lines[int(number) - 1].strip() for number in dict.fromkeys(found)] == [
        'l3.decode(encoded, on_eror="zero")',
        'l3.decode(encoded, on_error="nil")',
        'l3.decode(encoded, cache_size="big")',
        'l3.peek_shape(encoded, device="mixed")',
        "l3.decode_random_crop(files, seed=1)",
    ], result.stdout + result.stderr
    revealed = re.findall(r'Revealed type is "(.*)"', result.stdout)
    assert [re.sub(r"(?:\w+\.)+", "", kind) for kind in revealed] == [
        "list[DataNode]",
        "Batch",
        "tuple[Tensor, Tensor]",
    ]


# The tests that run the code blocks of a page, by their language. Each counts what it finds.
RUN_BY = {
    ("README.md", "python"): ("tools/test_readme",),
    ("README.md", "bash"): ("tools/test_readme",),
    ("README.md", "console"): ("cli/test_cli_doc",),
    ("docs/c.md", "bash"): ("tools/test_c_install",),
    ("docs/c.md", "c"): ("tools/test_c_install",),
    ("docs/c.md", "cmake"): ("tools/test_c_install",),
    ("docs/c.md", "js"): ("tools/test_32_bits",),
    ("docs/datasets.md", "bash"): ("integrations/test_datasets_doc",),
    ("docs/datasets.md", "python"): (
        "integrations/test_datasets_doc",
        "integrations/test_files_s3",
    ),
    **{(f"docs/{name}.md", "python"): ("tools/test_docs",) for name in HOW_TO},
    ("docs/imagenet.md", "bash"): ("integrations/test_imagenet_doc",),
    ("docs/imagenet.md", "python"): ("integrations/test_imagenet_doc",),
    ("docs/integrations.md", "python"): (
        "integrations/test_integrations_doc",
        "integrations/test_streaming",
    ),
    ("docs/training.md", "python"): ("integrations/test_training_doc",),
    ("docs/volumes.md", "bash"): ("integrations/test_volumes_doc",),
    ("docs/volumes.md", "python"): ("integrations/test_volumes_doc",),
    ("docs/dev/liquid-model.md", "bash"): ("datasets/test_liquid_doc",),
    ("docs/dev/liquid-model.md", "python"): ("datasets/test_liquid_doc",),
    ("docs/liquid.md", "bash"): ("cli/test_cli_doc",),
    ("docs/liquid.md", "json"): ("datasets/test_liquid_hosts",),
}
# Blocks that no test runs, by what they need.
NOT_RUN = {
    "a package index": (
        r"pip install '\.\[",
        r"L3_DALI_PACKAGE=\S+ pip ",
    ),
    "Ctrl-C; tests/cli/test_view.py serves pages": (r"l3 view ",),
    "minutes": (r"make bench ", r"python -m benchmarks\.pipeline .* --device cpu "),
    "a GPU": (
        r"make gpu",
        r"make build-tests L3_CUDA_ARCHS=native",
        r"python -m benchmarks\.gpu\.(images|training) ",
        r"mkdir -p build/no_wheels",
    ),
}


def _blocks() -> list[tuple[str, str, str]]:
    """Page, language and text of each code block. `text` is what programs print."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return [
        (path.relative_to(ROOT).as_posix(), language, text)
        for path in pages
        for language, text in re.findall(r"^```(\w*)\n(.*?)^```", path.read_text(), re.M | re.S)
        if language != "text"
    ]


def test_each_code_block_runs_in_a_test() -> None:
    patterns = {p for several in NOT_RUN.values() for p in several}
    missing, run, met = [], set(), set()
    for page, language, text in _blocks():
        kept_from = {pattern for pattern in patterns if re.match(pattern, text)}
        met |= kept_from
        if (page, language) in RUN_BY and not kept_from:
            run.add((page, language))
        elif language != "py" and not kept_from and page != "docs/dev/architecture.md":  # a tree
            missing.append((page, language, text))
    assert missing == []
    assert run == RUN_BY.keys()
    assert met == patterns


def test_tests_of_code_blocks_read_their_page() -> None:
    for (page, _), tests in RUN_BY.items():
        for test in tests:
            text = (ROOT / "tests" / f"{test}.py").read_text()
            assert Path(page).name in text or f'"{Path(page).stem}"' in text, (page, test)


def test_python_that_does_not_run_needs_a_gpu_or_a_bucket() -> None:
    """tests/integrations/test_dali_buckets.py runs what needs a bucket."""
    for page, language, code in _blocks():
        if language == "py":
            assert any(need in code for need in ("mixed", "cuda", "s3://")), (page, code)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the examples name."""
    tmp_path = tmp_path_factory.mktemp("made")
    rng = np.random.default_rng(1)
    for name in ("png/cats", "png/dogs", "l3", "images", "masks", "depth"):
        (tmp_path / name).mkdir(parents=True)
    for i in range(10):
        image = make_image(rng, (90 + i, 120 - i, 3))
        png = imagecodecs.png_encode(image)
        (tmp_path / "png" / ("cats" if i % 2 else "dogs") / f"{i}.png").write_bytes(png)
    l3 = str(tmp_path / "l3")
    assert cli.main(["convert", str(tmp_path / "png"), l3, "--quiet"]) == 0

    for name in "abcd":
        image = make_image(rng, (100, 130, 3))
        l3dali.imwrite(tmp_path / "images" / f"{name}.l3", image)
        labels = (image[..., 0] // 60).astype(np.uint8)
        l3dali.imwrite(tmp_path / "masks" / f"{name}.l3", labels, labels=True)

    coco = {
        "images": [
            {"id": i, "file_name": f"{name}.jpg", "height": 100, "width": 130}
            for i, name in enumerate("abcd")
        ],
        "categories": [{"id": 1, "name": "cat"}],
        "annotations": [
            {"id": i, "image_id": i, "category_id": 1, "bbox": [3, 4, 50, 60], "iscrowd": 0}
            for i in range(4)
        ],
    }
    (tmp_path / "annotations.json").write_text(json.dumps(coco))

    for i in range(2):
        l3dali.imwrite(tmp_path / "depth" / f"{i}.l3", make_image(rng, (60, 80, 1), 16))
    whole = (tmp_path / "images" / "d.l3").read_bytes()
    (tmp_path / "torn.l3").write_bytes(whole[: len(whole) // 2])
    return tmp_path


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy of them."""
    return Path(shutil.copytree(made, tmp_path, dirs_exist_ok=True))


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(code, id=name, marks=[pytest.mark.torch] if "import torch" in code else [])
        for name, code in EXAMPLES.items()
    ],
)
def test_example(folder: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    program = folder / "example.py"
    program.write_text(code)
    if "import torch" in code:  # whose workers import it
        subprocess.run([sys.executable, "example.py"], cwd=folder, check=True)
        return
    monkeypatch.chdir(folder)
    exec(compile(code, program, "exec"), {"__name__": "__main__"})
