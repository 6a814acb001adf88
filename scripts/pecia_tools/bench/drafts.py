# SPDX-License-Identifier: Apache-2.0
"""Drafts from texts (generation.drafts): answers that copy from their prompts more or less, without drafts and with.

local: one rank with all cores, every batch of --batches and every setting of --drafts in turn, round after round; a
request for each place of a batch, and four at least. Then, unless --no-peers, the same requests one by one by prompt
lookup of transformers and of llama-cpp-python, without and with drafts, in build/peers (scripts/setup.sh peers).
net: context parallelism over four servers, network namespaces of this machine with links of --mbit.

An answer ends where the model ends it: one that goes on after that repeats itself, which would make drafts look better
than they are. "tokens/s" is after the prompts, "whole run" with them, without the start; "× off" is the median of the
rounds, each beside its own `off`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py

from ..command import UserError, note
from ..gguf import demo_model
from ..pack import main as pack
from . import drafts_tasks, peers
from .common import (
    BIN,
    MODEL,
    ROOT,
    SERVERS,
    Line,
    Work,
    append,
    enter_network,
    lengths,
    model_parser,
    mpirun,
    on_this_machine,
    positive,
    read,
    show,
    threads_of_ranks,
)
from .peers_options import DTYPES, TEXT

LEAST_REQUESTS = 4
PEER_DRAFTS = (10, 3)
CONTEXT = 2048  # tokens that llama.cpp has room for
HEADS = ("task", "batch", "drafts", "copied", "tokens a pass", "tokens/s", "× off", "whole run × off", "same answers")
PEER_HEADS = ("program", "task", "draft", "tokens a pass", "tokens/s", "× none")


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = model_parser("drafts", __doc__, "local --batches 1,8 --text a-novel.txt")
    add = parser.add_argument
    add("where", choices=("local", "net"))
    add("--text", type=Path, default=TEXT, help="the passages are out of it (default: %(default)s)")
    add("--tasks", default=",".join(drafts_tasks.TASKS), help="default: %(default)s")
    add("--batches", type=lengths, default="1,8,32", help="answers at once (default: %(default)s)")
    add("--drafts", default="off,auto,8", help="default: %(default)s")
    add("--new", type=positive, default=192, help="tokens of an answer at most (default: %(default)s)")
    add("--compute", choices=("auto", "fp32"), default="auto", help="of products (default: %(default)s)")
    add("--mbit", type=positive, default=100, help="net: a server's link (default: %(default)s)")
    add("--no-peers", dest="peers", action="store_false")
    add("--peer-dtype", choices=tuple(DTYPES), default="bf16", help="of transformers (default: %(default)s)")
    options = parser.parse_args(arguments)
    options.tasks, options.drafts = options.tasks.split(","), options.drafts.split(",")
    for task in options.tasks:
        if task not in drafts_tasks.TASKS:
            raise UserError(f"--tasks: {task!r} is none of {', '.join(drafts_tasks.TASKS)}")
    if options.drafts[0] != "off":
        raise UserError("--drafts: off is to be the first, beside which the others are measured")
    if not options.text.is_file():
        raise UserError(f"--text {options.text}: no such file")
    if options.where == "net":
        options.batches, options.peers = options.batches[:1], False
    return options


class Bench:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.work = Work(f"drafts-{options.where}", options.json)
        self.text = options.text.read_text("utf-8")

    def shard(self, task: str, count: int) -> Path:
        path = self.work.folder / f"{task}-{count}.h5"
        if not path.is_file():
            lines = [
                {"custom_id": f"r{i}", "method": "POST", "url": "/v1/chat/completions", "body": body}
                for i, body in enumerate(drafts_tasks.requests(task, self.text, count))
            ]
            source = path.with_suffix(".jsonl")
            source.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
            pack.main(["--model", str(self.options.model), "--output", str(path), str(source)])
        return path

    def measure(self, task: str, batch: int, drafts: str) -> Line:
        options = self.options
        shard = self.shard(task, max(batch, LEAST_REQUESTS))
        net = options.where == "net"
        output = self.work.folder / f"{task}-{batch}-{drafts}"
        shutil.rmtree(output, ignore_errors=True)
        job = self.work.job(
            output.name,
            model={"path": str(options.model.resolve()), "compute": options.compute},
            kv={"dtype": "fp32"} if options.compute == "fp32" else {},
            input=[str(shard)],
            output=str(output),
            generation={
                "max_new_tokens": options.new,
                "temperature": 0,
                "drafts": drafts if drafts in ("off", "auto") else int(drafts),
            },
            batch={"max_sequences": batch, "prefix_sharing": False},
            parallel={"cp": len(SERVERS)} if net else {},
            report={"trace": "off"},
        )
        launch = mpirun(len(SERVERS), ",".join(f"{name}:1" for name in SERVERS)) if net else []
        threads = 1 if net else options.threads
        self.work.logged(*launch, BIN / "pecia", "run", job, env=threads_of_ranks(threads))
        report = json.loads((output / "report.json").read_text("utf-8"))
        prompts, found = tokens_of(shard), answers(output / "results.h5")
        made = sum(map(len, found))
        after_first = made - len(found)
        accepted = report["drafts"]["accepted"] if report.get("drafts") else 0
        copies = sum(map(drafts_tasks.copied_tokens, prompts, found))
        return {
            "what": "run",
            "task": task,
            "batch": batch,
            "drafts": drafts,
            "requests": len(found),
            "tokens": made,
            "copied": copies / made,
            "tokens_a_pass": after_first / (after_first - accepted),
            "decode_s": report["phases"]["decode"]["seconds"],
            "seconds": peers.seconds_after_start(report),
            "counts": report.get("drafts"),
            "answers": found,
        }

    def rounds(self) -> list[Line]:
        options = self.options
        found = []
        for number in self.work.rounds(options.rounds):
            for task in options.tasks:
                for batch in options.batches:
                    for drafts in options.drafts:
                        line = {**self.measure(task, batch, drafts), "round": number}
                        found.append(line)
                        kept = {key: value for key, value in line.items() if key != "answers"}
                        append(self.work.json, [{**self.about(), **kept}])
                        speed = line["tokens"] / line["decode_s"]
                        self.work.note(f"{task}, {batch} at once, {drafts}: {speed:.1f} tokens/s")
        return found

    def about(self) -> Line:
        options = self.options
        about = {"bench": "bench_drafts", "commit": peers.commit(), "cpu": peers.cpu_model(), "where": options.where}
        about |= {"model": options.model.resolve().name, "threads": options.threads, "text": options.text.name}
        return {**about, "compute": options.compute, "mbit": options.mbit if options.where == "net" else None}

    def beside_peers(self) -> list[Line]:
        options = self.options
        peers.set_up("peers")
        makes = peers.Bench(argparse.Namespace(model=options.model, threads=options.threads, json=None))
        makes.work.mkdir(parents=True, exist_ok=True)
        gguf = makes.make_gguf("BF16")
        python = ROOT / "build" / "peers" / "bin" / "python"
        environment = {"PYTHONPATH": str(ROOT / "scripts"), "HF_HUB_OFFLINE": "1"}
        environment |= threads_of_ranks(options.threads)
        found = []
        for task in options.tasks:
            if "response_format" in drafts_tasks.TASKS[task](""):
                note(self.work.name, f"{task} is not measured beside the others: their answers would have no shape")
                continue
            prompts = self.work.folder / f"{task}.json"
            prompts.write_text(json.dumps(tokens_of(self.shard(task, LEAST_REQUESTS))), encoding="utf-8")
            for peer, model, more in (
                ("transformers", options.model.resolve(), ["--dtype", DTYPES[options.peer_dtype]]),
                ("llama.cpp", gguf, []),
            ):
                lines = self.work.folder / f"{peer}-{task}.jsonl"
                lines.unlink(missing_ok=True)
                command: list[object] = [python, "-m", "pecia_tools.bench.drafts_process", peer, model, *more]
                command += ["--prompts", prompts, "--new", options.new, "--drafts", ",".join(map(str, PEER_DRAFTS))]
                command += [
                    "--end",
                    *end_tokens(options.model),
                    "--context",
                    CONTEXT,
                    "--threads",
                    options.threads,
                    "--json",
                    lines,
                ]
                peers.start(command, self.work.folder / "peer.log", peer, **environment)
                for line in read(lines):
                    made = [len(each) - 1 for each in line.pop("answers")]
                    line |= {"what": "peer", "peer": peer, "task": task, "tokens_after_first": sum(made)}
                    found.append(line)
                    append(self.work.json, [{**self.about(), **line}])
        return found


def end_tokens(model: Path) -> list[int]:
    """That end an answer, by the model's config.json."""
    found = json.loads((model / "config.json").read_text("utf-8"))["eos_token_id"]
    return found if isinstance(found, list) else [found]


def tokens_of(shard: Path) -> list[list[int]]:
    with h5py.File(shard) as file:
        offsets, tokens = file["turn_offsets"][()], file["tokens"][()]
    return [tokens[begin:end].tolist() for begin, end in zip(offsets, offsets[1:])]


def answers(results: Path) -> list[list[int]]:
    with h5py.File(results) as file:
        begins, counts, tokens = file["slot_offsets"][()], file["output_tokens"][()], file["tokens"]
        return [tokens[begin : begin + count].tolist() for begin, count in zip(begins, counts)]


def rows(lines: Sequence[Line]) -> list[list[str]]:
    """A row for each task, batch and setting."""
    cases: dict[tuple[Any, ...], list[Line]] = {}
    for line in lines:
        cases.setdefault((line["task"], line["batch"], line["drafts"]), []).append(line)
    table = []
    for (task, batch, drafts), found in cases.items():
        off = cases[task, batch, "off"]

        def beside(key: str, found: list[Line] = found, off: list[Line] = off) -> str:
            """Per token, since answers may differ where two tokens are nearly equally likely."""
            each = [(a[key] / a["tokens"]) / (b[key] / b["tokens"]) for a, b in zip(off, found)]
            return f"{statistics.median(each):.2f}"

        first = found[0]
        same = sum(a == b for a, b in zip(first["answers"], off[0]["answers"]))
        speed = statistics.median(line["tokens"] / line["decode_s"] for line in found)
        words = [task, str(batch), drafts, f"{first['copied']:.0%}", f"{first['tokens_a_pass']:.2f}"]
        words += [f"{speed:.1f}", beside("decode_s"), beside("seconds"), f"{same} of {first['requests']}"]
        table.append(words)
    return table


def peer_rows(lines: Sequence[Line]) -> list[list[str]]:
    table = []
    none: Line = {}
    for line in lines:
        none = none if line["draft"] else line
        speed, before = (each["tokens_after_first"] / each["seconds"] for each in (line, none))
        a_pass = line["tokens_after_first"] / line["passes"]
        name = str(line["draft"] or "none")
        table.append([line["peer"], line["task"], name, f"{a_pass:.2f}", f"{speed:.1f}", f"{speed / before:.2f}"])
    return table


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    if options.model == MODEL:
        demo_model.main([str(MODEL)])
    if options.where == "net":
        enter_network(options.where, options.mbit, options.mbit)
    else:
        on_this_machine()
    bench = Bench(options)
    bench.work.build("pecia")
    lines = bench.rounds()
    found = bench.beside_peers() if options.peers else []
    show(f"drafts, {options.where}", HEADS, rows(lines))
    show("one by one", PEER_HEADS, peer_rows(found))
    return 0
