# SPDX-License-Identifier: Apache-2.0
"""Random numbers of the models that make-bench-model makes, and how tensors are stored."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Iterable, Iterator

BLOCK = 32  # numbers of MXFP4 that share a scale
NVFP4_BLOCK = 16  # numbers of NVFP4 that share a scale
NVFP4_DIVISOR = 4096.0  # of all numbers of a matrix
STEPS = (0.001, 0.1)  # least and most of a recurrence, as the libraries begin: by them states forget
FP4_SIZE = 2.93  # root of the mean square of its 16 numbers

Shape = tuple[int, ...]


class RandomNumbers:
    """Endless bf16 numbers ±2^e·(1 + m/128), m in 0 … 127: one run of random bytes, over and over. Its length is a
    prime, so that no two rows of a matrix begin alike."""

    LENGTH = 4_194_301

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.bytes = random.Random(seed).randbytes(self.LENGTH)
        self.runs: dict[int, memoryview] = {}

    def run(self, exponent: int) -> memoryview:
        if exponent not in self.runs:
            biased = exponent + 127
            high = bytes((byte & 0x80) | biased >> 1 for byte in range(256))
            low = bytes((biased & 1) << 7 | (byte & 0x7F) for byte in range(256))
            run = bytearray(2 * self.LENGTH)
            run[0::2] = self.bytes.translate(low)
            run[1::2] = self.bytes.translate(high)
            self.runs[exponent] = memoryview(run)
        return self.runs[exponent]

    def uniform(self, name: str, low: float, high: float, count: int) -> list[float]:
        """Of a tensor's own."""
        own = random.Random(f"{self.seed} {name}")
        return [own.uniform(low, high) for _ in range(count)]

    def codes(self, first: int, count: int) -> Iterator[memoryview]:
        """Random bytes first … first + count − 1, each of two codes of FP4."""
        run = memoryview(self.bytes)
        while count > 0:
            begin = first % self.LENGTH
            taken = min(count, self.LENGTH - begin)
            yield run[begin : begin + taken]
            first += taken
            count -= taken

    def pieces(self, exponent: int, first: int, count: int) -> Iterator[memoryview]:
        """Numbers first … first + count − 1."""
        run = self.run(exponent)
        while count > 0:
            begin = first % self.LENGTH
            taken = min(count, self.LENGTH - begin)
            yield run[2 * begin : 2 * (begin + taken)]
            first += taken
            count -= taken


def type_of(name: str) -> tuple[str, int]:
    """Its name and bytes: codes and scales of MXFP4 and NVFP4, and the divisors of the latter's matrices."""
    if name.endswith(("_blocks", "_scales", "_packed")):
        return "U8", 1
    if name.endswith("_global_scale"):
        return "F32", 4
    return ("F8_E4M3", 1) if name.endswith("_scale") else ("BF16", 2)


def bf16(values: Iterable[float]) -> bytes:
    """Rounded to nearest."""
    bits = (int.from_bytes(struct.pack("<f", value), "little") for value in values)
    return b"".join((bit + 0x7FFF + (bit >> 16 & 1) >> 16).to_bytes(2, "little") for bit in bits)


def contents(
    name: str, shape: Shape, first: int, numbers: RandomNumbers, norm_weight: float
) -> Iterator[bytes | memoryview]:
    """The bytes of a tensor whose numbers are `first` and those after it; `norm_weight` is of all norms but the one in
    a delta net."""
    count = math.prod(shape)
    if name.endswith(("_blocks", "_packed")):
        yield from numbers.codes(first, count)
    elif name.endswith("_scales"):
        yield bytes([127 + round(math.log2(1 / FP4_SIZE / math.sqrt(shape[2] * BLOCK)))]) * count
    elif name.endswith("_global_scale"):
        yield struct.pack("<f", NVFP4_DIVISOR)
    elif name.endswith("_scale"):
        yield bytes([7 + round(math.log2(NVFP4_DIVISOR / FP4_SIZE / math.sqrt(shape[1] * NVFP4_BLOCK))) << 3]) * count
    elif name.endswith(".A_log"):
        yield bf16(map(math.log, numbers.uniform(name, 1.0, 16.0, count)))
    elif name.endswith(".dt_bias"):
        least, most = map(math.log, STEPS)
        steps = map(math.exp, numbers.uniform(name, least, most, count))
        yield bf16(step + math.log(-math.expm1(-step)) for step in steps)  # softplus makes the step of it again
    elif name.endswith(("bias", "sinks")):
        yield bytes(2 * count)
    elif len(shape) == 1:
        is_norm = name.endswith(("norm.weight", "norm_f.weight")) and not name.endswith(".linear_attn.norm.weight")
        yield bf16([norm_weight if is_norm else 1.0]) * count
    else:
        # 1/sqrt(inputs) keeps activations of order 1 through any number of layers; √(7/3) is what 1 + m/128 has.
        inputs = shape[1] if ".feed_forward.experts." in name else shape[-1]
        exponent = round(math.log2(math.sqrt(3 / 7 / inputs)))
        yield from numbers.pieces(exponent, first, count)
