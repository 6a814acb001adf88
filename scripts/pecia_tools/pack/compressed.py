# SPDX-License-Identifier: Apache-2.0
"""Reads gzip and Zstandard streams; a file that ends too early, is damaged, or would become endlessly large is an
OSError that says so."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, Optional

MAX_FILE_BYTES = 1 << 30  # of a document, decompressed
MAX_RATIO = 1000  # bytes for a compressed one: text comes to 3 to 20, gzip at most to 1032
RATIO_FROM_BYTES = 1 << 26  # smaller files may have any ratio
CHUNK_BYTES = 1 << 18
ZSTD_CHUNK_BYTES = 1 << 12  # become at most 128 MiB
ZSTD_WINDOW_BYTES = 1 << 27  # what zstd itself allows unless it is told --long=31


@contextmanager
def decompressed(stream: BinaryIO, compression: str) -> Iterator[BinaryIO]:
    """`compression`: "gzip", "zstd", or "" for the stream as it is."""
    if compression == "":
        yield stream
        return
    source: Any = gzip.GzipFile(fileobj=stream) if compression == "gzip" else _Zstd(stream)
    try:
        yield io.BufferedReader(_Bounded(source, stream), CHUNK_BYTES)
    except (EOFError, zlib.error) as error:
        raise OSError(0, f"damaged or cut off: {error}") from error
    except gzip.BadGzipFile as error:
        raise OSError(0, f"damaged: {error}") from error


def read_up_to(stream: BinaryIO, limit: int) -> Optional[bytes]:
    """All of the stream; None where it has more bytes than the limit, of which no more are read."""
    pieces = []
    room = limit
    while piece := stream.read(min(CHUNK_BYTES * 16, room + 1)):
        room -= len(piece)
        if room < 0:
            return None
        pieces.append(piece)
    return b"".join(pieces)


class _Bounded(io.RawIOBase):
    """Ends with an OSError where the decompressed bytes are out of all proportion."""

    def __init__(self, source: Any, compressed: BinaryIO) -> None:
        self._source = source
        self._compressed = compressed
        self._num_bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._source.readinto(buffer)
        self._num_bytes += count
        most = max(RATIO_FROM_BYTES, MAX_RATIO * self._compressed.tell())
        if self._num_bytes > most:
            raise OSError(
                0,
                f"a decompression bomb: {self._compressed.tell()} bytes become more than {most}. Decompress it "
                "yourself if it is meant",
            )
        return count


class _Zstd(io.RawIOBase):
    """Frames one after the other. The library's own reader takes the end of a cut-off file for an end of the text."""

    def __init__(self, stream: BinaryIO) -> None:
        import zstandard

        self._library = zstandard
        self._stream = stream
        self._frame: Any = None
        self._compressed = b""
        self._text = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._text:
            self._compressed = self._compressed or self._stream.read(ZSTD_CHUNK_BYTES)
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
            decompressor = self._library.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES)
            self._frame = decompressor.decompressobj()
        try:
            self._text = memoryview(self._frame.decompress(self._compressed))
        except self._library.ZstdError as error:
            raise OSError(0, f"damaged: {error}") from error
        self._compressed = self._frame.unused_data if self._frame.eof else b""
        if self._frame.eof:
            self._frame = None
