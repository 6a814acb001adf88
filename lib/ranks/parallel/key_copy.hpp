// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Where the keys of a prompt go that some instances read and others answer (parallel.phases: apart).
///
/// The prompt is a sequence of the instances that read it. Its *copy* is a second sequence, with slots
/// on the instances that will answer. Each pass that computes keys of the one sends them on to the
/// other, layer by layer. When the prompt has been read, the copy goes on, and the first one ends. The
/// pass that reads the end of the prompt sends the state of recurrent layers, too, after all layers.
/// Source: DistServe and Splitwise (instances for prompts and for answers); LayerKV and Splitwise send
/// keys layer by layer.

#include <cstdint>
#include <vector>

#include "lib/base/core/archive.hpp"
#include "lib/ranks/parallel/kv_map.hpp"

namespace pecia::parallel {

/// Tokens that an instance holds of a sequence, next to each other in its order: their place there,
/// and their positions.
struct HeldRun {
  int64_t index = 0;
  StridedRange positions;
  bool operator==(const HeldRun&) const = default;
};

/// Returns the tokens of `held`, in their order, whose positions lie in [begin, end).
std::vector<HeldRun> held_between(const std::vector<StridedRange>& held, int64_t begin,
                                  int64_t end);

/// An instance that sends keys, and the positions of their tokens in the order in which they are sent.
struct KeySource {
  int32_t instance = 0;
  std::vector<StridedRange> positions;

  template <typename A>
  void visit(A& archive) {
    archive(instance), archive(positions);
  }
};

/// New tokens of a copy that lie on one instance.
struct KeyCopy {
  SequenceId of = 0, to = 0;       ///< the sequence that is read, and its copy
  int32_t instance = 0;            ///< that gets the keys
  int64_t first = 0, count = 0;    ///< the positions that it gets, [first, first + count)
  std::vector<int32_t> places;     ///< all instances that have slots of the copy
  std::vector<KeySource> sources;  ///< in ascending order of instances
  /// The instance that sends its state of the sequence; nobody: the prompt goes on, there is none, or
  /// another instance gets it.
  int32_t state_from = SequenceState::nobody;

  /// The tokens as rows of a pass of these places, for KvMap::append. Nobody computes them there.
  PassSequence rows() const;
  Team team() const { return {places, 0, AttentionExchange::pass_kv, {}}; }

  template <typename A>
  void visit(A& archive) {
    archive(of), archive(to), archive(instance), archive(first), archive(count), archive(places),
        archive(state_from);
    visit_all(archive, sources);
  }
};

/// Returns how the keys of the tokens [first, first + Σ shares) of sequence `of` come to its copy. Each
/// share gets tokens next to each other, the first share the first ones. The map has them in `of`
/// already, and not in the copy. `with_state`: the state goes to the instance of the last token.
/// Throws InvalidArgument unless the copy ends at `first`.
std::vector<KeyCopy> key_copies(const KvMap& map, SequenceId of, SequenceId to, int64_t first,
                                const std::vector<KeptShare>& shares, bool with_state = false);

}  // namespace pecia::parallel
