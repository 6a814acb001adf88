// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace pecia::drafts {

/// Tokens that may come next in a text, since they came after the same tokens before.
struct Draft {
  std::vector<int32_t> tokens = {};
  int64_t match = 0;  ///< how many of the text's last tokens stood before them there
};

}  // namespace pecia::drafts
