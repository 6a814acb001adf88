// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Messages for people, on stderr. Made once in main and handed on; there is no global logger.

#include <spdlog/logger.h>

#include <memory>
#include <string_view>

namespace pecia::report {

/// The level that PECIA_LOG names: trace, debug, info, warn, error or off; info when it is unset or
/// empty. Throws InputError for anything else.
spdlog::level::level_enum level_from_environment();

/// A line is "pecia: message". Rank 0 logs from `level` on. Other ranks log warnings and errors
/// only, so that one message is not printed a thousand times, unless `level` is debug or trace:
/// then they log all. Warnings, errors, and all lines of ranks > 0 carry the rank: "pecia: rank 5:
/// message" (of several).
std::shared_ptr<spdlog::logger> make_logger(int rank, int num_ranks,
                                            spdlog::level::level_enum level, spdlog::sink_ptr sink);

/// The same, on stderr, at the level of the environment.
std::shared_ptr<spdlog::logger> make_logger(int rank, int num_ranks);

}  // namespace pecia::report
