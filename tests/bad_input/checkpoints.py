# SPDX-License-Identifier: Apache-2.0
"""Safetensors files taken apart and put together, rightly or wrongly."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

Header = dict[str, Any]


def read(path: Path) -> tuple[Header, bytes]:
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def write(path: Path, header: Header | bytes, data: bytes) -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def change_header(path: Path, change: Callable[[Header], object]) -> None:
    header, data = read(path)
    change(header)
    write(path, header, data)


def change_data(path: Path, tensor: str, element: int, value: bytes) -> None:
    """Puts `value` in the place of the tensor's element of as many bytes."""
    header, data = read(path)
    at = header[tensor]["data_offsets"][0] + element * len(value)
    write(path, header, data[:at] + value + data[at + len(value) :])


def without(path: Path, tensor: str) -> None:
    """Removes a tensor and its data, so that only its absence is wrong."""
    header, data = read(path)
    begin, end = header.pop(tensor)["data_offsets"]
    for name, entry in header.items():
        if name != "__metadata__" and entry["data_offsets"][0] >= end:
            entry["data_offsets"] = [offset - (end - begin) for offset in entry["data_offsets"]]
    write(path, header, data[:begin] + data[end:])


def with_tensor(path: Path, tensor: str, dtype: str, shape: list[int], data: bytes) -> None:
    header, before = read(path)
    header[tensor] = {
        "dtype": dtype,
        "shape": shape,
        "data_offsets": [len(before), len(before) + len(data)],
    }
    write(path, header, before + data)
