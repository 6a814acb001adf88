# SPDX-License-Identifier: Apache-2.0
"""Plants faults one by one and says which test finds each; tests/mutants.sh says how to call it."""

import argparse
import copy
import datetime
import fcntl
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Optional

from faults import Fault, read_faults, tests_of

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "mutants"
SOURCE = WORK / "source"
BUILD = SOURCE / "build" / "release"
FAULTS = Path(__file__).resolve().parent / "faults.txt"
SKIPPED = 77


def git(*arguments: str, folder: Path = ROOT) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=folder, check=True, text=True, stdout=subprocess.PIPE
    ).stdout.strip()


def build_environment() -> dict:
    return {**os.environ, "CCACHE_BASEDIR": str(SOURCE)}


def prepare_source() -> None:
    """Makes the worktree, or brings it to the commit that is checked out, without a fault of an interrupted run."""
    commit = git("rev-parse", "HEAD")
    if not (SOURCE / ".git").exists():
        SOURCE.parent.mkdir(parents=True, exist_ok=True)
        git("worktree", "prune")
        git("worktree", "add", "--detach", str(SOURCE), commit)
    git("checkout", "--quiet", "--force", "--detach", commit, folder=SOURCE)
    if not (SOURCE / ".venv").exists():
        (SOURCE / ".venv").symlink_to((ROOT / ".venv").resolve())
    if git("status", "--porcelain", folder=ROOT):
        print("mutants: what is not committed takes no part", file=sys.stderr)
    with (WORK / "configure.log").open("w") as log:
        command = ["cmake", "--preset", "release"]
        subprocess.run(
            command, cwd=SOURCE, check=True, env=build_environment(), stdout=log, stderr=log
        )


def build(targets: list) -> bool:
    with (WORK / "build.log").open("w") as log:
        command = ["cmake", "--build", str(BUILD), "--target", *targets]
        jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL", str(os.cpu_count()))
        command += ["--parallel", jobs]
        return (
            subprocess.run(command, env=build_environment(), stdout=log, stderr=log).returncode == 0
        )


def targets_of(test: str) -> list:
    """What has to be built for the test: its own program, or the ones that whole runs start."""
    if test.startswith("test_"):
        return [test.split(".")[0]]
    return ["pecia", "pecia_on_fake_gpus", "jumping_clock"]


class Test:
    """A test as CTest knows it. It is started without ctest, which would leave ranks behind when it is stopped."""

    def __init__(self, of_ctest: dict):
        properties = {each["name"]: each["value"] for each in of_ctest.get("properties", [])}
        self.name = of_ctest["name"]
        self.command = of_ctest.get("command", [])
        self.folder = properties.get("WORKING_DIRECTORY", str(BUILD))
        self.limit_s = float(properties.get("TIMEOUT", 1500))
        self.labels = properties.get("LABELS", [])
        self.environment = dict(each.split("=", 1) for each in properties.get("ENVIRONMENT", []))

    def only(self, cases: str) -> "Test":
        """The same test with those cases of GoogleTest alone that the filter names."""
        some = copy.copy(self)
        some.environment = {**self.environment, "GTEST_FILTER": cases}
        return some

    def run(self, limit_s: Optional[float]) -> Optional[str]:
        """What failed; nothing where the test passes or is skipped."""
        environment = {**os.environ, **self.environment, "GTEST_COLOR": "no"}
        if "unit" in self.labels:  # a rank that stops early would leave the others waiting
            environment["GTEST_FAIL_FAST"] = "1"
        limit_s = min(self.limit_s, limit_s or self.limit_s)
        log = WORK / "test.log"
        with log.open("w") as out:
            process = subprocess.Popen(
                self.command,
                cwd=self.folder,
                env=environment,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
            try:
                code = process.wait(limit_s)
            except subprocess.TimeoutExpired:
                return "by hanging"
            finally:
                stop(process)
        if code in (0, SKIPPED):
            return None
        return failing_case(log.read_text(errors="replace")) or f"exit code {code}"


def stop(process: subprocess.Popen) -> None:
    """Ends a test with all that it has started; mpirun first gets a moment to end its ranks."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        os.killpg(process.pid, number)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            continue


def failing_case(output: str) -> Optional[str]:
    """The first case that failed, by GoogleTest or unittest; else the one that was running when the program ended."""
    output = re.sub(r"\x1b\[[0-9;]*m", "", output)
    failed = re.search(r"\[  FAILED  \] (\S+\.[^\s,]+)", output)
    if failed:
        return failed.group(1)
    failed = re.search(r"^(?:FAIL|ERROR): (\S+)", output, re.MULTILINE)
    if failed:
        return failed.group(1)
    running = re.findall(r"\[ RUN      \] (\S+)", output)
    return f"{running[-1]} (ended the program)" if running else None


class Result:
    """`test` is the one that has found the fault; without one `why_not` says why there is none."""

    def __init__(self, fault: Fault, test: Optional[Test], case: str, why_not: str = ""):
        self.fault, self.test, self.case, self.why_not = fault, test, case, why_not
        self.seconds = 0.0

    def finder(self) -> str:
        found_by = self.test.name if self.test else self.why_not
        return f"{found_by}: {self.case}" if self.case else found_by


def find(fault: Fault, tests: list, limit_s: Optional[float]) -> Result:
    """Builds for each test in turn and runs it, until one fails."""
    built = set()
    for test in tests:
        targets = targets_of(test.name)
        if not built.issuperset(targets):
            if not build(targets):
                return Result(fault, None, "", "does not compile")
            built.update(targets)
            if not test.command:  # CTest knows it from the first build of the program on
                test.command = next(each.command for each in known_tests() if each.name == test.name)
        failed = test.run(limit_s)
        if failed:
            return Result(fault, test, failed)
    return Result(fault, None, "", "NOT FOUND")


def plant(fault: Fault, tests: list, limit_s: Optional[float]) -> Result:
    """Plants the fault, looks for it, and takes it out again in any case."""
    path = SOURCE / fault.file
    original = path.read_text() if path.exists() else ""
    if original.count(fault.old) != 1 or fault.old == fault.new:
        times = original.count(fault.old)
        return Result(fault, None, f"its text occurs {times} times in {fault.file}", "does not fit")
    begin = time.monotonic()
    try:
        path.write_text(original.replace(fault.old, fault.new))
        result = find(fault, tests, limit_s)
    finally:
        path.write_text(original)
    result.seconds = time.monotonic() - begin
    return result


def known_tests() -> list:
    listing = subprocess.run(
        ["ctest", "--test-dir", str(BUILD), "--show-only=json-v1"],
        check=True,
        text=True,
        stdout=subprocess.PIPE,
    )
    return [Test(each) for each in json.loads(listing.stdout)["tests"]]


def chosen(faults: list, wanted: list) -> list:
    """Numbers with their faults."""
    numbered = list(enumerate(faults, 1))
    if not wanted:
        return numbered
    for text in wanted:
        if not any(matches(text, number, fault) for number, fault in numbered):
            sys.exit(f"mutants: no fault is called '{text}'; tests/mutants.sh --list names them")
    return [
        (number, fault)
        for number, fault in numbered
        if any(matches(text, number, fault) for text in wanted)
    ]


def matches(text: str, number: int, fault: Fault) -> bool:
    return text == str(number) if text.isdigit() else text.lower() in fault.name.lower()


def machine() -> str:
    listing = subprocess.run(
        ["lscpu"], text=True, stdout=subprocess.PIPE, env={**os.environ, "LC_ALL": "C"}
    ).stdout
    fields = dict(re.findall(r"^([^:]+):\s*(.*)$", listing, re.MULTILINE))
    return f"{fields.get('CPU(s)', '?')} × {fields.get('Model name', 'unknown processor')}"


def row_of(result: Result) -> str:
    folder = Path(result.fault.file).parent
    if result.test is None:
        found_by = f"**{result.finder()}**"
    else:
        case = result.case if " " in result.case else f"`{result.case}`"
        found_by = f"`{result.test.name}` {case}"
    return f"| {result.fault.name} | `{folder}` | {found_by} | {result.seconds:.0f} |"


def write_table(path: Path, results: list, faults: list) -> None:
    """Writes rows in the order of the list of faults. Faults that were not planted now keep their rows."""
    rows = {}
    if path.exists():
        for line in path.read_text().splitlines():
            name = line[2:].split(" | ")[0] if line.startswith("| ") else ""
            if any(fault.name == name for fault in faults):
                rows[name] = line
    rows.update({result.fault.name: row_of(result) for result in results})
    command = shlex.join(["tests/mutants.sh", *sys.argv[1:]])
    head = [
        "# Which test finds which fault",
        f"On {machine()}, {datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}. Seconds count building and",
        "testing until the first test failed. Rows of other faults come from earlier commands than this one:",
        "```",
        command,
        "```",
        "",
        "| fault | folder | found by | seconds |",
        "|---|---|---|---|",
    ]
    path.write_text(
        "\n".join([*head, *(rows[fault.name] for fault in faults if fault.name in rows)]) + "\n"
    )


def failing_without_fault(results: list, limit_s: Optional[float]) -> list:
    """Tests that found a fault and fail without one as well, so that they have found nothing."""
    finders = {}  # each once, by its name and cases
    for result in results:
        if result.test:
            cases = result.test.environment.get("GTEST_FILTER", "")
            finders[result.test.name, cases] = result.test
    targets = {target for test in finders.values() for target in targets_of(test.name)}
    if targets and not build(sorted(targets)):
        return ["the build"]
    failed = {test.name: test.run(limit_s) for test in finders.values()}
    return [f"{name}: {what}" for name, what in failed.items() if what]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests/mutants.sh", description=__doc__)
    parser.add_argument("faults", nargs="*", metavar="FAULT")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--limit", type=float, metavar="SECONDS")
    parser.add_argument("--table", type=Path, metavar="FILE")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    faults, folders = read_faults(FAULTS)
    some = chosen(faults, arguments.faults)
    if arguments.list:
        for number, fault in some:
            print(f"{number:3} {fault.name} ({fault.file})")
        return 0
    WORK.mkdir(parents=True, exist_ok=True)
    lock = (WORK / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit(f"mutants: another run is at work in {WORK}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    prepare_source()
    all_tests = known_tests()
    results = []
    interrupted = False
    try:
        for number, fault in some:
            tests = tests_of(fault.file, folders, all_tests)
            results.append(plant(fault, tests, arguments.limit))
            last = results[-1]
            print(f"{number:3} {fault.name}: {last.finder()}, {last.seconds:.0f} s", flush=True)
    except (KeyboardInterrupt, SystemExit):
        interrupted = True
    broken = [] if interrupted else failing_without_fault(results, arguments.limit)
    for line in broken:
        print(f"fails without any fault: {line}")
    found = sum(result.test is not None for result in results)
    if arguments.table:
        write_table(arguments.table, results, faults)
    if len(results) < len(some):
        print(f"{len(some) - len(results)} faults were not planted any more")
    print(f"{found} of {len(results)} faults were found")
    return 0 if found == len(some) and not broken else 1


if __name__ == "__main__":
    sys.exit(main())
