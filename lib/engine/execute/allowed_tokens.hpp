// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The tokens that may come next in answers of a shape. Only the sampling at the end of a pass needs
/// them. Where a GPU computes, a thread finds them beside the pass. On a CPU the threads of the stream
/// find them after the layers: one more thread would take a core from one of them, and all would
/// wait for it. (16 answers of a list of books: 5 % of a step with it, 1 % without, Zen 5.)

#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "lib/files/grammar/grammars.hpp"
#include "lib/model/attention/compute.hpp"

namespace pecia::execute {

/// The answers of a rank that have a shape.
class AllowedTokens {
 public:
  /// `vocab`: logits of a whole row.
  explicit AllowedTokens(int64_t vocab) : vocab_(vocab) {}

  /// An answer begins, or is known again after passes without this rank.
  void begin(int64_t sequence, std::unique_ptr<grammar::Matcher> matcher);
  void forget(int64_t sequence) { answers_.erase(sequence); }
  bool has(int64_t sequence) const { return answers_.contains(sequence); }

  /// A token of an answer, after this number of drafted tokens.
  struct Place {
    int64_t sequence = 0;
    int32_t ahead = 0;
  };
  /// The answer of a sequence, for which next tokens are to be found.
  struct Wanted {
    int64_t sequence = 0;
    std::span<const int32_t> answer;  ///< all its tokens so far; must stay until `wait`
    int32_t drafted = 0;              ///< the last of these, which may be no part of the answer
  };
  /// Starts to find the next tokens of these answers, each of another sequence.
  void start(std::vector<Wanted> wanted, const attention::Compute& compute);
  /// Ends when they are found.
  void wait(const attention::Compute& compute);

  /// How many tokens may come there. 0: none fits the answer, and nothing is kept from it.
  int64_t count(Place place) const { return answers_.at(place.sequence).next[place.ahead].count; }
  /// Sets the logits of all other tokens to −infinity. Row i of `logits` is for `places[i]`, with
  /// the logits of the tokens from `first_token` on; rows of answers without a shape stay as they are.
  void restrict(const TensorView& logits, std::span<const Place> places, int64_t first_token,
                const attention::Compute& compute);

 private:
  struct Tokens {
    int64_t count = 0;
    std::vector<uint32_t> words = {};  ///< a bit for each token that may come
  };
  struct Answer {
    std::unique_ptr<grammar::Matcher> matcher;
    int64_t accepted = 0;           ///< tokens of the answer that the matcher has taken in
    std::vector<Tokens> next = {};  ///< after each number of drafted tokens
  };
  void find(const Wanted& wanted);

  int64_t vocab_;
  std::map<int64_t, Answer> answers_;    ///< by sequence
  std::vector<uint32_t> words_of_rows_;  ///< of the last rows that were restricted
  std::vector<Wanted> wanted_;           ///< to be found in `wait`
  std::future<void> under_way_;
};

}  // namespace pecia::execute
