# SPDX-License-Identifier: Apache-2.0
"""A library that has code for several GPUs keeps the code for one of them, at the same place."""

from __future__ import annotations

import contextlib
import io
import struct

from pecia_tools.gpu import thin_library
from support import ScriptTest

PTX, MACHINE_CODE = 1, 2


def fatbin(*codes: tuple[int, int, bytes]) -> bytes:
    """Of kind, architecture and code each."""
    body = b""
    for kind, arch, code in codes:
        body += struct.pack("<HHIQ12sI32s", kind, 0x101, 64, len(code), b"", arch, b"") + code
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def library(sections: dict[str, bytes]) -> bytes:
    """An ELF file of 64 bits with these sections and their names."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name in [*sections, ".shstrtab"])
    data, headers, begin = b"", [(0, 0, 0)], 64
    for name, content in {**sections, ".shstrtab": names}.items():
        headers.append((names.index(name.encode() + b"\0"), begin + len(data), len(content)))
        data += content
    table = b"".join(struct.pack("<IIQQQQ24x", name, 1, 0, 0, at, size) for name, at, size in headers)
    head = struct.pack("<16s24xQ10x", b"\x7fELF\x02\x01\x01", begin + len(data))
    return head + struct.pack("<HHH", 64, len(headers), len(headers) - 1) + data + table


class ThinLibrary(ScriptTest):
    def thin(self, data: bytes, *options: str) -> tuple[int, bytes, str]:
        source, out, said = self.folder / "lib.so", self.folder / "thin.so", io.StringIO()
        source.write_bytes(data)
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            code = thin_library.main([str(source), str(out), *options])
        return code, out.read_bytes() if out.exists() else b"", said.getvalue()

    def test_zeroes_other_architectures_and_ptx(self) -> None:
        text = b"text \x90 of the host"
        whole = library(
            {
                ".text": text,
                ".nv_fatbin": fatbin((MACHINE_CODE, 80, b"eighty!!"), (MACHINE_CODE, 90, b"ninety!!"))
                + bytes(8)
                + fatbin((PTX, 90, b"readable"), (MACHINE_CODE, 90, b"more")),
                "__nv_relfatbin": fatbin((MACHINE_CODE, 90, b"to link!")),
            }
        )
        code, thin, _ = self.thin(whole)
        self.assertEqual(code, 0)
        wanted = whole
        for gone in (b"eighty!!", b"readable", b"to link!"):
            wanted = wanted.replace(gone, bytes(8))
        self.assertEqual(thin, wanted)
        code, thin, _ = self.thin(whole, "--arch", "80")
        self.assertEqual(code, 0)
        self.assertIn(b"eighty!!", thin)
        self.assertNotIn(b"ninety!!", thin)

    def test_refuses_what_has_no_code_for_the_gpu(self) -> None:
        code, thin, said = self.thin(library({".nv_fatbin": fatbin((MACHINE_CODE, 80, b"eighty!!"))}))
        self.assertEqual((code, thin), (2, b""))
        self.assertIn("no machine code for sm_90", said)

    def test_refuses_what_is_no_library_or_ends_early(self) -> None:
        self.assertIn("no library", self.thin(b"#!/bin/sh\n")[2])
        whole = library({".nv_fatbin": fatbin((MACHINE_CODE, 90, b"ninety!!"))})
        self.assertEqual(self.thin(whole[:100])[0], 2)
