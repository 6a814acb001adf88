# SPDX-License-Identifier: Apache-2.0
"""Opens HDF5 files that runs and other programs have written. A file is read by itself: what leads to other files, or
asks for a filter that HDF5 would load as code, is refused by name."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Optional

# Before HDF5 is loaded: a run holds the file open, and network file systems often refuse locks.
os.environ.setdefault("HDF5_USE_FILE_LOCKING", "FALSE")

import h5py

from ..command import UserError

PLUGIN_FILTERS = 256  # HDF5's own filters have smaller numbers


def open_hdf5(path: Path) -> h5py.File:
    """For reading. UserError where it is no regular file (a pipe would be waited for), no HDF5, or not whole."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise UserError(f"{path}: cannot be opened ({error.strerror})") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UserError(f"{path}: no regular file, but a folder, pipe or device")
        # This name is of the file that was looked at, whatever has its path by now.
        file = h5py.File(f"/proc/self/fd/{descriptor}", "r")
    except OSError as error:
        raise UserError(f"{path}: not a readable HDF5 file ({error})") from error
    finally:
        os.close(descriptor)
    if problem := _leads_out(file, path):
        file.close()
        raise UserError(problem)
    return file


def _leads_out(file: h5py.File, path: Path) -> Optional[str]:
    """Why the file cannot be read by itself; None: it can."""

    def look(name: str, link: object) -> Optional[str]:
        where = f"{path}: /{name}"
        if isinstance(link, h5py.ExternalLink):
            return (
                f"{where} is in another file ({link.filename}), by an external link. Copy it into this one with "
                "h5copy -f ext, or make the file again"
            )
        if isinstance(link, h5py.HardLink):
            try:
                item = h5py.h5o.open(file.id, name.encode())
            except (KeyError, RuntimeError) as error:
                return f"{where} cannot be read ({error}); the file is damaged"
            if isinstance(item, h5py.h5d.DatasetID):
                return _stored_elsewhere(item.get_create_plist(), where)
        return None

    return file.visititems_links(look)  # ends at the first that is not None


def _stored_elsewhere(properties: h5py.h5p.PropDCID, where: str) -> Optional[str]:
    whole = "Make it whole with h5repack -l CONTI, or make the file again"
    if properties.get_layout() == h5py.h5d.VIRTUAL:
        return f"{where} is a virtual dataset, whose data are in other datasets. {whole}"
    if properties.get_external_count() > 0:
        other = os.fsdecode(properties.get_external(0)[0])
        return f"{where} has its data in another file ({other}), by external storage. {whole}"
    for index in range(properties.get_nfilters()):
        number = properties.get_filter(index)[0]
        if number >= PLUGIN_FILTERS:
            return (
                f"{where} is compressed with filter {number}, which is a plugin, and plugins are not loaded. Unpack "
                "the file with h5repack -f NONE where the plugin is installed"
            )
    return None
