# SPDX-License-Identifier: Apache-2.0
import json
import math
from unittest import mock

import h5py
import numpy as np

from pecia_tools.report.figures import ring_transfers
from pecia_tools.runs import trace as trace_module
from pecia_tools.runs.folder import read_run
from pecia_tools.runs.throughput import followup, starts_s, throughput, why_unknown
from pecia_tools.runs.trace import BINS, LayerSpan, Trace, read_trace
from run_folder import (
    FAILED,
    OPEN,
    PARTIAL,
    full_events,
    full_trace,
    make_run,
    report_json,
    span,
    trace_text,
    turn,
    write_merged_trace,
    write_trace,
)
from support import ScriptTest


class Facts(ScriptTest):
    def test_rank_carries_its_rack_and_phases_their_speed(self) -> None:
        run = read_run(make_run(self.folder, [turn("a"), turn("b")], report_json(ranks=6)))
        self.assertEqual([r.rack for r in run.report.ranks], ["rack0"] * 4 + ["rack1"] * 2)
        self.assertEqual(run.report.phases["prefill"].share_of_peak, 0.25)
        self.assertEqual(run.report.tbt_s.p90, 0.6)

    def test_time_between_tokens_is_of_the_gaps(self) -> None:
        rows = [
            turn("five"),
            turn("one", tokens=[7]),
            turn("half", PARTIAL),
            turn("bad", FAILED, error="too long"),
        ]
        between = read_run(make_run(self.folder, rows)).turns.between_tokens_s()
        self.assertEqual(between[0], 0.5)
        self.assertTrue(np.isnan(between[1:]).all())

    def test_prompt_length_has_the_cached_tokens(self) -> None:
        turns = read_run(make_run(self.folder, [turn("a", cached=40)])).turns
        self.assertEqual(turns.prompt_length.tolist(), [140])

    def test_turns_know_the_first_of_their_request(self) -> None:
        rows = [turn("a"), turn("a", turn=1), turn("b"), turn("c"), turn("c", turn=1)]
        self.assertEqual(
            read_run(make_run(self.folder, rows)).turns.first.tolist(), [0, 0, 2, 3, 3]
        )

    def test_folders_that_are_no_run(self) -> None:
        self.assert_refused(
            "absent", "no such folder", call=lambda: read_run(self.folder / "absent")
        )
        self.assert_refused(
            "neither report.json nor results.h5", "output", call=lambda: read_run(self.folder)
        )

    def test_reports_that_cannot_be_read(self) -> None:
        for text, parts in (
            ("{", ("report.json", "not JSON")),
            ('{"schema": "x/1"}', ("'x/1'", "pecia.report/1")),
            (
                json.dumps({k: v for k, v in report_json().items() if k != "phases"}),
                ("report.json", "'phases'", "another version"),
            ),
        ):
            self.write("report.json", text)
            self.assert_refused(*parts, call=lambda: read_run(self.folder))

    def test_results_without_times_are_of_another_version(self) -> None:
        make_run(self.folder, [turn("a")])
        with h5py.File(self.folder / "results.h5", "a") as file:
            del file["ttft_s"]
        self.assert_refused("ttft_s", "another version", call=lambda: read_run(self.folder))


class OverTime(ScriptTest):
    def test_tokens_are_spread_over_prefill_and_decode(self) -> None:
        run = read_run(make_run(self.folder, [turn("a", tokens=[7] * 7), turn("bad", FAILED)]))
        rates = throughput(run.turns, None, bins=4)
        self.assertEqual(rates.edges_s.tolist(), [0, 1, 2, 3, 4])
        self.assertEqual(rates.prefill.tolist(), [50, 50, 0, 0])
        self.assertEqual(rates.decode.tolist(), [0, 0, 3, 3])

    def test_no_token_is_lost_in_bins(self) -> None:
        rows = [turn(f"r{i}", queue=0.37 * i, ttft=0.1 + 0.05 * i) for i in range(9)]
        rates = throughput(read_run(make_run(self.folder, rows)).turns, None)
        self.assertAlmostEqual(float(rates.prefill.sum() * rates.edges_s[1]), 900, places=3)
        self.assertAlmostEqual(float(rates.decode.sum() * rates.edges_s[1]), 36, places=3)

    def test_turns_of_a_chain_follow_one_another(self) -> None:
        rows = [turn("a", queue=1), turn("a", turn=1, queue=0.5), turn("a", turn=2), turn("b")]
        turns = read_run(make_run(self.folder, rows)).turns
        self.assertEqual(starts_s(turns, "chain").tolist(), [1, 5.5, 9.5, 0])

    def test_turns_of_a_fork_follow_the_document(self) -> None:
        rows = [
            turn("a", queue=1, slots=0, tokens=[], decode=0),
            turn("a", turn=1),
            turn("a", turn=2, queue=4),
        ]
        run = read_run(make_run(self.folder, rows))
        self.assertEqual(followup(run), "fork")
        self.assertEqual(starts_s(run.turns, "fork").tolist(), [1, 3, 7])

    def test_followup_is_read_from_the_shard(self) -> None:
        make_run(self.folder, [turn("a"), turn("a", turn=1)])
        self.assertIn("prompt shards", why_unknown(read_run(self.folder)))
        with h5py.File(self.folder / "prompts.h5", "w") as file:
            file.attrs["followup"] = "chain"
        with h5py.File(self.folder / "results.h5", "a") as file:
            file.attrs["inputs"] = json.dumps([str(self.folder / "prompts.h5")])
        self.assertIsNone(why_unknown(read_run(self.folder)))

    def test_several_clocks_are_not_put_on_one_axis(self) -> None:
        report = report_json()
        rows = [turn("a"), turn("b"), turn("c")]
        self.assertIn("1 of 3 turns", why_unknown(read_run(make_run(self.folder, rows, report))))
        report["job"]["batch"] = {"arrivals": "replay"}
        self.assertIn("arrival", why_unknown(read_run(make_run(self.folder, rows[:2], report))))
        self.assertIn(
            "No turn", why_unknown(read_run(make_run(self.folder / "new", [turn("a", OPEN)])))
        )


class Traces(ScriptTest):
    def seconds(self, shares: np.ndarray, trace: Trace) -> list[list[float]]:
        return (shares.sum(axis=2) * trace.end_s / BINS).round(9).tolist()

    def test_time_by_kind_and_phase(self) -> None:
        full_trace(self.folder, ranks=2)
        trace = read_trace(self.folder, None)
        self.assertTrue(trace.is_full)
        self.assertEqual(trace.end_s, 2.0)
        self.assertEqual(self.seconds(trace.kinds, trace), [[1.2, 0.4, 0.4]] * 2)
        self.assertEqual(self.seconds(trace.phases, trace), [[1.2, 0, 0.4]] * 2)
        # 1.6 to 2 s is the last fifth: idle, and nothing else.
        np.testing.assert_allclose(trace.kinds[0, 2], np.arange(BINS) >= 0.8 * BINS, atol=1e-9)

    def test_bins_share_a_span_that_crosses_them(self) -> None:
        events = [span("a", "compute", 0, 0.25), span("b", "idle", 0.25, BINS * 0.1)]
        write_trace(self.folder, 0, events)
        trace = read_trace(self.folder, None)
        np.testing.assert_allclose(trace.kinds[0, 0, :4], [1, 1, 0.5, 0], atol=1e-9)
        np.testing.assert_allclose(trace.kinds[0, 2, :4], [0, 0, 0.5, 1], atol=1e-9)

    def test_line_as_a_run_wrote_it(self) -> None:
        self.write(
            "rank-00001.json",
            '{"displayTimeUnit":"ms","traceEvents":[\n'
            '{"name":"process_name","ph":"M","pid":0,"tid":1,"args":{"name":"replica 0"}},\n'
            '{"name":"prefill/layer 10/ring_pass_kv","cat":"comm","ph":"X","ts":1218805.045,"dur":2.664,'
            '"pid":0,"tid":1,"args":{"pass":0,"bytes":168960,"flops":0}},\n'
            '{"name":"prefill","cat":"phase","ph":"X","ts":1000000.000,"dur":500000.000,'
            '"pid":0,"tid":1,"args":{"pass":0,"bytes":0,"flops":0}},\n'
            '{"name":"ring_rule","cat":"note","ph":"i","s":"t","ts":7.5,"pid":0,"tid":1,'
            '"args":{"pass":0,"ranks":4.0,"outcome":"pass_kv"}}\n'
            '],"otherData":{"ranks":1,"dropped_spans":3}}\n',
        )
        trace = read_trace(self.folder, None)
        self.assertEqual((trace.ranks, trace.end_s, trace.dropped), ([1], 1.5, 3))
        (found,) = trace.layer.spans
        self.assertEqual((found.rank, found.name, found.bytes), (1, "ring_pass_kv", 168960))
        self.assertAlmostEqual(found.end_s, 1.218807709)

    def test_layer_is_the_middle_one_of_the_longest_prompt(self) -> None:
        for rank, replica in ((0, 0), (1, 0), (2, 1)):
            events = []
            for number, length in ((0, 0.1), (1, 0.3), (2, 5.0)):
                phase = "decode" if number == 2 else "prefill"
                for layer in (1, 11, 21):
                    name = f"{phase}/layer {layer}/attention"
                    events.append(
                        span(name, "compute", number, number + length, number, replica=replica)
                    )
                events.append(
                    span(phase, "phase", number, number + length, number, replica=replica)
                )
            write_trace(self.folder, rank, events)
        layer = read_trace(self.folder, None).layer
        self.assertEqual((layer.phase, layer.number, layer.layer), ("prefill", 1, 11))
        self.assertEqual(
            [(s.rank, s.name, s.begin_s) for s in layer.spans],
            [(0, "attention", 1), (1, "attention", 1)],
        )

    def test_pieces_and_processes_change_nothing(self) -> None:
        full_trace(self.folder, ranks=3)
        whole = read_trace(self.folder, None)
        with mock.patch.object(trace_module, "PIECE_BYTES", 300):
            pieces = read_trace(self.folder, None)
        np.testing.assert_allclose(pieces.kinds, whole.kinds, atol=1e-12)
        self.assertEqual(pieces.layer, whole.layer)

    def test_end_is_found_before_many_notes(self) -> None:
        note = {"name": "ring_rule", "cat": "note", "ph": "i", "ts": 9e6, "args": {"pass": 0}}
        write_trace(self.folder, 0, [span("a", "compute", 0, 3), *[note] * 200])
        self.assertEqual(read_trace(self.folder, None).end_s, 3)

    def test_summary_has_no_steps(self) -> None:
        write_trace(
            self.folder, 0, [span("prefill", "phase", 0, 1), span("decode", "phase", 1, 4, 1)]
        )
        trace = read_trace(self.folder, None)
        self.assertFalse(trace.is_full)
        self.assertIsNone(trace.layer)
        self.assertEqual(self.seconds(trace.phases, trace), [[1, 0, 3]])

    def test_files_of_an_earlier_start_are_left_out(self) -> None:
        full_trace(self.folder, ranks=4)
        self.assertEqual(read_trace(self.folder, 2).ranks, [0, 1])
        self.assertIsNone(read_trace(self.folder / "absent", 2))

    def test_cut_file_is_named(self) -> None:
        path = write_trace(self.folder, 0, [span("a", "compute", 0, 1)])
        path.write_bytes(path.read_bytes()[:-20])
        self.assert_refused(
            "rank-00000.json.gz", "cut short", call=lambda: read_trace(self.folder, None)
        )
        path.unlink()
        plain = trace_text([span("a", "compute", 0, 1)])
        self.write("rank-00003.json", plain[:-20])
        self.assert_refused(
            "rank-00003.json", "cut short", call=lambda: read_trace(self.folder, None)
        )

    def test_one_file_of_all_ranks_says_the_same_as_a_file_of_each(self) -> None:
        full_trace(self.folder / "apart", ranks=3)
        write_merged_trace(self.folder / "merged", [full_events()] * 3)
        apart, merged = (read_trace(self.folder / name, 3) for name in ("apart", "merged"))
        self.assertEqual((merged.ranks, merged.end_s), ([0, 1, 2], 2.0))
        np.testing.assert_array_equal(merged.kinds, apart.kinds)
        np.testing.assert_array_equal(merged.phases, apart.phases)
        self.assertEqual(merged.layer, apart.layer)

    def test_files_of_ranks_are_newer_than_one_of_all(self) -> None:
        write_merged_trace(self.folder, [[span("old", "compute", 0, 9)]] * 2)
        write_trace(self.folder, 0, [span("a", "compute", 0, 3)])
        self.assertEqual(read_trace(self.folder, None).end_s, 3)

    def test_traces_of_earlier_versions_are_read(self) -> None:
        self.write("rank-00000.json", trace_text([span("a", "compute", 0, 3)]))
        self.write("trace.json", "a copy")
        trace = read_trace(self.folder, None)
        self.assertEqual((trace.ranks, trace.end_s), ([0], 3))

    def test_transfer_is_beside_the_attention_before_its_wait(self) -> None:
        full_trace(self.folder, ranks=1)
        (transfer,) = ring_transfers(read_trace(self.folder, None).layer.spans)
        self.assertTrue(math.isclose(transfer.begin_s, 0.4) and math.isclose(transfer.end_s, 0.6))
        alone = LayerSpan(0, "ring_pass_q", "comm", 0, 1, 8)
        self.assertEqual(ring_transfers([alone]), [])
