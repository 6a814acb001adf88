# SPDX-License-Identifier: Apache-2.0
"""Numbers as people read them, in the form of the program's own lines."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Optional

UNKNOWN = "–"


def duration(seconds: Optional[float]) -> str:
    """ "420 µs", "42 ms", "4.2 s", "11 min 42 s", "3 h 7 min"."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    if seconds < 0.9995e-3:
        return f"{1e6 * seconds:.0f} µs"
    if seconds < 0.9995:
        return f"{1e3 * seconds:.{1 if seconds < 9.95e-3 else 0}f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = _nearest(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    minutes = _nearest(seconds / 60)
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    hours = _nearest(seconds / 3600)
    return f"{hours // 24} d {hours % 24} h"


def _nearest(number: float) -> int:
    """Halves up, as the program rounds them."""
    return math.floor(number + 0.5)


def count(number: Optional[float]) -> str:
    """Powers of 1000: "7", "3.4", "412", "41.2k", "7.9M"."""
    if number is None or not math.isfinite(number):
        return UNKNOWN
    if number == math.floor(number) and number < 1000:
        return f"{number:.0f}"
    for unit in ("", "k", "M", "G", "T"):
        if number < 999.5:
            return f"{number:.{1 if number < 99.95 else 0}f}{unit}"
        number /= 1000
    return f"{number:.1f}P"


def tick_count(number: float, _: object = None) -> str:
    """For an axis: "5", "1.5k", "10k"."""
    return count(number).replace(".0", "")


def tick_seconds(seconds: float, _: object = None) -> str:
    """For an axis, so without minutes: "5 ms", "1.5 s", "200 s"."""
    unit, factor = ("µs", 1e6) if seconds < 1e-3 else ("ms", 1e3) if seconds < 1 else ("s", 1)
    return f"{factor * seconds:g} {unit}"


def size(number: Optional[int]) -> str:
    """Powers of 1024: "512 B", "1.5 KiB", "15.0 GiB"."""
    if number is None:
        return UNKNOWN
    if number < 1024:
        return f"{number} B"
    amount = number / 1024
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1023.95:
            return f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} PiB"


def percent(share: Optional[float]) -> str:
    if share is None or not math.isfinite(share):
        return UNKNOWN
    return f"{100 * share:.{1 if 0 < abs(share) < 0.0995 else 0}f} %"


def plural(number: int, word: str, words: str = "") -> str:
    """ "1 rank", "2 ranks"; `words` where the plural is not made with an s."""
    return f"{number:,} {word if number == 1 else words or word + 's'}"


def ranges(numbers: Iterable[int]) -> str:
    """ "0–3, 8, 10–11"."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in runs)
