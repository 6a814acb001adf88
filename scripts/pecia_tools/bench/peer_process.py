# SPDX-License-Identifier: Apache-2.0
"""peer_process transformers FOLDER --dtype bfloat16|float32 OPTIONS: what bench_peers times, in a process of its own.
peer_process llama.cpp FILE --ubatch N --flash-attention on|off OPTIONS
peer_process openvino FOLDER --precision bf16 OPTIONS
peer_process quantize IN.gguf OUT.gguf --type TYPE --threads N

Runs with the Python of build/peers or build/peers-openvino, where this project's packages are not. Prefill: one prompt,
an empty cache, logits of its last token alone. Decode: greedy, one token at a time, after that prompt and as many steps
untimed. A JSON line for each case is appended to --json. --batches N,… also times N prompts at once, --batch-prompt
tokens and --batch-new answers each, which begin with different tokens. --product ROWS DEPTH COLUMNS also times such a
product by torch, of random numbers, and --attention NAME TOKENS HEADS KV_HEADS HEAD_DIM causal attention of bf16.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

BATCH = 2048  # tokens of one call of llama.cpp, which cuts them into ubatches: its programs' own default
PRODUCT_RUNS = 7
ATTENTION_RUNS = 3
PADDING = 256  # of llama.cpp's context
WITHOUT_SDPA = ("gpt_oss",)  # models whose attention transformers has in plain PyTorch alone
OPENVINO_BATCHED_TOKENS = 2048  # of one pass; its default of 256 is slower
FLASH_ATTENTION = {"off": 0, "on": 1}  # llama_flash_attn_type
FILE_TYPES = {"F16": 1, "Q4_0": 2, "Q8_0": 7, "BF16": 32}  # llama_ftype

Feed = Callable[[list[int]], int]


class Transformers:
    def __init__(self, options: argparse.Namespace) -> None:
        import torch
        import transformers

        torch.set_num_threads(options.threads)
        torch.set_grad_enabled(False)
        self.torch = torch
        config = json.loads((options.model / "config.json").read_text("utf-8"))
        attention = "eager" if config["model_type"] in WITHOUT_SDPA else "sdpa"
        # The class by its name: AutoModelForCausalLM has none for the text parts of some models with images.
        self.model = getattr(transformers, config["architectures"][0]).from_pretrained(
            options.model, dtype=getattr(torch, options.dtype), attn_implementation=attention
        ).eval()
        self.versions = {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "attention": attention,
        }
        self.cache: Any = None

    def reset(self) -> None:
        self.cache = None

    def feed(self, tokens: list[int]) -> int:
        """The greedy next token."""
        output = self.model(
            input_ids=self.torch.tensor([tokens]),
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self.cache = output.past_key_values
        return int(output.logits[0, -1].argmax())

    def batch(self, prompts: list[list[int]], new: int) -> int:
        """The last token of the first answer."""
        ids = self.torch.tensor(prompts)
        found = self.model.generate(
            ids,
            attention_mask=self.torch.ones_like(ids),
            max_new_tokens=new,
            min_new_tokens=new,
            do_sample=False,
        )
        return int(found[0, -1])

    def seconds_of_product(self, rows: int, depth: int, columns: int) -> float:
        """Weights lie as in a checkpoint, [columns, depth]; the median."""
        torch = self.torch
        x = torch.randn(rows, depth).to(self.model.dtype)
        weight = torch.randn(columns, depth).to(self.model.dtype)

        def once() -> float:
            begun = time.perf_counter()
            torch.nn.functional.linear(x, weight)
            return time.perf_counter() - begun

        once()
        return statistics.median(once() for _ in range(PRODUCT_RUNS))

    def seconds_of_attention(self, tokens: int, heads: int, kv_heads: int, head_dim: int) -> float:
        """Causal; the median, with keys of groups or with repeated ones, whichever is faster."""
        torch = self.torch
        attend = torch.nn.functional.scaled_dot_product_attention
        q = torch.randn(1, heads, tokens, head_dim).bfloat16()
        k, v = (torch.randn(1, kv_heads, tokens, head_dim).bfloat16() for _ in range(2))
        wide_k, wide_v = (x.repeat_interleave(heads // kv_heads, 1) for x in (k, v))

        def median(once: Callable[[], Any]) -> float:
            once()
            seconds = []
            for _ in range(ATTENTION_RUNS):
                begun = time.perf_counter()
                once()
                seconds.append(time.perf_counter() - begun)
            return statistics.median(seconds)

        return min(
            median(lambda: attend(q, wide_k, wide_v, is_causal=True)),
            median(lambda: attend(q, k, v, is_causal=True, enable_gqa=True)),
        )


class LlamaCpp:
    def __init__(self, options: argparse.Namespace, context: int) -> None:
        import llama_cpp

        self.library = llama_cpp
        llama_cpp.llama_backend_init()
        model = llama_cpp.llama_model_default_params()
        model.n_gpu_layers = 0
        self.model = llama_cpp.llama_model_load_from_file(str(options.model).encode(), model)
        if not self.model:
            raise RuntimeError(f"llama.cpp cannot load {options.model}")
        settings = llama_cpp.llama_context_default_params()
        settings.n_ctx = -(-context // PADDING) * PADDING
        settings.n_batch = BATCH
        settings.n_ubatch = options.ubatch
        settings.n_threads = settings.n_threads_batch = options.threads
        settings.flash_attn_type = FLASH_ATTENTION[options.flash_attention]
        self.context = llama_cpp.llama_init_from_model(self.model, settings)
        if not self.context:
            raise RuntimeError(f"llama.cpp cannot make a context of {context} tokens")
        vocabulary = llama_cpp.llama_model_get_vocab(self.model)
        self.vocab_size = llama_cpp.llama_vocab_n_tokens(vocabulary)
        self.versions = {
            "llama_cpp_python": llama_cpp.__version__,
            "llama_cpp_system": llama_cpp.llama_print_system_info().decode(),
        }

    def reset(self) -> None:
        self.library.llama_memory_clear(self.library.llama_get_memory(self.context), True)

    def feed(self, tokens: list[int]) -> int:
        """The greedy next token."""
        for first in range(0, len(tokens), BATCH):
            piece = tokens[first : first + BATCH]
            ids = (self.library.llama_token * len(piece))(*piece)
            code = self.library.llama_decode(
                self.context, self.library.llama_batch_get_one(ids, len(piece))
            )
            if code != 0:
                raise RuntimeError(f"llama_decode gave {code} for {len(piece)} tokens")
        logits = self.library.llama_get_logits_ith(self.context, -1)
        return int(np.ctypeslib.as_array(logits, shape=(self.vocab_size,)).argmax())


class OpenVino:
    """Generates; it is not fed. Nothing is kept between two prompts."""

    def __init__(self, options: argparse.Namespace) -> None:
        import openvino
        import openvino_genai

        self.openvino, self.genai = openvino, openvino_genai
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.enable_prefix_caching = False
        scheduler.max_num_batched_tokens = OPENVINO_BATCHED_TOKENS
        self.pipeline = openvino_genai.LLMPipeline(
            str(options.model),
            "CPU",
            scheduler_config=scheduler,
            INFERENCE_NUM_THREADS=options.threads,
            INFERENCE_PRECISION_HINT=options.precision,
            KV_CACHE_PRECISION=options.precision,
        )
        self.versions = {
            "openvino": openvino.__version__,
            "openvino_genai": openvino_genai.__version__,
        }

    def _generate(self, prompts: list[list[int]], new: int, streamer: Any = None) -> Any:
        ids = np.array(prompts, dtype=np.int64)
        settings = self.genai.GenerationConfig()
        settings.max_new_tokens = settings.min_new_tokens = new
        settings.ignore_eos = True
        inputs = self.genai.TokenizedInputs(
            self.openvino.Tensor(ids), self.openvino.Tensor(np.ones_like(ids))
        )
        return self.pipeline.generate(inputs, settings, streamer)

    def generate(self, tokens: list[int], new: int) -> tuple[list[float], int]:
        """Seconds from the call to each new token, and the last one."""
        seconds: list[float] = []
        genai = self.genai

        class Clock(genai.StreamerBase):  # type: ignore[name-defined]  # of a module that is found at run time
            def write(self, found: Any) -> Any:
                count = len(found) if isinstance(found, (list, tuple)) else 1
                seconds.extend([time.perf_counter() - begun] * count)
                return genai.StreamingStatus.RUNNING

            def end(self) -> None:
                pass

        clock = Clock()
        begun = time.perf_counter()
        found = self._generate([tokens], new, clock)
        if len(seconds) != new:
            raise RuntimeError(f"OpenVINO GenAI told of {len(seconds)} of {new} tokens")
        return seconds, int(found.tokens[0][-1])

    def batch(self, prompts: list[list[int]], new: int) -> int:
        return int(self._generate(prompts, new).tokens[0][-1])


def measure(peer: Any, tokens: list[int], options: argparse.Namespace) -> None:
    """Every length once, the shortest first and then twice: its first time warms up."""

    token = 0

    def put(what: str, length: int, count: int, seconds: float) -> None:
        line = {
            "what": what,
            "tokens": length,
            "seconds": seconds,
            "tokens_per_s": count / seconds,
            "max_rss_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
            "next_token": token,
            "versions": peer.versions,
        }
        with options.json.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def steps(token: int) -> int:
        for _ in range(options.new):
            token = peer.feed([token])
        return token

    for rows, depth, columns in options.product:
        seconds = peer.seconds_of_product(rows, depth, columns)
        put("product", rows, rows, seconds)
    for what, *sizes in options.attention:
        count = int(sizes[0])
        put(what, count, count, peer.seconds_of_attention(*map(int, sizes)))
    for number in options.batches:
        prompts = batch_of(tokens, number, options.batch_prompt)
        peer.batch(prompts[:2], 2)
        begun = time.perf_counter()
        token = peer.batch(prompts, options.batch_new)
        put("batch", number, number * options.batch_new, time.perf_counter() - begun)
    lengths = sorted({*options.prefill, *options.decode})
    if lengths and hasattr(peer, "generate"):
        peer.generate(tokens[: lengths[0]], 2)
        for length in lengths:
            new = 2 * options.new if length in options.decode else 0
            stamps, token = peer.generate(tokens[:length], 1 + new)
            if length in options.prefill:
                put("prefill", length, length, stamps[0])
            if length in options.decode:
                put("decode", length, options.new, stamps[new] - stamps[options.new])
        return
    if lengths:
        peer.feed(tokens[: lengths[0]])
    for length in lengths:
        peer.reset()
        begun = time.perf_counter()
        token = peer.feed(tokens[:length])
        if length in options.prefill:
            put("prefill", length, length, time.perf_counter() - begun)
        if length in options.decode:
            token = steps(token)
            begun = time.perf_counter()
            token = steps(token)
            put("decode", length, options.new, time.perf_counter() - begun)


def batch_of(tokens: list[int], number: int, length: int) -> list[list[int]]:
    """Prompts that begin at different places of the text, which is repeated."""
    return [[tokens[(place + i) % len(tokens)] for i in range(length)] for place in range(number)]


def quantize(options: argparse.Namespace) -> None:
    import llama_cpp

    params = llama_cpp.llama_model_quantize_default_params()
    params.nthread = options.threads
    params.ftype = FILE_TYPES[options.type]
    code = llama_cpp.llama_model_quantize(
        str(options.model).encode(), str(options.output).encode(), params
    )
    if code != 0:
        raise RuntimeError(f"llama_model_quantize gave {code} for {options.output}")


def lengths(text: str) -> list[int]:
    return [int(word) for word in text.split(",") if word]


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="peer_process", description=__doc__)
    kinds = parser.add_subparsers(dest="kind", required=True)
    for kind in ("transformers", "llama.cpp", "openvino"):
        timed = kinds.add_parser(kind)
        timed.add_argument("model", type=Path)
        timed.add_argument("--tokens", type=Path, required=True, help="token ids, as .npy")
        timed.add_argument("--prefill", type=lengths, required=True)
        timed.add_argument("--decode", type=lengths, required=True)
        timed.add_argument("--new", type=int, required=True)
        timed.add_argument("--json", type=Path, required=True)
        timed.add_argument("--batches", type=lengths, default="")
        timed.add_argument("--batch-prompt", type=int, default=512)
        timed.add_argument("--batch-new", type=int, default=128)
        timed.add_argument("--product", type=int, nargs=3, action="append", default=[])
        timed.add_argument("--attention", nargs=5, action="append", default=[])
    kinds.choices["transformers"].add_argument("--dtype", required=True)
    kinds.choices["openvino"].add_argument("--precision", required=True)
    kinds.choices["llama.cpp"].add_argument("--ubatch", type=int, required=True)
    kinds.choices["llama.cpp"].add_argument(
        "--flash-attention", choices=tuple(FLASH_ATTENTION), required=True
    )
    quantizing = kinds.add_parser("quantize")
    quantizing.add_argument("model", type=Path)
    quantizing.add_argument("output", type=Path)
    quantizing.add_argument("--type", choices=tuple(FILE_TYPES), required=True)
    for one in kinds.choices.values():
        one.add_argument("--threads", type=int, required=True)
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> None:
    options = parse(arguments)
    if options.kind == "quantize":
        quantize(options)
        return
    tokens = np.load(options.tokens).tolist()
    longest = max(options.prefill + options.decode, default=0) + 2 * options.new
    peer: Any
    if options.kind == "llama.cpp":
        peer = LlamaCpp(options, longest)
    else:
        peer = OpenVino(options) if options.kind == "openvino" else Transformers(options)
    measure(peer, tokens, options)


if __name__ == "__main__":
    main(sys.argv[1:])
