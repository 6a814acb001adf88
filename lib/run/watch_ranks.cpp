// SPDX-License-Identifier: Apache-2.0
#include "lib/run/watch_ranks.hpp"

#include <memory>
#include <string>

#include "lib/base/core/error.hpp"
#include "lib/ranks/comm/of_first.hpp"
#include "lib/run/signals.hpp"

namespace pecia::run {

std::filesystem::path watch_ranks(watch::Watch& watch, const job::Job& job,
                                  comm::Communicator& world, spdlog::logger& log,
                                  std::optional<int> stage) {
  if (world.size() == 1) return {};
  std::string made, why = "not all ranks reach the output folder";
  if (world.rank() == 0) try {
      made = watch::WatchBoard::make_folder(job.output).string();
    } catch (const SystemError&) {
      why.clear();  // opening the results there will fail and say what is wrong
    }
  const std::filesystem::path folder = comm::of_first(world, made);
  std::unique_ptr<watch::WatchBoard> board;
  if (!folder.empty()) try {
      board = std::make_unique<watch::WatchBoard>(folder, world.rank(), world.size());
    } catch (const SystemError& error) {
      why = error.what();
    }
  if (world.all_reduce_max(board == nullptr ? 1 : 0) > 0) {
    if (world.rank() == 0 && !why.empty())
      log.warn("nobody watches for ranks that die or hang: {}", why);
    return {};
  }
  watch.begin(std::move(board), std::chrono::duration<double>(job.limits.silence_s),
              &DrainSignals::received, stage);
  return folder;
}

}  // namespace pecia::run
