// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace pecia::kernels {

/// A size in a kernel that was found by measuring, on some machine. `pecia-bench ops --neighbours`
/// tries others, so a machine that wants another one is seen. No result but for the order of its sums
/// depends on it, and none with RowInvariant::yes.
class MeasuredConstant {
 public:
  /// The name begins with the op. Constants live as long as the process.
  MeasuredConstant(std::string_view name, int64_t value, std::vector<int64_t> neighbours);
  MeasuredConstant(const MeasuredConstant&) = delete;
  MeasuredConstant& operator=(const MeasuredConstant&) = delete;

  // NOLINTNEXTLINE(google-explicit-constructor): it stands where a number does.
  operator int64_t() const { return value_; }
  std::string_view name() const { return name_; }
  const std::vector<int64_t>& neighbours() const { return neighbours_; }
  /// No op may run meanwhile.
  void set(int64_t value) { value_ = value; }

 private:
  std::string_view name_;
  int64_t value_;
  std::vector<int64_t> neighbours_;
};

/// All of the kernels that are linked.
const std::vector<MeasuredConstant*>& measured_constants();

}  // namespace pecia::kernels
