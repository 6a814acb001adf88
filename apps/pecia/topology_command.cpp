#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "apps/pecia/command.hpp"
#include "lib/comm/machine.hpp"
#include "lib/comm/process_grid.hpp"
#include "lib/core/error.hpp"

namespace pecia::app {
namespace {

struct Options {
  int dp = 1, cp = 0, sp = 1, tp = 1;  // cp 0: what the others leave
  bool json = false;
};

comm::GridShape shape_for(const Options& options, int ranks) {
  comm::GridShape shape{options.dp, 1, options.sp, options.tp};
  shape.cp =
      options.cp > 0 ? options.cp : static_cast<int>(std::max<int64_t>(1, ranks / shape.ranks()));
  return shape;
}

void print_table(const comm::GridShape& shape, const std::vector<nlohmann::ordered_json>& rows) {
  size_t host_width = 4, place_width = 15;
  for (const auto& row : rows) {
    host_width = std::max(host_width, row["host"].get_ref<const std::string&>().size());
    place_width = std::max(place_width, row["place"].get_ref<const std::string&>().size());
  }
  fmt::print("DP {} × CP {} × SP {} × TP {}, ranks: {}\n", shape.dp, shape.cp, shape.sp, shape.tp,
             rows.size());
  fmt::print("{:>5}  {:<{}}  {:<{}}  {:>5}  {:>3} {:>3} {:>3} {:>3}  {}\n", "rank", "host",
             host_width, "rack:server:gpu", place_width, "local", "dp", "cp", "sp", "tp", "cores");
  for (const auto& row : rows)
    fmt::print("{:>5}  {:<{}}  {:<{}}  {:>5}  {:>3} {:>3} {:>3} {:>3}  {}\n",
               row["rank"].get<int>(), row["host"].get<std::string>(), host_width,
               row["place"].get<std::string>(), place_width, row["local_rank"].get<int>(),
               row["dp"].get<int>(), row["cp"].get<int>(), row["sp"].get<int>(),
               row["tp"].get<int>(), ranges(row["cores"].get<std::vector<int>>()));
}

int topology_command(const Options& options, comm::Communicator& world) {
  const auto places = comm::find_places(world);
  const comm::ProcessGrid grid(shape_for(options, world.size()), places);
  const comm::RackServerGpu& mine = places[world.rank()];
  const comm::GridCoordinates at = grid.coordinates(world.rank());
  const auto rows = gather_json(world, {{"rank", world.rank()},
                                        {"host", comm::host_name()},
                                        {"place", to_string(mine)},
                                        {"rack", mine.rack},
                                        {"server", mine.server},
                                        {"local_rank", mine.device},
                                        {"cores", comm::cpu_facts().cores},
                                        {"dp", at.dp},
                                        {"cp", at.cp},
                                        {"sp", at.sp},
                                        {"tp", at.tp}});
  if (world.rank() != 0) return 0;
  const comm::GridShape& shape = grid.shape();
  if (options.json)
    fmt::print(
        "{}\n",
        dump({{"grid", {{"dp", shape.dp}, {"cp", shape.cp}, {"sp", shape.sp}, {"tp", shape.tp}}},
              {"ranks", rows}}));
  else
    print_table(shape, rows);
  return 0;
}

}  // namespace

void add_topology(CLI::App& app, Context& context) {
  const auto options = std::make_shared<Options>();
  CLI::App* topology = app.add_subcommand(
      "topology", "Prints where each rank is and its place in the process grid.");
  const auto degree = [&](const char* name, int& value, const char* help) {
    topology->add_option(name, value, help)->check(CLI::Range(1, 1 << 20));
  };
  degree("--dp", options->dp, "Replicas");
  degree("--cp", options->cp, "Ring ranks of a replica (default: what the others leave)");
  degree("--sp", options->sp, "Ulysses ranks");
  degree("--tp", options->tp, "Tensor-parallel ranks");
  topology->add_flag("--json", options->json, "JSON instead of a table");
  topology->callback([options, &context] {
    context.chosen = [options, &context] { return topology_command(*options, context.world); };
  });
}

}  // namespace pecia::app
