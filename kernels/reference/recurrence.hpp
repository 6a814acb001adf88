// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/api/recurrence.hpp"

namespace pecia::kernels::reference {

void recurrence(const RecurrenceArgs& args);

}  // namespace pecia::kernels::reference
