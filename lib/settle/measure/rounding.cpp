// SPDX-License-Identifier: Apache-2.0
#include "lib/settle/measure/rounding.hpp"

#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

namespace pecia::measure {
namespace {

std::string_view name_of_matrix(size_t kind) {
  return model::role_of(static_cast<model::MatrixKind>(kind)).name;
}

double relative(const model::SquareSums& sums) {
  return sums.original > 0 ? std::sqrt(sums.difference / sums.original) : 0;
}

}  // namespace

WeightRounding gather_rounding(const std::array<model::SquareSums, model::num_matrix_kinds>& mine,
                               comm::Communicator& world) {
  WeightRounding rounding;
  model::SquareSums all;
  for (size_t i = 0; i < mine.size(); ++i) {
    const model::SquareSums sums{world.all_reduce_sum(mine[i].difference),
                                 world.all_reduce_sum(mine[i].original)};
    rounding.of_matrix[i] = relative(sums);
    all.difference += sums.difference;
    all.original += sums.original;
  }
  rounding.total = relative(all);
  return rounding;
}

std::string to_text(const WeightRounding& rounding) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < rounding.of_matrix.size(); ++i)
    if (rounding.of_matrix[i] > 0)
      parts.push_back(fmt::format("{} {:.2f} %", name_of_matrix(i), 100 * rounding.of_matrix[i]));
  return fmt::format("{:.2f} %: {}", 100 * rounding.total, fmt::join(parts, ", "));
}

nlohmann::ordered_json to_json(const WeightRounding& rounding) {
  nlohmann::ordered_json json{{"total", rounding.total}};
  for (size_t i = 0; i < rounding.of_matrix.size(); ++i)
    if (rounding.of_matrix[i] > 0) json[std::string(name_of_matrix(i))] = rounding.of_matrix[i];
  return json;
}

}  // namespace pecia::measure
