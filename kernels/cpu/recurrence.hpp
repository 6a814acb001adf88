// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/api/recurrence.hpp"
#include "kernels/cpu/shared/workspace.hpp"
#include "lib/base/device/stream.hpp"

namespace pecia::kernels::cpu {

void recurrence(const RecurrenceArgs& args, Workspace& workspace, const device::Stream& stream);

}  // namespace pecia::kernels::cpu
