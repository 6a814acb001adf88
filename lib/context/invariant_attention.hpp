#pragma once
/// RingAttention whose bits do not depend on the number of ranks nor on what else is in the pass
/// (`reproducible: layout`, lib/parallel/virtual_ranks.hpp). Each virtual rank's keys give one
/// partial result of a query, and these are merged along a fixed tree. The same passes, cut for
/// layout_ranks virtual ranks.

#include <map>
#include <vector>

#include "kernels/api/backend.hpp"
#include "lib/comm/communicator.hpp"
#include "lib/context/kv_cache.hpp"
#include "lib/context/ring_attention.hpp"
#include "lib/parallel/kv_map.hpp"
#include "lib/report/spans.hpp"

namespace pecia::context {

class InvariantAttention {
 public:
  /// As RingAttention; the ring's size divides parallel::layout_ranks.
  InvariantAttention(comm::Communicator& ring, kernels::Backend& backend, device::Stream& stream,
                     report::Recorder& recorder, KvCache& cache, int64_t num_heads,
                     std::vector<int64_t> windows);
  InvariantAttention(const InvariantAttention&) = delete;
  InvariantAttention& operator=(const InvariantAttention&) = delete;

  /// `reserved` tokens on every rank, the same number for each virtual rank that it plays.
  void add(parallel::SequenceId sequence, int64_t reserved,
           std::optional<parallel::SequenceId> parent = {});
  void remove(parallel::SequenceId sequence);
  /// Of the virtual ranks.
  const parallel::KvMap& map() const { return map_; }

  /// Every PassSequence has virtual_ranks = layout_ranks. Keys travel with pass_kv, else the
  /// queries do: straight to all ranks, in one exchange.
  void begin_pass(const std::vector<parallel::PassSequence>& pass, parallel::Ring ring);
  const std::vector<int64_t>& positions() const { return own_.positions; }
  void run(int64_t layer, const TensorView& q, const TensorView& k, const TensorView& v,
           const TensorView& out);
  RingTraffic expected_traffic() const;

 private:
  using Pass = std::vector<parallel::PassSequence>;

  /// Some ranks' rows of the pass, and which of them are whose.
  struct QueryRows {
    struct Part {
      parallel::SequenceId sequence;
      int64_t first_row, num_rows;
    };
    std::vector<int64_t> positions;
    std::vector<Part> parts;
    int64_t count() const { return static_cast<int64_t>(positions.size()); }
  };
  /// A sequence whose keys the pass needs. Travelling, those of each virtual rank are padded to the
  /// most that any has.
  struct Unit {
    parallel::SequenceId sequence;
    int64_t padded_tokens;
    int64_t offset;                               ///< in tokens, among the message's
    std::vector<std::vector<int64_t>> positions;  ///< by virtual rank
  };
  /// Some keys of one virtual rank, before it is known in which buffer they are.
  struct RunRef {
    int64_t offset;       ///< elements from the buffer's first key of KV head 0
    int64_t head_stride;  ///< elements
    int64_t num_keys;
    const int64_t* positions;
  };
  /// One attention call.
  struct Call {
    std::vector<int64_t> positions;  ///< of its rows
    std::vector<kernels::AttentionItem> items;
    std::vector<RunRef> runs;
    std::map<int64_t, double> flops;  ///< by window
  };
  /// Queries against the keys of one rank: a call for each virtual rank, or one for all of them, on
  /// as many copies of the queries.
  struct Visit {
    std::vector<Call> calls;
    bool stacked;
  };
  struct Keys {
    const void *k, *v;
  };
  /// A result for some rows that is still to be merged.
  struct Partial {
    TensorView out, lse;
  };

  int size() const { return ring_.size(); }
  int played() const;  ///< virtual ranks on each rank
  int first_played(int rank) const { return rank * played(); }
  int64_t head_dim() const { return cache_.shape().head_dim; }
  int64_t message_elements() const;  ///< K alone, or V alone
  QueryRows rows_of_ranks(const Pass& pass, int first, int end) const;
  void plan_slots(const Pass& pass);
  void plan_units(const Pass& pass);
  std::vector<RunRef> runs_of(const Unit& unit, int virtual_rank, bool in_message) const;
  void add_items(Call& call, const QueryRows& rows, int virtual_rank, bool in_message) const;
  Visit visit(const QueryRows& rows, int key_rank, bool in_message) const;

  void store(int64_t layer, const TensorView& k, const TensorView& v);
  void pack(int64_t layer, std::byte* message);
  Keys cached(int64_t layer) const { return {cache_.k(layer).data(), cache_.v(layer).data()}; }
  Partial partial(device::Buffer& out, device::Buffer& lse, int64_t rows) const;
  void attend(int64_t layer, const Call& call, const TensorView& q, Keys keys, const Partial& to);
  void merge(const Partial& part, const Partial& into);
  void attend_rank(int64_t layer, const Visit& visit, const TensorView& q, Keys keys,
                   const Partial& to);
  void attend_subtree(int64_t layer, const Visit& visit, const TensorView& q, Keys keys, int first,
                      int count, size_t depth, const Partial& to);
  void attend_stacked(int64_t layer, const Visit& visit, const TensorView& q, Keys keys,
                      const Partial& to);
  void pass_keys(int64_t layer, const TensorView& q, const Partial& to);
  void pass_queries(int64_t layer, const TensorView& q, const Partial& to);
  void wait(comm::Transfer& transfer, const char* name, int64_t bytes);

  struct Buffers {
    device::Buffer out, lse;
  };

  comm::Communicator& ring_;
  kernels::Backend& backend_;
  device::Stream& stream_;
  report::Recorder& recorder_;
  KvCache& cache_;
  int64_t num_heads_;
  std::vector<int64_t> windows_;
  parallel::KvMap map_;

  // The pass.
  bool keys_travel_ = false;
  QueryRows own_, all_;          ///< all_: of every rank, one after the other; when queries travel
  std::vector<int64_t> counts_;  ///< rows by rank
  std::vector<int64_t> slots_;   ///< of this rank's rows
  std::vector<Unit> units_;
  int64_t message_tokens_ = 0;
  std::vector<Visit> visits_;  ///< by step, or one

  // Workspaces, grown and kept.
  device::Buffer travelling_[2], stacked_q_, all_q_;
  Buffers stacked_, all_partial_;
  device::Buffer lse_;
  std::vector<Buffers> subtrees_;  ///< by depth
  std::vector<Buffers> waiting_;   ///< by rank: whose keys gave the partial result
};

}  // namespace pecia::context
