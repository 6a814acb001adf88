// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Finds prompts that begin alike, so that their common beginning is computed once. Prompts are
/// compared in blocks of tokens, by a hash of all tokens up to the end of each block.
///
///     block of 2 tokens     ask   a b c d e      the first 4 tokens of all three are computed once:
///                           ask   a b c d f g    saved are 2 · 4 tokens
///                           ask   a b c d h
///
/// A prompt is in one group at most. Where a few prompts share more than the others, either all of
/// them share the shorter beginning, or the few share the longer one, whichever saves more tokens.
///
/// A fork's first turn is read once for all of its turns in any case. In a group it is a branch for
/// each of them, and what the beginning leaves of it is computed for each. So it is in a group only
/// if that saves more tokens than it costs:
///
///     block of 2 tokens     ask   a b c d e           the fork saves 4 tokens, and computes e three
///                           fork  a b c d e; f; g     times instead of once: 2 tokens are saved

#include <cstdint>
#include <span>
#include <vector>

namespace pecia::batch {

/// Prompts with a common beginning of `tokens` tokens.
struct SharedPrefix {
  int64_t tokens = 0;
  std::vector<int64_t> requests;  ///< indices into Inputs::requests(), ascending

  bool operator==(const SharedPrefix&) const = default;
};

/// A prompt as the search sees it.
struct PromptPrefix {
  int64_t request = 0;
  int64_t prompt_tokens = 0;
  int64_t answer_tokens = 0;     ///< at most, with the prompts and answers of later turns
  std::vector<uint64_t> hashes;  ///< of prefix_hashes
  int64_t branches = 1;          ///< in a group: the turns of a fork that are still to run

  /// Tokens to compute after a beginning of `tokens` tokens, without answers and later prompts.
  int64_t tokens_after(int64_t tokens) const { return branches * (prompt_tokens - tokens); }
  /// Tokens that a beginning spares the prompt, if another one computes it; less than 0: it costs.
  int64_t spared_by(int64_t tokens) const { return prompt_tokens - tokens_after(tokens); }
};

/// The hash of the first `block` tokens, of the first 2 · block tokens, and so on. The last token is
/// in none of them: it is always computed, since the answer begins with its output. Prompts of
/// different `kind` have no hash in common.
std::vector<uint64_t> prefix_hashes(std::span<const int32_t> tokens, int64_t block, uint64_t kind);

struct PrefixRules {
  int64_t block = 16;
  /// A group is formed only if it saves at least this share of its prompt tokens: its requests stay
  /// on one replica and come one after the other, and that must be worth it.
  double least_saved = 0.05;
  int64_t most_branches = 4096;  ///< of a group, which a scheduler holds as a whole
  int parts = 1;                 ///< replicas, or instances that work apart
};

/// The groups to form among some prompts, for any number of parts.
class PrefixGroups {
 public:
  /// `rules`: all but their parts.
  PrefixGroups(std::vector<PromptPrefix> prompts, const PrefixRules& rules);

  /// The groups for `parts` parts. A group is divided where otherwise one replica would work on while
  /// others have nothing to do; each piece then computes the beginning.
  std::vector<SharedPrefix> divided(int parts) const;

 private:
  /// A group with the tokens that its requests compute by themselves.
  struct Group {
    SharedPrefix prefix;
    int64_t branches = 0;
    double own_tokens = 0;

    double shared() const { return static_cast<double>(prefix.tokens); }
    double requests() const { return static_cast<double>(prefix.requests.size()); }
    double parts(double most) const;
  };

  double busiest_tokens(int replicas) const;

  std::vector<Group> groups_;
  double other_ = 0;  ///< tokens of the prompts and answers that are in no group
  int64_t most_branches_;
};

/// The groups of these prompts for the parts that the rules say.
std::vector<SharedPrefix> find_prefixes(std::vector<PromptPrefix> prompts,
                                        const PrefixRules& rules);

}  // namespace pecia::batch
