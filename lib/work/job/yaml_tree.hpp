// SPDX-License-Identifier: Apache-2.0
#pragma once
/// YAML as a plain tree that remembers the line of each value. It is stricter than YAML: job files
/// need no anchors, aliases, doubled keys, several documents or deep nesting, so these are refused.

#include <string>
#include <vector>

namespace pecia::job {

struct YamlNode {
  enum class Kind { null, scalar, list, map };

  Kind kind = Kind::null;
  std::string key;                 ///< its key in the parent; empty in a list and at the root
  std::string where;               ///< "job.yaml:12", or "--set generation.seed=x"
  std::string text;                ///< a scalar's text
  bool quoted = false;             ///< a quoted scalar is text, never a number or a boolean
  std::vector<YamlNode> children;  ///< elements of a list or values of a map, in order

  YamlNode* find(const std::string& child_key);
};

/// Throws InputError naming `name` and the line. An empty text is null.
YamlNode parse_yaml(const std::string& text, const std::string& name);

/// Applies "key.path=value": the value, itself YAML, replaces the old one. Missing maps on the way
/// are made.
void apply_override(YamlNode& root, const std::string& assignment);

/// The value in few words, for messages: its text cut short, or "a list" / "a map" / "empty".
std::string describe(const YamlNode& node);

}  // namespace pecia::job
