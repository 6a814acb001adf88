// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>

namespace pecia::test::emulator {

/// Returns how many kernels this process has launched; products by a library are none.
int64_t num_launches();

}  // namespace pecia::test::emulator
