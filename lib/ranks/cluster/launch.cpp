// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/cluster/launch.hpp"

#include <charconv>
#include <cstdlib>
#include <fstream>

#include "lib/base/core/error.hpp"

namespace pecia::cluster {

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

LaunchFacts launch_facts() {
  LaunchFacts facts;
  facts.by_mpirun = variable("OMPI_COMM_WORLD_SIZE") || variable("HYDRA_CONTROL_FD");
  if (const auto tasks = variable("SLURM_STEP_NUM_TASKS")) {
    int64_t count = 0;
    const auto result = std::from_chars(tasks->data(), tasks->data() + tasks->size(), count);
    if (result.ec == std::errc()) facts.step_tasks = count;
  }
  facts.job_id = variable("SLURM_JOB_ID");
  facts.node_list = variable("SLURM_JOB_NODELIST");
  facts.nodes = variable("SLURM_JOB_NUM_NODES");
  facts.tasks = variable("SLURM_NTASKS");
  facts.cpus_per_task = variable("SLURM_CPUS_PER_TASK");
  facts.restart_count = variable("SLURM_RESTART_COUNT");
  facts.end_time = variable("SLURM_JOB_END_TIME");
  return facts;
}

void refuse_copies(const LaunchFacts& facts, int world_size) {
  // Under mpirun the tasks on a node are the launcher's daemons, not ranks.
  if (world_size > 1 || facts.by_mpirun || facts.step_tasks.value_or(1) <= 1) return;
  fail<InputError>(
      "srun started {} tasks, but each sees itself as the only rank; start them with srun "
      "--mpi=pmix "
      "(srun --mpi=list shows what this cluster has), or with mpirun",
      *facts.step_tasks);
}

std::vector<std::string> own_command() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

}  // namespace pecia::cluster
