#include "lib/runtime/plan.hpp"

namespace pecia::runtime {
namespace {

template <typename T>
void add(const std::vector<T>& from, std::vector<T>& to) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

void LogProbs::append(const LogProbs& other) {
  add(other.which, which);
  add(other.tokens, tokens);
  add(other.logprobs, logprobs);
  add(other.top_tokens, top_tokens);
  add(other.top_logprobs, top_logprobs);
}

}  // namespace pecia::runtime
