// SPDX-License-Identifier: Apache-2.0
/// Times the simulator on a million tokens of Llama 3 405B on hosts of 8 × H100: how long the programs
/// of all ranks take to record, and to play. What is foreseen of published figures is `pecia plan
/// --papers`.

#include <nlohmann/json.hpp>

#include "apps/bench/commands.hpp"
#include "apps/bench/support/agreement.hpp"
#include "apps/bench/support/results.hpp"
#include "lib/simulation/papers/machine.hpp"

namespace pecia::bench {
namespace {

struct SimulationOptions {
  int servers = 1;
};

void run_simulation(const Session& session, const SimulationOptions& options) {
  session.require_one_rank("it plays all ranks itself");
  constexpr int gpus_per_server = 8;
  constexpr int64_t tokens = 1'000'000;
  job::Job job;
  job.model.dtype = job::Precision::fp8_ffn;
  simulation::papers::Machine machine("llama-3-405b", cluster_files::cluster_of("h100-gtt"), job);
  Results results(session, "a million tokens of Llama 3 405B, recorded and played",
                  {{"cluster", "h100-gtt"}});
  const Stopwatch watch;
  const std::vector<simulation::Program> programs = machine.costs().programs(
      {.degrees = {options.servers, 1, gpus_per_server}, .tokens = tokens});
  const double recording_s = watch.seconds();
  const simulation::ReplayResult time = replay(programs, machine.cluster());
  const double replay_s = watch.seconds() - recording_s;
  int64_t steps = 0;
  for (const simulation::Program& program : programs) steps += num_steps(program);
  const int gpus = options.servers * gpus_per_server;
  results.line(fmt::format(
      "{} tokens on {} GPUs: {:.1f} s foreseen; recorded in {:.1f} s; {} steps and {} messages, of "
      "which {} were played, in {:.1f} s",
      tokens, gpus, time.seconds, recording_s, steps, time.messages, time.played, replay_s));
  results.write({{"new_tokens", tokens},
                 {"gpus", gpus},
                 {"foreseen_ms", 1e3 * time.seconds},
                 {"steps", steps},
                 {"messages", time.messages},
                 {"played_messages", time.played},
                 {"recording_s", recording_s},
                 {"replay_s", replay_s}});
  if (!session.options.check) return;
  check_together(session.world,
                 time.played < time.messages ? "" : "layers that repeat were all played");
  results.line("checked: layers that repeat were not all played");
}

}  // namespace

void add_simulation(CLI::App& app, Chosen& chosen) {
  const auto options = std::make_shared<SimulationOptions>();
  Command command(app, chosen, "simulation", "Times the simulator on a million tokens",
                  [options](const Session& session) { run_simulation(session, *options); });
  command.add(
      {.name = "--servers", .into = &options->servers, .help = "Servers of 8 GPUs; published: 16"});
}

}  // namespace pecia::bench
