// SPDX-License-Identifier: Apache-2.0
#include "lib/foresight/step_time.hpp"

#include <algorithm>
#include <chrono>
#include <limits>

#include "lib/execute/phantom_rank.hpp"
#include "lib/execute/trial_passes.hpp"
#include "lib/model/presets.hpp"

namespace pecia::foresight {

double measure_step_us() {
  constexpr int64_t steps = 30, context = 1024;
  model::ModelConfig config = model::config_of_preset_or_folder("smollm2-135m");
  config.layers = 2;
  config.pattern.resize(config.layers);
  execute::PhantomRank rank(config, {.memory_bytes = std::numeric_limits<int64_t>::max(),
                                     .replica = {.kv_tokens = 2 * steps * context}});
  double best_us = std::numeric_limits<double>::infinity();
  for (int64_t step = 0; step < steps; ++step) {
    const schedule::Plan plan = execute::TrialPasses().step(step, 1, context, true);
    const auto begin = std::chrono::steady_clock::now();
    rank.execute(plan);
    const std::chrono::duration<double, std::micro> taken =
        std::chrono::steady_clock::now() - begin;
    best_us = std::min(best_us, taken.count());
  }
  return best_us;
}

}  // namespace pecia::foresight
