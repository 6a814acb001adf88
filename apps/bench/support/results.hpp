// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a benchmark prints and keeps: a line about the machine, one table, and JSON lines.

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "apps/bench/support/command.hpp"
#include "apps/bench/support/timing.hpp"
#include "lib/base/device/device.hpp"

namespace pecia::bench {

/// Only rank 0 prints and writes; calls on other ranks do nothing.
class Results {
 public:
  /// Prints nothing yet, and has no facts.
  explicit Results(const Session& session);
  /// The same and begin.
  Results(const Session& session, const std::string& what,
          const nlohmann::ordered_json& facts = nlohmann::ordered_json::object());

  /// Prints the first line: machine, ranks, threads, versions, and `what` is measured. `facts` go
  /// into every JSON line, together with those of the first line. Collective.
  void begin(const std::string& what, const nlohmann::ordered_json& facts);

  /// Names the GPU that is measured, here and in every JSON line. Does nothing on a CPU.
  void on_device(const device::DeviceInfo& info);

  void line(const std::string& text) const;

  /// Prints a table's head, "tokens|ms|% of floor". The cells of rows are aligned to the right.
  void columns(const std::string& heads);
  /// Prints a row in the same form: row("{}|{:.3f}|{:.1f}", …).
  template <typename... Values>
  void row(fmt::format_string<Values...> format, Values&&... values) const {
    cells(fmt::format(format, std::forward<Values>(values)...));
  }
  void cells(const std::string& row) const;

  /// Appends the facts and `values` to the --json file, if there is one. Throws SystemError when
  /// that fails.
  void write(const nlohmann::ordered_json& values) const;

 private:
  const Session& session_;
  nlohmann::ordered_json facts_ = nlohmann::ordered_json::object();
  std::vector<size_t> widths_;
};

/// {"median": …, "min": …, "max": …}
nlohmann::ordered_json to_json(const Spread& spread);

}  // namespace pecia::bench
