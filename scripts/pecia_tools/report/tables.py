# SPDX-License-Identifier: Apache-2.0
"""The numbers of a run's report as rows of text."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional

import numpy as np

from ..runs.folder import DONE, FAILED, OPEN, PARTIAL, Link, Percentiles, Report, RunFolder, Stage
from .numbers import UNKNOWN, count, duration, percent, plural, ranges, size

SHOWN_FAILURES = 50
SHOWN_TRUNCATED = 50
SHOWN_STAGES = 15
LEVELS = {
    "server": "inside a server",
    "rack": "between servers of a rack",
    "system": "between racks",
}
# Which spans declare what a group's links should have carried, and nothing besides.
DECLARED_BY = {
    "ring": (
        "ring_pass_kv",
        "ring_pass_q",
        "halo",
        "all_to_all",
        "broadcast_q",
        "all_queries",
        "partial_outputs",
        "level_tokens",
        "level_queries",
        "level_outputs",
        "importance_samples",
    ),
    "sp": ("all_to_all_heads", "all_to_all_rows"),
}


@dataclass(frozen=True)
class Card:
    """A headline number."""

    value: str
    what: str
    more: str = ""


@dataclass(frozen=True)
class Table:
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    after: str = ""


@dataclass(frozen=True)
class Cut:
    """What limits left out: of prompts (limits.over_length), and of answers."""

    turns: int
    tokens: int
    at_max_new_tokens: int
    at_model_length: int

    @property
    def answers(self) -> str:
        """ "2 answers cut at max_new_tokens, 1 at the model's length", or nothing."""
        parts = []
        if self.at_max_new_tokens:
            parts.append(f"{plural(self.at_max_new_tokens, 'answer')} cut at max_new_tokens")
        if self.at_model_length:
            parts.append(f"{plural(self.at_model_length, 'answer')} cut at the model's length")
        return ", ".join(parts)


def cut(run: RunFolder) -> Cut:
    """Of the whole run; without results.h5, of its last start."""
    if run.turns is not None:
        turns = run.turns
        by_length, by_model = turns.cut_by_length.sum(), turns.cut_by_model_length.sum()
        tokens = turns.truncated_tokens[turns.truncated].sum()
        found = (turns.truncated.sum(), tokens, by_length - by_model, by_model)
    else:
        counts = run.report.counts if run.report else {}
        by_length, by_model = (
            counts.get(f"cut_by_{what}", 0) for what in ("length", "model_length")
        )
        prompts, tokens = (counts.get(f"truncated_{what}", 0) for what in ("turns", "tokens"))
        found = (prompts, tokens, by_length - by_model, by_model)
    return Cut(*map(int, found))


def truncated(run: RunFolder) -> Optional[Table]:
    """The prompts that were cut to fit, those that lost most first; None without results.h5."""
    if run.turns is None:
        return None
    turns = run.turns
    rows = np.flatnonzero(turns.truncated)
    rows = rows[np.argsort(-turns.truncated_tokens[rows], kind="stable")]
    more = len(rows) - SHOWN_TRUNCATED

    def row(i: int) -> tuple[str, ...]:
        left_out = int(turns.truncated_tokens[i])
        whole = left_out + int(turns.prompt_tokens[i])
        share = percent(left_out / whole)
        name = _text(turns.request_id[i])
        return (name, str(turns.turn[i]), f"{whole:,}", f"{left_out:,}", share)

    return Table(
        ("request", "turn", "prompt tokens", "left out", "share"),
        [row(i) for i in rows[:SHOWN_TRUNCATED]],
        f"{more} more: pecia inspect --json lists all." if more > 0 else "",
    )


def cards(run: RunFolder) -> list[Card]:
    return [*_turn_cards(run), *_cut_cards(run), *_speed_cards(run), *_latency_cards(run)]


def _cut_cards(run: RunFolder) -> list[Card]:
    found = cut(run)
    if found.turns:
        word = "prompt truncated" if found.turns == 1 else "prompts truncated"
        return [Card(f"{found.turns:,}", word, f"{count(found.tokens)} tokens left out")]
    return []


def _turn_cards(run: RunFolder) -> list[Card]:
    turns = run.turns
    if turns is not None:
        done, failed = turns.number(DONE), turns.number(FAILED)
        left = turns.number(OPEN) + turns.number(PARTIAL)
        requests = len(np.unique(turns.first))
        read = np.isin(turns.state, (DONE, PARTIAL))
        prompt, output = (
            int(column[read].sum()) for column in (turns.prompt_tokens, turns.output_tokens)
        )
    else:
        assert run.report is not None  # a folder has it or results.h5
        counts = run.report.counts
        done, failed, left = counts["done"], counts["failed"], counts["partial"] + counts["open"]
        requests, prompt, output = None, counts["prompt_tokens"], counts["output_tokens"]
    total = done + failed + left
    more = f"{failed:,} failed" + (f", {left:,} not finished" if left else "")
    if requests is not None and requests != total:
        more += f" · turns of {plural(requests, 'request')}"
    return [
        Card(
            f"{done:,} of {total:,}", "turns done" if requests != total else "requests done", more
        ),
        Card(count(prompt), "prompt tokens", f"{count(output)} tokens generated"),
    ]


def _speed_cards(run: RunFolder) -> list[Card]:
    report = run.report
    if report is None:
        elapsed = (run.progress or {}).get("elapsed_s")
        return [] if elapsed is None else [Card(duration(elapsed), "so far", "by progress.json")]
    found = []
    for name, phase in report.phases.items():
        if phase.tokens_per_s is not None:
            share = (
                ""
                if phase.share_of_peak is None
                else f"{percent(phase.share_of_peak)} of peak FLOP/s"
            )
            found.append(Card(count(phase.tokens_per_s), f"{name} tokens/s", share))
    spent = device_time_text(report.document)
    found.append(
        Card(duration(report.seconds), "wall time", "loading included" + (spent and f" · {spent}"))
    )
    if len(report.document.get("starts") or []) > 1:
        sums = report.document["all_starts"]
        more = f"of {sums['starts']} starts · {device_time_text(sums)}"
        found.append(Card(duration(sums["seconds"]), "wall time, all starts", more))
    if report.exposed_communication is not None and len(report.ranks) > 1:
        found.append(
            Card(
                percent(report.exposed_communication),
                "exposed communication",
                "of all ranks' time",
            )
        )
    if windows := report.document.get("windows"):
        sent, whole = size(windows["sent_bytes"]), size(windows["whole_ring_bytes"])
        found.append(
            Card(
                f"{100 * windows['saved_share']:.1f} %",
                "saved by windows",
                f"their layers sent {sent}, and {whole} round a whole ring",
            )
        )
    return found


def _latency_cards(run: RunFolder) -> list[Card]:
    found = []
    turns = run.turns
    if turns is not None and turns.answered.any():
        ttft: Optional[Percentiles] = Percentiles(
            *np.percentile(turns.ttft_s[turns.answered], (50, 90, 99)).tolist()
        )
    else:
        ttft = run.report.ttft_s if run.report else None
    tbt, word = (run.report.tbt_s, "between tokens, median") if run.report else (None, "")
    if run.report is None and turns is not None:
        gaps = turns.between_tokens_s()
        gaps = gaps[~np.isnan(gaps)]
        if len(gaps):
            tbt = Percentiles(*np.percentile(gaps, (50, 90, 99)).tolist())
            word = "between tokens, median of turns"
    for percentiles, what in ((ttft, "to first token, median"), (tbt, word)):
        if percentiles is not None:
            more = f"p90 {duration(percentiles.p90)} · p99 {duration(percentiles.p99)}"
            found.append(Card(duration(percentiles.p50), what, more))
    return found


def what_ran(run: RunFolder) -> list[tuple[str, str]]:
    """What is known, without rows for what is not."""
    report = run.report
    rows: list[tuple[str, Any]] = []
    if report is None:
        model = run.identity.get("model", {})
        rows += [
            ("Model", model.get("path")),
            ("KV cache", run.identity.get("kv", {}).get("dtype")),
            ("Version", run.identity.get("version")),
        ]
    else:
        job, modes, machine, build = report.job, report.modes, report.machine, report.build
        rows += [
            ("Model", job.get("model", {}).get("path")),
            ("Weights", _weights_text(report)),
            ("Input", ", ".join(job.get("input", []))),
            ("Grid", grid_text(report.grid)),
            ("Modes", _modes_text(modes)),
            ("Chosen because", modes.get("why")),
            ("KV cache", _kv_text(modes)),
            ("Memory on demand", _demand_text(report.document)),
            ("Drafts", _drafts_text(report.document)),
            ("Attention of prompts", modes.get("attention_library")),
            ("Experts of prompts", modes.get("expert_library")),
            ("Threads", _if_known(modes.get("threads"), "{} per rank")),
            ("Processor", _processor_text(machine)),
            ("GPU", _if_known(machine.get("gpu"), "{}, one per rank")),
            ("Peak", _peak_text(report.document)),
            ("Memory read", _bandwidth_text(report.document)),
            ("Energy", _energy_text(report.document)),
            ("Cost", _cost_text(report.document)),
            ("Command", shlex.join(report.document.get("command") or [])),
            ("Build", ", ".join(str(value) for value in build.values())),
            ("Output", job.get("output")),
        ]  # fmt: skip
    return [(name, str(value)) for name, value in rows if value not in (None, "")]


def grid_text(grid: dict[str, int]) -> str:
    parts = [f"{name.upper()} {degree}" for name, degree in grid.items() if degree > 1]
    return " × ".join(parts) or "one rank"


def _modes_text(modes: dict[str, Any]) -> Optional[str]:
    prefill = modes.get("prefill")
    if prefill is None:
        return modes.get("mode")
    ring = f" ({modes['ring']})" if modes.get("ring") else ""
    shift, gather = modes.get("shift_threshold"), modes.get("gather_threshold")
    below = f" from {gather} new tokens, sp_tp below" if gather is not None else ""
    return (
        f"prefill {prefill}{ring}{below}, decode {modes.get('decode')}"
        + (f" up to {shift} new tokens" if shift is not None else "")
        + f", products in {modes.get('compute')}"
        + (f", activations travel in {modes['wire']}" if modes.get("wire") else "")
    )


def _weights_text(report: Report) -> Optional[str]:
    per_rank = _if_known(report.modes.get("weight_bytes"), "{} per rank", size)
    held = (report.document.get("model") or {}).get("weights")
    return f"{held}, {per_rank}" if held and per_rank else per_rank


def _kv_text(modes: dict[str, Any]) -> Optional[str]:
    tokens = modes.get("kv_tokens_per_rank")
    if tokens is None:
        return None
    recent = modes.get("kv_recent_tokens_per_rank")
    windows = "" if recent is None else f", {recent} in layers with a window"
    return f"{modes.get('kv_dtype')}, {tokens} tokens per rank{windows}"


def _demand_text(document: dict[str, Any]) -> Optional[str]:
    demand = (document.get("kv") or {}).get("demand")
    if not demand:
        return None
    text = f"up to {plural(demand['most_at_once'], 'sequence')} at once"
    if demand["parked"]:
        text += f"; parked {demand['parked']} times, {count(demand['parked_tokens'])} tokens"
    if demand.get("moved"):
        text += f"; moved {demand['moved']} times, {count(demand['moved_tokens'])} tokens"
    if demand.get("forgotten"):
        text += f"; forgotten {demand['forgotten']} times, {count(demand['reread_tokens'])} tokens read again"
    return text


def _drafts_text(document: dict[str, Any]) -> Optional[str]:
    drafts = document.get("drafts")
    if not drafts:
        return None
    text = f"{count(drafts['tried'])} tokens tried, {count(drafts['accepted'])} accepted"
    if drafts.get("computed_again"):
        text += f", {count(drafts['computed_again'])} rows computed again"
    if drafts.get("saved_s") is not None:
        word = "saved" if drafts["saved_s"] >= 0 else "lost"
        text += f"; about {duration(abs(drafts['saved_s']))} {word}, estimated from pass times"
    for name, shares in (
        ("by match", [(_match_text(of), of) for of in drafts.get("by_match") or []]),
        ("by instruction", [(_row_text(of), of) for of in drafts.get("by_instruction") or []]),
    ):
        parts = [f"{what} {_accepted_text(of)}" for what, of in shares]
        if len(parts) > 1:
            text += f"; {name}: {', '.join(parts)}"
    return text


def _match_text(drafts: dict[str, Any]) -> str:
    up_to = drafts["up_to"]
    return "longer" if up_to is None else f"up to {up_to} tokens"


def _row_text(drafts: dict[str, Any]) -> str:
    row = drafts["row"]
    return "others" if row is None else f"as row {row}"


def _accepted_text(drafts: dict[str, Any]) -> str:
    return f"{100 * drafts['accepted'] / max(1, drafts['tried']):.0f} %"


def _processor_text(machine: dict[str, Any]) -> Optional[str]:
    if "cpu" not in machine:
        return None
    cores = _if_known(machine.get("cores_of_a_rank"), ", {} cores per rank") or ""
    memory = _if_known(machine.get("memory_bytes_of_a_host"), ", {} per host", size) or ""
    instructions = _if_known(machine.get("isa"), " by {}") or ""
    return machine["cpu"] + instructions + cores + memory


def device_time_text(figures: dict[str, Any]) -> str:
    """ "3.1 core-hours"; nothing where an earlier version did not count them."""
    for key, device in (("gpu_hours", "GPU"), ("core_hours", "core")):
        hours = figures.get(key)
        if hours is not None:
            few = hours < 0.1
            return (
                f"{count(3600 * hours if few else hours)} {device}-{'seconds' if few else 'hours'}"
            )
    return ""


def _energy_text(document: dict[str, Any]) -> Optional[str]:
    energy = document.get("energy")
    if energy is None:
        return None
    parts = []
    for key, what in (("cpu", "processors and memory of all hosts"), ("gpu", "GPUs")):
        joules, each = energy[f"{key}_joules"], energy[f"{key}_joules_per_1000_tokens"]
        why = energy[f"why_no_{key}s"]
        if joules is not None:
            per = "" if each is None else f", {_spaced(each)}J per 1000 tokens"
            parts.append(f"{what} {_spaced(joules)}J{per}")
        elif why:
            parts.append(f"{what}: not readable here, {why}")
    return "; ".join(parts)


def _cost_text(document: dict[str, Any]) -> Optional[str]:
    cost = document.get("cost")
    if cost is None:
        return None
    parts = []
    for key, what in (("start", "this start"), ("all_starts", "all starts")):
        if cost[key] is not None and (key == "start" or len(document.get("starts") or []) > 1):
            parts.append(f"{what} {cost[key]['cost']:.4g} for {cost[key]['node_hours']:.3g} node-hours")
    return f"{'; '.join(parts)}, at {cost['node_hour_price']:g} a node-hour"


def _peak_text(document: dict[str, Any]) -> Optional[str]:
    peak = document.get("peak")
    if peak is None:
        return _if_known(document["peak_flops"], "{}FLOP/s, measured, all ranks", _spaced)
    text = f"{_spaced(peak['flops'])}FLOP/s of {peak['operands']}"
    if peak["from"] not in ("start", "end"):
        text += f", reached in {peak['from']}, more than was measured beside the run"
    text += f"; {peak['instructions']}, {peak['how']}"
    when = "by an earlier run of such ranks" if peak.get("kept") else "at the start"
    text += f"; {_spread_text(peak['start'], 'FLOP/s')} {when}"
    if peak["end"] is not None:
        text += f", {_spread_text(peak['end'], 'FLOP/s')} at the end"
    for instructions, why in peak["not_measured"].items():
        text += f"; {instructions} not measured: {why}"
    return text


def _bandwidth_text(document: dict[str, Any]) -> Optional[str]:
    peak = document.get("peak")
    if peak is None:
        return None
    return f"{_spread_text(peak['bandwidth'], 'B/s')}, {peak['bandwidth_how']}"


def _spread_text(rate: dict[str, Any], unit: str) -> str:
    windows = f"{rate['windows']} windows of {duration(rate['window_s'])}"
    return (
        f"{_spaced(rate['best'])}{unit} (best of {windows}, median {_spaced(rate['median'])}{unit},"
        f" least {_spaced(rate['least'])}{unit})"
    )


def _if_known(value: Any, form: str, text: Any = str) -> Optional[str]:
    return None if value is None else form.format(text(value))


def _spaced(number: float) -> str:
    text = count(number)
    return f"{text[:-1]} {text[-1]}" if text[-1].isalpha() else f"{text} "


def places(report: Report) -> Table:
    """Ranks by rack and host."""
    racks: dict[str, dict[str, list[int]]] = {}
    for rank in report.ranks:
        racks.setdefault(rank.rack, {}).setdefault(rank.host, []).append(rank.rank)
    return Table(
        ("rack", "host: ranks"),
        [
            (
                "unknown" if rack == "-" else rack,
                " · ".join(f"{host}: {ranges(ranks)}" for host, ranks in hosts.items()),
            )
            for rack, hosts in racks.items()
        ],
    )


def start(report: Report) -> Optional[Table]:
    """From main to the first pass, on rank 0."""
    phases = report.document.get("startup")
    if not phases:
        return None
    seconds = {
        name.removesuffix("_s").replace("_", " "): time
        for name, time in phases.items()
        if name != "main_unix_s"
    }
    seconds["all"] = sum(seconds.values())
    return Table(("part", "time"), [(name, duration(time)) for name, time in seconds.items()])


def teams(elastic: dict[str, Any]) -> Table:
    """What teams of each size did."""
    rows = []
    for of in elastic["degrees"]:
        if of["prefill_passes"] + of["decode_passes"] == 0:
            continue
        masters = f"{of['masters'] / of['decode_passes']:.1f}" if of["decode_passes"] else UNKNOWN
        rows.append(
            [
                str(of["instances"]),
                count(of["prefill_passes"]),
                count(of["prefill_tokens"]),
                count(of["decode_passes"]),
                count(of["decode_tokens"]),
                masters,
            ]
        )
    heads = (
        "instances",
        "passes with prompts",
        "tokens read",
        "passes of answers",
        "tokens answered",
        "masters in the mean",
    )
    return Table(heads, rows)


def sparse_levels(sparse: dict[str, Any]) -> Table:
    """What each level of sparse attention kept, sent and attended."""
    heads = ("level", "ranks, at most", "kept", "tokens sent", "outputs sent", "attention")
    return Table(
        heads,
        [
            (
                str(level["level"]),
                str(level["ranks_per_segment"]),
                percent(level["kept_share"]),
                size(level["token_bytes"]),
                size(level["output_bytes"]),
                percent(level["attention_pairs"] / (sparse["attention_pairs"] or 1)),
            )
            for level in sparse["levels"]
        ],
    )


def sparse_layers(sparse: dict[str, Any]) -> Table:
    """What each layer kept, by level."""
    levels = range(len(sparse["levels"]))

    def row(run: dict[str, Any]) -> tuple[str, ...]:
        shares = run["kept_share"] or [None for _ in levels]
        return (ranges(range(run["first"], run["last"] + 1)), *map(percent, shares))

    heads = ("layers", *(f"kept by level {level + 1}" for level in levels))
    return Table(heads, [row(run) for run in sparse["layers"]])


def sparse_against_dense(sparse: dict[str, Any]) -> Table:
    """Bytes and work of sparse attention beside those of dense attention."""

    def row(what: str, own: int, dense: int, text: Any) -> tuple[str, ...]:
        return (what, text(own), text(dense), percent(own / dense) if dense else UNKNOWN)

    rows = [row("bytes sent", sparse["sent_bytes"], sparse["dense_sent_bytes"], size)]
    by_link = {
        link: (sent, sparse["dense_sent_bytes_by_link"][link])
        for link, sent in sparse["sent_bytes_by_link"].items()
    }
    used = {link: both for link, both in by_link.items() if any(both)}
    if len(used) > 1:
        rows += [row(f"… {LEVELS[link]}", *both, size) for link, both in used.items()]
    rows.append(row("pairs of query and key", sparse["attention_pairs"], sparse["dense_attention_pairs"], count))
    return Table(("", "by levels", "dense", "share"), rows)


def starts(report: Report) -> Optional[Table]:
    """Every start of a run that was continued."""
    found = report.document.get("starts") or []
    if len(found) < 2:
        return None
    rows = [
        (
            time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(one["began_unix_s"])),
            duration(one["seconds"]),
            plural(one["gpus"], "GPU") if one["gpus"] else plural(one["cores"], "core"),
            f"{one['done']:,}",
            f"{one['failed']:,}",
            count(one["prompt_tokens"]),
            count(one["output_tokens"]),
        )
        for one in found
    ]
    sums = report.document["all_starts"]
    rows.append(
        (
            "all",
            duration(sums["seconds"]),
            device_time_text(sums),
            f"{sums['done']:,}",
            f"{sums['failed']:,}",
            count(sums["prompt_tokens"]),
            count(sums["output_tokens"]),
        )
    )
    return Table(("began", "time", "on", "done", "failed", "tokens read", "written"), rows)


def stages(report: Report) -> Table:
    """Where the time of all ranks went, by span."""
    own = sorted(
        (stage for stage in report.stages if stage.kind != "phase"), key=lambda s: -s.seconds
    )
    total = sum(stage.seconds for stage in own) or 1
    rest = own[SHOWN_STAGES:]
    after = (
        f"{plural(len(rest), 'more span name')}: {percent(sum(s.seconds for s in rest) / total)}."
        if rest
        else ""
    )
    words = {"comm": "communication"}
    return Table(
        ("span", "kind", "count", "time", "share"),
        [
            (
                s.name,
                words.get(s.kind, s.kind),
                str(s.count),
                duration(s.seconds),
                percent(s.seconds / total),
            )
            for s in own[:SHOWN_STAGES]
        ],
        after,
    )


def links(report: Report) -> Table:
    def row(link: Link) -> tuple[str, ...]:
        level = LEVELS.get(link.level, link.level)
        return (link.pattern, level, f"{link.messages:,}", size(link.bytes), f"{link.bytes:,}")

    return Table(
        ("group", "links", "messages", "sent", "in bytes"), [row(link) for link in report.links]
    )


def declared(report: Report) -> Table:
    """Bytes that the links of a group carried, and those that its schedules declare, per group that has both."""
    rows = []
    for pattern, names in DECLARED_BY.items():
        carried = sum(link.bytes for link in report.links if link.pattern == pattern)
        of_passes = sum(_bytes_of(report.stages, name) for name in names)
        if carried and of_passes:
            more = carried - of_passes
            rows.append((pattern, f"{carried:,}", f"{of_passes:,}", f"{more:,}" if more else "none"))
    return Table(("group", "bytes on its links", "by the passes", "difference"), rows)


def _bytes_of(stages: Sequence[Stage], name: str) -> int:
    return sum(stage.bytes for stage in stages if stage.name == name)


def failures(run: RunFolder) -> Optional[Table]:
    """None without results.h5, which has the reasons."""
    if run.turns is None:
        return None
    turns = run.turns
    failed = np.flatnonzero(turns.state == FAILED)
    more = len(failed) - SHOWN_FAILURES
    return Table(
        ("request", "turn", "reason"),
        [
            (_text(turns.request_id[i]), str(turns.turn[i]), _text(turns.error[i]) or UNKNOWN)
            for i in failed[:SHOWN_FAILURES]
        ],
        f"{more} more: scripts/pecia-text --jsonl --only failed lists all." if more > 0 else "",
    )


def _text(value: bytes) -> str:
    return value.rstrip(b"\0").decode("utf-8", errors="replace")


def predictions(report: Report) -> Optional[Table]:
    """Each predicted number beside the measured one that has the same place in report.json."""
    if not report.predicted:
        return None
    rows = []
    for path, value in _numbers(report.predicted):
        measured: Any = report.document
        for key in path:
            measured = measured.get(key) if isinstance(measured, dict) else None
        known = isinstance(measured, (int, float)) and not isinstance(measured, bool)
        off = percent(value / measured - 1) if known and measured else UNKNOWN
        rows.append((".".join(path), f"{value:.4g}", f"{measured:.4g}" if known else UNKNOWN, off))
    return Table(("number", "predicted", "measured", "predicted is off by"), rows)


def _numbers(value: Any, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], float]]:
    if isinstance(value, dict):
        return [
            found for key, inner in value.items() for found in _numbers(inner, (*path, str(key)))
        ]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return [(path, float(value))]
    return []
