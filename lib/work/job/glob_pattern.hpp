// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Patterns of glob(7), as `input` has them.

#include <string>
#include <string_view>

namespace pecia::job {

/// The text as a pattern that only the text itself matches.
std::string escaped_for_glob(std::string_view text);

}  // namespace pecia::job
