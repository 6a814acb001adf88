// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Which known names somebody means who spells a name otherwise, by the words and numbers in it.

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pecia {

struct KnownName {
  std::string name;
  std::string also = {};  ///< further words that it goes by
};

/// The parts of a name, in lower case: words, and numbers with their unit or the one letter before
/// them, but v. Folders before the name do not count.
///
///     meta-llama/Llama-3.1-8B     llama, 3.1, 8b
///     H100-80GB                   h100, 80gb
std::vector<std::string> parts_of_name(std::string_view name);

/// The names that `typed` may stand for. They share the most of its parts, among them a word if it
/// has one, and none of them lacks one of its numbers with letters (8b, h100), or a number that another
/// known name has. Words that no name has (Instruct) do not count. If no name shares as much, it is the
/// nearest in spelling.
///
///     llama3-70b     llama-3-70b
///     llama-70b      llama-3-70b, llama-3.1-70b
///     llama-3-13b    none, if no name has 13b
std::vector<std::string> meant_by(std::string_view typed, std::span<const KnownName> known);

/// "a", "a or b", "a, b or c".
std::string any_of_text(std::span<const std::string> names);

}  // namespace pecia
