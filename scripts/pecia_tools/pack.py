"""pecia-pack: documents and conversations to prompt shards."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Optional, Union

from tqdm import tqdm

from .command import UserError, note, refuse_existing, run, temporary_file
from .inputs import (
    Conversation,
    Document,
    InputFile,
    Sampling,
    find_files,
    read_document,
    read_lines,
)
from .jsonl import JobSettings, parse
from .model_folder import ModelFolder
from .pack_options import make_parser
from .prompts import InstructionTemplate, PackedRequest, Prompt, PromptMaker, encode
from .shard import ShardWriter, shard_path
from .split import split

PROGRAM = "pecia-pack"
CREATED_BY = "pecia-pack 1"
WHOLE_VOCABULARY = 2**31

Source = Union[Document, Conversation]


def make_template(options: argparse.Namespace) -> InstructionTemplate:
    if options.fork and (options.question or options.instruction is not None):
        raise UserError(
            "--fork takes its questions from the JSONL lines; leave out --question and --instruction"
        )
    if options.template and options.instruction is not None:
        raise UserError(
            "--template and --instruction exclude each other: write the instruction into the template"
        )
    if options.question and options.instruction is not None:
        raise UserError(
            "--question and --instruction exclude each other: the questions are the instructions"
        )
    has_questions = bool(options.question) or options.fork
    if options.template:
        if not options.template.is_file():
            raise UserError(f"{options.template}: no such template file")
        text = options.template.read_text(encoding="utf-8").rstrip("\n")
        return InstructionTemplate(text, str(options.template), has_questions)
    after = (
        "{question}"
        if has_questions
        else (options.instruction or "").replace("{", "{{").replace("}", "}}")
    )
    return InstructionTemplate(
        "{text}\n\n" + after if after else "{text}", "--instruction", has_questions
    )


def read_sources(
    files: list[InputFile], options: argparse.Namespace, job: JobSettings, progress: tqdm
) -> Iterator[Source]:
    for file in files:
        if file.is_jsonl:
            for where, text, size_bytes in read_lines(file, options.encoding_errors):
                yield parse(where, text, job)
                progress.update(size_bytes)
        else:
            yield read_document(file, options.encoding_errors)
            progress.update(file.size_bytes)


def split_sources(
    sources: Iterable[Source], model: ModelFolder, max_tokens: Optional[int]
) -> Iterator[Source]:
    for source in sources:
        if max_tokens is None or isinstance(source, Conversation):
            yield source
            continue
        parts = split(model.tokenizer, source.text, max_tokens)
        if len(parts) == 1:
            yield source
            continue
        digits = max(3, len(str(len(parts))))
        for number, text in enumerate(parts, start=1):
            yield Document(
                f"{source.name}#{number:0{digits}d}",
                text,
                source.origin,
                source.sampling,
                source.arrival_s,
            )


def check_names(sources: Iterable[Source]) -> Iterator[Source]:
    origins: dict[str, str] = {}
    for source in sources:
        if source.name in origins:
            raise UserError(
                f"{source.origin}: the name '{source.name}' is taken by {origins[source.name]}. "
                "Names must be unique in a job: rename one"
            )
        origins[source.name] = source.origin
        yield source


class SpecialTokenWatch:
    """Counts texts that contain the writing of a special token, which the tokenizer then reads as that token."""

    def __init__(self, model: ModelFolder) -> None:
        writings = [
            t.content
            for t in model.tokenizer.get_added_tokens_decoder().values()
            if t.special and t.content
        ]
        longest_first = sorted(writings, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        self.count = 0
        self.first = ""

    def watch(self, sources: Iterable[Source]) -> Iterator[Source]:
        for source in sources:
            texts = (
                [source.text]
                if isinstance(source, Document)
                else [text for text, _ in source.turns]
            )
            found = next(filter(None, map(self._pattern.search, texts)), None)
            if found:
                self.count += 1
                self.first = self.first or f"{found.group()} in {source.origin}"
            yield source


def within_length(
    requests: Iterable[PackedRequest], max_tokens: Optional[int], skip: bool
) -> Iterator[PackedRequest]:
    for request in requests:
        tokens = sum(len(turn.tokens) for turn in request.turns)
        if max_tokens is None or tokens <= max_tokens:
            yield request
        elif skip:
            note(PROGRAM, f"left out '{request.name}': {tokens} tokens, more than {max_tokens}")
        else:
            raise UserError(
                f"{request.origin}: the prompt of '{request.name}' has {tokens} tokens, more than "
                f"{max_tokens}. Cut documents with --split-tokens, or leave out such requests with "
                "--over-length skip"
            )


def write_shards(
    requests: Iterable[PackedRequest],
    output: Path,
    model: ModelFolder,
    followup: str,
    shard_requests: Optional[int],
    force: bool,
) -> tuple[list[Path], int, int]:
    """All shards appear together, after the last request. Returns their paths and the requests and tokens in them."""
    paths: list[Path] = []
    stale = (
        sorted(
            p
            for p in output.parent.glob(f"{output.stem}-*{output.suffix}")
            if re.fullmatch(r"-\d{4,}", p.stem[len(output.stem) :])
        )
        if shard_requests
        else []
    )
    for path in stale if shard_requests else [output]:
        refuse_existing(path, force)
    num_requests = num_tokens = 0
    with ExitStack() as files:
        writer: Optional[ShardWriter] = None
        for request in requests:
            if writer is None:
                paths.append(shard_path(output, len(paths) + 1 if shard_requests else None))
                temporary = files.enter_context(temporary_file(paths[-1]))
                writer = ShardWriter(
                    temporary, model.tokenizer_sha256, model.vocab_size, followup, CREATED_BY
                )
                files.callback(writer.close)
            writer.add(request)
            num_requests += 1
            num_tokens += sum(len(turn.tokens) for turn in request.turns)
            if writer.num_requests == shard_requests:
                writer.finish()
                writer = None
        if not paths:
            raise UserError("no request is left to pack; nothing was written")
        if writer is not None:
            writer.finish()
    for path in set(stale) - set(
        paths
    ):  # of an earlier, longer pack: a job's *.h5 would take them in
        path.unlink()
    return paths, num_requests, num_tokens


def main(arguments: list[str]) -> int:
    options = make_parser().parse_args(arguments)
    if options.over_length == "skip" and options.max_tokens is None:
        raise UserError("--over-length skip needs --max-tokens: how long is too long")
    if options.no_chat and options.system is not None:
        raise UserError("--system needs a chat template; it cannot go with --no-chat")
    template = make_template(options)
    model = ModelFolder(options.model)
    names = (
        options.model.resolve().name,
        *(n.rstrip("/").split("/")[-1] for n in options.served_model_name),
    )
    job = JobSettings(names, WHOLE_VOCABULARY if options.logprobs == -1 else options.logprobs)
    defaults = Sampling(options.max_new_tokens, options.temperature, options.top_p, options.seed)
    maker = PromptMaker(
        model, not options.no_chat, options.system, template, options.question, defaults
    )
    files = find_files(options.inputs, options.glob, options.format)
    watch = SpecialTokenWatch(model)

    for_documents = [
        f"--{name.replace('_', '-')}"
        for name in ("instruction", "template", "question", "split_tokens")
        if getattr(options, name) and not (options.fork and name == "template")
    ]

    def make_prompt(source: Source) -> Prompt:
        if isinstance(source, Document) and options.fork:
            raise UserError(
                f"{source.origin}: has no questions; --fork packs JSONL lines with turns"
            )
        if isinstance(source, Document):
            return maker.of_document(source)
        if for_documents:
            raise UserError(
                f"{source.origin}: has turns or messages of its own; {for_documents[0]} is for "
                "documents. Pack these requests without it, into a shard of their own"
            )
        return maker.of_fork(source) if options.fork else maker.of_conversation(source)

    with tqdm(
        total=sum(f.size_bytes for f in files) or None,
        unit="B",
        unit_scale=True,
        desc="packing",
        disable=None,
        leave=False,
    ) as progress:
        sources = check_names(
            split_sources(read_sources(files, options, job, progress), model, options.split_tokens)
        )
        requests = encode(model, map(make_prompt, watch.watch(sources)))
        requests = within_length(requests, options.max_tokens, options.over_length == "skip")
        paths, num_requests, num_tokens = write_shards(
            requests,
            options.output,
            model,
            "fork" if options.question or options.fork else "chain",
            options.shard_requests,
            options.force,
        )
    if watch.count:
        note(
            PROGRAM,
            f"{watch.count} texts contain the writing of a special token (first: {watch.first}); the "
            "tokenizer reads it as that token, as it does in transformers and vLLM",
        )
    where = str(paths[0]) if len(paths) == 1 else f"{paths[0]} … {paths[-1].name}"
    note(PROGRAM, f"{num_requests} requests, {num_tokens} tokens → {where}")
    return 0


if __name__ == "__main__":
    run(PROGRAM, main)
