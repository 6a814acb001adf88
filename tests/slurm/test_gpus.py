# SPDX-License-Identifier: Apache-2.0
"""Jobs by the site files for GPUs: one rank for each, all of a node visible, NCCL's settings in every rank.

Slurm hands out files as GPUs, and the program computes on GPUs that the host imitates. There is a double of nvidia-smi.
"""

from __future__ import annotations

import os
import unittest
from pathlib import Path

from cluster import GREEDY, SOURCE, SlurmTest, batch, rank_map
from harness import ALL_DONE

PROGRAM = os.environ.get("PECIA_ON_FAKE_GPUS", "")
NODES = ("n1", "n2")

NVIDIA_SMI = """#!/bin/sh
case $1 in
  -L) echo "GPU 0: fake GPU (UUID: GPU-0)" && echo "GPU 1: fake GPU (UUID: GPU-1)" ;;
  *) echo 580.65.06 ;;
esac
"""

# What a rank sees, before it becomes the program.
NOTE = """#!/bin/sh
[ "$2" != run ] || [ -z "$SLURM_STEP_ID" ] || echo "{seen}" >>"{notes}/$SLURM_STEP_ID.$SLURM_PROCID"
{then}
exec "$@"
"""


class OnFakeGpus(SlurmTest):
    def write_note(self, seen: str, then: str = "") -> Path:
        """A program that notes these words of every rank, and becomes what it is called with."""
        notes = self.folder / "notes"
        notes.mkdir(exist_ok=True)
        note = NOTE.replace("{notes}", str(notes)).replace("{seen}", seen).replace("{then}", then)
        return self.write_program("bin/note", note)

    def seen(self) -> list[list[str]]:
        return [path.read_text().split() for path in sorted((self.folder / "notes").iterdir())]

    def run_batch(self, name: str, nodes: tuple[str, ...]) -> None:
        """A batch on these nodes, one rank for each of their GPUs."""
        # Transfers by way of the host, as there is no double of NCCL for whole runs.
        job = self.write_job(batch(20), name, generation=GREEDY, backend="cuda", allow_gpu_sharing=True)
        job_id = self.submit(job, f"--nodelist={','.join(nodes)}", nodes=len(nodes))
        self.wait_for_end(job_id, ALL_DONE)
        rows = rank_map(self.log(job_id))
        self.assertEqual(
            [(row["host"], row["device"]) for row in rows],
            [(node, str(gpu)) for node in nodes for gpu in range(self.gpus)],
        )
        self.assertEqual(self.report(job)["counts"]["done"], 24)

    def write_program(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        return path


class GpusTest(OnFakeGpus):
    gpus = 2

    def write_site(self, ranks_per_node: int = 1, launcher: str = "srun") -> None:
        """The example for GPUs, on these nodes."""
        nccl = "$NCCL_IB_HCA $NCCL_SOCKET_IFNAME $NCCL_NET_GDR_LEVEL"
        note = self.write_note("$SLURMD_NODENAME ${SLURM_GPUS_ON_NODE:-none} " + nccl)
        self.write_program("bin/nvidia-smi", NVIDIA_SMI)
        sites = SOURCE / "jobs" / "slurm" / "sites"
        (self.folder / "jobs/slurm/sites/sandbox.sh").write_text(
            f"site_gpus_per_node={self.gpus} NCCL_SOCKET_IFNAME=eth7\n"
            f"{(sites / 'gpus.sh').read_text()}\n"
            f"site_pecia={PROGRAM}\n"
            f"site_container=({note})\n"
            "site_cpus_per_rank=1\n"
            f"export PATH={self.folder / 'bin'}:$PATH SLURM_PMIX_FENCE=ring\n",
            encoding="utf-8",
        )

    def test_each_rank_computes_on_a_gpu_of_its_own(self) -> None:
        self.run_batch("gpus", NODES)
        wanted = [[node, "2", "mlx5", "eth7", "PHB"] for node in NODES for _ in range(self.gpus)]
        self.assertEqual(self.seen(), wanted)

    def test_doctor_looks_at_the_gpus_of_the_nodes(self) -> None:
        srun = (
            "source jobs/slurm/sites/sandbox.sh && srun --mpi=$site_mpi --nodes=2 --ntasks-per-node=2 "
            '"${site_launcher_options[@]}" "$site_pecia" doctor'
        )
        text = self.call("bash", "-c", srun)
        self.assertRegex(text, r"ok +gpus +fake GPU, 64\.0 GiB free")
        self.assertRegex(text, r"ok +gpu driver +580\.65\.06, for up to CUDA 13\.0; built with CUDA 13\.0")
        self.assertRegex(text, r"warn +nccl network +NCCL_SOCKET_IFNAME=eth7")


class GraceHopperTest(OnFakeGpus):
    """On nodes that have, as Slurm counts, the GPUs and cores of four superchips."""

    gpus = 4
    cpus = 288

    def write_site(self, ranks_per_node: int = 1, launcher: str = "srun") -> None:
        """The example, on a network that `network` names. Threads of 72 cores are too many for this machine."""
        seen = "$SLURMD_NODENAME $SLURM_GPUS_ON_NODE $SLURM_CPUS_PER_TASK ${NCCL_NET:-$NCCL_IB_HCA}"
        note = self.write_note(seen, "export OMP_NUM_THREADS=1")
        site = (SOURCE / "jobs/slurm/sites/grace-hopper.sh").read_text()
        (self.folder / "jobs/slurm/sites/sandbox.sh").write_text(
            f"site_network=$(cat {self.folder}/network)\n{site}\nsite_pecia={PROGRAM}\nsite_container=({note})\n"
            "export SLURM_PMIX_FENCE=ring\n",
            encoding="utf-8",
        )

    def test_each_superchip_has_a_rank_on_either_network(self) -> None:
        for network, nccl in (("slingshot", ["AWS", "Libfabric"]), ("infiniband", ["mlx5"])):
            with self.subTest(network):
                (self.folder / "network").write_text(network)
                for path in (self.folder / "notes").iterdir():
                    path.unlink()
                self.run_batch(network, NODES[:1])
                self.assertEqual(self.seen(), [["n1", "4", "72", *nccl]] * self.gpus)


if __name__ == "__main__":
    unittest.main()
