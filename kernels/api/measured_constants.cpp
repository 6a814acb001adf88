// SPDX-License-Identifier: Apache-2.0
#include "kernels/api/measured_constants.hpp"

#include <utility>

namespace pecia::kernels {
namespace {

std::vector<MeasuredConstant*>& all_constants() {
  static std::vector<MeasuredConstant*> all;
  return all;
}

}  // namespace

MeasuredConstant::MeasuredConstant(std::string_view name, int64_t value,
                                   std::vector<int64_t> neighbours)
    : name_(name), value_(value), neighbours_(std::move(neighbours)) {
  all_constants().push_back(this);
}

const std::vector<MeasuredConstant*>& measured_constants() {
  return all_constants();
}

}  // namespace pecia::kernels
