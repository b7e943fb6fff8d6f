"""Batches of several image formats in a DALI pipeline. Importing this loads the operators."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import nvidia.dali as dali
from nvidia.dali import backend, fn, types
from nvidia.dali.data_node import DataNode

import l3dali.plugin  # noqa: F401  # loads the operators

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["decode"]

# Arguments of fn.decoders.image, and those that do not change pixels.
_DTYPES = ("UINT8", "INT8", "UINT16", "INT16", "UINT32", "INT32", "FLOAT")
_CACHE = ("cache_size", "cache_type", "cache_threshold", "cache_debug")
_REFUSED = {
    "channels": "fn.decoders.image returns all",
    "fill_range": "fn.decoders.image always fills the range",
    "max_pixels": "fn.decoders.image has no limit",
    "on_error": "fn.decoders.image always raises",
    "return_status": "fn.decoders.image has no statuses",
    "skip_cached_images": "the decoder of a sample without bytes is unknown",
}
# Where operators with GPU outputs are; tests without a GPU put them elsewhere.
_GPU_DEVICE = "mixed"


def decode(
    encoded: DataNode,
    *,
    device: str = "cpu",
    cpu_share: float | DataNode | None = None,
    name: str | None = None,
    **arguments: Any,
) -> DataNode:
    """Decodes L3 files by `fn.l3.decode` and others by `fn.decoders.image`, in one batch.

    Samples keep their order; the first bytes of each file choose its decoder. A sample of another
    format, or a damaged L3 file, is an error of the running pipeline that names the sample. A
    warning names a `file_root` whose `.l3` files `fn.readers.file` skips.

    Call it in a function with `pipeline_def`, or in the `with` block of a `Pipeline`.

    Args:
        encoded: 1D TensorList of uint8: for each sample a file, L3 or of `fn.decoders.image`.
        device: `"cpu"` or `"mixed"`.
        cpu_share: for `"mixed"`: the share of the L3 samples, 0 (the default) to 1, that cores
            decode. Pixels do not depend on it. An output of an operator sets it for each batch,
            by the first sample.
        name: of the operator that has this output.
        **arguments: of `fn.l3.decode`, with the defaults of `fn.decoders.image`: RGB and uint8.
            `dtype=types.UINT16` keeps 16-bit files. The `cache_` arguments are for L3 samples.

    Returns:
        3D TensorList of `dtype`, with the layout HWC.

    Raises:
        TypeError: `fn.l3.decode` does not have the argument.
        ValueError: `fn.decoders.image` does not have the argument (`channels`, `fill_range`,
            `max_pixels`, `on_error`, `return_status`, `skip_cached_images`, other types), or
            `cpu_share` is invalid.
        RuntimeError: this DALI cannot split batches.
    """
    if device not in ("cpu", "mixed"):
        raise ValueError(f'device must be "cpu" or "mixed", not {device!r}')
    arguments = {name: value for name, value in arguments.items() if value is not None}
    _check(arguments)
    arguments = {"output_type": types.RGB, "dtype": types.UINT8, **arguments}
    for_others = {name: arguments[name] for name in arguments if name not in _CACHE}
    arguments["fill_range"] = True  # of label numbers, too: fn.decoders.image knows none
    split, merge = _conditionals()

    _warn_of_skipped_files(encoded)
    is_l3, numbers = fn.l3.recognize(encoded, check_others=True, _with_numbers=True)
    l3, others = split(encoded, predicate=is_l3)
    numbers, _ = split(numbers, predicate=is_l3)  # for errors, which count in the whole batch
    if device == "cpu":
        if cpu_share is not None:
            raise ValueError(
                'cpu_share needs device="mixed"; with "cpu" the CPU decodes everything'
            )
        images = fn.l3.decode(l3, device="cpu", _numbers=numbers, **arguments)
        other_images = fn.decoders.image(others, device="cpu", **for_others)
        return merge(images, other_images, predicate=is_l3, name=name)

    share = _checked_share(cpu_share)
    if isinstance(share, DataNode):
        share, _ = split(share, predicate=is_l3)

    def on_cores(files: DataNode, numbers: DataNode) -> DataNode:
        return _upload(fn.l3.decode(files, device="cpu", _numbers=numbers, **arguments))

    def on_gpu(files: DataNode, numbers: DataNode) -> DataNode:
        return fn.l3.decode(files, device=_GPU_DEVICE, _numbers=numbers, **arguments)

    if isinstance(share, float) and share in (0.0, 1.0):
        images = (on_gpu if share == 0 else on_cores)(l3, numbers)
    else:
        picked = fn.l3.pick_share(l3, share=share)
        for_cores, for_gpu = split(l3, predicate=picked)
        of_cores, of_gpu = split(numbers, predicate=picked)
        images = merge(on_cores(for_cores, of_cores), on_gpu(for_gpu, of_gpu), predicate=picked)
    other_images = fn.decoders.image(others, device=_GPU_DEVICE, **for_others)
    return merge(images, other_images, predicate=is_l3, name=name)


def _warn_of_skipped_files(encoded: DataNode) -> None:
    """Warns of L3 files that the reader skips because of their suffix."""
    # The arguments of the reader are not part of DALI's interface; without them it does not warn.
    given = getattr(getattr(getattr(encoded, "source", None), "_op", None), "_init_args", {})
    root = str(given.get("file_root") or "")  # as DALI has it of paths
    chosen = {"file_filters", "files", "file_list"} & given.keys()
    is_dalis = given.get("_module") == "nvidia.dali.fn.readers"
    if (
        is_dalis
        and given.get("_display_name") == "file"
        and not chosen
        and any(Path(root).glob("*/*.l3"))
    ):
        warnings.warn(
            f"fn.readers.file skips the .l3 files in {root}: "
            "use fn.l3.readers.file, or give it file_filters=['*.l3', '*.png', '*.jpg']",
            RuntimeWarning,
            stacklevel=3,
        )


def _check(arguments: dict[str, Any]) -> None:
    """Raises for arguments that not both decoders can follow."""
    for name in arguments:
        if name in _REFUSED:
            raise ValueError(
                f"{name} only works for L3 files: {_REFUSED[name]}. Use fn.l3.decode for batches "
                f"of only L3 files"
            )
        if name.startswith("_") or not backend.GetSchema("l3__Decode").HasArgument(name):
            raise TypeError(f"decode() has no argument {name!r}")
    dtype = arguments.get("dtype", types.UINT8)
    if dtype not in [getattr(types, name) for name in _DTYPES]:
        raise ValueError(
            f"fn.decoders.image does not support {dtype}; decode to one of {', '.join(_DTYPES)}, "
            f"then use fn.cast"
        )


def _conditionals() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """DALI's split and merge, which are private: its conditionals use them."""
    conditional = getattr(fn, "_conditional", None)
    split, merge = getattr(conditional, "split", None), getattr(conditional, "merge", None)
    if split is None or merge is None:
        raise RuntimeError(
            f"l3dali.pipeline needs fn._conditional.split and merge, which DALI {dali.__version__} "
            f"lacks. With enable_conditionals=True, use `if fn.l3.recognize(encoded):` around "
            f"fn.l3.decode and fn.decoders.image"
        )
    return split, merge


def _upload(images: DataNode) -> DataNode:
    return images.gpu()


def _checked_share(cpu_share: float | DataNode | None) -> float | DataNode:
    if cpu_share is None:
        return 0.0
    if isinstance(cpu_share, DataNode):
        return cpu_share
    is_number = isinstance(cpu_share, (int, float, np.number)) and not isinstance(cpu_share, bool)
    if not (is_number and 0 <= float(cpu_share) <= 1):
        raise ValueError(f"cpu_share must be a number, 0 to 1, not {cpu_share!r}")
    return float(cpu_share)
