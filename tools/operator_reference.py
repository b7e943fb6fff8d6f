"""Writes docs/operators.md and the types of l3dali.fn and l3dali.dynamic from the schemas.

    python tools/operator_reference.py [--check]

Descriptions of our own arguments come from the schemas; those of the arguments that are
DALI's stand here, in our words. An argument without a description is an error.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nvidia.dali import backend, fn, types

import l3dali.plugin  # noqa: F401

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "operators.md"
STUBS = ROOT / "python" / "l3dali"

# Our operators, and the schemas of DALI that they take arguments from, if they do.
COUNTERPARTS: dict[str, str | None] = {
    "decode": "decoders__Image",
    "decode_crop": "decoders__ImageCrop",
    "decode_slice": "decoders__ImageSlice",
    "decode_random_crop": "decoders__ImageRandomCrop",
    "decode_crop_mirror_normalize": "CropMirrorNormalize",
    "decode_windows": "decoders__ImageRandomCrop",
    "decode_volume": "decoders__ImageRandomCrop",
    "peek_shape": "PeekImageShape",
    "read": None,
    "readers.file": "readers__File",
    "readers.webdataset": "readers__Webdataset",
    "recognize": None,
    "pick_share": None,
}

REPLACES = {
    "decode": "`fn.decoders.image`",
    "decode_crop": "`fn.decoders.image_crop`",
    "decode_slice": "`fn.decoders.image_slice`",
    "decode_random_crop": "`fn.decoders.image_random_crop`",
    "decode_crop_mirror_normalize": "`fn.decoders.image`, then `fn.crop_mirror_normalize`",
    "decode_windows": "`fn.decoders.image`, then many `fn.slice`",
    "peek_shape": "`fn.peek_image_shape`",
    "read": "`fn.io.file.read`",
    "readers.file": "`fn.readers.file`",
    "readers.webdataset": "`fn.readers.webdataset`",
}

INTRODUCTION = """# Operators

These operators decode L3 files in DALI pipelines. [DALI pipelines](dali.md) shows how to use them.

{overview}

`import l3dali.fn` loads them as `l3dali.fn.<name>`, with types for editors and type checkers. DALI
has the same objects as `fn.l3.<name>`, and its messages use these names. For dynamic mode import
`l3dali.dynamic` before `nvidia.dali.experimental.dynamic`; there `"mixed"` is `"gpu"`, and `rng`
replaces `seed`. Type checkers know `types.DALIImageType.RGB`, not `types.RGB`.

The operators with `decode` in their name have the input `encoded`, a 1D TensorList of `uint8` with
an `.l3` file for each sample; the `device` `"cpu"` or `"mixed"`; and the
[common arguments](#arguments-of-all-decoders). The other operators run on the `device` `"cpu"`.

"per sample" marks arguments that may also be the output of an operator, with a value for each
sample of the batch. Every operator also takes DALI's `bytes_per_sample_hint`, `preserve` and
`name`.
"""

TYPES = """## Types of the output

The rule of [`dtype`](#arguments-of-all-decoders), for each stored type:

| stored | uint8 | int8 | uint16 | int16 | uint32 | int32 | int64 | float16 | float32 |
|---|---|---|---|---|---|---|---|---|---|
| uint8 | number | scaled | number | number | number | number | number | scaled | scaled |
| int8 | error | number | error | number | error | number | number | scaled | scaled |
| uint16 | scaled | scaled | number | scaled | number | number | number | scaled | scaled |
| int16 | error | error | error | number | error | number | number | scaled | scaled |
| uint32 | error | error | error | error | number | error | number | number | number |
| int32 | error | error | error | error | error | number | number | number | number |
| float16 | number | number | number | number | number | number | number | number | number |
| float32 | number | number | number | number | number | number | number | number | number |
| uint8 labels | number | error | number | number | number | number | number | number | number |
| int8 labels | error | number | error | number | error | number | number | number | number |
| uint16 labels | error | error | number | error | number | number | number | error | number |
| int16 labels | error | error | error | number | error | number | number | error | number |
| uint32 labels | error | error | error | error | number | error | number | error | error |
| int32 labels | error | error | error | error | error | number | number | error | error |

*scaled*: white stays white, and 0 stays 0. Floats get values of 0 to 1, or of -1 to 1 from signed
samples. *error*: set `fill_range=True` to rescale, or `fill_range=False` to keep the numbers and
saturate. Floats become the nearest integer, and NaN becomes 0. A NaN that is normalized stays
one, but its bits differ between CPUs and GPUs. `fill_range=True` is an error for them. Operators
with `mean` and `std` keep *scaled* numbers, and refuse nothing if `mean` or `std` change it.
`bfloat16` of `l3dali.torch` is like `float16`.
"""

IGNORED = """Operators accept these arguments of the DALI operators that they replace. They tune
decoders of other formats, or are for volumes, and have no effect here. Of JPEG files that were kept
as such, L3 always gives the pixels of the accurate transform and of fancy upsampling, as
`fn.decoders.image` does by default on the CPU."""
WITHOUT_EFFECT = {
    "cache_batch_copy",
    "crop_d",
    "crop_pos_z",
    "device_memory_padding_jpeg2k",
    "host_memory_padding_jpeg2k",
    "hw_decoder_load",
    "hybrid_huffman_threshold",
    "jpeg_fancy_upsampling",
    "preallocate_height_hint",
    "preallocate_width_hint",
    "use_fast_idct",
}
# What arguments that are strings may be.
CHOICES = {
    "cache_type": ("", "threshold", "largest"),
    "on_error": ("raise", "zero"),
    "out_of_bounds_policy": ("error", "pad", "trim_to_shape"),
    "rounding": ("round", "truncate"),
}
WINDOWS_CHOICES = {"out_of_bounds_policy": ("error", "pad")}  # of decode_windows and decode_volume
CELL_WORDS = 40
COMMON = "l3__DecoderAttr"  # the schema of what our decoders share
OF_EVERY_OPERATOR = {"bytes_per_sample_hint", "preserve"}

DALI_ARGUMENTS = {
    "adjust_orientation": "Return the shape of the image turned as its EXIF orientation says.",
    "axes": "The axes of the bounds, in their order: 0 is H, 1 is W; negative numbers count from "
    "the end.",
    "axis_names": "The same as letters. Other axes are kept whole.",
    "crop": "Height and width of the crop in pixels; fractions are truncated. 0, or no crop, is "
    "the whole side.",
    "crop_h": "Height of the crop; with `crop_w`, in place of `crop`.",
    "crop_w": "Width of the crop.",
    "crop_pos_x": "Horizontal position of the crop, from 0 (left) to 1 (right).",
    "crop_pos_y": "Vertical position of the crop, from 0 (top) to 1 (bottom).",
    "dtype": "The type of the output: `INT32`, `UINT32`, `INT64`, `UINT64`, `FLOAT` or `FLOAT64`.",
    "end": "End of the crop in pixels, exclusive.",
    "fill_values": "Values of pixels outside of the image and of padding channels: one, or one for "
    'each channel. They are not normalized. Used with `out_of_bounds_policy="pad"`.',
    "mean": "Subtracted first: one value, or one for each channel.",
    "mirror": "1 mirrors the crop left to right.",
    "normalized_anchor": "Whether an input `anchor` of floats is relative to the image's size.",
    "normalized_shape": "Whether an input `shape` of floats is relative to the image's size.",
    "num_attempts": "Number of windows to draw before a centred one with the aspect ratio is used.",
    "out_of_bounds_policy": 'For crops that reach out of the image: `"error"`; `"pad"`, filled '
    'with `fill_values`; `"trim_to_shape"`, the part inside.',
    "output_layout": "A permutation of `HWC`.",
    "pad_output": "Add channels until their number is a power of two, four at most. No effect with "
    "`channels`.",
    "random_area": "Range of the window's share of the image's area.",
    "random_aspect_ratio": "Range of the window's width divided by its height.",
    "rel_end": "End of the crop, relative to the image's size.",
    "rel_shape": "Size of the crop, relative to the image's size.",
    "rel_start": "Start of the crop, relative to the image's size.",
    "rounding": 'Rounding of the crop\'s position to pixels: `"round"` or `"truncate"`.',
    "scale": "Factor after `mean` and `std`.",
    "seed": "Seed of the windows; by default derived from the pipeline's.",
    "shape": "Size of the crop in pixels.",
    "shift": "Added last.",
    "start": "Start of the crop in pixels.",
    "std": "Divisor: one value, or one for each channel.",
}


def markdown(text: str) -> str:
    """The few marks of DALI's docs that our schemas use, in Markdown."""
    text = re.sub(r":meth:`nvidia\.dali\.([\w.]+)`", r"`\1`", text)
    return text.replace("``", "`").strip()


def in_a_cell(text: str) -> str:
    return " ".join(markdown(text).split()).replace("|", "\\|")


def split(text: str) -> tuple[str, str]:
    """The first paragraph, for a cell of a table, and the rest, for the text below the table."""
    first, _, rest = markdown(text).partition("\n\n")
    if len(first.split()) > CELL_WORDS:
        raise SystemExit(f"more than {CELL_WORDS} words in a cell: {first}")
    return in_a_cell(first), rest


def type_name(schema: Any, argument: str) -> str:
    """The type of an argument, and whether each sample may have its own value."""
    kind = str(schema.GetArgumentType(argument)).rpartition(".")[2].lower()
    is_list = kind.endswith("_vec")
    kind = re.sub(r"u?int\d+", "int", kind.removeprefix("_").removesuffix("_vec"))
    name = kind.replace("tensor_", "").replace("data_", "").replace("_", " ")
    return f"{name}{'s' * is_list}{', per sample' * schema.IsTensorArgument(argument)}"


def default(schema: Any, argument: str) -> str:
    if not schema.HasArgumentDefaultValue(argument):
        return ""
    value = schema.GetArgumentDefaultValueString(argument)
    kind = schema.GetArgumentType(argument)
    if kind == types.DALIDataType.IMAGE_TYPE:
        value = f"types.{types.DALIImageType(int(value)).name}"
    elif kind == types.DALIDataType.DATA_TYPE:
        value = f"types.{types.DALIDataType(int(value)).name}"
    else:
        value = re.sub(r"(\.\d+?)0+\b", r"\1", value).replace(", ]", "]")
    return f"`{value}`"


def description(schema: Any, counterpart: Any, argument: str) -> str:
    is_dalis = (
        counterpart is not None
        and counterpart.HasArgument(argument)
        and same_text(schema, counterpart, argument)
    )
    if not is_dalis:
        return str(schema.GetArgumentDox(argument))
    if argument not in DALI_ARGUMENTS:
        raise SystemExit(f"{PAGE.name}: no description of {schema.Name()}'s {argument!r}")
    return DALI_ARGUMENTS[argument]


def arguments_of(schema: Any) -> list[str]:
    """All but those of every operator and those that DALI phases out."""
    names = (a for a in schema.GetArgumentNames() if not schema.IsDeprecatedArg(a))
    return [a for a in names if a not in OF_EVERY_OPERATOR]


def listed(arguments: list[str]) -> str:
    return ", ".join(f"`{a}`" for a in arguments)


def is_common(schema: Any, argument: str) -> bool:
    """Whether it is one of the arguments that all decoding operators share."""
    common = backend.GetSchema(COMMON)
    return common.HasArgument(argument) and same_text(schema, common, argument)


def same_text(schema: Any, other: Any, argument: str) -> bool:
    return bool(schema.GetArgumentDox(argument) == other.GetArgumentDox(argument))


def row(schema: Any, counterpart: Any, argument: str) -> tuple[str, str]:
    """The row of an argument in a table, and the text below it."""
    first, rest = split(description(schema, counterpart, argument))
    cells = [f"`{argument}`", type_name(schema, argument), default(schema, argument), first]
    return f"| {' | '.join(cells)} |", f"**`{argument}`.** {rest}" * bool(rest)


def arguments_table(rows: list[tuple[str, str]]) -> str:
    lines = ["| argument | type | default | meaning |", "|---|---|---|---|", *(r for r, _ in rows)]
    return "\n\n".join(["\n".join(lines), *(below for _, below in rows if below)])


def operator_schema(name: str) -> Any:
    *modules, own = name.split(".")
    camel_case = "".join(part.capitalize() for part in own.split("_"))
    return backend.GetSchema("__".join(["l3", *modules, camel_case]))


def section(name: str, counterpart: Any, rows_before: dict[tuple[str, str], str]) -> str:
    """The reference of one operator; rows that operators before it have are not repeated."""
    schema = operator_schema(name)
    arguments = arguments_of(schema)
    shared = [a for a in arguments if is_common(schema, a)]
    own = [a for a in arguments if a not in WITHOUT_EFFECT and a not in shared]
    of_dali: list[str] = []  # of readers: they mean what they mean there
    if name.startswith("readers."):
        of_dali = [
            a for a in own if counterpart.HasArgument(a) and same_text(schema, counterpart, a)
        ]
        own = [a for a in own if a not in of_dali]
    rows = {a: row(schema, counterpart, a) for a in own}
    new = [r for r in rows.values() if r not in rows_before]
    repeated: dict[str, list[str]] = {}
    for argument, its_row in rows.items():
        if its_row in rows_before:
            repeated.setdefault(rows_before[its_row], []).append(argument)
    rows_before |= dict.fromkeys(new, name)

    inputs = [
        f"* `{schema.GetInputName(i)}`{' (optional)' * (i >= schema.MinNumInput())}: "
        f"{schema.GetInputType(i)}. {in_a_cell(schema.GetInputDox(i))}"
        for i in range(1 if shared else 0, schema.MaxNumInput())  # INTRODUCTION has `encoded`
    ]
    parts = [f"## fn.l3.{name}", markdown(schema.Dox())]
    parts += [f"{'More inputs' if shared else 'Inputs'}:", "\n".join(inputs)] if inputs else []
    parts += [arguments_table(new)] if new else []
    links = [
        f"{listed(arguments)}, as in [`{other}`](#fnl3{other.replace('.', '')})"
        for other, arguments in repeated.items()
    ]
    links += [f"all of {REPLACES[name]}: {listed(of_dali)}"] if of_dali else []
    parts += [f"More arguments: {'; '.join(links)}."] if links else []
    return "\n\n".join(parts)


def overview() -> str:
    """A row for each operator: what it does, and the operator of DALI that it replaces."""
    lines = ["| operator | does | in place of |", "|---|---|---|"]
    for name in COUNTERPARTS:
        does = in_a_cell(operator_schema(name).Dox().split("\n\n")[0])
        anchor = name.replace(".", "")
        lines.append(f"| [`{name}`](#fnl3{anchor}) | {does} | {REPLACES.get(name, '')} |")
    return "\n".join(lines)


def page() -> str:
    operators = {name for name in dir(fn.l3) if not name.startswith("_")} - {"readers"}
    operators |= {f"readers.{name}" for name in dir(fn.l3.readers) if not name.startswith("_")}
    if operators != COUNTERPARTS.keys():
        raise SystemExit(f"{Path(__file__).name}: COUNTERPARTS does not list {operators}")
    common = backend.GetSchema(COMMON)
    image = backend.GetSchema("decoders__Image")
    table = arguments_table([row(common, image, a) for a in arguments_of(common)])
    rows: dict[tuple[str, str], str] = {}
    sections = [
        section(n, backend.GetSchema(d) if d else None, rows) for n, d in COUNTERPARTS.items()
    ]
    sections += [f"## Arguments of all decoders\n\n{table}", TYPES.rstrip()]
    sections.append(
        f"## Arguments without effect\n\n{IGNORED}\n\n{listed(sorted(WITHOUT_EFFECT))}."
    )
    return "\n\n".join([INTRODUCTION.format(overview=overview()).rstrip(), *sections]) + "\n"


def python_type(schema: Any, argument: str, *, dynamic: bool) -> str:
    """The type of an argument for type checkers."""
    base, _, of_samples = type_name(schema, argument).partition(", ")
    names = {
        "bool": "bool",
        "float": "float",
        "floats": "Sequence[float] | float",
        "image type": "DALIImageType",
        "int": "int",
        "ints": "Sequence[int] | int",
        "layout": "str",
        "string": "str",
        "strings": "Sequence[str] | str",
        "type": "DTypeLike" if dynamic else "DALIDataType",
        "types": "Sequence[DALIDataType] | DALIDataType",
    }
    is_windows = schema.Name() in ("l3__DecodeWindows", "l3__DecodeVolume")
    choices = CHOICES | (WINDOWS_CHOICES if is_windows else {})
    if argument in choices:
        name = f"Literal[{', '.join(map(json.dumps, choices[argument]))}]"
    elif argument in ("axes", "axis_names"):  # they differ from what the schema calls them
        name = {"axes": "Sequence[int] | int", "axis_names": "str"}[argument]
    else:
        name = names[base]
    per_sample = " | TensorLike | Batch" if dynamic else " | DataNode"
    return f"{name}{per_sample}" if of_samples else name


def shared_with(argument: str) -> set[str]:
    """The arguments that all operators with this one have, but for the choice of results."""
    schemas = [s for s in map(operator_schema, COUNTERPARTS) if s.HasArgument(argument)]
    return set.intersection(*map(set, map(arguments_of, schemas))) - {"return_status"}


def typed(schema: Any, arguments: Iterable[str], *, dynamic: bool) -> dict[str, str]:
    """The types of some arguments by name, as a TypedDict has them."""
    kinds = {}
    for a in arguments:
        kind = python_type(schema, a, dynamic=dynamic)
        kinds[a] = kind if schema.IsArgumentOptional(a) else f"Required[{kind}]"
    if dynamic and kinds.pop("seed", ""):
        kinds["rng"] = "RNG | None"
    return kinds


def typed_dict(name: str, base: str, kinds: dict[str, str]) -> str:
    body = "".join(f"    {argument}: {kind}\n" for argument, kind in kinds.items()) or "    pass\n"
    return f"class {name}({base}, total=False):\n{body}"


def group_name(schema: Any) -> str:
    """The name of the types of its arguments."""
    return "_" + "".join(part[0].upper() + part[1:] for part in schema.Name().split("__")[1:])


def stub_of(name: str, groups: dict[str, set[str]], *, dynamic: bool) -> str:
    """An operator with the types of its arguments: those of its own beside those of a group."""
    schema = operator_schema(name)
    names = {a for a in schema.GetArgumentNames() if not schema.IsDeprecatedArg(a)}
    base = next(base for base, arguments in groups.items() if arguments <= names)
    known = OF_EVERY_OPERATOR | {"return_status"} | groups[base]
    own = typed(schema, sorted(names - known), dynamic=dynamic)
    if dynamic and name.startswith("readers."):  # classes, with a seed and without a batch size
        base, own = "TypedDict", typed(schema, sorted(names - known), dynamic=False)
        own = {a: kind.replace("DALIDataType", "DTypeLike") for a, kind in own.items()}
    if not dynamic:
        devices = ", ".join(f'"{device}"' for device in schema.GetSupportedBackends())
        own = {"device": f"Literal[{devices}] | None", **own}
    group = group_name(schema)
    text = typed_dict(group, base, own) + "\n"
    if name.startswith("readers."):
        return text
    kinds = {"Batch": "Batch", "TensorLike": "Tensor"} if dynamic else {"DataNode": "DataNode"}
    functions = []
    for kind, result in kinds.items():
        several = f"tuple[{result}, {result}]" if dynamic else f"list[{result}]"
        head = f"{stub_inputs(schema, kind, dynamic=dynamic)}, /, "
        if "return_status" in names:
            functions += [
                (f"{head}*, return_status: Literal[False] = ..., ", result),
                (f"{head}*, return_status: Literal[True], ", several),
            ]
        else:
            functions.append((head, result))
    doc = in_a_cell(schema.Dox().split("\n\n")[0])
    for parameters, result in functions:
        text += "@overload\n" * (len(functions) > 1)
        text += f"def {name}({parameters}**arguments: Unpack[{group}]) -> {result}:"
        text += f'\n    """{doc}"""\n' if (parameters, result) == functions[0] else " ...\n"
    return text


def stub_of_readers(*, dynamic: bool) -> str:
    """The module of readers, as a class: a stub file has no modules."""
    text = "class readers:\n"
    for name in (n.removeprefix("readers.") for n in COUNTERPARTS if n.startswith("readers.")):
        schema = operator_schema(f"readers.{name}")
        doc = f'"""{in_a_cell(schema.Dox().split(chr(10) * 2)[0])}"""'
        own = f"**arguments: Unpack[{group_name(schema)}]"
        # One extension gives one output, which DALI puts in no list.
        result = "DataNode | list[DataNode]" if name == "webdataset" else "list[DataNode]"
        if dynamic:
            text += f"    class {schema.Name().rpartition('__')[2]}:\n        {doc}\n"
            text += "        def __init__(self, /, max_batch_size: int | None = None, "
            text += 'name: str | None = None, device: DeviceLike = "cpu", '
            text += f"num_inputs: int | None = None, {own}) -> None: ...\n"
            text += "        def next_epoch("
            text += "self, batch_size: int | None = None) -> Iterator[Any]: ...\n"
        else:
            text += f"    @staticmethod\n    def {name}({own}) -> {result}:\n        {doc}\n"
    return text


def stub_inputs(schema: Any, kind: str, *, dynamic: bool) -> str:
    anything = "TensorLike | Batch" if dynamic else "DataNode"
    inputs = []
    for n, i in enumerate(map(schema.GetInputName, range(schema.MaxNumInput()))):
        name = f"{'_' * schema.HasArgument(i)}{i}"  # an input may have the name of an argument
        is_optional = n >= schema.MinNumInput()
        inputs.append(f"{name}: {anything if n else kind}{' | None = None' * is_optional}")
    return ", ".join(inputs)


STUB_IMPORTS = {
    "fn": """from nvidia.dali.data_node import DataNode
from nvidia.dali.types import DALIDataType, DALIImageType
""",
    "dynamic": """from nvidia.dali._typing import TensorLike
from nvidia.dali.experimental.dynamic._batch import Batch
from nvidia.dali.experimental.dynamic._device import DeviceLike
from nvidia.dali.experimental.dynamic._tensor import Tensor
from nvidia.dali.experimental.dynamic._type import DTypeLike
from nvidia.dali.experimental.dynamic.random import RNG
from nvidia.dali.types import DALIImageType
""",
}


# What operators of a mode take, beside the arguments of their schemas.
OF_EVERY_MODE = {
    "fn": {"name": "str | None"},
    "dynamic": {"batch_size": "int | None", "device": "DeviceLike | None"},
}
# This project's mypy skips DALI's modules, so Batch is any type there.
STUB_SETTINGS = {"dynamic": '# mypy: disable-error-code="overload-cannot-match"\n'}


def stub(module: str) -> str:
    """The module l3dali.fn or l3dali.dynamic as type checkers read it."""
    dynamic = module == "dynamic"
    schema, of_every = operator_schema("decode"), OF_EVERY_MODE[module]
    if not dynamic:
        of_every |= typed(schema, sorted(OF_EVERY_OPERATOR), dynamic=False)
    decoder, image = shared_with("return_status"), shared_with("hw_decoder_load")
    groups = [
        typed_dict("_Operator", "TypedDict", of_every),
        typed_dict("_Decoder", "_Operator", typed(schema, sorted(decoder), dynamic=dynamic)),
        typed_dict("_Image", "_Decoder", typed(schema, sorted(image - decoder), dynamic=dynamic)),
    ]
    bases = {"_Image": image, "_Decoder": decoder, "_Operator": set[str]()}
    functions = [stub_of(name, bases, dynamic=dynamic) for name in sorted(COUNTERPARTS)]
    functions.append(stub_of_readers(dynamic=dynamic))
    head = f'''"""Types of the operators; generated by tools/{Path(__file__).name}."""
# fmt: off
# ruff: noqa: E501, N801
{STUB_SETTINGS.get(module, "")}
from collections.abc import {"Iterator, " * dynamic}Sequence
from typing import {"Any, " * dynamic}Literal, TypedDict, overload

{STUB_IMPORTS[module]}from typing_extensions import Required, Unpack

'''
    return head + "\n".join([*groups, *functions])


def main() -> int:
    """Writes all files, or with --check says whether they are up to date."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if out of date")
    check = parser.parse_args().check
    texts = {PAGE: page()} | {STUBS / f"{module}.pyi": stub(module) for module in STUB_IMPORTS}
    out_of_date = [
        path for path, text in texts.items() if not path.exists() or path.read_text() != text
    ]
    for path in out_of_date:
        if not check:
            path.write_text(texts[path])
    return int(check and bool(out_of_date))


if __name__ == "__main__":
    sys.exit(main())
