# SPDX-License-Identifier: Apache-2.0
"""Damaged lines of JSON between whole ones: each becomes a request or is named with its line, and no other changes."""

import json
import os
import random
import re

import h5py

from pecia_tools.pack import main as pack
from pecia_tools.runs.prompt_shard import PromptShard
from support import ScriptTest, make_model, quietly, read_turns

SEED = int(os.environ.get("PECIA_TEST_SEED", "20261127"))
CASES = int(os.environ.get("PECIA_FUZZ_CASES", "1000"))
LINES_AT_ONCE = 200

USER = {"role": "user", "content": "Hello é"}
BEGUN = {"role": "assistant", "content": "So", "prefix": True}
SAMPLING = {
    **{"temperature": 0.5, "top_p": 0.9, "top_k": 3, "min_p": 0.1, "seed": 7, "max_tokens": 5},
    **{"presence_penalty": 1, "frequency_penalty": -1, "repetition_penalty": 1.1},
    **{"ignore_eos": True, "logit_bias": {"5": -1.5}, "stop": ["\n"], "n": 2},
}
FORMS = [
    {"id": "a", "prompt": "text", **SAMPLING},
    {"text": "text", "arrival_s": 0.5},
    {"id": "b", "turns": ["one", {"prompt": "two", "max_tokens": 3}], "system": "s"},
    {"messages": [USER], **SAMPLING},
    {"messages": [USER, BEGUN], "chat_template_kwargs": {"enable_thinking": False}},
    {"custom_id": "c", "body": {"messages": [USER], **SAMPLING}},
    {"body": {"prompt": [3, 5, 7]}},
    {
        **{"custom_id": "d", "method": "POST", "url": "/v1/chat/completions"},
        "body": {
            "model": "tiny",
            "messages": [{"role": "user", "content": [{"type": "text", "text": "part"}]}],
            "response_format": {
                "type": "json_schema",
                "json_schema": {"schema": {"type": "object"}},
            },
            "stream": False,
        },
    },
    {"custom_id": "e", "url": "/v1/completions", "body": {"prompt": "text", "echo": False}},
]
NASTY = [
    *(None, True, False, 0, -1, 1, 2**31, -(2**63), 2**64, 10**300, 0.5, 1e-320, 1e308),
    *("", " ", "\0", "\ud800", "\x1b[2J", "\u202e", "a\nb", "x" * 5000, "PeciaContinuesx"),
    *([], {}, [[]], [None], {"": None}, ["x"], [1, 2], {"role": "user"}, {"5": 1}),
]
WRITTEN = {  # values that json.dumps does not write, for the texts that stand for them
    "@nan": b"NaN",
    "@infinity": b"-Infinity",
    "@large": b"1e999",
    "@long": b"9" * 5000,
    "@deep": b"[" * 2000 + b"]" * 2000,
    "@hidden": b'{"a":' * 300 + b"1" + b"}" * 300,
    "@twice": b'{"a": 1, "a": 2}',
    "@half": b'"\\ud800"',
}
NASTY += list(WRITTEN)
RAW = [
    *(b"NaN", b"1e999", b"9" * 5000, b"[" * 2000, b'{"a":' * 300),
    *(b"\x00", b"\xff", b"\xed\xa0\x80", b"\r", b"\x1b", b'"', b"\\", b"{", b"}", b"[", b"]"),
    *(
        b",",
        b":",
        b"\\u0000",
        b"\\ud83d",
        b'"id":"a",',
        b'"n":1,',
        b"null",
        b"-0",
        b"1.",
        b"\xef\xbb\xbf",
    ),
]
TEMPLATE = (
    "{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
    "{%- endfor %}{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
    "{%- if enable_thinking is defined and not enable_thinking %}quick{% endif %}"
)


class Damage:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def line(self) -> bytes:
        """A valid line with some of its values replaced and bytes changed; no line end."""
        value = json.loads(json.dumps(self._random.choice(FORMS)))
        for _ in range(self._random.choice((0, 1, 1, 2, 4))):
            self._change(value)
        data = json.dumps(value, ensure_ascii=self._random.random() < 0.5).encode(
            errors="surrogatepass"
        )
        for text, written in WRITTEN.items():
            data = data.replace(f'"{text}"'.encode(), written)
        for _ in range(self._random.choice((0, 0, 0, 0, 1, 3))):
            begin = self._random.randrange(len(data) + 1)
            end = min(len(data), begin + self._random.choice((0, 0, 1, 5)))
            piece = self._random.choice(
                (
                    self._random.choice(RAW),
                    bytes([self._random.randrange(160)]),
                    data[begin:end] * 2,
                )
            )
            data = data[:begin] + piece + data[end:]
        return data.replace(b"\n", b" ")

    def _change(self, value: object) -> None:
        """One value at any depth, or a key."""
        places: list[tuple[object, object]] = []
        waiting = [value]
        while waiting:
            found = waiting.pop()
            inside = found.items() if isinstance(found, dict) else enumerate(found)
            for key, child in inside:
                places.append((found, key))
                if isinstance(child, (dict, list)):
                    waiting.append(child)
        if not places:
            return
        container, key = self._random.choice(places)
        other = json.loads(json.dumps(self._random.choice(NASTY)))
        action = self._random.random()
        if isinstance(container, dict) and action < 0.3:
            container[self._random.choice((*SAMPLING, "text", "tools", "body", "\x1b", ""))] = other
        elif action < 0.4:
            del container[key]  # type: ignore[attr-defined]
        else:
            container[key] = other  # type: ignore[index]


class JsonlFuzz(ScriptTest):
    def test_damage_stays_in_its_line(self) -> None:
        model = make_model(self.folder / "tiny", TEMPLATE)
        whole = [{"id": f"whole-{n}", "text": f"neighbour {n}"} for n in range(LINES_AT_ONCE)]
        shard = self.folder / "out.h5"
        for first in range(0, CASES, LINES_AT_ONCE):
            seed = SEED + first
            with self.subTest(f"PECIA_TEST_SEED={seed}"):
                damage = Damage(seed)
                lines: list[bytes] = []
                for neighbour in whole:
                    lines += [damage.line(), json.dumps(neighbour).encode()]
                path = self.write("in.jsonl", b"\n".join(lines))
                command = ("--model", model, "--output", shard, "--force", "--skip-bad", path)
                code, _, said = quietly(pack.main, *command)
                self.check(path, shard, lines, code, said)

    def check(self, path: object, shard: object, lines: list[bytes], code: int, said: str) -> None:
        skipped = PromptShard(shard).skipped()
        numbers = [int(re.match(r".*\.jsonl:(\d+)", row.where).group(1)) for row in skipped]
        self.assertEqual(len(set(numbers)), len(numbers))
        self.assertEqual(code, 3 if skipped else 0)
        self.assertNotRegex(said, "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ud800-\udfff]")
        self.assertTrue(all(row.custom_id and row.message for row in skipped))
        listed = shard.with_name("out.h5.skipped.txt").read_text(encoding="utf-8")
        self.assertEqual(listed.count("\n"), len(skipped))
        turns = read_turns(shard)
        with h5py.File(shard) as file:
            ids = file["custom_id" if "custom_id" in file else "request_id"][:]
        blank = sum(not line.strip() for line in lines)
        self.assertEqual(len(set(ids)) + len(skipped), len(lines) - blank)
        for number in range(LINES_AT_ONCE):
            self.assertNotIn(2 * number + 2, numbers)
            self.assertEqual(turns[f"whole-{number}"], [self.neighbour(number)])

    def neighbour(self, number: int) -> list[int]:
        if not hasattr(self, "_alone"):
            lines = [{"id": str(n), "text": f"neighbour {n}"} for n in range(LINES_AT_ONCE)]
            path, shard = self.write_lines("alone.jsonl", *lines), self.folder / "alone.h5"
            quietly(pack.main, "--model", self.folder / "tiny", "--output", shard, path)
            self._alone = read_turns(shard)
        return self._alone[str(number)][0]
