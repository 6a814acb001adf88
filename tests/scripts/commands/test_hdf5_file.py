# SPDX-License-Identifier: Apache-2.0
"""HDF5 files are read by themselves: what leads out of them is refused."""

import os
import socket
from pathlib import Path
from typing import Any, Callable

import h5py
import numpy as np

from pecia_tools.runs.hdf5_file import open_hdf5
from support import ScriptTest

SECRET = np.arange(7, dtype=np.int32)
UNKNOWN_FILTER = 32015


class OpenHdf5(ScriptTest):
    def setUp(self) -> None:
        super().setUp()
        self.secret = self.folder / "secret.h5"
        with h5py.File(self.secret, "w") as file:
            file["tokens"] = SECRET
        self.secret.chmod(0o600)

    def made(self, change: Callable[[h5py.File], Any]) -> Path:
        path = self.folder / "a.h5"
        with h5py.File(path, "w") as file:
            file["good"] = np.arange(3)
            change(file)
        return path

    def refused(self, change: Callable[[h5py.File], Any], *parts: str) -> None:
        path = self.made(change)
        self.assert_refused(str(path), *parts, call=lambda: open_hdf5(path))

    def test_reads_what_is_in_the_file(self) -> None:
        def change(file: h5py.File) -> None:
            file.create_dataset(
                "group/packed", data=SECRET, compression="gzip", shuffle=True, fletcher32=True
            )
            file["inner"] = h5py.SoftLink("/group/packed")
            file["dangling"] = h5py.SoftLink("/nowhere")
            file["group/again"] = file["group"]  # a cycle

        with open_hdf5(self.made(change)) as file:
            np.testing.assert_array_equal(file["inner"][:], SECRET)

    def test_external_links(self) -> None:
        def link(file: h5py.File) -> None:
            file["group/tokens"] = h5py.ExternalLink(str(self.secret), "/tokens")

        self.refused(link, "/group/tokens is in another file", "secret.h5", "h5copy -f ext")

    def test_external_storage(self) -> None:
        self.refused(
            lambda file: file.create_dataset(
                "tokens", (7,), "i4", external=[(str(self.secret), 0, 28)]
            ),
            "/tokens has its data in another file",
            "secret.h5",
            "h5repack -l CONTI",
        )

    def test_virtual_datasets(self) -> None:
        layout = h5py.VirtualLayout((7,), "i4")
        layout[:] = h5py.VirtualSource(str(self.secret), "tokens", (7,))
        self.refused(
            lambda file: file.create_virtual_dataset("tokens", layout),
            "/tokens is a virtual dataset",
        )

    def test_filters_that_are_plugins(self) -> None:
        def pack(file: h5py.File) -> None:
            properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            properties.set_chunk((7,))
            properties.set_filter(UNKNOWN_FILTER, h5py.h5z.FLAG_OPTIONAL)
            space = h5py.h5s.create_simple((7,))
            h5py.h5d.create(file.id, b"tokens", h5py.h5t.STD_I32LE, space, properties)

        self.refused(pack, f"/tokens is compressed with filter {UNKNOWN_FILTER}", "h5repack -f")

    def test_what_is_no_regular_file_is_not_waited_for(self) -> None:
        pipe, listens = self.folder / "pipe.h5", self.folder / "socket.h5"
        os.mkfifo(pipe)
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(listens))
        for path in (pipe, listens, self.folder, self.folder / "absent.h5", Path("/dev/null")):
            with self.subTest(path=path):
                self.assert_refused(str(path), call=lambda path=path: open_hdf5(path))
