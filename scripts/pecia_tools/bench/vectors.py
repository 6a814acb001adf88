# SPDX-License-Identifier: Apache-2.0
"""Abstracts to vectors: means of length 1, by `pecia run` and by sentence-transformers, in turn, round after round.

Cuts --pieces pieces of 100 to 300 words out of the texts, wherever a paragraph or a line begins. pecia reads them as
lines of /v1/embeddings; sentence-transformers encodes them by itself, in batches of 8 and of 32, and the faster one
counts. Seconds are of the passes and of what lies between them, without the start. Prints vectors/s of each, and by
how much a number of a vector differs from pecia's in fp32.

The first call makes build/peers (scripts/setup.sh peers).
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
from collections.abc import Sequence
from pathlib import Path

import h5py
import numpy as np

from ..command import UserError, note
from ..gguf import demo_model
from ..pack import main as pack
from .common import (
    BIN,
    MODEL,
    ROOT,
    Line,
    Work,
    append,
    model_parser,
    positive,
    read,
    show,
    threads_of_ranks,
)
from .peers import commit, cpu_model, seconds_after_start, set_up, start
from .peers_options import TEXT

DTYPES = {"fp32": "float32", "bf16": "bfloat16"}  # and what torch calls them
OWN = "pecia"
PEER = "sentence-transformers"
WORDS = (100, 300)
BATCHES = (8, 32)


def pieces(texts: Sequence[str], count: int) -> list[str]:
    """Of random lengths, the texts in turn; each begins where a line does."""
    lines = [re.findall(r"\S[^\n]*", text) for text in texts]
    if not all(lines):
        raise UserError("a text of --text is empty")
    random = np.random.default_rng(1)
    found = []
    for number in range(count):
        text = lines[number % len(lines)]
        words: list[str] = []
        length = int(random.integers(WORDS[0], WORDS[1] + 1))
        line = int(random.integers(len(text)))
        while len(words) < length:
            words += text[line % len(text)].split()
            line += 1
        found.append(" ".join(words[:length]))
    return found


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = model_parser("vectors", __doc__, "--pieces 100 --text a.txt b.txt")
    parser.add_argument("--pieces", type=positive, default=1000, help="default: %(default)s")
    parser.add_argument("--text", type=Path, nargs="+", default=[TEXT], help=f"default: {TEXT}")
    parser.add_argument("--dtypes", default="fp32", metavar="TYPE,…", help="of products: fp32,bf16 (default: fp32)")
    options = parser.parse_args(arguments)
    options.dtypes = options.dtypes.split(",")
    unknown = [dtype for dtype in options.dtypes if dtype not in DTYPES]
    if unknown:
        raise UserError(f"--dtypes: {unknown[0]!r} is none of {', '.join(DTYPES)}")
    for text in options.text:
        if not text.is_file():
            raise UserError(f"--text {text}: no such file")
    return options


class Bench:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.work = Work("vectors", options.json)
        self.vectors: dict[tuple[str, str], np.ndarray] = {}
        self.versions: Line = {}

    def prepare(self) -> None:
        if self.options.model == MODEL:
            demo_model.main([str(MODEL)])
        self.work.build("pecia")
        set_up("peers")
        texts = pieces([text.read_text("utf-8") for text in self.options.text], self.options.pieces)
        lines = [{"custom_id": f"p{i}", "url": "/v1/embeddings", "body": {"input": t}} for i, t in enumerate(texts)]
        (self.work.folder / "texts.json").write_text(json.dumps(texts), encoding="utf-8")
        source = self.work.folder / "texts.jsonl"
        source.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        pack.main(["--model", str(self.options.model), "--output", str(self.work.folder / "texts.h5"), str(source)])

    def measure_own(self, dtype: str) -> float:
        output = self.work.folder / f"pecia-{dtype}"
        shutil.rmtree(output, ignore_errors=True)
        job = self.work.job(
            f"pecia-{dtype}",
            model={"path": str(self.options.model.resolve()), "compute": dtype},
            kv={"dtype": dtype},
            input=[str(self.work.folder / "texts.h5")],
            output=str(output),
            produce="vector",
            vector={"pool": "mean"},
            report={"trace": "off"},
        )
        self.work.logged(BIN / "pecia", "run", job, env=threads_of_ranks(self.options.threads))
        with h5py.File(output / "results.h5") as file:
            self.vectors[OWN, dtype] = file["vectors"][()]
        return seconds_after_start(json.loads((output / "report.json").read_text("utf-8")))

    def measure_peer(self, dtype: str) -> float:
        """Of the faster batch size."""
        made, lines = self.work.folder / f"peer-{dtype}.npy", self.work.folder / "peer.jsonl"
        lines.unlink(missing_ok=True)
        python = ROOT / "build" / "peers" / "bin" / "python"
        command = [python, "-m", "pecia_tools.bench.vectors_process", self.options.model.resolve()]
        command += ["--texts", self.work.folder / "texts.json", "--dtype", DTYPES[dtype]]
        command += ["--batches", ",".join(map(str, BATCHES)), "--threads", self.options.threads]
        command += ["--output", made, "--json", lines]
        environment = {"PYTHONPATH": str(ROOT / "scripts"), "HF_HUB_OFFLINE": "1"}
        environment |= threads_of_ranks(self.options.threads)
        start(command, self.work.folder / "peer.log", PEER, **environment)
        self.vectors[PEER, dtype] = np.load(made)
        found = read(lines)
        self.versions = found[0]["versions"]
        return min(float(line["seconds"]) for line in found)

    def rounds(self) -> list[Line]:
        about = {"bench": "bench_vectors", "commit": commit(), "cpu": cpu_model(), "pieces": self.options.pieces}
        about |= {"model": self.options.model.resolve().name, "threads": self.options.threads}
        found = []
        for number in self.work.rounds(self.options.rounds):
            for dtype in self.options.dtypes:
                for peer, measure in ((OWN, self.measure_own), (PEER, self.measure_peer)):
                    seconds = measure(dtype)
                    note(self.work.name, f"{peer}, {dtype}: {self.options.pieces / seconds:.2f} vectors/s")
                    line = {**about, "peer": peer, "dtype": dtype, "round": number, "seconds": seconds}
                    found.append({**line, "versions": self.versions if peer == PEER else {}})
                    append(self.work.json, found[-1:])
        return found


def rows(lines: Sequence[Line], vectors: dict[tuple[str, str], np.ndarray], count: int) -> list[list[str]]:
    """Medians of the rounds; differences from the first vectors."""
    wanted = next(iter(vectors.values()))
    table = []
    for peer, dtype in vectors:
        seconds = [line["seconds"] for line in lines if (line["peer"], line["dtype"]) == (peer, dtype)]
        apart = float(np.abs(vectors[peer, dtype].astype(np.float64) - wanted).max())
        table.append([peer, dtype, f"{count / statistics.median(seconds):.2f}", f"{apart:.1e}"])
    return table


def main(arguments: list[str]) -> int:
    bench = Bench(parse(arguments))
    bench.prepare()
    lines = bench.rounds()
    heads = ("program", "type", "vectors/s", "largest difference")
    show(f"{bench.options.pieces} vectors", heads, rows(lines, bench.vectors, bench.options.pieces))
    return 0
