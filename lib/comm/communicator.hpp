// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A group of ranks and what they can do together. The null communicator is rank 0 of 1, so
/// everything above this interface runs, and is tested, without MPI.
///
/// Transfers work on one kind of memory: the host's, or that of a device. There a transfer begins
/// after what the device's stream holds when it is started, and once it is waited for, what is
/// enqueued on that stream follows it.
///
/// Collectives must be called by every rank of the group in the same order. Counts are bytes;
/// buffers must not overlap and stay untouched until the transfer is done. Every blocking wait
/// makes the other transfers of the process progress (those of Collectives up to their next
/// exchange), and fails (throws SystemError naming the
/// operation, its sequence number and the ranks waited for) when nothing arrives for
/// `wait_timeout`.

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lib/comm/place.hpp"

namespace pecia::comm {

/// A transfer under way. Wait for it before its buffers go; destroying an unfinished one (after an
/// exception, when the job ends) abandons it.
class Transfer {
 public:
  virtual ~Transfer() = default;
  /// Whether it is done; makes it progress. Never blocks.
  virtual bool test() = 0;
  virtual void wait() = 0;
};

/// What a communicator has moved since it was made, for reports and tests against the formulas.
struct Traffic {
  /// Point-to-point messages sent to other ranks, those of all_to_all and exchanges included.
  int64_t messages = 0;
  int64_t bytes = 0;  ///< payload of those
  /// The same by how far they went; all at LinkLevel::server while no places are set.
  std::array<int64_t, num_link_levels> messages_by_level{}, bytes_by_level{};
};

/// One rank's part in an all-to-all: to / from each rank of the group, in rank order; empty is
/// allowed.
struct Blocks {
  std::vector<std::span<const std::byte>> send;
  std::vector<std::span<std::byte>> receive;
};

/// A set of messages that start at once: one step of a collective that is built of them.
struct Exchange {
  struct Send {
    std::span<const std::byte> bytes;
    int to;
  };
  struct Receive {
    std::span<std::byte> bytes;
    int from;
  };
  std::vector<Send> sends;
  std::vector<Receive> receives;

  /// "ranks 1, 3": those that something comes from or goes to.
  std::string peers() const;
};

/// What exchanges belong to: its number keeps their messages apart, its name is for errors.
struct Operation {
  const char* name;
  int64_t number;
};

/// Numbers, 0 at first, that every rank may add to at any time; nothing of it is collective.
class SharedCounters {
 public:
  virtual ~SharedCounters() = default;
  /// Returns the value before, in one step: no two ranks see the same.
  virtual int64_t add(int64_t index, int64_t amount) = 0;

  int64_t value(int64_t index) { return add(index, 0); }
};

/// One of them alone.
class SharedCounter {
 public:
  explicit SharedCounter(std::unique_ptr<SharedCounters> one) : one_(std::move(one)) {}

  int64_t add(int64_t amount) { return one_->add(0, amount); }
  /// Hands out 0, 1, 2, … one by one to whichever rank asks next.
  int64_t next() { return add(1); }
  int64_t value() { return add(0); }

 private:
  std::unique_ptr<SharedCounters> one_;
};

class Collectives;

/// In which order a sum over ranks is made.
enum class SumOrder {
  any,  ///< whatever is fastest, the same on every rank
  tree  ///< that of Collectives
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Starts sending `send` to rank `to` and receiving exactly `receive.size()` bytes from rank
  /// `from`. Either span may be empty: then no message goes that way (both sides must agree).
  /// Messages of a pair arrive in the order sent; of any size (split where MPI's counts end).
  virtual std::unique_ptr<Transfer> start_send_receive(std::span<const std::byte> send, int to,
                                                       std::span<std::byte> receive, int from) = 0;

  /// Starts exchanging one block with every rank, itself included (copied at once).
  virtual std::unique_ptr<Transfer> start_all_to_all(const Blocks& blocks) = 0;

  /// Numbers an operation that is built of exchanges: 1, 2, … Says nothing to anybody; collective
  /// all the same, so that every rank gives an operation the same number.
  virtual int64_t next_operation() = 0;

  /// Collective, called first by operations that are collective. Where collectives are checked (see
  /// CollectiveChecks), throws InvalidArgument on every rank when the ranks' operations differ in
  /// name, number or `shape`; else does nothing.
  virtual void check_same(const char* operation, int64_t shape) = 0;

  /// Shows to who watches the ranks that this one waits for `operation`; null: no more.
  virtual void show_wait(const Operation* operation) = 0;

  /// Starts the messages of one step, none of them to the rank itself; empty ones do not travel
  /// (both sides must agree). Messages of one pair and operation arrive in the order started,
  /// whatever other operations do; at most 16384 of these may be under way at a time.
  virtual std::unique_ptr<Transfer> start_exchange(const Exchange& exchange,
                                                   const Operation& operation) = 0;

  /// Gathers and sums of tensors over this group, which outlives them. Ranks of equal labels share
  /// a server; the labels are the same on every rank. All equal or all different means flat.
  virtual std::unique_ptr<Collectives> make_collectives(std::vector<int> server_of_rank,
                                                        SumOrder order);

  /// Whether transfers are enqueued on the device's stream, as ops are: the host waits for nothing
  /// when one starts or is waited for.
  virtual bool on_stream() const { return false; }

  /// What moves tensors of a device, for the log: "NCCL 2.28.9, …"; "" for the host's memory.
  virtual std::string tensors_by() const { return ""; }

  /// The group for the host's memory: what this one is, or is built on.
  virtual Communicator& on_host() { return *this; }

  /// Every rank gets every rank's bytes; sizes may differ and be zero. Result by rank.
  virtual std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine) = 0;

  /// `root`'s bytes replace everybody's; the size travels too.
  virtual void broadcast(std::vector<std::byte>& bytes, int root) = 0;

  /// Rank `root` gets every rank's bytes by rank; the others get an empty vector.
  virtual std::vector<std::vector<std::byte>> gather(std::span<const std::byte> mine, int root) = 0;

  virtual int64_t all_reduce_max(int64_t value) = 0;
  virtual double all_reduce_sum(double value) = 0;
  /// The one wait without a limit: replicas with uneven work meet here.
  virtual void barrier() = 0;

  /// Collective: ranks with equal `color` form a group, ordered by (key, rank).
  virtual std::unique_ptr<Communicator> split(int color, int key) = 0;

  /// Collective: this rank's part of the group, an ordered list that it is in itself. Every member
  /// of a part gives the same list, and a rank is in one part alone.
  virtual std::unique_ptr<Communicator> part(const std::vector<int>& ranks);

  /// Collective: the ranks that share this one's host, in rank order.
  virtual std::unique_ptr<Communicator> split_by_host() = 0;

  /// Collective, and so is destroying it, except while an exception is under way.
  /// `count`: the same on every rank.
  virtual std::unique_ptr<SharedCounters> make_counters(int64_t count) = 0;
  std::unique_ptr<SharedCounter> make_counter() {
    return std::make_unique<SharedCounter>(make_counters(1));
  }

  /// Makes transfers progress without waiting, where it is time to look for it; says whether it
  /// was. Cheap (well under a microsecond when nothing is under way).
  virtual bool progress() = 0;

  /// After how long a blocking wait fails; zero: never.
  virtual std::chrono::seconds wait_timeout() const = 0;
  /// Of this communicator and all that come from the same one.
  virtual void set_wait_timeout(std::chrono::seconds timeout) = 0;

  /// Where the ranks of this group are, by rank: from now on traffic is counted by level. A split
  /// inherits nothing.
  virtual void set_places(const std::vector<RackServerGpu>& by_rank) = 0;
  virtual Traffic traffic() const = 0;
};

/// Rank 0 of 1: collectives are identities, sending to itself copies.
std::unique_ptr<Communicator> make_null_communicator();

}  // namespace pecia::comm
