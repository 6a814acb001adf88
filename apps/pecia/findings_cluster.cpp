// SPDX-License-Identifier: Apache-2.0
/// Findings about ranks together: how they were placed, started and connected.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "apps/pecia/findings.hpp"
#include "lib/base/report/format.hpp"

namespace pecia::app {
namespace {

template <typename Number>
std::optional<Number> number_of(const std::optional<std::string>& text) {
  Number value{};
  if (!text) return std::nullopt;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size()) return std::nullopt;
  return value;
}

size_t servers_of(const std::vector<comm::RackServerGpu>& places) {
  const std::vector<int> servers = comm::server_of_rank(places);
  return std::set<int>(servers.begin(), servers.end()).size();
}

}  // namespace

Finding judge_places(const PlacesFacts& facts) {
  if (!facts.problem.empty())
    return warning("places", "the ranks make no grid, a run would be refused", facts.problem);
  const size_t servers = servers_of(facts.by_rank);
  std::set<std::string> racks;
  for (const comm::RackServerGpu& place : facts.by_rank) racks.insert(place.rack);
  if (!racks.contains(""))
    return ok("places", fmt::format("servers: {}, racks: {}", servers, racks.size()));
  const std::string text = fmt::format("servers: {}, racks: not known", servers);
  if (servers == 1) return ok("places", text);
  return warning(
      "places", text,
      "rings may cross racks more often than they must: name each host's rack in a file, "
      "HOST RACK a line, as the job's topology or PECIA_TOPOLOGY_FILE; under Slurm "
      "TopologyPlugin=topology/tree tells it");
}

Finding judge_transports(const std::vector<std::string>& transports,
                         const std::vector<std::string>& rdma, size_t ranks, size_t servers) {
  if (transports.empty()) return ok("transports", "this MPI does not show them");
  const auto has = [&](std::initializer_list<std::string_view> names) {
    return std::any_of(names.begin(), names.end(), [&](std::string_view name) {
      return std::find(transports.begin(), transports.end(), name) != transports.end();
    });
  };
  const std::string text =
      fmt::format("{}; RDMA devices: {}", fmt::join(transports, ", "),
                  rdma.empty() ? "none" : fmt::format("{}", fmt::join(rdma, ", ")));
  const bool any_network = has({"pml ucx", "pml cm"});  // UCX and CM choose networks themselves
  if (servers > 1 && !rdma.empty() && !any_network && !has({"btl openib", "btl ofi"}))
    return warning("transports", text,
                   "messages between servers go over TCP although there is an RDMA network: unset "
                   "OMPI_MCA_pml and OMPI_MCA_btl, or use an Open MPI with UCX or libfabric "
                   "(ompi_info | grep -E 'ucx|ofi')");
  if (ranks > servers && !any_network && !has({"btl vader", "btl sm"}))
    return warning("transports", text,
                   "ranks of a server have no shared memory: unset OMPI_MCA_btl, or add vader (sm "
                   "from Open MPI 5 on) to it");
  return ok("transports", text);
}

Finding judge_threads(const std::optional<std::string>& wanted, const HostRanks& host) {
  if (!wanted)
    return ok("threads", "OMP_NUM_THREADS unset: each rank takes its share of the cores");
  const std::string text = fmt::format("OMP_NUM_THREADS={}; on this host ranks: {}, cores: {}",
                                       *wanted, host.ranks, host.cores);
  const auto threads = number_of<int>(wanted->substr(0, wanted->find(',')));  // of nested teams
  if (!threads || *threads < 1)
    return warning("threads", text,
                   "a run would be refused: unset it, or make it a number from 1 on");
  if (int64_t{*threads} * host.ranks > std::max(host.cores, host.ranks))
    return warning("threads", text,
                   fmt::format("more threads than cores: unset it, or make it {}",
                               std::max(1, host.cores / host.ranks)));
  return ok("threads", text);
}

Finding judge_numa(const cluster::CpuFacts& cpu, const HostRanks& host) {
  const std::string text = fmt::format("the rank's cores belong to {} NUMA node{}", cpu.numa_nodes,
                                       cpu.numa_nodes == 1 ? "" : "s");
  if (cpu.numa_nodes <= 1) return ok("numa", text);
  return warning(
      "numa", text,
      fmt::format("half of its memory is far from half of its cores: a rank for each node "
                  "({} on this host) by mpirun --map-by ppr:1:numa:pe=CORES --bind-to "
                  "core, or srun --cpu-bind=ldoms",
                  std::max(cpu.numa_nodes, host.ranks)));
}

Finding judge_slurm(const cluster::LaunchFacts& launch, double now_unix_s) {
  if (!launch.job_id) return ok("slurm", "no job");
  constexpr double short_s = 600;
  const auto shown = [](const std::optional<std::string>& value) { return value.value_or("?"); };
  const std::string text =
      fmt::format("job {}, nodes: {} ({}), tasks: {}, cores of a task: {}, restarts: {}",
                  *launch.job_id, shown(launch.nodes), shown(launch.node_list), shown(launch.tasks),
                  shown(launch.cpus_per_task), launch.restart_count.value_or("0"));
  const auto end = number_of<int64_t>(launch.end_time);
  if (!end)
    return warning(
        "slurm", text + ", its end is not known",
        "SLURM_JOB_END_TIME is missing, so a run does not stop in time by itself: set "
        "limits.wall_time, or sbatch --signal=B:USR1@120 as jobs/slurm/pecia.sbatch does");
  const double left_s = static_cast<double>(*end) - now_unix_s;
  const std::string with_end =
      fmt::format("{}, {} left", text, report::format_duration(std::max(0.0, left_s)));
  if (left_s < short_s)
    return warning("slurm", with_end,
                   "hardly enough to load a model: ask for more (sbatch --time); what a run has "
                   "finished is kept, the same command continues it");
  return ok("slurm", with_end);
}

}  // namespace pecia::app
