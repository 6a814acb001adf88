// SPDX-License-Identifier: Apache-2.0
#include "lib/simulation/papers/decode_parts.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>

namespace pecia::simulation::papers {

int StepParts::largest() const {
  const double all[] = {op_us, send_receive_us, all_to_all_us};
  return static_cast<int>(std::max_element(std::begin(all), std::end(all)) - std::begin(all));
}

StepParts decode_parts(const PassCosts& costs, const PassShape& shape) {
  const int of_instance = shape.degrees.sp * shape.degrees.tp;
  const auto middle = static_cast<int32_t>(costs.scenario().config.layers / 2);
  constexpr double never = std::numeric_limits<double>::infinity();
  double begin_s = never, op_s = 0, queries_s = -never, end_s = -never;
  replay(costs.programs(shape), costs.scenario().cluster, [&](const Moment& moment) {
    if (moment.layer != middle || moment.rank % of_instance != 0) return;
    const auto in = [&](const char* span) { return std::strcmp(moment.step.span, span) == 0; };
    const auto* const op = std::get_if<kernels::OpWork>(&moment.step.what);
    if (in("attention") && op != nullptr && op->flops > 0) {
      begin_s = std::min(begin_s, moment.begin_s);
      op_s = std::max(op_s, moment.end_s - moment.begin_s);
    }
    if (in("ring_pass_q")) queries_s = std::max(queries_s, moment.end_s);
    if (in("partial_outputs")) end_s = std::max(end_s, moment.end_s);
  });
  if (shape.degrees.cp == 1) return {1e6 * op_s, 0, 0};
  return {1e6 * op_s, 1e6 * (queries_s - begin_s), 1e6 * (end_s - queries_s - op_s)};
}

}  // namespace pecia::simulation::papers
