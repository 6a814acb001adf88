// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/comm/transports.hpp"

#include <array>
#include <fstream>
#include <iterator>
#include <set>

namespace pecia::comm {

std::vector<std::string> transports_in(std::string_view maps) {
  constexpr std::array<std::string_view, 3> kinds{"pml", "mtl", "btl"};
  std::set<std::string> found;
  for (const std::string_view kind : kinds) {
    const std::string mark = "/mca_" + std::string(kind) + "_";
    for (size_t at = maps.find(mark); at != maps.npos; at = maps.find(mark, at + 1)) {
      const size_t begin = at + mark.size(), end = maps.find(".so", begin);
      if (end == maps.npos || end > maps.find('\n', begin)) continue;
      found.insert(std::string(kind) + ' ' + std::string(maps.substr(begin, end - begin)));
    }
  }
  return {found.begin(), found.end()};
}

std::vector<std::string> loaded_transports() {
  std::ifstream file("/proc/self/maps");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return transports_in(text);
}

}  // namespace pecia::comm
