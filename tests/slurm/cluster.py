# SPDX-License-Identifier: Apache-2.0
"""Jobs on a Slurm cluster of four nodes in two racks, made on this machine for one test."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Optional

from harness import DONE, PROGRAM, SOURCE, Request, Results, RunTest, random_requests

SANDBOX = Path(__file__).with_name("sandbox.sh")
NODES = ["n1", "n2", "n3", "n4"]
RACKS = {"n1": "spine.rack1", "n2": "spine.rack1", "n3": "spine.rack2", "n4": "spine.rack2"}
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "DEADLINE")

LIMIT_S = 240.0  # of one event; the machine may have other things to do
GREEDY: dict[str, Any] = {"max_new_tokens": 400, "ignore_eos": True, "logprobs": 1}


def batch(long_tokens: int) -> list[Request]:
    """24 requests; the first is short, which tells that the run is under way."""
    requests = random_requests(24, 10, 40, seed=21)
    for index, request in enumerate(requests):
        request.max_new_tokens = [5 if index == 0 else long_tokens + 10 * index]
    return requests


def wait_until(what: str, condition: Callable[[], Any], limit_s: float = LIMIT_S) -> None:
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"waited {limit_s} s in vain for {what}")
        time.sleep(0.02)


def free_ports(count: int) -> int:
    """The first of so many ports in a row that nobody listens at, below those of outgoing connections."""
    first_choice = 20000 + os.getpid() % 600 * 16  # tests of other processes look elsewhere
    for first in (*range(first_choice, 32000, 16), *range(20000, first_choice, 16)):
        sockets = [socket.socket() for _ in range(count)]
        try:
            for offset, endpoint in enumerate(sockets):
                endpoint.bind(("127.0.0.1", first + offset))
            return first
        except OSError:
            continue
        finally:
            for endpoint in sockets:
                endpoint.close()
    raise AssertionError("no free ports")


class SlurmTest(RunTest):
    """A cluster for all tests of a class, and a folder from which jobs are submitted."""

    state: Path
    cpus = 4  # of each node, as Slurm counts them
    gpus = 0

    @classmethod
    def setUpClass(cls) -> None:
        cls.state = Path(tempfile.mkdtemp(prefix="pecia-slurm-"))
        cls.addClassCleanup(shutil.rmtree, cls.state, ignore_errors=True)
        os.environ["SLURM_CONF"] = str(cls.state / "slurm.conf")
        cls.addClassCleanup(cls.sandbox, "stop")
        options = ("--port", free_ports(len(NODES) + 1), "--cpus", cls.cpus, "--gpus", cls.gpus)
        options = (*options, "--owner", os.getpid())
        cls.sandbox("start", *options)

    @classmethod
    def sandbox(cls, verb: str, *arguments: object) -> None:
        subprocess.run(
            [str(word) for word in (SANDBOX, verb, cls.state, *arguments)],
            check=True,
            stdout=subprocess.DEVNULL,
            timeout=LIMIT_S,
        )

    def setUp(self) -> None:
        super().setUp()
        shutil.copytree(SOURCE / "jobs", self.folder / "jobs")
        (self.folder / "scripts").symlink_to(SOURCE / "scripts")
        self.write_site()
        self.addCleanup(self.cancel_all)

    def write_site(self, ranks_per_node: int = 1, launcher: str = "srun") -> None:
        example = (SOURCE / "jobs" / "slurm" / "sites" / "example.sh").read_text()
        (self.folder / "jobs" / "slurm" / "sites" / "sandbox.sh").write_text(
            f"{example}\n"
            f"site_pecia={PROGRAM}\n"
            f"site_launcher={launcher}\n"
            f"site_ranks_per_node={ranks_per_node}\n"
            "site_cpus_per_rank=1\n"
            # With the default, some starts of Open MPI 4.1 under Slurm 22.05 crash in MPI_Init.
            "export SLURM_PMIX_FENCE=ring\n"
        )

    def call(self, *words: object) -> str:
        """A command of Slurm, from the folder of submission; what it printed."""
        done = subprocess.run(
            [str(word) for word in words],
            cwd=self.folder,
            env={**os.environ, "PECIA_SITE": "sandbox"},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=LIMIT_S,
        )
        return done.stdout.strip()

    def cancel_all(self) -> None:
        self.call("scancel", "--user=root")
        wait_until("an empty cluster", lambda: not self.call("squeue", "--noheader"))

    def sbatch(self, script: str, *arguments: object, options: Sequence[str] = ()) -> str:
        """Submits a script of jobs/slurm; the job's id."""
        path = Path("jobs") / "slurm" / script
        return self.call("sbatch", "--parsable", *options, path, *arguments)

    def submit(self, job: Path, *options: str, nodes: int = 4) -> str:
        return self.sbatch("pecia.sbatch", job, options=[f"--nodes={nodes}", *options])

    def facts(self, job_id: str) -> dict[str, str]:
        """What Slurm says of a job: JobState, Restarts, ExitCode …"""
        text = self.call("scontrol", "--oneliner", "show", "job", job_id)
        return dict(re.findall(r"(\w+)=(\S*)", text))

    def log(self, job_id: str) -> str:
        path = self.folder / f"pecia-{job_id}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def wait_for(self, job_id: str, what: str, condition: Callable[[], Any]) -> None:
        """Waits for something that a living job brings about."""

        def happened() -> bool:
            if condition():
                return True
            state = self.facts(job_id)["JobState"]
            if state in ENDED and not condition():
                raise AssertionError(f"{what}: job {job_id} is {state}\n{self.log(job_id)}")
            return False

        try:
            wait_until(what, happened)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log(job_id)}") from None

    def wait_for_state(self, job_id: str, *states: str) -> None:
        self.wait_for(job_id, f"{states}", lambda: self.facts(job_id)["JobState"] in states)

    def wait_for_restart(self, job_id: str, number: int = 1) -> None:
        self.wait_for(
            job_id, f"restart {number}", lambda: int(self.facts(job_id)["Restarts"]) >= number
        )

    def wait_for_done(self, job_id: str, job: Path, count: int = 1) -> None:
        self.wait_for(job_id, f"{count} requests done", lambda: self.done(job) >= count)

    def wait_for_end(self, job_id: str, code: int = 0) -> None:
        self.wait_for_state(job_id, *ENDED)
        facts = self.facts(job_id)
        self.assertEqual(facts["ExitCode"], f"{code}:0", self.log(job_id))

    def reference(self, job: Path) -> Results:
        """The same job's answers by one rank, without Slurm, undisturbed."""
        folder = self.folder / f"{job.stem}.reference"
        self.run_job(job, 0, "--set", f"output={folder}")
        return Results.read(folder / "results.h5")

    def check_unfinished(self, found: Results, reference: Results) -> None:
        """A run that was stopped among its rows, with nothing wrong in them."""
        begun = [row for row in range(len(found["state"])) if found["output_tokens"][row] > 0]
        self.assertGreater(len(begun), 0)
        self.assertLess(len(found.rows(DONE)), len(found["state"]), "it was stopped too late")
        for row in begun:
            tokens = found.tokens(row)
            self.assertEqual(tokens, reference.tokens(row)[: len(tokens)], f"row {row}")

    def check_finished(self, job: Path, reference: Results) -> Results:
        """Every request is there once, with the text of the undisturbed run."""
        found = self.results(job)
        self.assertEqual(found["request_id"].tolist(), reference["request_id"].tolist())
        self.assertEqual(found.rows(DONE), list(range(len(found["state"]))))
        self.assert_same_answers(found, reference, found.rows(DONE))
        return found

    def check_continued(self, job: Path, before: Results, after: Results) -> None:
        """The last start made what was missing, and nothing again."""
        kept = sum(len(before.tokens(row)) for row in range(len(before["state"])))
        made = self.report(job)["counts"]["output_tokens"]
        self.assertEqual(made, int(after["output_tokens"].sum()) - kept)

    def processes(self, name: str, node: str) -> list[int]:
        """The processes of a name that jobs of this cluster have on a node."""
        ours = {f"SLURM_CONF={self.state}/slurm.conf".encode(), f"SLURMD_NODENAME={node}".encode()}
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if not entry.name.isdigit() or (entry / "comm").read_text().strip() != name:
                    continue
                if ours.issubset((entry / "environ").read_bytes().split(b"\0")):
                    found.append(int(entry.name))
            except OSError:  # ended meanwhile
                continue
        return found

    def kill(self, name: str, node: str) -> None:
        processes = self.processes(name, node)
        self.assertGreater(len(processes), 0, f"no {name} on {node}")
        for process in processes:
            os.kill(process, signal.SIGKILL)


def rank_map(log: str) -> list[dict[str, Optional[str]]]:
    """The rows that `pecia topology` printed."""
    row = re.compile(
        r"^ *(?P<rank>\d+)  (?P<host>\S+) +(?P<rack>\S+):(?P<server>\S+):(?P<device>\d+) +\d+ "
        r"+(?P<dp>\d+) +(?P<cp>\d+) +(?P<sp>\d+) +(?P<tp>\d+)  ",
        re.MULTILINE,
    )
    return [match.groupdict() for match in row.finditer(log)]
