"""L3Error keeps its status on every way that errors travel."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import traceback
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

import l3dali
from l3dali.errors import StatusName

ENCODED = l3dali.encode(np.arange(2000, dtype=np.uint16).reshape(40, 50))
DAMAGED = ENCODED[:-20] + bytes([ENCODED[-20] ^ 1]) + ENCODED[-19:]


def raised(data: bytes = DAMAGED) -> l3dali.L3Error:
    with pytest.raises(l3dali.L3Error) as caught:
        l3dali.decode(data)
    return caught.value


def read(path: Path) -> None:
    l3dali.imread(path)


def test_it_is_a_value_error_with_a_status() -> None:
    error = raised()
    assert isinstance(error, ValueError)
    assert error.status == "kChecksumMismatch"
    assert str(error).endswith("(kChecksumMismatch)")
    assert type(error) is l3dali.L3Error
    assert f"{type(error).__module__}.{type(error).__qualname__}" == "l3dali.L3Error"


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickle(protocol: int) -> None:
    error = raised()
    error.__dict__["sample"] = 7
    again = pickle.loads(pickle.dumps(error, protocol))
    assert type(again) is l3dali.L3Error
    assert (str(again), again.status, again.args) == (str(error), error.status, error.args)
    assert again.__dict__ == error.__dict__


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_copy(copied: object) -> None:
    error = l3dali.L3Error("odd (kCorruptTile)", "kTruncated")
    again = copied(error)  # type: ignore[operator]
    assert (str(again), again.status) == ("odd (kCorruptTile)", "kTruncated")


def test_another_process(tmp_path: Path) -> None:
    path = tmp_path / "damaged.l3"
    path.write_bytes(DAMAGED)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        error = pool.submit(read, path).exception()
    assert isinstance(error, l3dali.L3Error)
    assert error.status == "kChecksumMismatch"
    assert str(path) in str(error)


def as_torch_does(error: Exception) -> Exception:
    """What `torch._utils.ExceptionWrapper` makes of an error of a worker: text, and its type."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    message = f"Caught {type(error).__name__} in DataLoader worker process 0.\nOriginal {text}"
    assert getattr(type(error), "message", None) is None  # else it would pass `message=`
    return type(error)(message)


@pytest.mark.parametrize("status", get_args(StatusName))
def test_made_anew_from_its_text(status: StatusName) -> None:
    try:
        raise l3dali.L3Error(f"in a tile, not (kOk) or (kCorruptHeader) ({status})", status)
    except l3dali.L3Error as error:
        again = as_torch_does(error)
    assert isinstance(again, l3dali.L3Error)
    assert again.status == status


def test_made_anew_from_the_text_of_a_real_one() -> None:
    again = as_torch_does(raised(ENCODED[:-1]))
    assert isinstance(again, l3dali.L3Error)
    assert again.status == "kTruncated"


@pytest.mark.torch
def test_torch_itself() -> None:
    import torch._utils as utils

    try:
        l3dali.decode(DAMAGED)
    except l3dali.L3Error:
        wrapper = utils.ExceptionWrapper(where="in DataLoader worker process 0")
    with pytest.raises(l3dali.L3Error) as caught:
        wrapper.reraise()
    assert caught.value.status == "kChecksumMismatch"


def test_a_message_without_a_status() -> None:
    assert l3dali.L3Error("no reason").status == "kInvalidArgument"
    assert l3dali.L3Error().status == "kInvalidArgument"


def test_imread_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "da\nmaged.l3"
    path.write_bytes(DAMAGED)
    with pytest.raises(l3dali.L3Error) as caught:
        l3dali.imread(path)
    assert caught.value.status == "kChecksumMismatch"
    assert str(caught.value).startswith(str(path).replace("\n", r"\n") + ": tile 0 of 1: ")
    with (
        path.open("rb") as file,
        pytest.raises(l3dali.L3Error, match=r"maged\.l3: tile 0") as caught,
    ):
        l3dali.imread(file)
    assert caught.value.status == "kChecksumMismatch"
