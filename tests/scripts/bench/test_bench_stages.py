# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from pecia_tools.bench import stages
from pecia_tools.bench.stages import MIB, MemoryGroup
from support import ScriptTest, printed


def line(ranks: int, code: int, own: list[int]) -> dict[str, Any]:
    return {
        "ranks": ranks, "weight_bytes": 300 * MIB, "limit_bytes": 100 * MIB, "exit_code": code, "said": "too large",
        "own_bytes": [each * MIB for each in own], "peak_bytes": [(each + 1) * MIB for each in own],
    }  # fmt: skip


class Groups(ScriptTest):
    def setUp(self) -> None:
        super().setUp()
        self.play("pecia_tools.bench.stages", CGROUPS=self.folder)

    def test_a_group_has_a_limit_and_knows_the_most_that_was_used(self) -> None:
        (self.folder / "memory").mkdir()
        group = MemoryGroup.make("g", 12345)
        self.assertEqual(group.folder, self.folder / "memory" / "g")
        self.assertEqual((group.folder / "memory.limit_in_bytes").read_text(), "12345")
        for own in (5, 9, 7):
            (group.folder / "memory.stat").write_text(f"cache 3\ntotal_rss {own}\n")
            group.sample()
        self.assertEqual(group.own_bytes, 9)
        (group.folder / "memory.max_usage_in_bytes").write_text("11\n")
        self.assertEqual(group.peak_bytes(), 11)

    def test_version_2_has_no_folder_for_memory(self) -> None:
        group = MemoryGroup.make("g", 1)
        self.assertEqual(group.folder, self.folder / "g")
        self.assertEqual((group.folder / "memory.max").read_text(), "1")

    def test_is_refused_where_none_can_be_made(self) -> None:
        self.play("pecia_tools.bench.stages", CGROUPS=self.folder / "absent")
        self.assert_refused("no memory cgroup", "run as root", call=lambda: MemoryGroup.make("g", 1))


class Tables(ScriptTest):
    def test_weights_stand_beside_the_most_of_a_rank(self) -> None:
        lines = [line(4, 0, [80, 75, 75, 78]), line(1, 2, [5]), line(1, 137, [100])]
        out = printed(stages.tables, lines)
        self.assertIn("| 4 | 300 | 100 | 80, 75, 75, 78 | 81, 76, 76, 79 | 3.75 | answers as one rank", out)
        self.assertIn("| 1 | 300 | 100 | 5 | 6 | – | refused |", out)
        self.assertIn("| – | killed (137) |", out)
        self.assertIn("The refusal: too large", out)
