// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The times that an earlier `pecia-bench ops --json` wrote, to compare with those of now.

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace pecia::bench::ops {

class EarlierTimes {
 public:
  /// Name of a measurement: op and shape.
  using Name = std::pair<std::string, std::string>;

  /// Reads the lines of one run. Lines of other benchmarks, which gpu-check.sh puts into the same
  /// file, are skipped. Throws InputError with line and key for anything else.
  explicit EarlierTimes(const std::filesystem::path& file);

  /// Throws InputError naming the measurements that the file lacks.
  void require(const std::vector<Name>& names) const;

  /// Median time of a measurement that was required.
  double median_s(const std::string& op, const std::string& shape) const;

  /// Machine, backend and commit, for people.
  const std::string& origin() const { return origin_; }

 private:
  std::string file_, origin_;
  std::map<Name, double> median_s_;
};

}  // namespace pecia::bench::ops
