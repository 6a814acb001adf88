// SPDX-License-Identifier: Apache-2.0
#include "lib/simulation/tune/setting.hpp"

#include <fmt/format.h>

namespace pecia::tune {

std::string to_string(const Setting& setting) {
  return fmt::format("drop {:.2f}{} at {} levels in {} part{}", setting.drop,
                     setting.deal == Deal::even ? "" : " by " + name_of(setting.deal),
                     setting.levels, parallel::to_string(setting.micros),
                     setting.micros == parallel::Micros{1} ? "" : "s");
}

}  // namespace pecia::tune
