// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What `bench_ops --json` printed before, to be held against the times of now.

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace pecia::bench {

class EarlierTimes {
 public:
  /// Op and shape.
  using Name = std::pair<std::string, std::string>;

  /// Reads the lines of one run. Lines of other benchmarks, as gpu-check.sh puts into the same
  /// file, are passed over. InputError with line and key when it is anything else.
  explicit EarlierTimes(const std::filesystem::path& file);

  /// InputError that names what the file does not have.
  void require(const std::vector<Name>& names) const;

  /// Of a name that was required.
  double median_s(const std::string& op, const std::string& shape) const;

  /// Machine, backend and commit, for a reader.
  const std::string& origin() const { return origin_; }

 private:
  std::string file_, origin_;
  std::map<Name, double> median_s_;
};

}  // namespace pecia::bench
