"""PBM, PGM, PPM, PAM and PFM, by netpbmfile."""

from __future__ import annotations

import io
import re
from functools import partial

import numpy as np

from l3dali.errors import ImageError
from l3dali.images.picture import Header, ImageFormat, Picture, ReadOptions, Writer

_PFM = ("Pf", "PF")
_DIGITS_PEAK = 30  # a byte of a file in digits, which become Python objects
_PAM_TYPES = {"", "BLACKANDWHITE", "GRAYSCALE", "RGB"}
_PAM_TYPES |= {f"{name}_ALPHA" for name in _PAM_TYPES if name}


def _read_header(data: bytes) -> Header:
    import netpbmfile

    with netpbmfile.NetpbmFile(io.BytesIO(data)) as file:
        size = file.width, file.height, file.depth
        header = Header.of("netpbm", *size, file.dtype.itemsize, peak=3)
        is_digits = file.magicnumber in ("P1", "P2", "P3")
        # Rows of P4 are padded to bytes, each of which becomes 8 samples.
        more = (_DIGITS_PEAK if is_digits else 8 * (file.magicnumber == "P4")) * len(data)
        return header._replace(read_bytes=header.read_bytes + more)


def _read(data: bytes, options: ReadOptions) -> Picture:
    import netpbmfile

    if data.startswith(b"P1"):  # netpbmfile misses comments before and between the digits.
        data = re.sub(rb"#[^\r\n]*", b"", data)
    with netpbmfile.NetpbmFile(io.BytesIO(data)) as file:
        if file.magicnumber == "P7" and file.tupltype not in _PAM_TYPES:
            raise ImageError(f"PAM of tuple type {file.tupltype} is not supported")
        pixels = np.asarray(file.asarray())
        if file.magicnumber in _PFM:  # from the last row up
            rows = pixels.reshape(file.height, file.width, -1)[::-1]
            floats = np.ascontiguousarray(rows, np.float32)
            return Picture(floats[:, :, 0] if file.magicnumber == "Pf" else floats)
        shape = (file.height, file.width, *((file.depth,) if file.depth > 1 else ()))
        if pixels.shape != shape:
            bits = 1 if file.magicnumber == "P4" else 8 * pixels.itemsize
            row_bits = file.width * file.depth * bits
            rest = data[file.dataoffset + file.height * -(-row_bits // 8) :]
            if pixels.shape[1:] != shape or rest.strip():
                raise ImageError("several images in one file; L3 holds single images")
            pixels = pixels[0]  # Line feeds that follow are no image.
        if pixels.dtype == bool:  # In PBM 1 is black.
            return Picture((~pixels).astype(np.uint8)).scaled(1, options)
        picture = Picture(pixels.astype(pixels.dtype.newbyteorder("=")))
        has_bands = file.depth in (2, 4) and not file.tupltype.endswith("_ALPHA")
        return picture.with_extra_samples([0] if has_bands else [])


def _write(magic_number: str, picture: Picture) -> bytes:
    import netpbmfile

    pixels = picture.pixels
    maximum = int(np.iinfo(pixels.dtype).max)  # netpbmfile's default is that of the pixels.
    file = io.BytesIO()
    netpbmfile.imwrite(file, pixels, magicnumber=magic_number, maxval=maximum)
    if magic_number != "P7" or picture.channels_with_alpha:
        return file.getvalue()
    head, end, samples = file.getvalue().partition(b"ENDHDR\n")  # Samples may be any text.
    return re.sub(rb"TUPLTYPE \w+_ALPHA\n", b"", head) + end + samples


def _write_pfm(picture: Picture) -> bytes:
    height, width = picture.pixels.shape[:2]
    head = f"{'Pf' if picture.channels == 1 else 'PF'}\n{width} {height}\n-1.0\n"
    return head.encode() + picture.pixels[::-1].astype("<f4").tobytes()


_WRITERS = {
    ".pfm": Writer(_write_pfm, (1, 3), ("float32",)),
    ".pgm": Writer(partial(_write, "P5"), (1,)),
    ".ppm": Writer(partial(_write, "P6"), (3,)),
    ".pam": Writer(partial(_write, "P7")),
}
FORMAT = ImageFormat(_read_header, _read, _WRITERS)
