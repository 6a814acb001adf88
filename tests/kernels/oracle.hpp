// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The reference is slow: what it computes for a case is kept for all backends that are held against
/// it.

#include <map>
#include <string>

namespace pecia::test {

/// compute(), or what it returned before for the same key. Each place of the code that calls this has
/// keys of its own, so a key names all that differs between the cases of one test.
template <class Compute>
const auto& computed_once(const std::string& key, const Compute& compute) {
  static std::map<std::string, decltype(compute())> known;
  const auto found = known.find(key);
  return found != known.end() ? found->second : known.emplace(key, compute()).first->second;
}

}  // namespace pecia::test
