# SPDX-License-Identifier: Apache-2.0
"""Makes models with random weights, as model_options explains."""

from __future__ import annotations

import argparse
import json
import math
import struct
from pathlib import Path

from ..command import UserError, note, run
from .model_config import configuration
from .model_hybrid_tensors import hybrid_tensors
from .model_hybrids import is_hybrid
from .model_numbers import RandomNumbers, contents, type_of
from .model_options import PROGRAM, parse
from .model_tensors import tensors


def write(path: Path, options: argparse.Namespace) -> int:
    """The safetensors file; how many numbers it has."""
    found = dict(hybrid_tensors(options) if is_hybrid(options) else tensors(options))
    header: dict[str, object] = {}
    end = 0
    for name, shape in found.items():
        kind, size = type_of(name)
        begin, end = end, end + math.prod(shape) * size
        header[name] = {
            "dtype": kind,
            "shape": shape,
            "data_offsets": [begin, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    numbers = RandomNumbers(options.seed)
    norm_weight = 0.0 if options.delta_net else 1.0  # 0 where norms multiply by 1 + w
    total = first = 0
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, shape in found.items():
            for piece in contents(name, shape, first, numbers, norm_weight):
                file.write(piece)
            if len(shape) > 1:
                first += math.prod(shape)
            if not name.endswith(("_scales", "_scale")):
                total += math.prod(shape) * (2 if name.endswith(("_blocks", "_packed")) else 1)
    return total


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    text = json.dumps(configuration(options), indent=2) + "\n"
    kept = options.folder / "config.json"
    if kept.is_file():
        if kept.read_text(encoding="utf-8") == text:
            return 0
        raise UserError(f"{options.folder} holds another model; name another folder or remove it")
    options.folder.mkdir(parents=True, exist_ok=True)
    count = write(options.folder / "model.safetensors", options)
    kept.write_text(text, encoding="utf-8")  # last: whoever finds it finds a whole model
    note(PROGRAM, f"{count / 1e6:.1f}M parameters → {options.folder}")
    return 0


if __name__ == "__main__":
    run(PROGRAM, main)
