# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import tempfile
import unittest
from pathlib import Path
from typing import Any

from pecia_tools.command import UserError
from pecia_tools.runs.yields import read_yields
from run_folder import curve, span, write_trace, yielded


class ReadYieldsTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def read(self, *events: dict[str, Any]) -> Any:
        write_trace(self.folder, 0, [span("a", "compute", 0, 3), *events])
        return read_yields(self.folder, None)

    def test_sequences_of_all_replicas_over_time(self) -> None:
        found = self.read(curve(1, 0, 4, 0, 0), curve(2, 1, 3, 1, 0), curve(3, 0, 2, 1, 1))
        self.assertEqual(found.times_s.tolist(), [1, 2, 3])
        self.assertEqual(found.sequences.tolist(), [[4, 7, 5], [0, 1, 2], [0, 0, 1]])

    def test_the_journal_is_played(self) -> None:
        found = self.read(
            curve(1, 0, 1, 0, 0),
            yielded("parked", 3, 40),
            yielded("parked", 3, 50, replica=1),  # another sequence
            yielded("returned", 3, 40),
            yielded("moved", 3, 8),
            yielded("parked", 3, 48),
            yielded("forgotten", 3, 48),
            yielded("read again", 3, 48),
        )
        self.assertEqual(found.kinds["parked"], 3)

    def test_a_journal_that_contradicts_itself(self) -> None:
        for journal, said in (
            ([yielded("returned", 3, 40)], "sequence 3 of replica 0 is returned before pass 2, but it was in the"),
            ([yielded("parked", 3, 40)] * 2, "is parked before pass 2, but it was parked"),
            ([yielded("parked", 3, 40), yielded("returned", 3, 41)], "is returned before pass 2"),
            ([yielded("forgotten", 3, 4), yielded("returned", 3, 4)], "but it was forgotten"),
        ):
            with self.subTest(said=said), self.assertRaisesRegex(UserError, said):
                self.read(curve(1, 0, 1, 0, 0), *journal)

    def test_runs_that_reserved_have_none(self) -> None:
        self.assertIsNone(self.read())


if __name__ == "__main__":
    unittest.main()
