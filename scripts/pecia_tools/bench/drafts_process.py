# SPDX-License-Identifier: Apache-2.0
"""drafts_process transformers FOLDER --dtype bfloat16 OPTIONS: drafts from the prompt, in a process of its own.
drafts_process llama.cpp FILE OPTIONS

Runs with the Python of build/peers, where this project's packages are not. Answers each prompt of --prompts (a JSON
list of lists of tokens) alone, greedily, without drafts and with drafts of each length of --drafts: prompt lookup
decoding of transformers, LlamaPromptLookupDecoding of llama-cpp-python. A JSON line for each length (0: none) is
appended to --json: answers, seconds after their first tokens, and how often the model was called meanwhile.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any, Optional

import numpy as np


class Transformers:
    def __init__(self, options: argparse.Namespace) -> None:
        import torch
        import transformers

        torch.set_num_threads(options.threads)
        torch.set_grad_enabled(False)
        self.torch, self.options = torch, options
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            options.model, dtype=getattr(torch, options.dtype), attn_implementation="sdpa"
        ).eval()
        self.versions = {"torch": torch.__version__, "transformers": transformers.__version__}
        self.calls: list[float] = []
        self.model.register_forward_hook(lambda *_: self.calls.append(time.perf_counter()))

    def answer(self, prompt: list[int], new: int, draft: int) -> tuple[list[int], float, int]:
        """Tokens; the seconds after the prompt's pass; the passes after it."""
        self.calls.clear()
        ids = self.torch.tensor([prompt])
        lookup = {"prompt_lookup_num_tokens": draft} if draft else {}
        mask = self.torch.ones_like(ids)
        found = self.model.generate(
            ids, attention_mask=mask, max_new_tokens=new, do_sample=False, eos_token_id=self.options.end, **lookup
        )
        ended = time.perf_counter()
        return found[0, len(prompt) :].tolist(), ended - self.calls[0], len(self.calls) - 1


class LlamaCpp:
    def __init__(self, options: argparse.Namespace) -> None:
        import llama_cpp

        self.library, self.options = llama_cpp, options
        self.versions = {"llama_cpp_python": llama_cpp.__version__}
        self.made: dict[int, Any] = {}
        self.calls = 0

    def model(self, draft: int) -> Any:
        from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

        if draft not in self.made:
            self.made = {}  # one at a time in memory
            lookup: Optional[Any] = LlamaPromptLookupDecoding(num_pred_tokens=draft) if draft else None
            threads = self.options.threads
            model = self.library.Llama(
                str(self.options.model),
                n_ctx=self.options.context,
                n_threads=threads,
                n_threads_batch=threads,
                n_gpu_layers=0,
                draft_model=lookup,
                logits_all=lookup is not None,  # else there is room for one token of a pass alone
                flash_attn=True,
                verbose=False,
            )
            evaluate = model.eval

            def counted(tokens: Any) -> Any:
                self.calls += 1
                return evaluate(tokens)

            model.eval = counted
            self.made[draft] = model
        return self.made[draft]

    def answer(self, prompt: list[int], new: int, draft: int) -> tuple[list[int], float, int]:
        model = self.model(draft)
        model.reset()
        tokens: list[int] = []
        begun = ended = 0.0
        for token in model.generate(prompt, temp=0.0, repeat_penalty=1.0, reset=True):
            ended = time.perf_counter()
            if not tokens:
                begun, self.calls = ended, 0
            tokens.append(int(token))
            if token in self.options.end or len(tokens) == new:
                break
        return tokens, ended - begun, self.calls


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="drafts_process", description=__doc__)
    kinds = parser.add_subparsers(dest="kind", required=True)
    for kind in ("transformers", "llama.cpp"):
        one = kinds.add_parser(kind)
        one.add_argument("model", type=Path)
        one.add_argument("--prompts", type=Path, required=True)
        one.add_argument("--new", type=int, required=True)
        one.add_argument("--end", type=int, nargs="+", required=True, help="tokens that end an answer")
        one.add_argument("--drafts", required=True, help="10,2")
        one.add_argument("--context", type=int, required=True)
        one.add_argument("--threads", type=int, required=True)
        one.add_argument("--json", type=Path, required=True)
    kinds.choices["transformers"].add_argument("--dtype", required=True)
    return parser.parse_args()


def main() -> None:
    options = parse()
    peer: Any = Transformers(options) if options.kind == "transformers" else LlamaCpp(options)
    prompts = json.loads(options.prompts.read_text("utf-8"))
    for draft in (0, *map(int, options.drafts.split(","))):
        peer.answer(prompts[0], 8, draft)  # warms up
        found = [peer.answer(prompt, options.new, draft) for prompt in prompts]
        line = {
            "draft": draft,
            "answers": [tokens for tokens, _, _ in found],
            "seconds": float(np.sum([seconds for _, seconds, _ in found])),
            "passes": sum(passes for _, _, passes in found),
            "versions": peer.versions,
        }
        with options.json.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
