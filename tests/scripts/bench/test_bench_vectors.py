# SPDX-License-Identifier: Apache-2.0
"""What `bench vectors` measures: its pieces and its table. Both programs are played."""

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from pecia_tools.bench import vectors as bench_vectors
from pecia_tools.bench.vectors import OWN, PEER, Bench, parse, pieces, rows
from pecia_tools.runs.prompt_shard import PromptShard
from support import PROSE, ScriptTest, make_model, quietly


class Pieces(ScriptTest):
    def test_are_of_all_texts_and_begin_where_a_line_does(self) -> None:
        texts = ["one two three\n\nfour five\n", "six\n"]
        found = pieces(texts, 40)
        self.assertEqual(len(found), 40)
        self.assertEqual(found, pieces(texts, 40))
        lengths = [len(piece.split()) for piece in found]
        self.assertTrue(all(100 <= length <= 300 for length in lengths), lengths)
        self.assertGreater(len(set(lengths)), 20)
        self.assertEqual({piece.split()[0] for piece in found[::2]}, {"one", "four"})
        self.assertEqual({*" ".join(found[1::2]).split()}, {"six"})

    def test_what_cannot_be_is_refused(self) -> None:
        self.assert_refused("--dtypes: 'int8'", call=lambda: parse(["--dtypes", "fp32,int8"]))
        self.assert_refused("no such file", call=lambda: parse(["--text", str(self.folder / "none")]))
        self.assert_refused("is empty", call=lambda: pieces(["a", " \n"], 1))


class Rounds(ScriptTest):
    def bench(self) -> Bench:
        self.play("pecia_tools.bench.common", ROOT=self.folder)
        text = self.folder / "text"
        text.write_text(PROSE)
        model = make_model(self.folder / "tiny")
        words = ["--pieces", "3", "--rounds", "2", "--text", str(text), "--model", str(model)]
        return Bench(parse(words))

    def test_both_take_turns_and_the_faster_batch_counts(self) -> None:
        bench = self.bench()
        called: list[str] = []

        def own(*command: Any, **_: Any) -> int:
            called.append(OWN)
            job = json.loads(Path(command[-1]).read_text())
            self.assertEqual((job["produce"], job["vector"]), ("vector", {"pool": "mean"}))
            self.assertEqual(job["model"]["compute"], "fp32")
            output = Path(job["output"])
            output.mkdir()
            with h5py.File(output / "results.h5", "w") as file:
                file["vectors"] = np.full((3, 4), 0.5, np.float32)
            startup = {"mpi_s": 5, "read_job_s": 1, "weights_s": 2}
            (output / "report.json").write_text(json.dumps({"seconds": 4.5, "startup": startup}))
            return 0

        def peer(command: list[Any], *_: Any, **environment: str) -> float:
            called.append(PEER)
            texts = json.loads(Path(command[command.index("--texts") + 1]).read_text())
            self.assertEqual((len(texts), command[command.index("--dtype") + 1]), (3, "float32"))
            np.save(command[command.index("--output") + 1], np.full((3, 4), 0.5 + 2**-10, np.float32))
            lines = [{"batch": 8, "seconds": 3, "versions": {}}, {"batch": 32, "seconds": 2.5, "versions": {}}]
            text = "".join(json.dumps(line) + "\n" for line in lines)
            Path(command[command.index("--json") + 1]).write_text(text)
            return 0

        self.play(bench_vectors.__name__, start=peer, set_up=lambda name: None)
        bench.work.build = lambda *targets: None
        bench.work.logged = own
        quietly(lambda _: bench.prepare() or 0)
        self.assertEqual(PromptShard(bench.work.folder / "texts.h5").num_requests, 3)
        found: list[Any] = []
        quietly(lambda _: found.extend(bench.rounds()) or 0)
        self.assertEqual(called, [OWN, PEER] * 2)
        self.assertEqual([line["seconds"] for line in found], [1.5, 2.5] * 2)
        table = rows(found, bench.vectors, 3)
        self.assertEqual(table, [[OWN, "fp32", "2.00", "0.0e+00"], [PEER, "fp32", "1.20", "9.8e-04"]])
