# SPDX-License-Identifier: Apache-2.0
"""Jobs that nothing disturbs: where their ranks are, and that they answer as one rank does."""

from __future__ import annotations

import json
import unittest

from cluster import GREEDY, NODES, RACKS, SlurmTest, batch, rank_map
from harness import ALL_DONE, MODEL, PROGRAM, REFUSED, random_requests
from support import make_model, read_turns


class ResultsTest(SlurmTest):
    def test_topology_comes_from_slurm_and_answers_are_those_of_one_rank(self) -> None:
        job = self.write_job(batch(40), generation=GREEDY)
        reference = self.reference(job)
        for launcher in ("srun", "mpirun"):
            with self.subTest(launcher):
                self.write_site(launcher=launcher)
                job = self.write_job(name="job", output=f"{launcher}.run", generation=GREEDY)
                job_id = self.submit(job)
                self.wait_for_end(job_id, ALL_DONE)
                places = {row["host"]: row["rack"] for row in rank_map(self.log(job_id))}
                self.assertEqual(places, RACKS)
                self.check_finished(job, reference)
                self.assertEqual(self.report(job)["counts"]["done"], 24)

    def test_the_grid_is_the_same_for_ranks_in_any_order(self) -> None:
        self.write_site(ranks_per_node=2)
        job = self.write_job(batch(20), generation=GREEDY)
        reference = self.reference(job)
        grids = []
        for distribution, hosts in (
            ("block", [node for node in NODES for _ in range(2)]),
            ("cyclic", NODES * 2),
        ):
            with self.subTest(distribution):
                job = self.write_job(name="job", output=f"{distribution}.run", generation=GREEDY)
                job_id = self.submit(job, f"--distribution={distribution}")
                self.wait_for_end(job_id, ALL_DONE)
                rows = rank_map(self.log(job_id))
                self.assertEqual([row["host"] for row in rows], hosts)
                grids.append({row["cp"]: (row["server"], row["device"]) for row in rows})
                self.check_finished(job, reference)
        self.assertEqual(grids[0], grids[1])
        self.assertEqual(
            [grids[0][str(cp)][0] for cp in range(8)], [node for node in NODES for _ in range(2)]
        )

    def test_hosts_read_weights_together(self) -> None:
        """Four nodes of two ranks: each byte is read once, and the memory is that of a node's ranks."""
        self.write_site(ranks_per_node=2)
        files = sum(file.stat().st_size for file in MODEL.glob("*.safetensors"))
        job = self.write_job(batch(20), generation=GREEDY, model={"load": "spread"})
        reference = self.reference(job)
        job_id = self.submit(job)
        self.wait_for_end(job_id, ALL_DONE)
        self.assertIn("weights: 4 hosts read", self.log(job_id))
        read = self.report(job)["model"]["read_bytes_by_host"]
        self.assertEqual((len(read), sum(read)), (4, files))
        self.check_finished(job, reference)

    def test_links_are_measured_by_the_levels_that_slurm_tells(self) -> None:
        words = ("--nodes=4", "--ntasks=4", "--mpi=pmix", PROGRAM, "topology", "--measure", "--json")
        found = json.loads(self.call("env", "SLURM_PMIX_FENCE=ring", "srun", *words))
        self.assertEqual((found["servers"], found["racks"]), (4, 2))
        levels = {of["level"]: of["pairs"] for of in found["links"]["levels"]}
        hosts = {row["rank"]: row["host"] for row in found["ranks"]}
        for level, same in (("rack", True), ("system", False)):
            for pair in levels[level]:
                racks = RACKS[hosts[pair["from"]]], RACKS[hosts[pair["to"]]]
                self.assertEqual(racks[0] == racks[1], same)
        (ring,) = found["links"]["rings"]
        self.assertEqual([link["level"] for link in ring["links"]].count("system"), 2)

    def test_array_runs_each_shard_in_a_folder_of_its_own(self) -> None:
        names = ["history", "letters"]
        jobs = [
            self.write_job(
                random_requests(6, 5, 30, seed=seed),
                name,
                generation=GREEDY,
                output=f"array/{name}",
            )
            for seed, name in enumerate(names)
        ]
        references = [self.reference(job) for job in jobs]
        (self.folder / "shards.txt").write_text("history.h5\nletters.h5\n")
        options = ["--array=1-2", "--nodes=2"]
        job_id = self.sbatch("array.sbatch", jobs[0], "shards.txt", "array", options=options)
        for task in (1, 2):
            self.wait_for_end(f"{job_id}_{task}", ALL_DONE)
        for job, reference in zip(jobs, references):
            self.check_finished(job, reference)

    def test_array_refuses_a_task_without_a_shard(self) -> None:
        job = self.write_job(random_requests(2, 5, 9, seed=1), generation=GREEDY)
        (self.folder / "shards.txt").write_text("job.h5\n")
        job_id = self.sbatch(
            "array.sbatch", job, "shards.txt", "array", options=["--array=2", "--nodes=1"]
        )
        self.wait_for_end(f"{job_id}_2", REFUSED)
        self.assertIn("shards.txt has no line 2", self.log(f"{job_id}_2"))

    def test_a_job_file_that_is_wrong_is_final(self) -> None:
        job = self.write_job(random_requests(2, 5, 9, seed=1), generation={"temprature": 1})
        job_id = self.submit(job, nodes=1)
        self.wait_for_end(job_id, REFUSED)
        self.assertIn("temprature", self.log(job_id))
        self.assertEqual(self.facts(job_id)["Restarts"], "0")

    def test_documents_are_packed_as_a_job(self) -> None:
        model = make_model(self.folder / "tiny")
        (self.folder / "essay.txt").write_text("A stationer kept the exemplar, unbound.")
        job_id = self.sbatch("pack.sbatch", "essay.txt", "--model", model, "--output", "essay.h5")
        self.wait_for_end(job_id)
        self.assertEqual(list(read_turns(self.folder / "essay.h5")), ["essay"])

    def test_report_is_drawn_by_a_job_that_waits_for_the_run(self) -> None:
        job = self.write_job(
            random_requests(2, 5, 9, seed=1), generation=GREEDY, report={"trace": "full"}
        )
        run_id = self.submit(job, nodes=2)
        report_id = self.sbatch(
            "report.sbatch", self.output(job), options=[f"--dependency=afterany:{run_id}"]
        )
        self.wait_for_end(report_id)
        self.assertEqual(self.facts(run_id)["JobState"], "COMPLETED")
        self.assertIn("<html", (self.output(job) / "report.html").read_text(encoding="utf-8"))


if __name__ == "__main__":
    unittest.main()
