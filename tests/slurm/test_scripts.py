# SPDX-License-Identifier: Apache-2.0
"""What the batch scripts say and start, with doubles of Slurm, PBS and mpirun that write down how they are called."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
JOBS = SOURCE / "jobs"

# Each argument on a line of its own; `pecia run --print-output` and `qstat` also answer.
DOUBLE = r"""#!/usr/bin/env bash
{ printf '<%s>' "$(basename "$0")" "$@"; echo; } >>"$CALLS"
case "$(basename "$0") $*" in
  qstat*) printf 'Job: 7\n    Resource_List.walltime = 01:30:00\n' ;;
  *--print-output*) echo "$PWD/out" ;;
  mpirun*) exit "${CODE:-0}" ;;
esac
"""


class ScriptsTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        shutil.copytree(JOBS, self.folder / "jobs")
        self.calls = self.folder / "calls"
        for name in ("sbatch", "srun", "mpirun", "qstat", "pecia"):
            program = self.folder / "bin" / name
            program.parent.mkdir(exist_ok=True)
            program.write_text(DOUBLE)
            program.chmod(0o755)

    def call(self, script: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        self.calls.write_text("")
        return subprocess.run(
            ["bash", f"jobs/{script}", *words],
            cwd=self.folder,
            env={
                "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
                "CALLS": str(self.calls),
                "SLURM_SUBMIT_DIR": str(self.folder),
                "SLURM_JOB_ID": "7",
                "SLURM_JOB_NODELIST": "n[1-2]",
                "SLURM_JOB_NUM_NODES": "2",
                "PBS_O_WORKDIR": str(self.folder),
                "PBS_JOBID": "7",
                **environment,
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def called(self) -> list[list[str]]:
        return [re.findall("<([^>]*)>", line) for line in self.calls.read_text().splitlines()]

    def write_site(self, name: str, *lines: str) -> None:
        text = (JOBS / "slurm/sites/example.sh").read_text()
        (self.folder / f"jobs/slurm/sites/{name}.sh").write_text("\n".join((text, "site_pecia=pecia", *lines)))


class Sites(ScriptsTest):
    def test_a_wrong_site_is_refused_with_those_that_exist(self) -> None:
        for script, words in (
            ("slurm/pecia.sbatch", ["job.yaml"]),
            ("slurm/chain.sh", ["3", "job.yaml"]),
            ("pbs/pecia.pbs", []),
        ):
            with self.subTest(script):
                ended = self.call(script, *words, PECIA_SITE="exmple", PECIA_JOB="job.yaml")
                self.assertEqual(ended.returncode, 2)
                self.assertIn("PECIA_SITE is 'exmple', but there is no file", ended.stderr)
                self.assertIn("The sites that exist are: example gpus grace-hopper pyxis\n", ended.stderr)
                self.assertEqual(self.called(), [])

    def test_a_site_that_is_not_set_says_what_holds(self) -> None:
        said = "PECIA_SITE is not set, so jobs/slurm/sites/example.sh holds"
        self.assertIn(said, self.call("slurm/chain.sh", "1", "job.yaml").stderr)
        self.assertNotIn(said, self.call("slurm/chain.sh", "1", "job.yaml", PECIA_SITE="gpus").stderr)
        # What the message says of the file is so.
        example = (JOBS / "slurm/sites/example.sh").read_text()
        self.assertRegex(example, r"site_ranks_per_node=2\b")
        self.assertRegex(example, r"site_cpus_per_rank=32\b")


    def test_grace_hopper_has_a_rank_and_its_cores_for_each_superchip(self) -> None:
        (self.folder / "build/cuda/bin").mkdir(parents=True)
        shutil.copy2(self.folder / "bin/pecia", self.folder / "build/cuda/bin/pecia")
        ended = self.call("slurm/pecia.sbatch", "job.yaml", PECIA_SITE="grace-hopper")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        runs = [call for call in self.called() if call[0] == "srun" and "--ntasks-per-node=4" in call]
        self.assertTrue(runs, self.called())
        for call in runs:
            for option in ("--cpus-per-task=72", "--cpu-bind=cores", "--gpus-per-node=4", "--gpu-bind=none"):
                self.assertIn(option, call)

    def test_grace_hopper_knows_both_networks(self) -> None:
        site = JOBS / "slurm/sites/grace-hopper.sh"
        for network, wanted in (("slingshot", "AWS Libfabric//0"), ("infiniband", "/mlx5/")):
            words = 'source "$1"; echo "${NCCL_NET:-}/${NCCL_IB_HCA:-}/${MPICH_GPU_SUPPORT_ENABLED:-}"'
            said = subprocess.run(
                ["bash", "-euc", words, "bash", str(site)],
                env={"PATH": os.environ["PATH"], "site_network": network},
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            self.assertEqual(said, wanted + "\n")


class Chain(ScriptsTest):
    def test_options_reach_whom_they_belong_to(self) -> None:
        words = ["--nodes=4", "--set", "generation.seed=1", "--account", "a b", "--set=kv.save=off", "--", "--journal"]
        ended = self.call("slurm/chain.sh", "2", "job.yaml", *words, PECIA_SITE="example")
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        calls = self.called()
        self.assertEqual(len(calls), 2)
        for call in calls:
            script = call.index("jobs/slurm/pecia.sbatch")
            self.assertEqual(call[script - 3 : script], ["--nodes=4", "--account", "a b"])
            self.assertEqual(
                call[script + 1 :], ["job.yaml", "--set", "generation.seed=1", "--set=kv.save=off", "--journal"]
            )

    def test_set_without_a_value_is_refused(self) -> None:
        self.assertEqual(self.call("slurm/chain.sh", "2", "job.yaml", "--set").returncode, 2)
        self.assertEqual(self.called(), [])


class Array(ScriptsTest):
    def test_a_task_takes_one_node(self) -> None:
        """A list of 100 shards is 100 tasks: with two nodes each, it took 200 without a word."""
        script = (JOBS / "slurm/array.sbatch").read_text()
        self.assertIn("#SBATCH --nodes=1\n", script)
        self.assertRegex(script, r"--array=1-\$\(wc -l < SHARDS.txt\)%\d")


class Containers(ScriptsTest):
    def test_pyxis_starts_every_process_in_the_image(self) -> None:
        ended = self.call("slurm/pecia.sbatch", "job.yaml", PECIA_SITE="pyxis", PECIA_IMAGE="/images/pecia.sqsh")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        calls = self.called()
        self.assertEqual({call[0] for call in calls}, {"srun"}, "nothing runs outside of the image")
        for call in calls:
            self.assertIn("--container-image=/images/pecia.sqsh", call)
        alone = [call for call in calls if "--version" in call or "--validate" in call or "--print-output" in call]
        self.assertEqual(len(alone), 3)
        for call in alone:
            self.assertIn("--ntasks=1", call)

    def test_site_files_without_the_newest_variable_still_work(self) -> None:
        self.write_site("old", "unset site_alone")
        path = self.folder / "jobs/slurm/sites/old.sh"
        path.write_text(re.sub(r"^(unset )?site_alone.*\n?", "", path.read_text(), flags=re.MULTILINE))
        self.assertNotIn("site_alone", path.read_text())
        ended = self.call("slurm/pecia.sbatch", "job.yaml", PECIA_SITE="old")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertIn(["pecia", "--version"], self.called())


class Pbs(ScriptsTest):
    def submit(self, *hosts: str, **environment: str) -> subprocess.CompletedProcess[str]:
        self.write_site("here", "site_ranks_per_node=2")
        (self.folder / "nodes").write_text("".join(f"{host}\n" for host in hosts))
        return self.call(
            "pbs/pecia.pbs", PECIA_SITE="here", PBS_NODEFILE=str(self.folder / "nodes"), **environment
        )

    def test_ranks_are_those_of_the_nodes_and_the_run_knows_its_time(self) -> None:
        ended = self.submit(
            "a", "a", "b", "b", PECIA_JOB="job.yaml", PECIA_OPTIONS="--set generation.seed=1", CODE="3"
        )
        self.assertEqual((ended.returncode, ended.stderr), (3, ""))
        (call,) = [call for call in self.called() if call[0] == "mpirun"]
        self.assertEqual(call[1:3], ["-np", "4"])
        self.assertIn("ppr:2:node:pe=32", call)
        run = call[call.index("pecia") :]
        self.assertEqual(run[:4], ["pecia", "run", "job.yaml", "--set"])
        self.assertRegex(run[4], r"^limits\.wall_time=(5400|539\d)s$")
        self.assertEqual(run[5:], ["--set", "generation.seed=1"])

    def test_a_drained_job_says_how_it_goes_on(self) -> None:
        ended = self.submit("a", "a", PECIA_JOB="job.yaml", CODE="75")
        self.assertEqual(ended.returncode, 75)
        self.assertIn("submit the job again to continue", ended.stderr)

    def test_places_that_are_not_the_site_s_are_refused(self) -> None:
        ended = self.submit("a", "b", PECIA_JOB="job.yaml")
        self.assertEqual(ended.returncode, 2)
        self.assertIn("-l select=2:ncpus=CORES:mpiprocs=2", ended.stderr)
        self.assertEqual(self.called(), [])

    def test_a_job_file_is_needed(self) -> None:
        self.assertIn("usage: qsub", self.submit("a", "a").stderr)


class Syntax(unittest.TestCase):
    def test_every_script_is_one(self) -> None:
        scripts = [path for path in JOBS.rglob("*") if path.suffix in (".sh", ".sbatch", ".pbs")]
        self.assertGreaterEqual(len(scripts), 10)
        for script in scripts:
            checked = subprocess.run(["bash", "-n", script], capture_output=True, text=True, check=False)
            self.assertEqual((checked.returncode, checked.stderr), (0, ""), script)


if __name__ == "__main__":
    unittest.main()
