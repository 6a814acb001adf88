// SPDX-License-Identifier: Apache-2.0
#include "lib/base/report/log.hpp"

#include <spdlog/formatter.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>

#include "lib/base/core/error.hpp"
#include "lib/base/core/escaped.hpp"

namespace pecia::report {
namespace {

class RankPrefix : public spdlog::formatter {
 public:
  RankPrefix(int rank, int num_ranks) : rank_(rank), num_ranks_(num_ranks) {}

  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& line) override {
    const auto end = std::back_inserter(line);
    const bool name_rank = num_ranks_ > 1 && (rank_ > 0 || message.level >= spdlog::level::warn);
    fmt::format_to(end, "pecia: ");
    if (name_rank) fmt::format_to(end, "rank {}: ", rank_);
    if (message.level == spdlog::level::warn) fmt::format_to(end, "warning: ");
    // Names of files and requests stand in messages; a terminal must not obey them.
    fmt::format_to(end, "{}\n", escaped_lines({message.payload.data(), message.payload.size()}));
  }
  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<RankPrefix>(rank_, num_ranks_);
  }

 private:
  int rank_;
  int num_ranks_;
};

}  // namespace

spdlog::level::level_enum level_from_environment() {
  const char* value = std::getenv("PECIA_LOG");
  const std::string_view name = value == nullptr ? "" : value;
  if (name.empty() || name == "info") return spdlog::level::info;
  if (name == "trace") return spdlog::level::trace;
  if (name == "debug") return spdlog::level::debug;
  if (name == "warn") return spdlog::level::warn;
  if (name == "error") return spdlog::level::err;
  if (name == "off") return spdlog::level::off;
  fail<InputError>("PECIA_LOG is '{}'; it may be trace, debug, info, warn, error or off", name);
}

std::shared_ptr<spdlog::logger> make_logger(int rank, int num_ranks,
                                            spdlog::level::level_enum level,
                                            spdlog::sink_ptr sink) {
  auto logger = std::make_shared<spdlog::logger>("pecia", std::move(sink));
  const bool all_ranks = level <= spdlog::level::debug;
  logger->set_level(rank == 0 || all_ranks ? level : std::max(level, spdlog::level::warn));
  logger->set_formatter(std::make_unique<RankPrefix>(rank, num_ranks));
  return logger;
}

std::shared_ptr<spdlog::logger> make_logger(int rank, int num_ranks) {
  return make_logger(rank, num_ranks, level_from_environment(),
                     std::make_shared<spdlog::sinks::stderr_sink_mt>());
}

}  // namespace pecia::report
