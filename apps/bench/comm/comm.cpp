// SPDX-License-Identifier: Apache-2.0
/// Latency and bandwidth of the messages of a run, and how much of a ring step computing hides,
/// with and without polling. --check verifies every byte received.

#include <algorithm>
#include <functional>

#include "apps/bench/comm/overlap.hpp"
#include "apps/bench/comm/patterns.hpp"
#include "apps/bench/commands.hpp"
#include "apps/bench/support/agreement.hpp"
#include "apps/bench/support/results.hpp"
#include "lib/ranks/cluster/topology.hpp"

namespace pecia::bench {
namespace {

struct CommOptions {
  uint64_t min_bytes = 1 << 10, max_bytes = 64 << 20;
  uint64_t overlap_from =
      64 << 10;  ///< smaller transfers are over before there is anything to hide
};

/// Repeats that make a run of small messages long enough for the clock.
int repeats_of(int64_t bytes) {
  constexpr int64_t bytes_of_a_run = 4 << 20;
  return static_cast<int>(std::clamp<int64_t>(bytes_of_a_run / bytes, 1, 256));
}

double measure_pattern(const Session& session, Results& results, const Pattern& pattern,
                       int64_t bytes) {
  pattern.run();
  const int repeats = repeats_of(bytes);
  std::vector<double> seconds = timed_runs(session.world, session.options.runs, [&] {
    for (int i = 0; i < repeats; ++i) pattern.run();
  });
  for (double& one : seconds) one /= repeats;
  const Spread one_s = spread(seconds);
  const double bandwidth = static_cast<double>(pattern.bytes) / one_s.median;
  results.row("{}|{}|{:.2f}|{:.2f}|{:.2f}|{:.3f}|||", pattern.name, bytes, one_s.median * 1e6,
              one_s.min * 1e6, one_s.max * 1e6, bandwidth * 1e-9);
  results.write({{"pattern", pattern.name},
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
    results.row("{}|{}|{:.2f}||||{:.2f}|{:.2f}|{:.0f}", name, bytes, overlap.total_s * 1e6,
                overlap.compute_s * 1e6, overlap.wait_s * 1e6, 100 * hidden);
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

using MakePattern = std::function<Pattern(int64_t bytes)>;

/// All patterns. Where servers have several ranks, collectives of tensors come twice: flat, and by
/// server. Collective.
std::vector<MakePattern> patterns_on(comm::Communicator& world) {
  std::vector<MakePattern> all;
  for (const auto make : {send_receive, all_to_all, broadcast, all_gather})
    all.push_back([&world, make](int64_t bytes) { return make(world, bytes); });
  const std::vector<int> flat(world.size(), 0);
  const std::vector<int> by_place = comm::server_of_rank(cluster::find_places(world));
  std::vector<std::vector<int>> routes{flat};
  if (world.make_collectives(by_place, comm::SumOrder::any)->route() == comm::Route::hierarchical)
    routes.push_back(by_place);
  for (const auto make : {tensor_all_gather, reduce_scatter, all_reduce})
    for (const std::vector<int>& servers : routes)
      all.push_back([&world, make, servers](int64_t bytes) { return make(world, servers, bytes); });
  return all;
}

void run_comm(const Session& session, const CommOptions& options) {
  if (options.min_bytes > options.max_bytes)
    fail<InputError>("--min-bytes {} is more than --max-bytes {}", options.min_bytes,
                     options.max_bytes);
  Results results(session, "messages between ranks");
  results.columns(
      "pattern                  |bytes|us|min us|max us|GB/s/rank|compute us|wait us|hidden %");
  const auto backend = kernels::make_cpu_backend();
  for (const MakePattern& make : patterns_on(session.world))
    for (uint64_t size = options.min_bytes; size <= options.max_bytes; size *= 4) {
      const auto bytes = static_cast<int64_t>(size);
      const Pattern pattern = make(bytes);
      const double alone_s = measure_pattern(session, results, pattern, bytes);
      if (pattern.name == "send_receive" && size >= options.overlap_from &&
          session.world.size() > 1)
        measure_hidden(session, results, *backend, bytes, alone_s);
    }
  if (session.options.check) results.line("checked: every byte received is the one sent");
}

}  // namespace

void add_comm(CLI::App& app, Chosen& chosen) {
  const auto options = std::make_shared<CommOptions>();
  Command command(app, chosen, "comm", "Times messages between ranks, alone and beside computing",
                  [options](const Session& session) { run_comm(session, *options); });
  const auto size = [&](const char* name, uint64_t* into, const char* help) {
    command.positive(name, command_line::Size{into}, help);
  };
  size("--min-bytes", &options->min_bytes, "Smallest message; each next one is 4 times as large");
  size("--max-bytes", &options->max_bytes, "Largest message");
  command.add({.name = "--overlap-from",
               .into = command_line::Size{&options->overlap_from},
               .help = "Smallest message beside computing",
               .show_default = true});
}

}  // namespace pecia::bench
