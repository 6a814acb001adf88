// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "apps/command_line/options.hpp"
#include "apps/pecia/command.hpp"
#include "apps/pecia/link_tables.hpp"
#include "lib/base/core/error.hpp"
#include "lib/base/core/json.hpp"
#include "lib/base/device/cuda_device.hpp"
#include "lib/base/report/atomic_file.hpp"
#include "lib/ranks/cluster/machine.hpp"
#include "lib/ranks/cluster/process_grid.hpp"
#include "lib/ranks/comm/agree.hpp"
#include "lib/settle/this_cluster.hpp"
#include "lib/work/job/job.hpp"
#include "lib/work/resources/compute_place.hpp"
#include "lib/work/resources/footprint.hpp"

namespace pecia::app {
namespace {

struct TopologyOptions {
  std::string job;                    // empty: none
  std::optional<int> dp, cp, sp, tp;  // by default the job's; cp: what the others leave
  std::string file;                   // empty: the job's, else the environment's
  std::string cluster_file;           // empty: none is written
  bool measure = false, json = false;
};

cluster::GridShape shape_for(const TopologyOptions& options, const job::Job& job, int ranks) {
  cluster::GridShape shape{options.dp.value_or(job.parallel.dp.value_or(1)), 1,
                           options.sp.value_or(job.parallel.sp.value_or(1)),
                           options.tp.value_or(job.parallel.tp.value_or(1)),
                           job.parallel.pp.value_or(1)};
  const std::optional<int> cp = options.cp ? options.cp : job.parallel.cp.degree;
  shape.cp = cp.value_or(static_cast<int>(std::max<int64_t>(1, ranks / shape.ranks())));
  return shape;
}

/// The GPU that a run would take for this rank, as "NVIDIA H200 at 0000:1b:00"; "" without GPUs.
std::string gpu_text(int device) {
  const int number = device::num_cuda_devices();
  if (number == 0) return "";
  if (device >= number) return fmt::format("none: {} on this host", number);
  const device::DeviceInfo info = device::make_cuda_device(device)->info();
  return fmt::format("{} at {}", info.name, info.address);
}

/// How much of the machine the ranks use; 0 racks: unknown.
struct Counts {
  size_t servers = 0, racks = 0;
};

Counts counts_of(const std::vector<comm::RackServerGpu>& places) {
  std::set<std::string> racks;
  std::set<std::pair<std::string, std::string>> servers;
  for (const comm::RackServerGpu& place : places) {
    servers.emplace(place.rack, place.server);
    if (!place.rack.empty()) racks.insert(place.rack);
  }
  return {servers.size(), racks.size()};
}

/// The ranks along each CP axis, in the order in which the ring's messages go.
std::vector<std::vector<int>> rings_of(const cluster::ProcessGrid& grid) {
  std::vector<std::vector<int>> rings;
  for (int rank = 0; rank < grid.shape().ranks(); ++rank)
    if (grid.coordinates(rank).cp == 0) rings.push_back(grid.group(cluster::Axis::cp, rank));
  return rings;
}

nlohmann::ordered_json measured_links(const std::vector<comm::RackServerGpu>& places,
                                      const cluster::ProcessGrid& grid, comm::Communicator& world) {
  constexpr int pairs_of_a_level = 8;
  const cluster::MeasureOptions options;
  const auto pairs = cluster::representative_pairs(places, pairs_of_a_level);
  return links_json(places, cluster::measure_pairs(world, pairs, options),
                    cluster::measure_rings(world, rings_of(grid), options), options);
}

/// Measures keys and queries round the rings of the job's model, where there are rings and the job
/// leaves the choice open. Collective over `world`.
std::optional<settle::MeasuredRing> measured_ring(const job::Job& job,
                                                  const cluster::ProcessGrid& grid,
                                                  const resources::ComputePlace& place,
                                                  comm::Communicator& world) {
  const cluster::GridShape& shape = grid.shape();
  if (job.model.path.empty() || shape.cp == 1 || job.parallel.ring) return {};
  model::ModelConfig config;
  comm::together(world, [&] { config = model::read_config(job.model.path); });
  resources::Resources resources;
  resources.cp = shape.cp, resources.sp = shape.sp, resources.tp = shape.tp;
  resources.kv_dtype =
      job.kv.dtype ? resources::dtype_of(*job.kv.dtype) : resources::float_type(job, config);
  const auto tensors = resources::tensor_group(job, world, place);
  const cluster::GridCoordinates at = grid.coordinates(world.rank());
  const int number = ((at.dp * shape.pp + at.pp) * shape.sp + at.sp) * shape.tp + at.tp;
  const auto ring = (tensors ? *tensors : world).split(number, at.cp);
  return settle::measure_ring_rule(world, *ring, job, config, resources, place);
}

/// What was fitted, in words.
std::string text_of(const settle::MeasuredRing& ring) {
  const parallel::FittedRule& rule = ring.rule.rule;
  double most_keys = 0;
  for (const parallel::RingTimes& each : ring.times)
    most_keys = std::max(most_keys, each.load.keys);
  return fmt::format(
      "ring: keys travel where {:.4g} · ln T {:+.4g} · ln(T/(T+P)) {:+.4g} > 0 (T new, P cached "
      "tokens); fitted to {} passes of up to {:.0f} tokens, it names the faster way in {}\n",
      rule.new_tokens, rule.miss_rate, rule.constant, ring.times.size(), most_keys,
      parallel::count_right(rule, ring.times));
}

nlohmann::ordered_json json_of(const settle::MeasuredRing& ring) {
  const parallel::FittedRule& rule = ring.rule.rule;
  nlohmann::ordered_json json{{"new_tokens", rule.new_tokens},
                              {"miss_rate", rule.miss_rate},
                              {"constant", rule.constant},
                              {"right", parallel::count_right(rule, ring.times)},
                              {"passes", nlohmann::ordered_json::array()}};
  for (const parallel::RingTimes& each : ring.times)
    json["passes"].push_back({{"new_tokens", each.load.new_tokens},
                              {"cached_tokens", each.load.cached_tokens()},
                              {"pass_kv_s", each.pass_kv_s},
                              {"pass_q_s", each.pass_q_s}});
  return json;
}

/// Measures this machine and writes its cluster file. Returns what was measured of rings. Collective
/// over `world`.
std::optional<settle::MeasuredRing> write_cluster_file(
    const std::string& path, const job::Job& job, const cluster::ProcessGrid& grid,
    const std::vector<comm::RackServerGpu>& places, comm::Communicator& world) {
  const resources::Threads threads = resources::threads_of_rank(world);
  const resources::ComputePlace place =
      resources::make_compute_place(job, resources::computes_on_gpus(job, world), threads, world);
  const auto ring = measured_ring(job, grid, place, world);
  const cluster_files::Cluster cluster =
      settle::measure_this_cluster(world, places, job, place, threads.cache_bytes,
                                   ring ? std::optional(ring->rule) : std::nullopt);
  comm::together(world, [&] {
    if (world.rank() == 0) report::write_atomically(path, to_yaml(cluster));
  });
  return ring;
}

void print_table(const cluster::GridShape& shape, const Counts& counts,
                 const std::vector<nlohmann::ordered_json>& rows) {
  size_t host_width = 4, place_width = 15;
  bool any_gpu = false;
  for (const auto& row : rows) {
    host_width = std::max(host_width, row["host"].get_ref<const std::string&>().size());
    place_width = std::max(place_width, row["place"].get_ref<const std::string&>().size());
    any_gpu = any_gpu || !row["gpu"].get_ref<const std::string&>().empty();
  }
  const bool stages = shape.pp > 1;
  fmt::print("DP {}{} × CP {} × SP {} × TP {}, ranks: {}, servers: {}, racks: {}\n", shape.dp,
             stages ? fmt::format(" × PP {}", shape.pp) : "", shape.cp, shape.sp, shape.tp,
             rows.size(), counts.servers,
             counts.racks > 0 ? std::to_string(counts.racks) : "not known");
  fmt::print("{:>5}  {:<{}}  {:<{}}  {:>5}  {:>3}{} {:>3} {:>3} {:>3}  {}\n", "rank", "host",
             host_width, "rack:server:gpu", place_width, "local", "dp", stages ? "  pp" : "", "cp",
             "sp", "tp", any_gpu ? "cores, GPU" : "cores");
  for (const auto& row : rows)
    fmt::print("{:>5}  {:<{}}  {:<{}}  {:>5}  {:>3}{} {:>3} {:>3} {:>3}  {}{}\n",
               row["rank"].get<int>(), row["host"].get<std::string>(), host_width,
               row["place"].get<std::string>(), place_width, row["local_rank"].get<int>(),
               row["dp"].get<int>(), stages ? fmt::format(" {:>3}", row["pp"].get<int>()) : "",
               row["cp"].get<int>(), row["sp"].get<int>(), row["tp"].get<int>(),
               ranges(row["cores"].get<std::vector<int>>()),
               any_gpu ? ", " + row["gpu"].get<std::string>() : "");
}

int topology_command(const TopologyOptions& options, comm::Communicator& world) {
  const job::Job job = options.job.empty() ? job::Job{} : job::read_job(options.job);
  const auto places = cluster::find_places(
      world,
      options.file.empty() ? job.topology : std::optional<std::filesystem::path>(options.file));
  const cluster::ProcessGrid grid(shape_for(options, job, world.size()), places);
  const comm::RackServerGpu& mine = places[world.rank()];
  const cluster::GridCoordinates at = grid.coordinates(world.rank());
  const auto rows = gather_json(world, {{"rank", world.rank()},
                                        {"host", cluster::host_name()},
                                        {"place", to_string(mine)},
                                        {"rack", mine.rack},
                                        {"server", mine.server},
                                        {"local_rank", mine.device},
                                        {"cores", cluster::cpu_facts().cores},
                                        {"gpu", gpu_text(mine.device)},
                                        {"dp", at.dp},
                                        {"pp", at.pp},
                                        {"cp", at.cp},
                                        {"sp", at.sp},
                                        {"tp", at.tp}});
  nlohmann::ordered_json links;
  if (options.measure) links = measured_links(places, grid, world);
  std::optional<settle::MeasuredRing> ring;
  if (!options.cluster_file.empty())
    ring = write_cluster_file(options.cluster_file, job, grid, places, world);
  if (world.rank() != 0) return 0;
  const cluster::GridShape& shape = grid.shape();
  const Counts counts = counts_of(places);
  if (options.json) {
    nlohmann::ordered_json map{{"grid",
                                {{"dp", shape.dp},
                                 {"pp", shape.pp},
                                 {"cp", shape.cp},
                                 {"sp", shape.sp},
                                 {"tp", shape.tp}}},
                               {"servers", counts.servers},
                               {"racks", counts.racks},
                               {"ranks", rows}};
    if (options.measure) map["links"] = links;
    if (ring) map["ring_rule"] = json_of(*ring);
    fmt::print("{}\n", json_text(map, 2));
    return 0;
  }
  print_table(shape, counts, rows);
  if (options.measure) fmt::print("{}", links_text(links));
  if (ring) fmt::print("{}", text_of(*ring));
  return 0;
}

}  // namespace

void add_topology(CLI::App& app, Context& context) {
  const auto options = std::make_shared<TopologyOptions>();
  CLI::App& topology = command_line::add_command(
      app, "topology", "Prints where each rank is and its place in the process grid.",
      examples({
          "mpirun -np 4 --bind-to none pecia topology job.yaml",
          "srun --mpi=pmix pecia topology --dp 2 --tp 4",
          "srun --mpi=pmix pecia topology --measure --json > links.json",
          "mpirun -np 2 pecia topology --measure --cluster-file this.yaml",
          "mpirun -np 2 pecia topology job.yaml --measure --cluster-file this.yaml",
      }),
      [options, &context] {
        context.chosen = [options, &context] { return topology_command(*options, context.world); };
      });
  const auto add = [&](const command_line::Option& option) { add_option(topology, option); };
  const auto degree = [&](const char* name, std::optional<int>& value, const char* help) {
    add({.name = name, .into = &value, .help = help, .range = {{1, 1 << 20}}});
  };
  add({.name = "job",
       .into = &options->job,
       .help = "Job file: its topology and degrees, where no option says otherwise",
       .type = "JOB"});
  degree("--dp", options->dp, "Replicas");
  degree("--cp", options->cp, "Ring ranks of a replica (default: what the others leave)");
  degree("--sp", options->sp, "Ulysses ranks");
  degree("--tp", options->tp, "Tensor-parallel ranks");
  add({.name = "--file",
       .into = &options->file,
       .help = "Topology file, HOST RACK [SERVER] per line (default: the job's, else what "
               "PECIA_TOPOLOGY_FILE names, else Slurm's topology address, else host names)",
       .type = "FILE"});
  add({.name = "--measure",
       .into = &options->measure,
       .help = "Latency and bandwidth of each level of links, and of the rings"});
  add({.name = "--cluster-file",
       .into = &options->cluster_file,
       .help =
           "With --measure: writes a cluster file of this machine, for pecia plan; with JOB and "
           "several ring ranks also when keys and when queries of its model go round the ring",
       .type = "OUT",
       .needs = "--measure"});
  add({.name = "--json", .into = &options->json, .help = "JSON instead of a table"});
}

}  // namespace pecia::app
