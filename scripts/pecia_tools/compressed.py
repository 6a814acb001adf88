# SPDX-License-Identifier: Apache-2.0
"""Reads gzip and Zstandard streams; a file that ends too early or is damaged is an OSError that says so."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

CHUNK_BYTES = 1 << 18


@contextmanager
def decompressed(stream: BinaryIO, compression: str) -> Iterator[BinaryIO]:
    """`compression`: "gzip", "zstd", or "" for the stream as it is."""
    if compression == "":
        yield stream
        return
    source: Any = gzip.GzipFile(fileobj=stream) if compression == "gzip" else _Zstd(stream)
    try:
        yield io.BufferedReader(source, CHUNK_BYTES)
    except (EOFError, zlib.error) as error:
        raise OSError(0, f"damaged or cut off: {error}") from error
    except gzip.BadGzipFile as error:
        raise OSError(0, f"damaged: {error}") from error


class _Zstd(io.RawIOBase):
    """Frames one after the other. The library's own reader takes the end of a cut-off file for an end of the text."""

    def __init__(self, stream: BinaryIO) -> None:
        import zstandard

        self._library = zstandard
        self._stream = stream
        self._frame: Any = None
        self._compressed = b""
        self._text = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._text:
            self._compressed = self._compressed or self._stream.read(CHUNK_BYTES)
            if not self._compressed:
                if self._frame is not None:
                    raise OSError(0, "damaged or cut off: the file ends inside a Zstandard frame")
                return 0
            self._decompress()
        count = min(len(buffer), len(self._text))
        buffer[:count] = self._text[:count]
        self._text = self._text[count:]
        return count

    def _decompress(self) -> None:
        if self._frame is None:
            self._frame = self._library.ZstdDecompressor().decompressobj()
        try:
            self._text = self._frame.decompress(self._compressed)
        except self._library.ZstdError as error:
            raise OSError(0, f"damaged: {error}") from error
        self._compressed = self._frame.unused_data if self._frame.eof else b""
        if self._frame.eof:
            self._frame = None
