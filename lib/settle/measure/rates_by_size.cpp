// SPDX-License-Identifier: Apache-2.0
#include "lib/settle/measure/rates_by_size.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

namespace pecia::measure {

double RatesBySize::most() const {
  return std::ranges::max(curve.points, {}, &cluster_files::Curve::Point::share).share;
}

double rounded(double value) {
  return std::stod(fmt::format("{:.3g}", value));
}

double share_of(double rate, double peak) {
  constexpr double least_share = 0.001;
  return rounded(std::clamp(rate / peak, least_share, 1.0));
}

cluster_files::Efficiency shares_of(std::vector<RatesBySize> rates, double peak, double factor) {
  double level = peak;  // what the first curve's rates are shares of
  for (size_t i = 1; i < rates.size(); ++i) level *= rates[i].at_reference() / rates[i].most();
  cluster_files::Efficiency efficiency{factor, {}};
  for (size_t i = 0; i < rates.size(); ++i) {
    const double whole = i == 0 ? level : rates[i].most();
    for (auto& [size, share] : rates[i].curve.points) share = share_of(share, whole);
    efficiency.curves.push_back(std::move(rates[i].curve));
  }
  return efficiency;
}

}  // namespace pecia::measure
