# SPDX-License-Identifier: Apache-2.0
"""How likely a model finds a text under several settings of the program, and what each setting costs
against the first. Every setting is a run of `pecia run` on the same prompts with log-probabilities of their tokens. A
setting that the program refuses is reported in its words, the others go on, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import numpy as np

from ..command import UserError, note
from ..gguf import demo_model
from ..model_folder import ModelFolder
from ..pack.inputs import Sampling
from ..pack.packed import PackedRequest, PackedTurn
from ..pack.shard import ShardWriter
from .common import BIN, MODEL, append, bench_parser, show
from .predictions import Predictions, differences, divergence, figures, read_predictions

PROGRAM = "bench accuracy"
TOKENS = 8192
SETTINGS = {
    "fp32": ["model.compute=fp32"],
    "bf16": ["model.compute=bf16"],
    "int8": ["model.dtype=int8"],
    "int4": ["model.dtype=int4"],
}
LICENCES = Path("/usr/share/common-licenses")
# Those of quickstart.sh, then longer ones.
LICENCE_TEXTS = ("Artistic", "BSD", "CC0-1.0", "LGPL-3", "GPL-1", "MPL-2.0", "GPL-2")
HEADS = (
    "setting",
    "tokens",
    "nll",
    "perplexity",
    "difference of nll",
    "largest of a token",
    "same most likely token",
    "divergence",
    "recalled",
    "attention pairs, of dense",
    "MB sent, of Ulysses'",
)
CUE, RECALLED = 16, 32  # tokens of a passage: those that say which it is, and those that are to be found again
DEPTHS = (1, 3, 5)  # eighths of the text


class Refused(Exception):
    """A run that ended otherwise than well; the message is its last words."""


def parse(arguments: list[str]) -> argparse.Namespace:
    example = "--setting fp32 --setting fp8 model.dtype=fp8 --text book.txt"
    parser = bench_parser("accuracy", __doc__, example, rounds=0, json=False)
    parser.add_argument(
        "--tokens",
        type=int,
        help=f"how many of the text are read (default: {TOKENS}, or all where there are fewer)",
    )
    parser.add_argument(
        "--divergence",
        action="store_true",
        help="also how far all predictions are from those of the first setting (Kullback-Leibler), which varies less "
        "from text to text; each run then writes the log-probabilities of the whole vocabulary, 4 bytes each",
    )
    parser.add_argument(
        "--recall",
        action="store_true",
        help=f"also whether passages of the text are found again: it is read {len(DEPTHS)} times more, with one of its "
        f"passages at its end, and the share of the last {RECALLED} tokens that are the most likely ones is shown",
    )
    return parse_common(parser, arguments, SETTINGS)


def parse_common(
    parser: argparse.ArgumentParser,
    arguments: list[str],
    table: dict[str, list[str]],
    ranks: int = 1,
) -> argparse.Namespace:
    """Adds what measurements of several settings have in common, and parses."""
    parser.add_argument(
        "--model", type=Path, help="Hugging Face folder (default: the model of quickstart.sh)"
    )
    parser.add_argument(
        "--text", type=Path, action="append", help="text file, may be repeated (default: licences)"
    )
    parser.add_argument(
        "--setting",
        nargs="+",
        action="append",
        metavar=("NAME", "KEY=VALUE"),
        help="what --set gets, instead of the default table: "
        + "; ".join(f"{name} {' '.join(values)}" for name, values in table.items()).replace("%", "%%")
        + ". A name of that table needs no values. The others are held against the first",
    )
    parser.add_argument("--ranks", type=int, default=ranks)
    parser.add_argument(
        "--threads", type=int, help="of a rank (default: an even share of the cores)"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="append the figures as JSON lines"
    )
    parser.add_argument("--program", type=Path, default=BIN / "pecia")
    options = parser.parse_args(arguments)
    if options.threads is None:
        options.threads = max(1, len(os.sched_getaffinity(0)) // max(1, options.ranks))
    for name, least in (("tokens", 2), ("ranks", 1), ("threads", 1)):
        value = getattr(options, name)
        if value is not None and value < least:
            raise UserError(f"--{name} is {value}; it must be at least {least}")
    if not options.program.is_file():
        raise UserError(
            f"{options.program}: no such program; cmake --preset release && "
            "cmake --build --preset release --target pecia"
        )
    return options


def chosen_settings(
    given: Optional[Sequence[Sequence[str]]], table: Optional[dict[str, list[str]]] = None
) -> dict[str, list[str]]:
    known = SETTINGS if table is None else table
    if given is None:
        return known
    chosen: dict[str, list[str]] = {}
    for name, *values in given:
        if name in chosen:
            raise UserError(f"--setting {name} is given twice")
        if not values and name not in known:
            raise UserError(
                f"--setting {name} has no KEY=VALUE, and the default table ({', '.join(known)}) "
                "does not have it"
            )
        for value in values:
            if "=" not in value:
                raise UserError(f"--setting {name}: '{value}' is not KEY=VALUE")
        chosen[name] = values or known[name]
    return chosen


def default_texts() -> list[Path]:
    found = [LICENCES / name for name in LICENCE_TEXTS if (LICENCES / name).is_file()]
    if not found:
        raise UserError(f"no licence texts in {LICENCES}; name a text with --text")
    return found


def read_tokens(model: ModelFolder, texts: Sequence[Path], wanted: Optional[int]) -> list[int]:
    """The first ones of the texts, one after the other."""
    text = "\n\n".join(path.read_text(encoding="utf-8").strip() for path in texts)
    tokens = model.tokenizer.encode(text).ids
    if len(tokens) < (wanted or 2):
        raise UserError(
            f"--tokens {wanted or 2}: {', '.join(map(str, texts))} has only {len(tokens)}"
        )
    return tokens[: wanted or TOKENS]


def pieces_of(tokens: Sequence[int], length: int) -> list[Sequence[int]]:
    """Of at most the model's length."""
    return [tokens[first : first + length] for first in range(0, len(tokens), length)]


def passages_again(text: Sequence[int]) -> list[list[int]]:
    """The text with one of its own passages instead of its last tokens, for passages at several depths. A model that
    finds the passage again expects its tokens after the first few."""
    count = CUE + RECALLED
    begins = [len(text) * depth // 8 for depth in DEPTHS]
    return [[*text[:-count], *text[begin : begin + count]] for begin in begins]


def recalled(passages: Sequence[Sequence[int]], found: Predictions) -> float:
    """The share of the passages' tokens after their cues that are the most likely ones."""
    same, end = [], 0
    for text in passages:
        end += len(text) - 1
        same.append(found.most_likely[end - RECALLED : end] == np.array(text[-RECALLED:]))
    return float(np.mean(same))


def write_prompts(path: Path, model: ModelFolder, texts: Sequence[Sequence[int]]) -> None:
    """As prompts without answers."""
    shard = ShardWriter(path, model.tokenizer_sha256, model.vocab_size, "chain", PROGRAM)
    for number, text in enumerate(texts):
        turn = PackedTurn(text, Sampling(max_new_tokens=0))
        shard.add(PackedRequest(f"text-{number}", PROGRAM, [turn], None))
    shard.finish()


def job_of(model: Path, logprobs: int) -> dict[str, Any]:
    return {
        "model": {"path": str(model.resolve())},
        "input": ["prompts.h5"],
        "output": "run",
        "generation": {"prompt_logprobs": logprobs},
        "report": {"trace": "off", "progress": "off"},
    }


def last_words(text: str) -> str:
    """What the program said last; beside mpirun's own remarks its lines begin with its name."""
    lines = [line for line in text.splitlines() if line.strip()]
    own = [line for line in lines if line.startswith("pecia: ")]
    return (own or lines or ["it said nothing"])[-1]


@dataclass(frozen=True)
class Bench:
    folder: Path
    job: Path
    options: argparse.Namespace
    about: dict[str, Any]  # the text, for every line
    predicted: int  # tokens of the texts; those of passages come after them
    passages: Sequence[Sequence[int]]

    def run(self, number: int, values: Sequence[str]) -> Path:
        """The folder of a run with those settings."""
        output = self.folder / f"run-{number}"
        command = [str(self.options.program), "run", str(self.job), "--set", f"output={output}"]
        for value in values:
            command += ["--set", value]
        if self.options.ranks > 1:
            command = ["mpirun", "-np", str(self.options.ranks), "--bind-to", "none", *command]
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": str(self.options.threads),
            "OMPI_MCA_rmaps_base_oversubscribe": "1",
            "OMPI_MCA_mpi_yield_when_idle": "1",
        }
        if os.geteuid() == 0:
            environment["OMPI_ALLOW_RUN_AS_ROOT"] = "1"
            environment["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            text=True,
            errors="replace",
            env=environment,
        )
        if done.returncode != 0:
            raise Refused(last_words(done.stderr))
        return output

    def line(self, name: str, values: Sequence[str], output: Path) -> dict[str, Any]:
        """What a run was; its figures come to it."""
        report = json.loads((output / "report.json").read_text(encoding="utf-8"))
        return {
            "bench": "bench_accuracy",
            "setting": name,
            "set": values,
            "commit": report["build"]["commit"],
            "cpu": report["machine"]["cpu"],
            "model": self.options.model.resolve().name,
            "weights": report["model"]["weights"],
            "ranks": self.options.ranks,
            "threads": self.options.threads,
            **self.about,
            **sparse_work(report),
        }

    def all(self, settings: dict[str, list[str]]) -> tuple[list[dict[str, Any]], dict[str, str]]:
        """Lines of the settings, and why the others have none."""
        lines, refused = [], {}
        first = next(iter(settings))
        reference: Optional[Predictions] = None
        expected: Optional[Path] = None
        for number, (name, values) in enumerate(settings.items()):
            note(PROGRAM, f"{name}: {' '.join(values)}")
            try:
                output = self.run(number, values)
                everything = read_predictions(output)
            except (Refused, UserError) as error:
                refused[name] = str(error)
                continue
            found = everything[: self.predicted]
            line = {**self.line(name, values, output), **figures(found)}
            if self.passages:
                line["recalled"] = recalled(self.passages, everything[self.predicted :])
            if name == first:
                reference, expected = found, output
            elif reference is not None and expected is not None:
                line.update(reference=first, **differences(found, reference))
                if self.options.divergence:
                    line.update(divergence(output, expected, self.predicted))
            if name != first:
                shutil.rmtree(output)  # which may be as large as the vocabulary
            lines.append(line)
        return lines, refused


def sparse_work(report: dict[str, Any]) -> dict[str, float]:
    """What sparse attention attended and sent, beside what dense attention would have; nothing without it."""
    names = ("attention_pairs", "dense_attention_pairs", "sent_bytes", "dense_sent_bytes")
    sparse = report.get("sparse")
    return {name: sparse[name] for name in names} if sparse and sparse["dense_attention_pairs"] else {}


def work_cells(line: dict[str, Any]) -> list[str]:
    """Of HEADS, from "attention pairs" on."""
    if "attention_pairs" not in line:
        return ["–", "–"]
    share = line["attention_pairs"] / line["dense_attention_pairs"]
    sent, dense = line["sent_bytes"] / 1e6, line["dense_sent_bytes"] / 1e6
    return [f"{100 * share:.0f} %", f"{sent:.1f} of {dense:.1f}"]


def row(line: dict[str, Any]) -> list[str]:
    cells = [
        line["setting"],
        str(line["tokens"]),
        f"{line['nll']:.5f}",
        f"{line['perplexity']:.4f}",
    ]
    recall = f"{100 * line['recalled']:.0f} %" if "recalled" in line else "–"
    work = work_cells(line)
    if "difference" not in line:
        return [*cells, "–", "–", "–", "–", recall, *work]
    return [
        *cells,
        f"{line['difference']:+.5f} ± {line['difference_error']:.5f}",
        f"{line['largest']:.4f}",
        f"{100 * line['same_most_likely']:.2f} %",
        f"{line['divergence']:.5f} ± {line['divergence_error']:.5f}"
        if "divergence" in line
        else "–",
        recall,
        *work,
    ]


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    settings = chosen_settings(options.setting)
    if options.model is None:
        options.model = MODEL
        demo_model.main([str(options.model)])
    model = ModelFolder(options.model)
    texts = options.text or default_texts()
    tokens = read_tokens(model, texts, options.tokens)
    if options.recall and len(tokens) < 8 * (CUE + RECALLED):
        raise UserError(
            f"--recall needs a text of {8 * (CUE + RECALLED)} tokens; this has {len(tokens)}"
        )
    with tempfile.TemporaryDirectory(prefix="bench-accuracy-") as scratch:
        folder = Path(scratch)
        pieces = pieces_of(tokens, model.config.get("max_position_embeddings", len(tokens)))
        passages = passages_again(pieces[0]) if options.recall else []
        write_prompts(folder / "prompts.h5", model, [*pieces, *passages])
        job = folder / "job.json"
        job.write_text(json.dumps(job_of(options.model, -1 if options.divergence else 1)), encoding="utf-8")
        note(PROGRAM, f"{len(tokens)} tokens of {', '.join(path.name for path in texts)}")
        about = {
            "text": [path.name for path in texts],
            "tokens_sha256": hashlib.sha256(np.array(tokens, dtype="<i4").tobytes()).hexdigest(),
            "prompts": len(pieces),
        }
        lines, refused = Bench(folder, job, options, about, len(tokens) - len(pieces), passages).all(
            settings
        )
    title = f"Nats per token; differences are from {next(iter(settings))}"
    show(title, HEADS, [row(line) for line in lines])
    if options.json is not None:
        append(options.json, lines)
    for name, words in refused.items():
        note(PROGRAM, f"{name} was not measured: {words}")
    return 1 if refused else 0
