// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Figures of a paper beside those of this program, as values. What a page or a table shows of them
/// follows from them.

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace pecia::simulation::papers {

enum class How {
  simulated,  ///< replayed on the described cluster
  counted,    ///< bytes and FLOPs over the cluster's rates, without a replay
  measured    ///< on ranks of this program; `command` of the row says how
};

/// A figure. The published one is absent where it is not at hand, and ours where this program has no
/// such figure; `note` then says why.
struct Row {
  std::string what;       ///< "TTFT by pass-KV"
  std::string setting;    ///< "126720 + 1280 tokens, 4 hosts"
  std::string unit = {};  ///< "ms"; "": a ratio
  std::optional<double> published = {}, ours = {};
  std::optional<double> published_to = {};  ///< where a range was published, its other end
  How how = How::simulated;
  /// Most that ours may be off, which `wrong` asserts: a share of the published one. Absent: nothing
  /// is asserted, and `note` says why.
  std::optional<double> allowed = {};
  bool fitted = false;  ///< a constant was fitted to it
  std::string note = {}, command = {};
  /// Of a figure that was measured: machine and commit, and the page that has the measurement.
  std::string measured_on = {}, page = {};
  /// Where it stands in a plot: the plot's name, the line and the place on the x axis.
  std::string plot = {}, line = {};
  double x = 0;

  /// ours / published − 1; absent where one of them is. 0 within a range, else by its nearer end.
  std::optional<double> error() const;
};

/// What a paper says without a number, or what follows from its numbers.
struct Claim {
  std::string text;
  bool holds = false;  ///< here, too
};

/// A constant that was fitted.
struct Constant {
  std::string name, unit;
  double value = 0;
  std::string rows;  ///< that it was fitted to
  /// Of the figure that it was fitted to, what it explains; absent: it was taken over, as a time of a
  /// single op, or it scales other times.
  std::optional<double> largest_share = {};
};

struct Plot {
  std::string name, x_axis, y_axis;
  bool log_x = false, log_y = false;
};

struct Paper {
  std::string name, title, machine;
  std::vector<Constant> constants = {};
  std::vector<Row> rows = {};
  std::vector<Claim> claims = {};
  std::vector<Plot> plots = {};
};

std::string_view name_of(How how);

/// What is not within what is stated: rows that are off by more than they may (NaN counts), and claims
/// that do not hold. Empty: nothing.
std::vector<std::string> wrong(const std::vector<Paper>& papers);

/// Schema pecia.papers/1. It has neither times nor dates, so it is the same in every run.
nlohmann::ordered_json to_json(const std::vector<Paper>& papers);

}  // namespace pecia::simulation::papers
