"""DICOM series for tests of volumes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pydicom

Array = npt.NDArray[Any]


def write_dicom(path: Path, pixels: Array, z: float, **elements: Any) -> None:
    dataset = pydicom.Dataset()
    dataset.file_meta = pydicom.dataset.FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    dataset.SOPClassUID = pydicom.uid.CTImageStorage
    dataset.SOPInstanceUID = pydicom.uid.generate_uid()
    dataset.SeriesInstanceUID = "1.2.3"
    dataset.Rows, dataset.Columns = pixels.shape[-2:]
    dataset.SamplesPerPixel, dataset.PhotometricInterpretation = 1, "MONOCHROME2"
    dataset.BitsAllocated = dataset.BitsStored = 16
    dataset.HighBit, dataset.PixelRepresentation = 15, 1
    dataset.ImagePositionPatient = [10, 20, z]
    dataset.ImageOrientationPatient = [1, 0, 0, 0, 1, 0]
    dataset.PixelSpacing = [0.5, 0.75]
    dataset.RescaleSlope, dataset.RescaleIntercept = 1, -1024
    dataset.PixelData = pixels.astype("<i2").tobytes()
    for name, value in elements.items():
        setattr(dataset, name, value)
    dataset.save_as(path, enforce_file_format=True)


def write_series(folder: Path, places: dict[str, float], **elements: Any) -> Array:
    """Files of other names than their order; the volume in the order of places."""
    folder.mkdir(parents=True)
    volume = np.random.default_rng(0).integers(-1024, 2000, (len(places), 20, 30), np.int16)
    for i, (name, z) in enumerate(sorted(places.items(), key=lambda each: each[1])):
        write_dicom(folder / name, volume[i], z, **(elements if i == 1 else {}))
    return volume
