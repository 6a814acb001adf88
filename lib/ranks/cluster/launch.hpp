// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What the launcher and Slurm say about this process in their environment variables. The rank is
/// not among these facts: only MPI knows it.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pecia::cluster {

struct LaunchFacts {
  bool by_mpirun = false;             ///< variables of Open MPI or a PMI launcher are present
  std::optional<int64_t> step_tasks;  ///< number of tasks of the srun step
  std::optional<std::string> job_id, node_list, nodes, tasks, cpus_per_task, restart_count,
      end_time;
};
LaunchFacts launch_facts();

/// Throws InputError when srun started several tasks that MPI could not join. Each would run the
/// whole job by itself.
void refuse_copies(const LaunchFacts& facts, int world_size);

/// The value of an environment variable; absent when unset or empty.
std::optional<std::string> variable(const char* name);

/// The command line of this process, without its launcher's; empty where the kernel does not say.
std::vector<std::string> own_command();

}  // namespace pecia::cluster
