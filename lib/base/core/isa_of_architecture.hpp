// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What isa.cpp asks of the processor's architecture. CMake compiles the implementation in x86/ or
/// the one in arm/, which also has cpu_has_amx, cpu_brand and pause_core of isa.hpp.

#include <span>
#include <string>

#include "lib/base/core/isa.hpp"

namespace pecia {

/// The instruction sets of the architecture, the smallest first.
std::span<const Isa> isas_of_architecture();

struct FoundIsa {
  Isa isa;
  std::string why_no_amx;  ///< "" if isa is amx_bf16
};

/// This CPU's best instruction set, `most_allowed` at most. Throws Unsupported where the CPU lacks
/// the smallest. May ask the operating system for the permission to use tiles of AMX.
FoundIsa find_isa(Isa most_allowed);

}  // namespace pecia
