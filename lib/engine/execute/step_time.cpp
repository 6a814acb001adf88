// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/execute/step_time.hpp"

#include <algorithm>
#include <chrono>
#include <limits>

#include "lib/engine/execute/phantom_rank.hpp"
#include "lib/engine/execute/trial_passes.hpp"
#include "lib/model/config/presets.hpp"

namespace pecia::execute {

double measure_step_us() {
  constexpr int64_t steps = 30, context = 1024;
  model::ModelConfig config = model::config_of_preset_or_folder("smollm2-135m");
  config.layers = 2;
  config.pattern.resize(config.layers);
  PhantomRank rank(config, {.memory_bytes = std::numeric_limits<int64_t>::max(),
                            .replica = {.kv_tokens = 2 * steps * context}});
  double best_us = std::numeric_limits<double>::infinity();
  for (int64_t step = 0; step < steps; ++step) {
    const schedule::Plan plan = TrialPasses().step(step, 1, context, true);
    const auto begin = std::chrono::steady_clock::now();
    rank.execute(plan);
    const std::chrono::duration<double, std::micro> taken =
        std::chrono::steady_clock::now() - begin;
    best_us = std::min(best_us, taken.count());
  }
  return best_us;
}

}  // namespace pecia::execute
