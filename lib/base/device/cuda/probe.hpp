// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace pecia::device {

/// A kernel without work, to ask whether this build has code for the GPU that is current.
const void* probe_kernel();

}  // namespace pecia::device
