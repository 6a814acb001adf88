# SPDX-License-Identifier: Apache-2.0
"""pecia-pack: documents and conversations to prompt shards."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Callable, Optional, Union

import h5py
from tqdm import tqdm

from ..command import UserError, note, printable, run, temporary_file
from ..model_folder import ModelFolder, read_text
from .convert import Conversions, available_cores
from .decoding import BadInput, Decoder, Repairs
from .examples import read_examples
from .find_files import find_files
from .formats import CONVERTED, ROWS, require_packages
from .inputs import PRODUCE, RERANK, Completion, Document, InputFile, Sampling, Source
from .instruction_template import InstructionTemplate
from .lengths import LengthCheck
from .model_prompts import model_prompt
from .options import parse
from .packed import PackedRequest
from .parts import Splitter, whole
from .prompt_kinds import Prompt
from .prompts import PromptMaker, encode
from .request_keys import JobSettings
from .shard import ShardWriter
from .shard_columns import SkippedRows
from .shard_files import ShardFiles
from .sources import Reading, Survey, good_sources, listed, read_sources, survey, taken_name
from .special_tokens import SpecialTokenWatch
from .totals import Totals

PROGRAM = "pecia-pack"
CREATED_BY = "pecia-pack 1"
WHOLE_VOCABULARY = 2**31
TOLD = 20  # skipped inputs that are named on stderr; the list beside the shard has all
EXIT_INCOMPLETE = 3


def make_template(options: argparse.Namespace, takes_columns: bool) -> InstructionTemplate:
    """`takes_columns`: whether some inputs have rows or lines."""
    if options.fork and (options.question or options.instruction is not None):
        raise UserError(
            "--fork takes its questions from the JSONL lines; leave out --question and --instruction"
        )
    if options.template and options.instruction is not None:
        raise UserError(
            "--template and --instruction exclude each other: write the instruction into the template"
        )
    if options.for_model:
        text = model_prompt(options.for_model, options.instruction, options.query).template
        return InstructionTemplate(text, f"--for {options.for_model}", False, takes_columns)
    if options.question and options.instruction is not None:
        raise UserError(
            "--question and --instruction exclude each other: the questions are the instructions"
        )
    has_questions = bool(options.question) or options.fork
    if options.template:
        if not options.template.is_file():
            raise UserError(f"{options.template}: no such template file")
        text = read_text(options.template).rstrip("\n")
        return InstructionTemplate(text, str(options.template), has_questions, takes_columns)
    after = (
        "{question}"
        if has_questions
        else (options.instruction or "").replace("{", "{{").replace("}", "}}")
    )
    return InstructionTemplate(
        "{text}\n\n" + after if after else "{text}", "--instruction", has_questions
    )


def check_names(requests: Iterable[PackedRequest]) -> Iterator[PackedRequest]:
    origins: dict[str, str] = {}
    for request in requests:
        if request.name in origins:
            raise taken_name(request.origin, request.name, origins[request.name])
        origins[request.name] = request.origin
        yield request


def check_options(options: argparse.Namespace) -> None:
    if options.for_model:
        for name in (
            "template",
            "question",
            "fork",
            "system",
            "produce",
            "continuation",
            "examples",
        ):
            if getattr(options, name):
                raise UserError(f"--for {options.for_model} says it all; leave out --{name}")
        options.no_chat = True
    elif options.query is not None:
        raise UserError("--query is for --for qwen3-reranker")
    if options.continuation and options.produce not in ("score", "rerank"):
        raise UserError("--continuation needs --produce score or rerank")
    if options.produce not in (None, "text") and (options.max_new_tokens or options.stop):
        raise UserError(
            f"--produce {options.produce} has no answer; leave out --max-new-tokens and --stop"
        )
    if options.no_chat and options.system is not None:
        raise UserError("--system needs a chat template; it cannot go with --no-chat")
    if options.no_chat and options.chat_template_kwargs:
        raise UserError("--chat-template-kwargs needs a chat template; it cannot go with --no-chat")
    if options.overlap and not (options.split_tokens or options.split_at):
        raise UserError("--overlap needs --split-tokens or --split-at: it is of parts")
    if options.split_tokens and options.overlap > options.split_tokens // 2:
        raise UserError(
            f"--overlap {options.overlap} is more than half of --split-tokens {options.split_tokens}"
        )


def check_continuations(
    model: ModelFolder, produce: Optional[int], continuations: Sequence[str]
) -> None:
    if produce != RERANK:
        return
    if len(continuations) < 2:
        raise UserError("--produce rerank needs two continuations or more, as yes and no")
    for text in continuations:
        if len(model.tokenizer.encode(text, add_special_tokens=False).ids) != 1:
            raise UserError(
                f"{model.path}: {text!r} is not one token of this model; --produce rerank weighs single tokens"
            )


def length_checks(options: argparse.Namespace, model: ModelFolder) -> list[LengthCheck]:
    """The limit that is asked for, and the model's own, which alone decides where none is asked for."""
    length = model.max_positions
    room = None if length is None else length - 1  # for one token of the answer
    name = f"the model's length of {length} tokens (config.json) allows"
    if options.max_tokens is None:
        if length is None and options.over_length is not None:
            raise UserError(
                f"{model.path / 'config.json'}: has no max_position_embeddings; --over-length needs --max-tokens"
            )
        return [LengthCheck(room, name, options.over_length or "warn")]
    asked = LengthCheck(
        options.max_tokens, f"--max-tokens {options.max_tokens}", options.over_length or "error"
    )
    return [asked, LengthCheck(room, name, "warn")]


def add_skipped(shard: Path, skipped: Iterable[BadInput]) -> None:
    """To the last shard of a pack."""
    rows = SkippedRows([(p.name or p.where, p.where, p.reason) for p in skipped])
    with h5py.File(shard, "a") as file:
        rows.write(file)


def report_repairs(repairs: Repairs, encoding: str) -> None:
    for file, count in repairs.replaced_bytes.items():
        note(PROGRAM, f"{file}: replaced {count} bytes that are not {encoding}, or NUL")
    if repairs.line_ends:
        count = sum(repairs.line_ends.values())
        note(
            PROGRAM,
            f"line ends became LF: {count} of {len(repairs.line_ends)} files were CR LF or CR",
        )


def report_notes(notes: dict[Path, tuple[str, ...]]) -> None:
    """What readers of books said, a line for each of the first files."""
    said = [f"{path}: {text}" for path, texts in sorted(notes.items()) for text in texts]
    for line in said[:TOLD]:
        note(PROGRAM, line)
    if len(said) > TOLD:
        note(PROGRAM, f"{len(said) - TOLD} more notes of this kind")


def write_skipped(output: Path, skipped: list[BadInput]) -> None:
    """Beside the shard, a line for each: where, a tab, why. Takes away the list of an earlier pack."""
    path = output.with_name(output.name + ".skipped.txt")
    if not skipped:
        path.unlink(missing_ok=True)
        return
    lines = (f"{_one_line(p.where)}\t{_one_line(p.reason)}\n" for p in skipped)
    with temporary_file(path) as temporary:
        temporary.write_text("".join(lines), encoding="utf-8", errors="surrogateescape")
    note(PROGRAM, f"skipped {len(skipped)}, listed in {path}:\n{listed(skipped, TOLD)}")


def _one_line(text: str) -> str:
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


class Packer:
    """The options of one call, and the steps from files to shards."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._found = find_files(
            options.inputs, options.glob, options.format, options.max_file_bytes
        )
        self._files = self._found.files
        kinds = {file.kind for file in self._files if isinstance(file, InputFile)}
        self._template = make_template(options, not kinds.isdisjoint(ROWS))
        self._model = ModelFolder(options.model)
        served = (name.rstrip("/").split("/")[-1] for name in options.served_model_name)
        self._job = JobSettings(
            (options.model.resolve().name, *served),
            WHOLE_VOCABULARY if options.logprobs == -1 else options.logprobs,
            self._model.vocab_size,
            int(self._model.config.get("hidden_size") or 0),
        )
        stop = None if options.stop is None else tuple(options.stop)
        produce = None if options.produce is None else PRODUCE.index(options.produce)
        continuations = tuple(options.continuation) or None
        adds_special_tokens = True
        if options.for_model:
            asked = model_prompt(options.for_model, options.instruction, options.query)
            produce, continuations = asked.produce, asked.continuations
            adds_special_tokens = asked.adds_special_tokens
        check_continuations(self._model, produce, continuations or ())
        self._maker = PromptMaker(
            self._model,
            not options.no_chat,
            options.system,
            self._template,
            options.question,
            Sampling(
                options.max_new_tokens,
                options.temperature,
                options.top_p,
                options.seed,
                stop,
                produce=produce,
                continuations=continuations,
            ),
            read_examples(options.examples) if options.examples else (),
            options.chat_template_kwargs,
            adds_special_tokens,
        )
        self._for_documents = [
            f"--{name.replace('_', '-')}"
            for name in ("instruction", "template", "question", "split_tokens", "split_at")
            if getattr(options, name) and not (options.fork and name == "template")
        ]

    def run(self) -> int:
        """The exit code."""
        options = self._options
        files = ShardFiles(options.output, options.shard_requests, options.force)
        checks = length_checks(options, self._model)
        require_packages(self._needed())
        with Conversions(self._decoder(), options.processes or available_cores()) as conversions:
            with self._progress("reading", self._converted()) as progress:
                conversions.run(self._converted(), progress.update)
            return self._pack(files, checks, conversions)

    def _pack(self, files: ShardFiles, checks: list[LengthCheck], conversions: Conversions) -> int:
        options = self._options
        found = self._survey(conversions)
        totals = Totals()
        watch = SpecialTokenWatch(self._model)
        splitter = Splitter(
            self._model.tokenizer, options.split_tokens, options.split_at, options.overlap
        )
        is_split = bool(options.split_tokens or options.split_at)
        with self._progress("packing", self._files) as progress:
            reading = self._reading(self._decoder(), conversions)
            sources: Iterable[Source] = totals.of_sources(
                good_sources(
                    read_sources(self._files, reading, progress.update),
                    options.limit,
                    found,
                )
            )
            if is_split:
                sources = totals.of_parts(splitter.split_all(sources))
            else:
                sources = whole(sources, self._template.names_title)
            refused: list[BadInput] = []  # when they were packed
            refuse = self._refuse(refused)
            prompts = self._prompts(watch.watch(sources), totals, refuse)
            requests = encode(self._model, prompts, refuse)
            for check in checks:
                requests = check.watch(requests)
            choices = (choice for request in requests for choice in request.choices())
            left_out = (
                found.problems,
                refused,
                checks[0].skipped,
            )  # the last two come with the packing
            try:
                paths = files.write(
                    check_names(totals.watch(choices)),
                    self._make_writer,
                    lambda path: add_skipped(path, chain(*left_out)),
                )
            except UserError as error:
                if totals.requests or not refused:
                    raise
                raise UserError(f"{error}:\n{listed(refused)}") from error
        problems = found.problems + refused
        skipped = problems + checks[0].skipped
        write_skipped(options.output, skipped)
        self._report(found, checks, watch, splitter)
        where = str(paths[0]) if len(paths) == 1 else f"{paths[0]} … {paths[-1].name}"
        omitted = [f"{len(skipped)} skipped"] if skipped else []
        omitted += [text] if (text := self._found.left_out_text()) else []
        without = f"; left out: {', '.join(omitted)}" if omitted else ""
        note(PROGRAM, f"{totals.text()} → {where}{without}")
        return EXIT_INCOMPLETE if problems else 0

    def _survey(self, conversions: Conversions) -> Survey:
        decoder = self._decoder()
        with self._progress("checking", self._files) as progress:
            sources = read_sources(
                self._files, self._reading(decoder, conversions), progress.update
            )
            found = survey(self._with_refusals(sources), self._options.limit)
        if self._is_strict() or not found.has_good:
            found.check(self._remedy())
        elif hint := found.encoding_hint:
            note(PROGRAM, hint)
        report_repairs(decoder.repairs, decoder.encoding)
        notes = dict(self._found.notes)
        for path, texts in conversions.notes.items():
            notes[path] = (*notes.get(path, ()), *texts)
        report_notes(notes)
        return found

    def _refuse(self, problems: list[BadInput]) -> Callable[[BadInput], None]:
        """For what turns out to be bad only when it is packed."""

        def refuse(problem: BadInput) -> None:
            if self._is_strict():
                raise UserError(f"{problem}. {self._remedy()}") from problem
            problems.append(problem)

        return refuse

    def _is_strict(self) -> bool:
        """A bad file of several stops no other. A single one had better be mended than packed in part."""
        return self._options.strict or (len(self._files) == 1 and not self._options.skip_bad)

    def _remedy(self) -> str:
        if not self._is_strict():  # and nothing is left
            return "Correct them"
        how = "with --skip-bad" if len(self._files) == 1 else "by packing without --strict"
        return f"Correct them, or leave them out {how}"

    def _converted(self) -> list[InputFile]:
        """Files that become text by a library; of each comes one document, so --limit holds for them as well."""
        found = [f for f in self._files if isinstance(f, InputFile) and f.kind in CONVERTED]
        return found[: self._options.limit]

    def _needed(self) -> list[tuple[str, str]]:
        """Kinds of files and compressions, each with the first file of its kind."""
        found: dict[str, str] = {}
        for file in self._files:
            if isinstance(file, InputFile):
                found.setdefault(file.kind, str(file.path))
                found.setdefault(file.compression, str(file.path))
        return list(found.items())

    def _reading(self, decoder: Decoder, conversions: Conversions) -> Reading:
        options = self._options
        return Reading(
            decoder,
            self._job,
            conversions,
            options.text_column,
            options.id_column,
            self._template.columns,
        )

    def _make_writer(self, path: Path) -> ShardWriter:
        is_fork = bool(self._options.question or self._options.fork)
        return ShardWriter(
            path,
            self._model.tokenizer_sha256,
            self._model.vocab_size,
            "fork" if is_fork else "chain",
            CREATED_BY,
        )

    def _decoder(self) -> Decoder:
        return Decoder(self._options.encoding, self._options.encoding_errors == "replace")

    def _progress(self, name: str, files: Iterable[Union[InputFile, BadInput]]) -> tqdm:
        size = sum(file.size_bytes for file in files if isinstance(file, InputFile))
        return tqdm(
            total=size or None, unit="B", unit_scale=True, desc=name, disable=None, leave=False
        )

    def _with_refusals(
        self, sources: Iterable[Union[Source, BadInput]]
    ) -> Iterator[Union[Source, BadInput]]:
        """Lines that the chat template, the options or --fork refuse are problems as well."""
        for source in sources:
            if not isinstance(source, BadInput) and self._needs_look(source):
                try:
                    self._make_prompt(source)
                except BadInput as problem:
                    yield problem
                    continue
            yield source

    def _prompts(
        self, sources: Iterable[Source], totals: Totals, refuse: Callable[[BadInput], None]
    ) -> Iterator[Prompt]:
        """Without documents and parts that the chat template refuses; lines were tried before."""
        for source in sources:
            try:
                prompt = self._make_prompt(source)
            except BadInput as problem:
                refuse(problem)
                totals.take_back(source)
                continue
            yield prompt

    def _needs_look(self, source: Source) -> bool:
        """Documents of files and rows are large, and alike to the chat template."""
        if not isinstance(source, Document) or source.structure is None:
            return True
        return not self._template.columns.needed <= source.columns.keys()

    def _make_prompt(self, source: Source) -> Prompt:
        try:
            return self._prompt_of(source)
        except BadInput as problem:
            problem.name = source.name
            raise
        except UserError as error:
            reason = str(error).removeprefix(f"{source.origin}: ")
            raise BadInput(source.origin, reason, source.name) from error

    def _prompt_of(self, source: Source) -> Prompt:
        is_fork = self._options.fork
        if isinstance(source, Document):
            if is_fork:
                raise UserError("has no questions; --fork packs JSONL lines with turns")
            return self._maker.of_document(source)
        if self._for_documents:
            raise UserError(
                f"has turns, messages or a prompt of its own; {self._for_documents[0]} is for documents. "
                "Pack these requests without it, into a shard of their own"
            )
        if isinstance(source, Completion):
            if is_fork or self._options.question:
                raise UserError("a completion has no questions; leave out --fork")
            return self._maker.of_completion(source)
        return self._maker.of_fork(source) if is_fork else self._maker.of_conversation(source)

    def _report(
        self, found: Survey, checks: list[LengthCheck], watch: SpecialTokenWatch, splitter: Splitter
    ) -> None:
        options = self._options
        if text := self._found.left_out_text():
            note(
                PROGRAM,
                f"folders have files whose names say nothing to {PROGRAM}, which were left out: {text}. --glob takes "
                "files by other names",
            )
        if found.is_limited:
            note(
                PROGRAM,
                f"--limit {options.limit}: the documents and lines after these were left out",
            )
        if splitter.num_uncut:
            note(PROGRAM, f"{splitter.num_uncut} documents have no {options.split_at} to cut at")
        if watch.count:
            note(
                PROGRAM,
                f"{watch.count} texts contain the writing of a special token (first: {watch.first}); the "
                "tokenizer reads it as that token, as it does in transformers and vLLM",
            )
        for check in checks:
            if warning := check.warning():
                note(PROGRAM, f"warning: {warning}")


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    check_options(options)
    return Packer(options).run()


def script() -> None:
    run(PROGRAM, main)


if __name__ == "__main__":
    script()
