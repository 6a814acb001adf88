// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Sizes and times as people write them. The result is absent when the text has another form, or
/// the value is negative or too large.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace pecia::job {

/// "12GiB", "500MB", "1.5 TB", "4096": B, kB MB GB TB (powers of 1000), KiB MiB GiB TiB (of 1024),
/// and K M G T as Slurm means them (of 1024).
std::optional<int64_t> parse_bytes(std::string_view text);

/// "60s", "10min", "1h30m", "2d", "90" (seconds): d, h, m or min, s, each at most once, in that
/// order. With colons or a hyphen as Slurm writes times: minutes:seconds, hours:minutes:seconds,
/// days-hours, days-hours:minutes, days-hours:minutes:seconds.
std::optional<double> parse_seconds(std::string_view text);

/// Shortest form that parse_seconds reads back exactly: 5400 → "1h30m", 0.5 → "0.5s".
std::string format_seconds(double seconds);

}  // namespace pecia::job
