# SPDX-License-Identifier: Apache-2.0
"""thin-library LIBRARY OUT [--arch 90]: writes a copy of a CUDA library that packs small, for one GPU architecture.
The machine code of all others, PTX, and code that only a linker would need become zeros. Headers and sizes stay, so the
library is loaded as before: the driver reads the code of the entry that it picks alone.
"""

from __future__ import annotations

import argparse
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LINKED, RELOCATABLE = b".nv_fatbin", b"__nv_relfatbin"
FATBIN_MAGIC = 0xBA55ED50
MACHINE_CODE = 2  # the kind of an entry; 1 is PTX


@dataclass(frozen=True)
class Entry:
    """Code for one architecture: where its payload lies in the file."""

    kind: int
    arch: int
    begin: int
    end: int


def fatbin_sections(data: bytes | bytearray) -> list[tuple[bytes, int, int]]:
    """The sections with GPU code: name, begin and end. Raises ValueError if this is no ELF file of 64 bits."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("this is no library of 64 bits (ELF, little-endian)")
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count, names = struct.unpack_from("<HHH", data, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", data, table + i * size) for i in range(count)]
    names_begin = headers[names][4]
    found = []
    for name, _, _, _, offset, length in headers:
        begin = names_begin + name
        title = bytes(data[begin : data.index(b"\0", begin)])
        if title in (LINKED, RELOCATABLE):
            found.append((title, offset, offset + length))
    return found


def entries(data: bytes | bytearray, begin: int, end: int) -> Iterator[Entry]:
    at = begin
    while at + 16 <= end:
        magic, _, header, size = struct.unpack_from("<IHHQ", data, at)
        if magic != FATBIN_MAGIC:
            at += 8  # between two of them there may be padding
            continue
        entry, last = at + header, at + header + size
        while entry + 32 <= last:
            kind, _, entry_header, payload = struct.unpack_from("<HHIQ", data, entry)
            (arch,) = struct.unpack_from("<I", data, entry + 28)
            code = entry + entry_header
            if code + payload > end:
                raise ValueError(f"code of {payload} bytes at byte {code} goes beyond its section")
            yield Entry(kind, arch, code, code + payload)
            entry = code + payload
        at = last


def thinned(data: bytearray, arch: int) -> tuple[int, int]:
    """Zeroes what is not needed in place. Returns the bytes of code that stay and that go."""
    kept = gone = 0
    for title, begin, end in fatbin_sections(data):
        for entry in list(entries(data, begin, end)):
            length = entry.end - entry.begin
            if title == LINKED and entry.kind == MACHINE_CODE and entry.arch == arch:
                kept += length
            else:
                data[entry.begin : entry.end] = bytes(length)
                gone += length
    return kept, gone


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="thin-library", description=__doc__)
    parser.add_argument("library", type=Path, metavar="LIBRARY", help="e.g. libnccl.so.2")
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--arch", type=int, default=90, help="default: 90 (H100, H200)")
    options = parser.parse_args(arguments)
    data = bytearray(options.library.read_bytes())
    try:
        kept, gone = thinned(data, options.arch)
    except (ValueError, struct.error, IndexError) as error:
        print(f"thin-library: {options.library}: {error}", file=sys.stderr)
        return 2
    if kept == 0:
        print(f"thin-library: {options.library} has no machine code for sm_{options.arch}", file=sys.stderr)
        return 2
    options.out.write_bytes(data)
    print(f"thin-library: {options.out}, {kept >> 20} MiB of code for sm_{options.arch}, {gone >> 20} MiB are zeros")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
