// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Runs numbered cases of untrusted work in a child process, so that a crash, a hang or a huge
/// allocation is the failure of one case that can be named.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace pecia::test {

struct Limits {
  int processor_s = 5;              ///< of one case; the usual one takes a thousandth
  int64_t memory_bytes = 64 << 20;  ///< resident, beyond what the process had before
};

struct Failure {
  int64_t number;
  std::string what;  ///< "killed by signal 11 (…)", "hangs", an exception's words
};

struct Outcome {
  int64_t accepted = 0, refused = 0;
  std::vector<Failure> failures;
};

/// `work(number)` for each number of [0, count): it may return, throw an InputError or end the
/// process with code 2, within the limits. Gives up after a few failures.
Outcome try_all(int64_t count, const Limits& limits, const std::function<void(int64_t)>& work);

}  // namespace pecia::test
