# SPDX-License-Identifier: Apache-2.0
"""
Random damage to one file of a good job: whatever `pecia run --validate` then says, it ends by itself
with 0, 2 or 3, soon and within two gigabytes. The damage depends on kind and case alone; a failure
names both.
"""

from __future__ import annotations

import os
import random
import struct
import subprocess
import unittest
from pathlib import Path

from support import BadInputTest, command, limit_memory

CASES = int(os.environ.get("PECIA_FUZZ_CASES", "33"))
# A sanitizer reserves more addresses than any limit.
LIMITS = None if os.environ.get("PECIA_FUZZ_WITHOUT_LIMIT") else limit_memory
JOB = """\
# A job with most keys.
model: {path: model, dtype: auto, compute: fp32, rope_scaling: {type: yarn, factor: 2.0}}
input:
  - prompts/*.h5
output: 'run'
parallel: {dp: 1, cp: auto}
generation:
  max_new_tokens: 3
  temperature: 0.5
  stop_token_ids: [2, 3]
  ignore_eos: false
kv: {dtype: "bf16", memory: 1GiB}
limits: {wall_time: 1h30m, grace: 60s}
"""


def damaged(content: bytes, begin: int, end: int, chance: random.Random) -> bytes:
    """A few flipped, replaced, removed or repeated bytes within [begin, end), or the file cut there."""
    if chance.random() < 0.2:
        return content[: chance.randrange(begin, end)]
    changed = bytearray(content)
    for _ in range(chance.choice((1, 1, 2, 4, 16))):
        at = chance.randrange(begin, min(end, len(changed)))
        kind = chance.randrange(5)
        if kind == 0:
            changed[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            changed[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, *b'{}[]",:-*&!?#\n0 9'))
        elif kind == 2:
            changed[at : at + 8] = struct.pack("<Q", chance.choice((0, 1, 2**31, 2**40, 2**63, 2**64 - 1)))
        elif kind == 3:
            del changed[at : at + chance.randrange(1, 9)]
        else:
            changed[at:at] = changed[at : at + chance.randrange(1, 40)] * chance.randrange(1, 5)
    return bytes(changed)


class Fuzz(BadInputTest):
    def survive(self, kind: str, path: Path, begin: int, end: int) -> None:
        content = path.read_bytes()
        seen = set()
        for case in range(CASES):
            chance = random.Random(f"{kind} {case}")
            path.write_bytes(damaged(content, begin, min(end, len(content)), chance))
            with self.subTest(kind=kind, case=case):
                try:
                    ended = command("run", "--validate", self.job, prepare=LIMITS)
                except subprocess.TimeoutExpired:
                    self.fail(f"{kind} {case} hangs")
                seen.add(ended.code)
                self.assertIn(ended.code, (0, 2, 3), ended)
                if ended.code == 2:
                    self.assert_refusal(ended, "pecia: ")
        self.assertIn(2, seen, "no damage was found")

    def test_safetensors_header(self) -> None:
        path = self.model / "model.safetensors"
        (length,) = struct.unpack("<Q", path.read_bytes()[:8])
        self.survive("safetensors", path, 0, 8 + length)

    def test_shard(self) -> None:
        self.survive("shard", self.shard, 0, 1 << 40)

    def test_job(self) -> None:
        self.job.write_text(JOB)
        self.survive("job", self.job, 0, 1 << 40)

    def test_the_undamaged_are_valid(self) -> None:
        self.job.write_text(JOB)
        ended = command("run", "--validate", self.job, prepare=LIMITS)
        self.assertEqual(ended.code, 0, ended)


if __name__ == "__main__":
    unittest.main()
