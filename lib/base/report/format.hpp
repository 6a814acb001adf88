// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Numbers for people, in logs and summary lines. A number that is not finite, or a negative
/// duration, count or size, prints as "?".

#include <cstdint>
#include <string>

namespace pecia::report {

/// "420 ms", "4.2 s", "42 s", "11 min 42 s", "3 h 7 min", "2 d 4 h".
std::string format_duration(double seconds);

/// Powers of 1000: "7", "3.4", "412", "41.2k", "412k", "7.9M".
std::string format_count(double count);

/// Powers of 1024: "512 B", "1.5 KiB", "15.0 GiB".
std::string format_bytes(int64_t bytes);

/// A share in [0, 1] or above: "0 %", "3.1 %", "58 %".
std::string format_percent(double share);

}  // namespace pecia::report
