// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What the launcher and Slurm say about this process, from their environment variables. Not which
/// rank it is: MPI alone knows that.

#include <cstdint>
#include <optional>
#include <string>

namespace pecia::cluster {

struct LaunchFacts {
  bool by_mpirun = false;             ///< Open MPI's or a PMI launcher's variables are there
  std::optional<int64_t> step_tasks;  ///< of the srun step
  std::optional<std::string> job_id, node_list, nodes, tasks, cpus_per_task, restart_count,
      end_time;
};
LaunchFacts launch_facts();

/// InputError when srun started several tasks that MPI could not join, so that each would run the
/// whole job for itself.
void refuse_copies(const LaunchFacts& facts, int world_size);

/// Value of an environment variable; absent when unset or empty.
std::optional<std::string> variable(const char* name);

}  // namespace pecia::cluster
