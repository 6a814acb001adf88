# SPDX-License-Identifier: Apache-2.0
"""Times pecia beside others, as peers_options explains; appends JSON lines, prints tables."""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from ..command import Failure, UserError, note, temporary_file
from ..gguf import demo_model
from ..gguf.export import export_gguf
from ..gguf.export_gpt_oss import export_gpt_oss
from ..model_folder import ModelFolder, read_json
from .common import MODEL, ROOT, Line, Work, append, cores, read, write_prompts
from .peer_process import batch_of
from .peers_options import (
    AS_STORED,
    BATCH_NEW,
    BATCH_PROMPT,
    DTYPES,
    EXACT,
    GGUF_TYPES,
    MULTIPLYING,
    OPENVINO,
    OWN_OPTIONS,
    PROGRAM,
    WITHOUT_BATCHES,
    Configuration,
    has_work,
    parse,
)
from .peers_report import ATTENTION, ATTENTION_TOKENS, INTEGERS, OWN, PRODUCTS, Case, tables

ENVIRONMENTS = {"transformers": "peers", "llama.cpp": "peers", "openvino": "peers-openvino"}  # in build
OWN_MODEL = {"auto": {}, "fp32": {"compute": "fp32"}, **{each: {"dtype": each} for each in INTEGERS}}
LAST_WORDS = 2000  # characters of a log that an error shows


def prompt(model: Path, text: Path, count: int) -> np.ndarray:
    """The text's tokens, again and again; random ones for a model without a tokenizer."""
    if not (model / "tokenizer.json").is_file():
        vocab = read_json(model / "config.json")["vocab_size"]
        return np.random.default_rng(1).integers(0, vocab, count, dtype=np.int32)
    if not text.is_file():
        raise UserError(f"{text}: no such file. Name a text of your own with --text")
    ids = ModelFolder(model).tokenizer.encode(text.read_text("utf-8"), add_special_tokens=False).ids
    if not ids:
        raise UserError(f"{text}: holds no text")
    return np.resize(np.array(ids, dtype=np.int32), count)


def cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def commit() -> str:
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=10", "--exclude=*"]
    return subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()


def last_words(log: Path) -> str:
    return log.read_text("utf-8", errors="replace")[-LAST_WORDS:].strip()


def start(command: Sequence[object], log: Path, what: str, **environment: str) -> float:
    """Runs it to its end; how many CPUs other processes kept busy meanwhile."""

    def busy_s() -> float:
        with open("/proc/stat", encoding="utf-8") as file:
            ticks = [int(word) for word in file.readline().split()[1:9]]
        return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")  # less idle, iowait

    def own_s() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    busy, own, begun = busy_s(), own_s(), time.monotonic()
    with log.open("wb") as out:
        try:
            code = subprocess.run(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**os.environ, **environment},
                check=False,
            ).returncode
        except OSError as error:
            raise Failure(f"{what} cannot be started: {command[0]}: {error.strerror}") from None
    if code != 0:
        end = f"ended with code {code}" if code > 0 else f"was ended by {signal.Signals(-code).name}"
        raise Failure(f"{what} {end}; the end of {log}:\n{last_words(log)}")
    seconds = time.monotonic() - begun
    return max(0.0, busy_s() - busy - (own_s() - own)) / seconds


def read_lines(path: Path, what: str, count: int) -> list[Line]:
    """Of a process that has ended well."""
    try:
        lines = [json.loads(text) for text in path.read_text("utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise Failure(f"{what} left no lines that can be read ({error})") from None
    if len(lines) != count:
        raise Failure(f"{what} left {len(lines)} lines instead of {count}")
    return lines


def of_pecia(line: Line) -> Line:
    """What pecia-bench prefill or decode says, in the words of peer_process."""
    prefill = line["bench"] == "bench_prefill"
    facts = ("version", "commit", "compiler", "mpi", "isa", "kv_dtype")
    return {
        "what": "prefill" if prefill else "decode",
        "tokens": line["tokens" if prefill else "context"],
        "seconds": line["seconds"]["median"]
        if prefill
        else line["step_seconds"]["median"] * line["steps"],
        "tokens_per_s": line["tokens_per_s"],
        "share_of_floor": line["share_of_floor"],
        "versions": {name: line[name] for name in facts},
    }


def single_ops() -> dict[Case, str]:
    """How pecia-bench ops calls the products and the attention of --products, which are of bf16."""
    cases = {
        ("product", rows): f"{rows} rows × {columns}×{depth} bf16,"
        for rows, (depth, columns) in PRODUCTS.items()
    }
    for what, (heads, kv_heads, head_dim) in ATTENTION.items():
        for count in ATTENTION_TOKENS:
            shape = f"{count} queries, {count} keys, {heads}/{kv_heads} heads of {head_dim} bf16"
            cases[what, count] = shape
    return cases


def of_ops(lines: Sequence[Line]) -> list[Line]:
    """Of the lines of pecia-bench ops; products are of weights in panels, as a run has them."""
    found = []
    for (what, rows), shape in single_ops().items():
        for line in lines:
            of_a_run = what != "product" or line.get("shape", "").endswith(", in panels")
            if line.get("shape", "").startswith(shape) and of_a_run:
                seconds = line["median_s"]
                facts = {"seconds": seconds, "tokens_per_s": rows / seconds}
                facts["share_of_floor"] = line["share_of_floor"]
                found.append({"what": what, "tokens": rows, **facts})
    return found


def set_up(environment: str) -> None:
    code = subprocess.run([ROOT / "scripts" / "setup.sh", environment], check=False).returncode
    if code != 0:
        raise Failure(f"setup.sh {environment} ended with code {code}; its words stand above")


class Bench:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.work = ROOT / "runs" / "bench-peers"
        self.json: Path = options.json or ROOT / "runs" / "bench-peers.jsonl"
        self.programs = ROOT / "build" / "release" / "bin"
        self.gguf = ROOT / "models" / f"{options.model.resolve().name}-gguf"
        self.openvino = ROOT / "models" / f"{options.model.resolve().name}-openvino"
        self.lines: list[Line] = []
        self.failed: dict[str, str] = {}
        self.about = {
            "bench": "bench_peers",
            "commit": commit(),
            "cpu": cpu_model(),
            "cores": cores(),
            "threads": options.threads,
            "model": options.model.resolve().name,
        }

    def leave_out(self) -> None:
        """Says which cases a peer is not in, and leaves out what would have none."""
        for peer in dict.fromkeys(one.peer for one in self.options.only):
            if self.options.batches and peer in WITHOUT_BATCHES:
                note(PROGRAM, f"{peer} is not in the batches: {WITHOUT_BATCHES[peer]}")
        self.options.only = [one for one in self.options.only if has_work(one, self.options)]

    def prepare(self) -> None:
        """What the chosen need: programs, environments, prompt, files of weights. What cannot be had has failed."""
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)
        if self.options.model == MODEL:
            demo_model.main([str(MODEL)])
        lengths = self.options.prefill + self.options.decode
        longest = max([*lengths, *(BATCH_PROMPT + each for each in self.options.batches)], default=1)
        np.save(self.work / "tokens.npy", prompt(self.options.model, self.options.text, longest))
        if any(one.peer == OWN for one in self.options.only):
            Work("peers", self.json, fresh=False).build("pecia-bench", "pecia")
        peers = dict.fromkeys(one.peer for one in self.options.only if one.peer != OWN)
        for name in dict.fromkeys(ENVIRONMENTS[peer] for peer in peers):

            def is_of(one: Configuration, name: str = name) -> bool:
                return ENVIRONMENTS.get(one.peer) == name

            with self.failing(is_of):
                set_up(name)
        for peer, kinds, make in (
            ("llama.cpp", GGUF_TYPES, self.make_gguf),
            ("openvino", OPENVINO, self.make_openvino),
        ):
            for kind in kinds:

                def needs(one: Configuration, peer: str = peer, kind: str = kind) -> bool:
                    return one.peer == peer and one.settings[0] == kind

                if any(needs(one) and one.name not in self.failed for one in self.options.only):
                    with self.failing(needs):
                        make(kind)

    @contextmanager
    def failing(self, concerns: Callable[[Configuration], bool]) -> Iterator[None]:
        """A failure inside, or a model that the peer cannot have, is told, and is that of all configurations that it
        concerns."""
        try:
            yield
        except (Failure, UserError) as failure:
            note(PROGRAM, str(failure))
            for one in self.options.only:
                if concerns(one):
                    self.failed[one.name] = str(failure)

    def sources(self) -> str:
        """The checkpoint, as a text by which a change is seen."""
        files = sorted(self.options.model.resolve().glob("*.safetensors"))
        if not files:
            raise UserError(f"{self.options.model}: holds no .safetensors")
        return "".join(f"{file} {file.stat().st_mtime_ns}\n" for file in files)

    def make_openvino(self, setting: str) -> Path:
        """A folder with the weights for this setting, made anew as files of make_gguf are."""
        folder = self.openvino / setting
        made_of, source = self.openvino / f"{setting}.source", self.sources()
        if made_of.is_file() and made_of.read_text("utf-8") == source:
            return folder
        note(PROGRAM, f"making {folder}")
        shutil.rmtree(folder, ignore_errors=True)
        self.openvino.mkdir(parents=True, exist_ok=True)
        made_of.unlink(missing_ok=True)
        export = ROOT / "build" / "peers-openvino" / "bin" / "optimum-cli"
        command = [export, "export", "openvino", "-m", self.options.model.resolve()]
        command += ["--task", "text-generation-with-past", "--weight-format", OPENVINO[setting]]
        what = f"openvino-export-{setting}"
        start([*command, folder], self.work / f"{what}.log", what, HF_HUB_OFFLINE="1")
        made_of.write_text(source, encoding="utf-8")
        return folder

    def make_gguf(self, kind: str) -> Path:
        """The weights in this type, made anew where the checkpoint is not the one they were made of."""
        path, made_of = self.gguf / f"{kind}.gguf", self.gguf / f"{kind}.source"
        source = self.sources()
        if path.is_file() and made_of.is_file() and made_of.read_text("utf-8") == source:
            return path
        exact = None if kind in (EXACT, AS_STORED) else self.make_gguf(EXACT)
        note(PROGRAM, f"making {path}")
        if kind == AS_STORED:
            export_gpt_oss(self.options.model, path)
        elif exact is None:
            export_gguf(self.options.model, path)
        else:
            with temporary_file(path) as temporary:
                arguments = [exact, temporary, "--type", kind, "--threads", self.options.threads]
                self.peer(["quantize", *arguments], f"quantize-{kind}")
        made_of.write_text(source, encoding="utf-8")
        return path

    def peer(
        self, arguments: Sequence[object], what: str, environment: str = "peers"
    ) -> float:
        """A process of the others' environment."""
        python = ROOT / "build" / environment / "bin" / "python"
        command = [python, "-m", "pecia_tools.bench.peer_process", *arguments]
        threads = str(self.options.threads)
        return start(
            command,
            self.work / f"{what.replace('/', '-')}.log",
            what,
            PYTHONPATH=str(ROOT / "scripts"),
            OMP_NUM_THREADS=threads,
            HF_HUB_OFFLINE="1",
        )

    def measure_own(self, one: Configuration, json_file: Path) -> list[Line]:
        options = self.options
        common = ["--model", options.model, *OWN_OPTIONS[one.settings[0]], "--runs", 1]
        common += ["--threads", options.threads, "--json", json_file]
        found: list[Line] = []
        for name, cases in (("prefill", options.prefill), ("decode", options.decode)):
            if not cases:
                continue
            if name == "prefill":
                cases = [cases[0], *cases]  # the first prompt warms up
                special = ["--tokens", joined(cases), "--warmups", 0]
            else:
                special = ["--contexts", joined(cases), "--batches", 1, "--steps", options.new]
            json_file.unlink(missing_ok=True)
            what = f"{one.name} ({name})"
            command = [self.programs / "pecia-bench", name, *common, *special]
            foreign = start(command, self.work / f"{name}.log", what)
            lines = [of_pecia(line) for line in read_lines(json_file, what, len(cases))]
            for line in lines[1:] if name == "prefill" else lines:
                found.append({**line, "foreign_cpus": foreign})
        if options.products and one.settings[0] not in INTEGERS:
            found += self.measure_own_ops(one)
        return found + [self.measure_own_batch(one, number) for number in options.batches]

    def measure_own_batch(self, one: Configuration, number: int) -> Line:
        """pecia run; the seconds of its passes and of all between them, without the start."""
        output, prompts = self.work / "batch", self.work / "batch.h5"
        tokens = np.load(self.work / "tokens.npy").tolist()
        batch = batch_of(tokens, number, BATCH_PROMPT)
        write_prompts(prompts, np.concatenate(batch), [len(each) for each in batch])
        shutil.rmtree(output, ignore_errors=True)
        job = self.work / "batch.yaml"
        model = {"path": str(self.options.model.resolve()), **OWN_MODEL[one.settings[0]]}
        generation = {"max_new_tokens": BATCH_NEW, "ignore_eos": True}
        values = {"model": model, "input": [str(prompts)], "output": str(output)}
        job.write_text(json.dumps({**values, "generation": generation}), encoding="utf-8")
        what = f"{one.name} (pecia run, {number} prompts)"
        threads = str(self.options.threads)
        foreign = start(
            [self.programs / "pecia", "run", job],
            self.work / "batch.log",
            what,
            OMP_NUM_THREADS=threads,
        )
        report = json.loads((output / "report.json").read_text("utf-8"))
        seconds = seconds_after_start(report)
        facts = {"what": "batch", "tokens": number, "seconds": seconds, "foreign_cpus": foreign}
        return {**facts, "tokens_per_s": number * BATCH_NEW / seconds}

    def measure_own_ops(self, one: Configuration) -> list[Line]:
        found: list[Line] = []
        for op in ("linear", "attention"):
            json_file, what = self.work / "ops.jsonl", f"{one.name} (ops, {op})"
            command = [self.programs / "pecia-bench", "ops", "--op", op, "--json", json_file]
            command += ["--compute", one.settings[0], "--threads", self.options.threads]
            json_file.unlink(missing_ok=True)
            foreign = start(command, self.work / "ops.log", what)
            found += [{**line, "foreign_cpus": foreign} for line in of_ops(read(json_file))]
        if len(found) != len(single_ops()):
            raise Failure(
                f"{one.name} left {len(found)} lines of ops instead of {len(single_ops())}"
            )
        return found

    def measure_peer(self, one: Configuration, json_file: Path) -> list[Line]:
        options = self.options
        single = options.products and one.peer in MULTIPLYING
        if one.peer == "transformers":
            arguments = [options.model.resolve(), "--dtype", DTYPES[one.settings[0]]]
            for rows, (depth, columns) in PRODUCTS.items() if single else ():
                arguments += ["--product", rows, depth, columns]
            for what, sizes in ATTENTION.items() if single else ():
                for count in ATTENTION_TOKENS:
                    arguments += ["--attention", what, count, *sizes]
        elif one.peer == "openvino":
            precision = "f32" if one.settings[0] == "fp32" else "bf16"
            arguments = [self.openvino / one.settings[0], "--precision", precision]
        else:
            kind, attention, ubatch = one.settings
            arguments = [self.gguf / f"{kind}.gguf", "--ubatch", ubatch.removeprefix("ub-")]
            arguments += ["--flash-attention", attention.removeprefix("fa-")]
        arguments += ["--tokens", self.work / "tokens.npy", "--threads", options.threads]
        arguments += ["--prefill", joined(options.prefill), "--decode", joined(options.decode)]
        arguments += ["--new", options.new, "--json", json_file]
        batches = [] if one.peer in WITHOUT_BATCHES else options.batches
        if batches:
            arguments += ["--batches", joined(batches), "--batch-prompt", BATCH_PROMPT]
            arguments += ["--batch-new", BATCH_NEW]
        json_file.unlink(missing_ok=True)
        foreign = self.peer([one.peer, *arguments], one.name, ENVIRONMENTS[one.peer])
        count = len(options.prefill) + len(options.decode) + len(batches)
        count += len(single_ops()) if single else 0
        return [
            {**line, "foreign_cpus": foreign} for line in read_lines(json_file, one.name, count)
        ]

    def measure(self, one: Configuration, number: int) -> None:
        load = os.getloadavg()[0]
        note(PROGRAM, f"round {number} of {self.options.rounds}, load {load:.2f}: {one.name}")
        measure = self.measure_own if one.peer == OWN else self.measure_peer
        about = {**self.about, "peer": one.peer, "settings": "/".join(one.settings)}
        about |= {"round": number, "load": load, "new": self.options.new}
        lines = [{**about, **line} for line in measure(one, self.work / "lines.jsonl")]
        self.lines += lines
        append(self.json, lines)

    def all_rounds(self) -> None:
        """What has failed is told, and left out of later rounds."""
        self.json.parent.mkdir(parents=True, exist_ok=True)
        for number in range(1, self.options.rounds + 1):
            for one in self.options.only:
                if one.name in self.failed:
                    continue
                try:
                    self.measure(one, number)
                except Failure as failure:
                    self.failed[one.name] = str(failure)
                    note(PROGRAM, str(failure))


def seconds_after_start(report: Line) -> float:
    """Of a run's report: its seconds less those of the phases before its first pass."""
    names = list(report["startup"])
    phases = names[names.index("read_job_s") :]  # those before are of the process, not of the run
    return report["seconds"] - sum(report["startup"][name] for name in phases)


def joined(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def main(arguments: list[str]) -> int:
    bench = Bench(parse(arguments))
    bench.leave_out()
    bench.prepare()
    bench.all_rounds()
    if bench.lines:
        tables(bench.lines)
    if bench.failed:
        note(PROGRAM, f"failed: {', '.join(bench.failed)}")
        return 1
    return 0
