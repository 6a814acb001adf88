// SPDX-License-Identifier: Apache-2.0
/// Latency and bandwidth of the messages of a run, and how much of a ring step computing hides,
/// with and without polling. --check verifies every byte received.

#include <algorithm>
#include <functional>

#include "apps/bench_comm/collective_patterns.hpp"
#include "apps/bench_comm/overlap.hpp"
#include "apps/bench_comm/patterns.hpp"
#include "apps/bench_support/agreement.hpp"
#include "apps/bench_support/results.hpp"
#include "apps/command_line/options.hpp"
#include "lib/ranks/cluster/topology.hpp"

namespace pecia::bench {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  uint64_t min_bytes = 1 << 10, max_bytes = 64 << 20;
  uint64_t overlap_from =
      64 << 10;  ///< smaller transfers are over before there is anything to hide
};

void add_options(CLI::App& app, Options& options) {
  command_line::add_option(app, {.name = "--min-bytes",
                                 .into = command_line::Size{&options.min_bytes},
                                 .help = "Smallest message; each next one is 4 times as large",
                                 .show_default = true,
                                 .sign = command_line::Sign::positive});
  command_line::add_option(app, {.name = "--max-bytes",
                                 .into = command_line::Size{&options.max_bytes},
                                 .help = "Largest message",
                                 .show_default = true,
                                 .sign = command_line::Sign::positive});
  command_line::add_option(app, {.name = "--overlap-from",
                                 .into = command_line::Size{&options.overlap_from},
                                 .help = "Smallest message beside computing",
                                 .show_default = true});
}

/// Repeats that make a run of small messages long enough for the clock.
int repeats_of(int64_t bytes) {
  constexpr int64_t bytes_of_a_run = 4 << 20;
  return static_cast<int>(std::clamp<int64_t>(bytes_of_a_run / bytes, 1, 256));
}

double measure(const Session& session, Results& results, Pattern& pattern, int64_t bytes) {
  pattern.run();
  const int repeats = repeats_of(bytes);
  std::vector<double> seconds = timed_runs(session.world, session.options.runs, [&] {
    for (int i = 0; i < repeats; ++i) pattern.run();
  });
  for (double& one : seconds) one /= repeats;
  const Spread one_s = spread(seconds);
  const double bandwidth = static_cast<double>(pattern.bytes()) / one_s.median;
  results.row({std::string(pattern.name()), std::to_string(bytes),
               fmt::format("{:.2f}", one_s.median * 1e6), fmt::format("{:.2f}", one_s.min * 1e6),
               fmt::format("{:.2f}", one_s.max * 1e6), fmt::format("{:.3f}", bandwidth * 1e-9), "",
               "", ""});
  results.write({{"pattern", std::string(pattern.name())},
                 {"bytes", bytes},
                 {"seconds", to_json(one_s)},
                 {"bytes_per_s_of_a_rank", bandwidth}});
  if (session.options.check) check_together(session.world, pattern.problem());
  return one_s.median;
}

/// Measures a transfer beside computing that takes twice as long as the transfer alone.
void measure_hidden(const Session& session, Results& results, kernels::Backend& backend,
                    int64_t bytes, double alone_s) {
  for (const Polling polling : {Polling::off, Polling::on}) {
    const Overlap overlap = measure_overlap(session.world, backend, session.options.threads, bytes,
                                            2 * alone_s, polling, session.options.runs);
    const char* name = polling == Polling::on ? "beside compute, polled" : "beside compute";
    const double hidden =
        std::clamp((alone_s + overlap.compute_s - overlap.total_s) / alone_s, 0.0, 1.0);
    results.row({name, std::to_string(bytes), fmt::format("{:.2f}", overlap.total_s * 1e6), "", "",
                 "", fmt::format("{:.2f}", overlap.compute_s * 1e6),
                 fmt::format("{:.2f}", overlap.wait_s * 1e6), fmt::format("{:.0f}", 100 * hidden)});
    results.write({{"pattern", "send_receive beside compute"},
                   {"polled", polling == Polling::on},
                   {"bytes", bytes},
                   {"alone_s", alone_s},
                   {"compute_s", overlap.compute_s},
                   {"total_s", overlap.total_s},
                   {"wait_s", overlap.wait_s},
                   {"hidden_share", hidden}});
  }
}

using MakePattern = std::function<std::unique_ptr<Pattern>(int64_t bytes)>;

/// All patterns. Where servers have several ranks, collectives of tensors come twice: flat, and by
/// server. Collective.
std::vector<MakePattern> patterns(comm::Communicator& world) {
  std::vector<MakePattern> all;
  for (const auto make : {make_send_receive, make_all_to_all, make_broadcast, make_all_gather})
    all.push_back([&world, make](int64_t bytes) { return make(world, bytes); });
  const std::vector<int> flat(world.size(), 0);
  const std::vector<int> by_place = comm::server_of_rank(cluster::find_places(world));
  std::vector<std::vector<int>> routes{flat};
  if (world.make_collectives(by_place, comm::SumOrder::any)->route() == comm::Route::hierarchical)
    routes.push_back(by_place);
  for (const auto make : {make_tensor_all_gather, make_reduce_scatter, make_all_reduce})
    for (const std::vector<int>& servers : routes)
      all.push_back([&world, make, servers](int64_t bytes) { return make(world, servers, bytes); });
  return all;
}

void run(const Session& session, const Options& options) {
  if (options.min_bytes > options.max_bytes)
    fail<InputError>("--min-bytes {} is more than --max-bytes {}", options.min_bytes,
                     options.max_bytes);
  Results results(session, "messages between ranks", Json::object());
  results.columns({"pattern                  ", "bytes", "us", "min us", "max us", "GB/s/rank",
                   "compute us", "wait us", "hidden %"});
  const auto backend = kernels::make_cpu_backend();
  for (const MakePattern& make : patterns(session.world))
    for (uint64_t size = options.min_bytes; size <= options.max_bytes; size *= 4) {
      const auto bytes = static_cast<int64_t>(size);
      const auto pattern = make(bytes);
      const double alone_s = measure(session, results, *pattern, bytes);
      if (pattern->name() == "send_receive" && size >= options.overlap_from &&
          session.world.size() > 1)
        measure_hidden(session, results, *backend, bytes, alone_s);
    }
  if (session.options.check) results.line("checked: every byte received is the one sent");
}

}  // namespace
}  // namespace pecia::bench

int main(int argc, char** argv) {
  using namespace pecia::bench;
  Options options;
  return run_benchmark({"bench_comm", "Times messages between ranks, alone and beside computing",
                        [&](CLI::App& app) { add_options(app, options); },
                        [&](const Session& session) { run(session, options); }},
                       argc, argv);
}
