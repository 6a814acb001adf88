// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Runs `action`, which must throw `E`, and expects every part in its message.

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace pecia::test {

template <typename E, typename Action>
void expect_error(Action action, const std::vector<std::string>& parts) {
  try {
    action();
  } catch (const E& error) {
    const std::string message = error.what();
    for (const std::string& part : parts)
      EXPECT_NE(message.find(part), std::string::npos) << "'" << part << "' is not in: " << message;
    return;
  }
  ADD_FAILURE() << "nothing was thrown";
}

}  // namespace pecia::test
