// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Log messages on stderr. The logger is made once in main and handed on; there is no global
/// logger.

#include <spdlog/logger.h>

#include <memory>
#include <string_view>

namespace pecia::report {

/// The level in PECIA_LOG: trace, debug, info, warn, error or off. It is info when the variable is
/// unset or empty. Throws InputError for anything else.
spdlog::level::level_enum level_from_environment();

/// A line is "pecia: message". Rank 0 logs from `level` on. Other ranks log only warnings and
/// errors, so that one message is not printed a thousand times; with `level` debug or trace they
/// log all. With several ranks, warnings, errors and all lines of ranks > 0 carry the rank: "pecia:
/// rank 5: message".
std::shared_ptr<spdlog::logger> make_logger(int rank, int num_ranks,
                                            spdlog::level::level_enum level, spdlog::sink_ptr sink);

/// Makes a logger on stderr, with the level of the environment.
std::shared_ptr<spdlog::logger> make_logger(int rank, int num_ranks);

}  // namespace pecia::report
