// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The readers of files that others made, each with good files to damage.

#include <filesystem>
#include <ostream>
#include <string>
#include <vector>

#include "tests/bad_input/damage.hpp"

namespace pecia::test {

struct Parser {
  const char* name;
  Damage damage;
  /// Good files, each by a writer of its own or with other options.
  std::vector<std::string> (*seeds)(const std::filesystem::path& folder);
  /// Bytes of a seed from its begin that are worth damaging; the rest is data.
  size_t (*head)(const std::string& seed);
  /// The name that the reader wants its file to have.
  const char* file_name;
  /// Reads all that there is to read. InputError is the only way out besides returning.
  void (*read)(const std::filesystem::path& path);
};

const std::vector<Parser>& parsers();

/// How GoogleTest names it.
inline void PrintTo(const Parser& parser, std::ostream* out) {
  *out << parser.name;
}

}  // namespace pecia::test
