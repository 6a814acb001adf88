// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Reads the job's inputs, and what earlier starts did of them.

#include <memory>
#include <optional>

#include "lib/files/grammar/grammars.hpp"
#include "lib/run/setup.hpp"
#include "lib/work/batch/earlier.hpp"
#include "lib/work/batch/inputs.hpp"

namespace pecia::run {

struct RunInputs {
  batch::Earlier earlier;                              ///< only the root rank has the hashes
  std::optional<batch::Inputs> inputs;                 ///< on planning ranks
  std::shared_ptr<const io::Detokenizer> detokenizer;  ///< there; null without stop strings
  std::shared_ptr<grammar::Grammars> grammars;  ///< on all ranks; null where answers have no shape

  batch::Inputs* get() { return inputs ? &*inputs : nullptr; }
};

/// Puts the job's inputs into the order of their results and reads them. The result refers to
/// `setup`. Collective over all ranks; fails on all together.
RunInputs read_inputs(Setup& setup);

}  // namespace pecia::run
