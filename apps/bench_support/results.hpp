// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a benchmark prints and keeps: a line about the machine, one table, and JSON lines.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/bench_support/program.hpp"
#include "apps/bench_support/timing.hpp"
#include "lib/base/device/device.hpp"

namespace pecia::bench {

/// Only rank 0 prints and writes; calls on other ranks do nothing.
class Results {
 public:
  /// Prints the first line: machine, ranks, threads, versions, and `what` is measured. `facts` go
  /// into every JSON line, together with those of the first line. Collective.
  Results(const Session& session, const std::string& what, nlohmann::ordered_json facts);

  /// Names the GPU that is measured, here and in every JSON line. Does nothing on a CPU.
  void on_device(const device::DeviceInfo& info);

  void line(const std::string& text) const;

  /// Prints a table's head; the cells of rows are aligned to the right.
  void columns(std::vector<std::string> heads);
  void row(const std::vector<std::string>& cells) const;

  /// Appends the facts and `values` to the --json file, if there is one. Throws SystemError when
  /// that fails.
  void write(const nlohmann::ordered_json& values) const;

 private:
  bool first_;
  std::filesystem::path file_;
  nlohmann::ordered_json facts_;
  std::vector<size_t> widths_;
};

/// {"median": …, "min": …, "max": …}
nlohmann::ordered_json to_json(const Spread& spread);

}  // namespace pecia::bench
