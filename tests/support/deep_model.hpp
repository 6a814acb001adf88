// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Checkpoints with more layers than those in tests/goldens, for what happens between the first
/// layer and the last.

#include <functional>
#include <span>
#include <string>

#include "tests/support/temp_folder.hpp"

namespace pecia::test {

/// A tensor's values, to be changed before they are written.
using ChangeTensor = std::function<void(const std::string& name, std::span<float> values)>;

/// Writes a checkpoint of `layers` layers into `folder`. Layer i has the weights of layer i mod n
/// of the golden, which has n; all are fp32. As large a share of the layers as there has sliding
/// windows.
void write_deep_model(const std::string& golden, int64_t layers, const TempFolder& folder,
                      const ChangeTensor& change = {});

}  // namespace pecia::test
