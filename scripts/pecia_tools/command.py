# SPDX-License-Identifier: Apache-2.0
"""What the commands have in common: user errors, exit codes, files that appear whole or not at all."""

from __future__ import annotations

import difflib
import errno
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Callable, Optional

# C0 and C1 controls, marks that turn the direction of writing, and halves of surrogate pairs.
_CONTROLS = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
FULL = (errno.ENOSPC, errno.EDQUOT)
NEAR = 0.75  # of 1, difflib's ratio


class UserError(Exception):
    """Something the user can put right; the message says what, where and how."""


class Failure(Exception):
    """Something that went wrong in what was started; the message names it."""


def run(program: str, main: Callable[[list[str]], int]) -> None:
    """Ends the process with main's exit code, or with one line and 2 on a UserError, 1 on a Failure."""
    try:
        code = main(sys.argv[1:])
        sys.stdout.flush()
        sys.exit(code)
    except UserError as error:
        note(program, str(error))
        sys.exit(2)
    except Failure as failure:
        note(program, str(failure))
        sys.exit(1)
    except BrokenPipeError:
        _write_no_more()  # whoever reads our output has had enough (`| head`)
        sys.exit(1)
    except OSError as error:
        if error.errno in FULL:
            said = _full_disk(error.filename or "the output", error)
            _write_no_more()
        else:
            said = " ".join(f"{error.filename or 'the output'}: {error.strerror or error}".split())
        note(program, said)
        sys.exit(1)
    except KeyboardInterrupt:
        print(f"{program}: interrupted", file=sys.stderr)
        sys.exit(130)


def _write_no_more() -> None:
    """The interpreter would flush what is left for stdout once more when it ends, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _full_disk(name: object, error: OSError) -> str:
    what = "the quota is used up" if error.errno == errno.EDQUOT else "the disk is full"
    return f"{name}: {what}. Free some space, or choose another place for the output, and call this again"


@contextmanager
def names_full_disk(path: Path) -> Iterator[None]:
    """A write within the block that finds no space is a Failure that names `path`; the system names no file then."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise Failure(_full_disk(path, error)) from None


def note(program: str, text: str) -> None:
    print(f"{program}: {printable(text)}", file=sys.stderr)


def printable(text: str) -> str:
    """Without what a terminal would obey, as ESC in an id, and without halves of surrogate pairs; line ends and tabs
    stay."""
    return _CONTROLS.sub(lambda found: ascii(found.group())[1:-1], text)


def nearest(word: str, known: Iterable[str]) -> Optional[str]:
    """The known word that was meant, if one is near: --outptu is --output, --verbose is nothing of pecia-text."""
    of_name = {name.lstrip("-"): name for name in known}  # dashes make all options alike
    near = difflib.get_close_matches(word.lstrip("-"), list(of_name), n=1, cutoff=NEAR)
    return of_name[near[0]] if near else None


def suggestion(word: str, known: Iterable[str]) -> str:
    """What an error message ends with; nothing where no known word is near."""
    near = nearest(word, known)
    return f"; did you mean '{near}'?" if near else ""


def refuse_existing(path: Path, force: bool) -> None:
    if path.exists() and not force:
        raise UserError(f"{path} exists already. Choose another name, or overwrite it with --force")


@contextmanager
def temporary_file(path: Path) -> Iterator[Path]:
    """A name in path's folder that becomes `path` when the block ends well and disappears otherwise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with names_full_disk(path):
            yield temporary
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())
            os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def temporary_folder(path: Path) -> Iterator[Path]:
    """The same for a folder; an existing `path` is replaced."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        temporary.chmod(0o755)
        with names_full_disk(path):
            yield temporary
        if path.exists():
            shutil.rmtree(path)
        os.replace(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
