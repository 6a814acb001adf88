// SPDX-License-Identifier: Apache-2.0
/// For builds without XGrammar.

#include "lib/base/core/error.hpp"
#include "lib/files/grammar/grammars.hpp"

namespace pecia::grammar {

std::string_view why_none() {
  return "this build is without XGrammar: call scripts/setup.sh grammar, configure and build again";
}

std::unique_ptr<Grammars> make_grammars(const io::Detokenizer&, int64_t,
                                        const std::vector<int32_t>&, int) {
  fail<Unsupported>("{}", why_none());
}

}  // namespace pecia::grammar
