# SPDX-License-Identifier: Apache-2.0
"""gpu-goldens MODEL FOLDER: what transformers predicts with a model in bf16 on this GPU, and how long it takes.

Writes FOLDER/NAME/golden.json beside links to the model, as test_narrow_goldens reads it, and prints one JSON line with
times. Needs torch and transformers; exit code 77 where they are not installed.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path

PROMPT_TOKENS = 4096
NEW_TOKENS = 64
SPECIAL_TOKENS = 5  # ids below this are not in prompts
RUNS = 3


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        print("usage: gpu-goldens MODEL FOLDER", file=sys.stderr)
        return 2
    try:
        import torch
        import transformers
    except ImportError as missing:
        print(f"python3 has no {missing.name}")
        return 77
    model_folder, folder = Path(arguments[0]), Path(arguments[1]) / Path(arguments[0]).name
    model = transformers.AutoModelForCausalLM.from_pretrained(
        model_folder, torch_dtype=torch.bfloat16, attn_implementation="sdpa"
    ).to("cuda")
    model.eval()
    numbers = random.Random(1)
    prompt = [numbers.randrange(SPECIAL_TOKENS, model.config.vocab_size) for _ in range(PROMPT_TOKENS)]
    tokens = torch.tensor([prompt], device="cuda")

    def timed(action):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        result = action()
        torch.cuda.synchronize()
        return time.perf_counter() - begin, result

    def generate(count):
        return model.generate(tokens, max_new_tokens=count, min_new_tokens=count, do_sample=False, pad_token_id=0)

    with torch.inference_mode():
        prefill_s = min(timed(lambda: model(tokens, logits_to_keep=1))[0] for _ in range(RUNS))
        one_s = min(timed(lambda: generate(1))[0] for _ in range(RUNS))
        all_s, answer = min((timed(lambda: generate(NEW_TOKENS)) for _ in range(RUNS)), key=lambda run: run[0])
        logits = model(tokens).logits[0].float()
        logprobs = torch.log_softmax(logits, dim=-1)
        greedy = answer[0, PROMPT_TOKENS:].tolist()
        following = model(answer).logits[0, PROMPT_TOKENS - 1 : -1].float()
        greedy_logprobs = torch.log_softmax(following, dim=-1).gather(1, answer[0, PROMPT_TOKENS:, None])[:, 0]
        prompt_logprobs = logprobs[:-1].gather(1, tokens[0, 1:, None])[:, 0]

    folder.mkdir(parents=True, exist_ok=True)
    for file in ("config.json", "model.safetensors"):
        link = folder / file
        link.unlink(missing_ok=True)
        link.symlink_to((model_folder / file).resolve())
    case = {
        "prompt": prompt,
        "logprobs": logprobs[-1].tolist(),
        "prompt_logprobs": prompt_logprobs.tolist(),
        "greedy": greedy,
        "greedy_logprobs": greedy_logprobs.tolist(),
    }
    (folder / "golden.json").write_text(json.dumps({"dtype": "bfloat16", "cases": [case]}), encoding="utf-8")
    print(
        json.dumps(
            {
                "op": "transformers",
                "model": model_folder.name,
                "tokens": PROMPT_TOKENS,
                "prefill_s": prefill_s,
                "step_s": (all_s - one_s) / (NEW_TOKENS - 1),
                "torch": torch.__version__,
                "transformers": transformers.__version__,
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
