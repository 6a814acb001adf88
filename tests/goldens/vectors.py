#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make the goldens of vectors: means of transformers' last hidden states, for some of this folder's checkpoints.

    python vectors.py           with what make_goldens.py needs; two runs give the same bytes

NAME/vectors.json is {"cases": [...]}, with a case for each prompt of NAME/golden.json: `prompt`, `spans` as [begin,
end) in its tokens, and `means`, for each span the mean of the rows of last_hidden_state, which the final norm has
made. The hidden states are float32, their means float64.
"""

import json
from pathlib import Path

import torch

import oracle
from cases import CASES
from verify import read_weights

HERE = Path(__file__).resolve().parent
NAMES = ("llama-gqa-fp32", "qwen3-qknorm-tied", "granite-multipliers", "gemma3-windows")
DIGITS = 9  # of float32


def main() -> None:
    torch.set_num_threads(1)
    for case in CASES:
        if case.name not in NAMES or not oracle.makes(case):
            continue
        folder = HERE / case.name
        model = oracle.with_weights(case.oracle_config, read_weights(case, folder))
        records = []
        for golden in json.loads((folder / "golden.json").read_text())["cases"]:
            prompt = golden["prompt"]
            length = len(prompt)
            with torch.no_grad():
                hidden = model.model(torch.tensor([prompt])).last_hidden_state[0].double()
            spans = [(length - 1, length), (0, length), (length // 3, length // 2 + 1)]
            means = [hidden[begin:end].mean(0).tolist() for begin, end in spans]
            rounded = [[float(f"{number:.{DIGITS}g}") for number in mean] for mean in means]
            records.append({"prompt": prompt, "spans": spans, "means": rounded})
        (folder / "vectors.json").write_text(json.dumps({"cases": records}) + "\n")
        print(case.name, flush=True)


if __name__ == "__main__":
    main()
