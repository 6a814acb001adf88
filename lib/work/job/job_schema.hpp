// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Every key of a job file in one table: reading, writing, help and defaults all come from it.

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "lib/work/job/job.hpp"
#include "lib/work/job/yaml_tree.hpp"

namespace pecia::job {

struct Field {
  std::string key;      ///< "generation.top_p", or "output" outside the sections
  std::string allowed;  ///< completes "it may be …"
  std::string help;
  std::string example;                              ///< YAML; given for keys that have no default
  std::function<bool(Job&, const YamlNode&)> read;  ///< false: not allowed, job unchanged
  std::function<nlohmann::ordered_json(const Job&)> write;

  bool required() const { return !example.empty(); }
  std::string_view section() const;  ///< "generation"; empty outside the sections
  std::string_view name() const;     ///< "top_p"
};

/// A job file with this key makes several runs, so pecia-summarize reads it, and it is no member of
/// Job.
inline constexpr std::string_view pipeline_key = "pipeline";

/// All fields in the order of the contract; the fields of a section stand together.
const std::vector<Field>& schema();

/// The key or section that `unknown` most likely meant; empty when none is near.
std::string nearest_key(std::string_view unknown);

}  // namespace pecia::job
