// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Sends the keys of prompts to the instances that answer them (ranks/parallel/key_copy.hpp), while
/// both sides compute. The rank that holds a layer's keys sends them as soon as the layer has run. The
/// other one takes them into its cache between two pieces of an op, or at the latest when a pass needs
/// them. What ranks have beside keys (beside_keys.hpp) follows after the layers of a prompt's last
/// pass. Not more than `most_bytes`, or one message, are under way between two ranks on each side.

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "lib/model/attention/beside_keys.hpp"
#include "lib/model/attention/compute.hpp"
#include "lib/model/attention/kv_ledger.hpp"
#include "lib/ranks/comm/communicator.hpp"
#include "lib/ranks/parallel/key_copy.hpp"

namespace pecia::attention {

class KeyCopies {
 public:
  /// `group`: the ranks that hold the same heads, by instance, in which nothing else is sent; null:
  /// there are no copies. All references outlive this object. A message has what goes from one rank to
  /// another after a layer of a pass, of all copies in turn: K, its scales in fp8, V and its scales,
  /// each [num_kv_heads, tokens]. A last message has what is beside keys, of all copies in turn.
  KeyCopies(const Compute& compute, KvCache& cache, KvLedger& ledger, comm::Communicator* group,
            int64_t most_bytes = int64_t{256} << 20)
      : compute_(compute), cache_(cache), ledger_(ledger), group_(group), most_bytes_(most_bytes) {}

  /// What moves with keys (null: nothing), which must outlive this object.
  void set_beside(BesideKeys* beside) { beside_ = beside; }

  /// Begins a pass that sends these copies, once the ledger has its tokens.
  void begin_pass(const std::vector<parallel::KeyCopy>& copies);
  /// Whether this rank sends keys in the pass.
  bool sends() const { return !leaving_.empty() || !leaving_beside_.empty(); }
  /// Sends a layer's keys, which the cache has when the stream's work is done.
  void send(int64_t layer);
  /// Sends what is beside keys, after all layers.
  void send_beside();

  /// Adds the tokens of the copies to the ledger, and takes in those of this instance as they come.
  /// Every rank that is sent keys gets the copies in the order of the passes that send them.
  void receive(const std::vector<parallel::KeyCopy>& copies);
  /// Takes in what has come, without waiting.
  void progress();
  /// Waits until all keys of the sequence that are to come are in the cache.
  void wait_for(parallel::SequenceId sequence);
  /// Waits until all that is to come has come, and all that was sent has left.
  void finish();

 private:
  static constexpr int64_t before_first = -1;
  /// Slots of the tokens that travel, in the order in which they do.
  struct Tokens {
    std::vector<parallel::SlotRange> slots;
    int64_t count = 0;
  };
  struct Sent {
    device::Buffer bytes;
    std::unique_ptr<comm::Transfer> transfer;
  };
  /// Keys of a pass that come, one layer after the other.
  struct Coming {
    std::vector<parallel::SequenceId> sequences;
    Tokens tokens;
    std::vector<parallel::SequenceId> beside;  ///< whose bytes beside keys come, too
    int64_t beside_bytes = 0;                  ///< of each of these

    bool has(parallel::SequenceId sequence) const {
      return std::ranges::count(sequences, sequence) > 0;
    }
  };
  /// A message that is under way to this rank.
  struct Message {
    const Coming* of;
    int64_t layer;  ///< KvCache::layers(): what is beside keys
    device::Buffer bytes;
    std::unique_ptr<comm::Transfer> transfer;
  };
  /// What comes from one rank, in the order in which it is sent.
  struct Source {
    std::deque<Coming> coming;     ///< the first of it is the first that is not all there
    size_t asked = 0;              ///< of `coming`: the one whose messages are asked for next
    int64_t layer = before_first;  ///< the last message of it that was asked for
    std::deque<Message> messages;  ///< under way
    int64_t bytes = 0;             ///< of these
  };

  int64_t bytes_of(const Tokens& tokens, int64_t layer) const;
  int64_t bytes_of(const Coming& coming, int64_t layer) const;
  int64_t next_stored(int64_t layer) const;
  int64_t next_message(const Coming& coming, int64_t layer) const;
  device::Buffer make_room(int to, int64_t bytes);
  void start(int to, device::Buffer message, int64_t bytes);
  device::Buffer take_buffer(int64_t bytes);
  void ask(int from, Source& source);
  void take_in(int from, Source& source);
  enum class Direction : uint8_t { from_cache, to_cache };
  void copy(Direction direction, int64_t layer, const std::vector<parallel::SlotRange>& slots,
            std::byte* message) const;

  Compute compute_;
  KvCache& cache_;
  KvLedger& ledger_;
  comm::Communicator* group_;
  int64_t most_bytes_;
  BesideKeys* beside_ = nullptr;
  std::map<int, Tokens> leaving_;  ///< by rank: in each layer of the pass
  std::map<int, std::vector<parallel::SequenceId>> leaving_beside_;  ///< by rank: after the layers
  std::map<int, std::deque<Sent>> sent_;                             ///< by rank
  std::map<int, Source> sources_;                                    ///< likewise
  std::vector<device::Buffer> free_;  ///< buffers of messages that are through
};

}  // namespace pecia::attention
