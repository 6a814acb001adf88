// SPDX-License-Identifier: Apache-2.0
/// What the NCCL communicator asks of NCCL and of the streams, written down by doubles; and what it
/// does when a rank is lost.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <future>
#include <numeric>
#include <set>

#include "lib/base/core/error.hpp"
#include "lib/base/device/buffer.hpp"
#include "lib/base/device/graph_stream.hpp"
#include "lib/base/device/host_memory.hpp"
#include "lib/ranks/comm/collectives.hpp"
#include "lib/ranks/comm/communicator_over.hpp"
#include "lib/ranks/comm/nccl_communicator.hpp"

namespace pecia::comm {
namespace {

using Log = std::vector<std::string>;

/// Its graphs are written down, too.
class LoggedStream : public device::GraphStream {
 public:
  explicit LoggedStream(std::string of, Log* log = nullptr) : name(std::move(of)), log_(log) {}
  std::string name;
  std::function<void()> in_launch;  ///< what a launch waits for
  void synchronize() override {
    end_segment();
    say("the host waits for " + name);
  }

 private:
  void make_graph(size_t slot, const device::Commands& work) override {
    graphs_.insert(slot);
    say("capture");
    work.enqueue();
    say("captured");
  }
  void launch_graph(size_t) override {
    say("launch on " + name);
    if (in_launch) in_launch();
  }
  void drop_graph(size_t slot) override {
    if (graphs_.erase(slot) > 0) say("drop a graph");
  }
  void say(const std::string& words) {
    if (log_ != nullptr) log_->push_back(words);
  }

  Log* log_;
  std::set<size_t> graphs_;
};

/// For something that needs the stream itself.
std::string name_of(device::Stream& stream) {
  auto& logged = dynamic_cast<LoggedStream&>(stream);
  logged.end_segment();
  return logged.name;
}

class LoggedEvent : public device::Event {
 public:
  LoggedEvent(Log& log, const bool& reached, int number)
      : log_(log), reached_(reached), number_(number) {}
  void record(device::Stream& stream) override {
    const std::string name = name_of(stream);
    log_.push_back(fmt::format("event {} on {}", number_, name));
  }
  void make_wait(device::Stream& stream) override {
    const std::string name = name_of(stream);
    log_.push_back(fmt::format("{} waits for event {}", name, number_));
  }
  bool done() const override { return reached_; }
  void synchronize() override { ADD_FAILURE() << "the host waits"; }
  double seconds_since(const device::Event&) const override { return 0; }

 private:
  Log& log_;
  const bool& reached_;
  int number_;
};

/// Copies of the host's device are left out: there is nothing to copy.
class LoggedDevice : public device::Device {
 public:
  const device::DeviceInfo& info() const override { return info_; }
  device::MemoryInfo memory() const override { return {0, 0}; }
  std::unique_ptr<device::Stream> make_stream() override {
    return std::make_unique<LoggedStream>("sending", &log);
  }
  std::unique_ptr<device::Event> make_event() override {
    return std::make_unique<LoggedEvent>(log, events_reached, num_events++);
  }
  void copy(void*, const void*, int64_t bytes, device::Stream& stream) override {
    log.push_back(fmt::format("copy {} on {}", bytes, name_of(stream)));
  }
  void copy_rows(void*, int64_t, const void*, int64_t, int64_t, int64_t, device::Stream&) override {
  }
  void zero(void*, int64_t, device::Stream&) override {}
  std::byte* allocate(device::Memory, int64_t bytes) override {
    log.push_back(fmt::format("allocate {}", bytes));
    return device::allocate_host(bytes);
  }
  void free(device::Memory, std::byte* data) noexcept override {
    log.emplace_back("free");
    device::free_host(data);
  }

  Log log;
  bool events_reached = true;
  int num_events = 0;

 private:
  device::DeviceInfo info_{};
};

/// "5", or "5 bf16".
std::string count_of(const Addends& values) {
  return values.dtype() == DType::fp32
             ? std::to_string(values.count())
             : fmt::format("{} {}", values.count(), name_of(values.dtype()));
}

class LoggedNccl : public Nccl {
 public:
  LoggedNccl(Log& log, std::string& error, bool registers = true, std::string name = "")
      : log_(log), error_(error), registers_(registers), name_(std::move(name)) {}

  void start_group() override { say("{"); }
  void end_group() override {
    say("}");
    if (in_end_group) in_end_group();
  }
  void send(std::span<const std::byte> bytes, int to, device::Stream& stream) override {
    say(fmt::format("send {} to {} on {}", bytes.size(), to, test_name(stream)));
  }
  void receive(std::span<std::byte> bytes, int from, device::Stream& stream) override {
    say(fmt::format("receive {} from {} on {}", bytes.size(), from, test_name(stream)));
  }
  void broadcast(std::span<std::byte> bytes, int root, device::Stream& stream) override {
    say(fmt::format("broadcast {} of {} on {}", bytes.size(), root, test_name(stream)));
  }
  void reduce(const Addends& values, const Addends& sum, int root,
              device::Stream& stream) override {
    say(fmt::format("reduce {} to {}{} on {}", count_of(values), root, sum.empty() ? "" : ", me",
                    test_name(stream)));
  }
  void all_reduce(const Addends& values, device::Stream& stream) override {
    say(fmt::format("all_reduce {} on {}", count_of(values), test_name(stream)));
  }
  void all_gather(std::span<std::byte> all, device::Stream& stream) override {
    say(fmt::format("all_gather {} on {}", all.size(), test_name(stream)));
  }
  void reduce_scatter(const Addends& values, const Addends& mine, device::Stream& stream) override {
    say(fmt::format("reduce_scatter {} to {} on {}", count_of(values), count_of(mine),
                    test_name(stream)));
  }
  bool registers() const override { return registers_; }
  std::unique_ptr<Registration> register_block(std::span<std::byte> block) override {
    say(fmt::format("register {}", block.size()));
    return std::make_unique<LoggedRegistration>(*this);
  }
  std::string name() const override { return "a log"; }
  std::unique_ptr<Nccl> split(int color, int key) override {
    say(fmt::format("split {} {}", color, key));
    return std::make_unique<LoggedNccl>(log_, error_, registers_, "part: ");
  }
  FoundOneShot find_one_shot(Communicator&, device::Device&, int64_t most_bytes) override;
  std::string asynchronous_error() override { return error_; }
  void abort() noexcept override {
    if (in_abort) in_abort();
    say("abort");
  }

  static inline std::function<void()> in_end_group;  ///< what a call waits for
  static inline std::function<void()> in_abort;      ///< what aborting waits for

 private:
  struct LoggedRegistration : Registration {
    explicit LoggedRegistration(LoggedNccl& with) : nccl(with) {}
    ~LoggedRegistration() override { nccl.say("deregister"); }
    LoggedNccl& nccl;
  };
  static std::string test_name(device::Stream& stream) { return name_of(stream); }
  void say(const std::string& words) { log_.push_back(name_ + words); }

  Log& log_;
  std::string& error_;
  bool registers_;
  std::string name_;
};

class LoggedOneShot : public OneShot {
 public:
  LoggedOneShot(Log& log, int64_t most_bytes) : log_(log), most_bytes_(most_bytes) {}
  ~LoggedOneShot() override { log_.emplace_back("the end of one shots"); }
  int64_t most_bytes() const override { return most_bytes_; }
  void all_reduce(const Addends& values, device::Stream& stream) override {
    log_.push_back(fmt::format("one shot {} on {}", count_of(values), name_of(stream)));
  }
  std::string asynchronous_error() override { return ""; }
  void abort() noexcept override { log_.emplace_back("abort one shots"); }

 private:
  Log& log_;
  int64_t most_bytes_;
};

FoundOneShot LoggedNccl::find_one_shot(Communicator&, device::Device&, int64_t most_bytes) {
  if (most_bytes == 0) return {nullptr, "no bytes"};
  return {std::make_unique<LoggedOneShot>(log_, most_bytes), ""};
}

/// Rank 1 of some, whose others do nothing.
class RankOne : public CommunicatorOver {
 public:
  explicit RankOne(std::chrono::seconds timeout, int size = 3)
      : CommunicatorOver(make_null_communicator()), timeout_(timeout), size_(size) {}
  int rank() const override { return 1; }
  int size() const override { return size_; }
  std::chrono::seconds wait_timeout() const override { return timeout_; }
  std::unique_ptr<Communicator> split(int, int) override {
    return std::make_unique<RankOne>(timeout_, size_);
  }
  std::unique_ptr<Communicator> split_by_host() override { return split(0, 0); }
  void set_places(const std::vector<RackServerGpu>&) override {}
  Traffic traffic() const override { return sent; }

  Traffic sent;

 private:
  std::chrono::seconds timeout_;
  int size_;
};

struct NcclCalls : testing::Test {
  LoggedDevice device;
  LoggedStream computing{"computing", &device.log};
  std::string error;
  std::promise<std::string> late;  ///< what is said of a call that does not return
  std::unique_ptr<Communicator> comm = make(std::chrono::seconds(60));
  std::array<std::byte, 64> memory{};

  std::unique_ptr<Communicator> make(std::chrono::seconds timeout, int size = 3,
                                     bool registers = true) {
    return make_nccl_communicator(std::make_unique<RankOne>(timeout, size),
                                  std::make_unique<LoggedNccl>(device.log, error, registers),
                                  device, computing,
                                  [this](const std::string& words) { late.set_value(words); });
  }
  std::span<std::byte> bytes(size_t count) { return std::span(memory).first(count); }
  std::span<float> floats(size_t count) { return {reinterpret_cast<float*>(memory.data()), count}; }
  /// Of progress, called until it throws.
  static std::string complaint(Communicator& of) {
    try {
      for (;;) of.progress();
    } catch (const SystemError& failure) {
      return failure.what();
    }
  }
  /// What was asked since the last time.
  Log asked() { return std::exchange(device.log, {}); }
};

TEST_F(NcclCalls, ATransferRunsBesideWhatIsEnqueuedBeforeItsWait) {
  const auto transfer = comm->start_send_receive(bytes(8), 2, bytes(4), 0);
  EXPECT_EQ(asked(),
            (Log{"event 0 on computing", "sending waits for event 0", "{", "send 8 to 2 on sending",
                 "receive 4 from 0 on sending", "}", "event 1 on sending"}));
  transfer->wait();
  EXPECT_EQ(asked(), Log{"computing waits for event 1"});
}

TEST_F(NcclCalls, EventsAreUsedAgainOnceReachedAndLetGo) {
  const int before = device.num_events;
  for (int i = 0; i < 5; ++i) comm->start_send_receive(bytes(8), 2, bytes(4), 0);
  EXPECT_EQ(device.num_events, before + 1);
  const auto held = comm->start_send_receive(bytes(8), 2, bytes(4), 0);
  for (int i = 0; i < 5; ++i) comm->start_send_receive(bytes(8), 2, bytes(4), 0);
  EXPECT_EQ(device.num_events, before + 2);
  asked();
  held->wait();
  EXPECT_EQ(asked().size(), 1u);
  device.events_reached = false;
  for (int i = 0; i < 3; ++i) comm->start_send_receive(bytes(8), 2, bytes(4), 0);
  EXPECT_EQ(device.num_events, before + 5);
}

TEST_F(NcclCalls, EmptyMessagesDoNotTravel) {
  comm->start_send_receive({}, 2, bytes(4), 0);
  EXPECT_EQ(asked()[3], "receive 4 from 0 on sending");
  comm->start_all_to_all({{bytes(4), bytes(0), bytes(0)}, {bytes(0), bytes(0), bytes(8)}});
  const Log log = asked();
  EXPECT_EQ(log[0], "event 0 on computing") << "nothing is copied";
  EXPECT_EQ((Log{log.begin() + 3, log.end() - 2}),
            (Log{"send 4 to 0 on sending", "receive 8 from 2 on sending"}));
}

TEST_F(NcclCalls, CollectivesAreNcclsOwn) {
  const auto collectives = comm->make_collectives({0, 0, 0}, SumOrder::any);
  const auto calls = [&] {
    const Log log = asked();
    return Log{log.begin() + 3, log.end() - 2};
  };
  collectives->start_all_reduce(floats(5));
  EXPECT_EQ(calls(), Log{"all_reduce 5 on sending"});
  collectives->start_all_gather({bytes(4), bytes(0), bytes(8)});
  EXPECT_EQ(calls(), (Log{"broadcast 4 of 0 on sending", "broadcast 8 of 2 on sending"}));
  const std::vector<int64_t> counts = {2, 3, 0};
  collectives->start_reduce_scatter(floats(5), counts, floats(3));
  EXPECT_EQ(calls(), (Log{"reduce 2 to 0 on sending", "reduce 3 to 1, me on sending"}));
}

/// Of equal blocks that follow each other; otherwise one by one, as above.
TEST_F(NcclCalls, EqualBlocksAreOneCall) {
  const auto collectives = comm->make_collectives({0, 0, 0}, SumOrder::any);
  const auto calls = [&] {
    const Log log = asked();
    return Log{log.begin() + 3, log.end() - 2};
  };
  const std::span<std::byte> all = bytes(24);
  const Traffic before = comm->traffic();
  collectives->start_all_gather({all.first(8), all.subspan(8, 8), all.last(8)});
  EXPECT_EQ(calls(), Log{"all_gather 24 on sending"});
  EXPECT_EQ(comm->traffic().bytes - before.bytes, 2 * 8);
  const std::vector<int64_t> counts = {2, 2, 2};
  collectives->start_reduce_scatter(floats(6), counts, floats(6).subspan(2, 2));
  EXPECT_EQ(calls(), Log{"reduce_scatter 6 to 2 on sending"});
  EXPECT_EQ(comm->traffic().bytes - before.bytes, 2 * 8 + 2 * 8);
  collectives->start_all_gather({all.first(8), all.last(8), all.subspan(8, 8)});
  EXPECT_EQ(calls().size(), 3u) << "blocks out of order";
  collectives->start_all_gather({all.first(0), all.first(0), all.first(0)});
  EXPECT_EQ(calls(), Log());
}

/// Rank 1 and rank 3 are second on their servers.
TEST_F(NcclCalls, LargeBlocksGoByServersAndSmallOnesAsNcclWants) {
  const auto four = make(std::chrono::seconds(60), 4);
  four->set_least_block_by_servers(8);
  const auto collectives = four->make_collectives({0, 0, 1, 1}, SumOrder::any);
  const auto calls = [&](std::string_view first) {
    const Log log = asked();
    return Log{std::ranges::find(log, first), log.end() - 1};
  };
  const auto blocks = [&](size_t size) {
    std::vector<std::span<std::byte>> all;
    for (size_t rank = 0; rank < 4; ++rank) all.push_back(bytes(64).subspan(rank * size, size));
    return all;
  };
  asked();
  collectives->start_all_gather(blocks(4));
  EXPECT_EQ(calls("{"), (Log{"{", "all_gather 16 on sending", "}"}));
  collectives->start_all_gather(blocks(8));
  Log log = asked();
  EXPECT_EQ(log[0], "split 0 1") << "the server's ranks";
  EXPECT_EQ((Log{std::ranges::find(log, "{"), log.end() - 1}),
            (Log{"{", "send 8 to 3 on sending", "receive 8 from 3 on sending", "}", "part: {",
                 "part: all_gather 16 on sending", "part: all_gather 16 on sending", "part: }"}));
  const std::vector<int64_t> few = {1, 1, 1, 1}, counts = {2, 2, 2, 2};
  collectives->start_reduce_scatter(floats(4), few, floats(4).subspan(1, 1));
  EXPECT_EQ(calls("{"), (Log{"{", "reduce_scatter 4 to 1 on sending", "}"}));
  collectives->start_reduce_scatter(floats(8), counts, floats(8).subspan(2, 2));
  EXPECT_EQ(calls("part: {"), (Log{"part: {", "part: reduce_scatter 4 to 2 on sending",
                                   "part: reduce_scatter 4 to 2 on sending", "part: }", "part: {",
                                   "part: reduce_scatter 4 to 2 on sending", "part: }"}));
  collectives->start_all_reduce(floats(8));
  EXPECT_EQ(calls("{"), (Log{"{", "all_reduce 8 on sending", "}"}));
}

/// Rank 1's pairs are ranks 0 1, then 1 3: which has ((0 + 1) + (2 + 3)) in the end.
TEST_F(NcclCalls, SumsInTreeOrderAreThoseOfPairs) {
  const auto four = make(std::chrono::seconds(60), 4);
  const auto collectives = four->make_collectives({0, 0, 0, 0}, SumOrder::tree);
  EXPECT_EQ(asked(), Log());
  collectives->start_all_reduce(floats(5));
  Log log = asked();
  EXPECT_EQ((Log{log[0], log[1]}), (Log{"split 0 1", "split 1 1"}));
  EXPECT_EQ((Log{std::ranges::find(log, "part: {"), log.end() - 1}),
            (Log{"part: {", "part: all_reduce 5 on sending", "part: }", "part: {",
                 "part: all_reduce 5 on sending", "part: }"}));
  EXPECT_EQ(four->traffic().bytes, 2 * 20);

  const std::vector<int64_t> counts = {2, 3, 0, 1};
  collectives->start_reduce_scatter(floats(6), counts, floats(3));
  log = asked();
  EXPECT_EQ(
      (Log{std::ranges::find(log, "part: {"), log.end() - 1}),
      (Log{"part: {", "part: reduce 2 to 0 on sending", "part: reduce 3 to 1, me on sending",
           "part: reduce 1 to 1, me on sending", "part: }", "part: {",
           "part: reduce 3 to 0, me on sending", "part: reduce 1 to 1 on sending", "part: }"}));
  EXPECT_EQ(four->traffic().bytes, 2 * 20 + 4 * (2 + 1));

  const auto three = comm->make_collectives({0, 0, 0}, SumOrder::tree);
  EXPECT_THROW(three->start_all_reduce(floats(5)), InvalidArgument);
}

TEST_F(NcclCalls, CountWhatGoesToOthers) {
  comm->start_send_receive(bytes(8), 2, bytes(4), 0);
  comm->start_all_to_all({{bytes(4), bytes(2), bytes(1)}, {bytes(0), bytes(2), bytes(0)}});
  comm->make_collectives({0, 0, 0}, SumOrder::any)
      ->start_all_gather({bytes(4), bytes(16), bytes(8)});
  const Traffic traffic = comm->traffic();
  EXPECT_EQ(traffic.bytes, 8 + (4 + 1) + 2 * 16);
  EXPECT_EQ(traffic.messages, 1 + 2 + 2);
}

/// Shortlists of a cut vocabulary travel from host to host. On an H100 a check of TP found 20 bytes
/// less than a phantom had sent.
TEST_F(NcclCalls, CountWhatTheirHostsSend) {
  auto host = std::make_unique<RankOne>(std::chrono::seconds(60), 3);
  host->sent.messages = 1, host->sent.bytes = host->sent.bytes_by_level[1] = 20;
  const auto group =
      make_nccl_communicator(std::move(host), std::make_unique<LoggedNccl>(device.log, error, true),
                             device, computing, [](const std::string&) {});
  group->start_send_receive(bytes(8), 2, bytes(4), 0);
  EXPECT_EQ(group->traffic().bytes, 28);
  EXPECT_EQ(group->traffic().messages, 2);
  const auto by_level = group->traffic().bytes_by_level;
  EXPECT_EQ(std::accumulate(by_level.begin(), by_level.end(), int64_t{0}), 28);
}

TEST_F(NcclCalls, APartHasItsOwnGroupOnTheSameStreams) {
  const auto part = comm->split(7, 1);
  EXPECT_EQ(asked(), Log{"split 7 1"});
  part->start_send_receive(bytes(8), 2, {}, 0);
  const Log log = asked();
  EXPECT_EQ(log[1], "sending waits for event 1");
  EXPECT_EQ(log[3], "part: send 8 to 2 on sending");
  EXPECT_EQ(comm->traffic().bytes, 0);
  EXPECT_EQ(part->traffic().bytes, 8);
}

struct NcclBlocks : NcclCalls {
  device::Buffer buffer{device, device::Memory::device, 64},
      other{device, device::Memory::device, 32};
  std::vector<int64_t> counts = {1, 1, 1};

  static std::span<std::byte> all(const device::Buffer& of) {
    return {of.as<std::byte>(), static_cast<size_t>(of.bytes())};
  }
  /// What was asked since the last time, but for events, copies and the calls of NCCL.
  Log registered() {
    Log log = asked();
    std::erase_if(log, [](const std::string& words) {
      return words.find(" on ") != words.npos || words.find("event") != words.npos;
    });
    return log;
  }
};

TEST_F(NcclBlocks, AreRegisteredWholeBeforeTheirFirstTransfer) {
  registered();
  comm->start_send_receive(all(buffer).first(8), 2, all(other).last(8), 0);
  EXPECT_EQ(registered(), (Log{"register 64", "register 32", "{", "}"}));
  comm->start_send_receive(all(buffer).last(32), 2, {}, 0);
  EXPECT_EQ(registered(), (Log{"{", "}"}));
}

TEST_F(NcclBlocks, AreRegisteredByTransfersOfEveryKind) {
  const auto floats_of = [](const device::Buffer& of) { return std::span(of.as<float>(), 3); };
  const Log both = {"register 64", "register 32", "{", "}"}, one = {"register 64", "{", "}"};
  const auto of = [&](const Log& wanted, const auto& start) {
    comm = make(std::chrono::seconds(60));
    registered();
    start(*comm);
    EXPECT_EQ(registered(), wanted);
  };
  of(both, [&](Communicator& group) {
    group.start_all_to_all({{all(buffer).first(4), {}, {}}, {{}, {}, all(other).first(4)}});
  });
  of(both, [&](Communicator& group) {
    group.start_exchange({{{all(buffer), 0}}, {{all(other), 2}}}, {"exchange", 1});
  });
  of(both, [&](Communicator& group) {
    group.make_collectives({0, 0, 0}, SumOrder::any)
        ->start_reduce_scatter(floats_of(buffer), counts, floats_of(other).first(1));
  });
  of(one, [&](Communicator& group) {
    group.make_collectives({0, 0, 0}, SumOrder::any)->start_all_reduce(floats_of(buffer));
  });
  of(both, [&](Communicator& group) {
    group.make_collectives({0, 0, 0}, SumOrder::any)
        ->start_all_gather({all(buffer), {}, all(other)});
  });
}

TEST_F(NcclBlocks, ThatGoAreDeregisteredBeforeWhenNothingIsUnderWay) {
  comm->start_send_receive(all(buffer), 2, {}, 0);
  registered();
  other.reserve(100);
  EXPECT_EQ(registered(), (Log{"free", "allocate 100"})) << "it has not travelled";
  buffer.reserve(200);
  EXPECT_EQ(registered(),
            (Log{"the host waits for sending", "deregister", "free", "allocate 200"}));
  comm->start_send_receive(all(buffer), 2, {}, 0);
  EXPECT_EQ(registered(), (Log{"register 200", "{", "}"}));
}

TEST_F(NcclBlocks, AreRegisteredByEachGroupUntilItGoes) {
  comm->start_send_receive(all(buffer), 2, {}, 0);
  auto part = comm->split(0, 0);
  registered();
  part->start_send_receive(all(buffer), 2, {}, 0);
  EXPECT_EQ(registered(), (Log{"part: register 64", "part: {", "part: }"}));
  part.reset();
  EXPECT_EQ(registered(), Log{"part: deregister"});
  buffer = device::Buffer(device, device::Memory::device);
  EXPECT_EQ(registered(), (Log{"the host waits for sending", "deregister", "free"}));
}

TEST_F(NcclBlocks, AreLeftAloneWhereNcclRegistersNone) {
  comm = make(std::chrono::seconds(60), 3, false);
  registered();
  comm->start_send_receive(all(buffer), 2, {}, 0);
  buffer.reserve(200);
  EXPECT_EQ(registered(), (Log{"{", "}", "free", "allocate 200"}));
}

/// Sums in steps of the computing stream.
struct NcclSteps : NcclBlocks {
  std::unique_ptr<Collectives> collectives = comm->make_collectives({0, 0, 0}, SumOrder::any);
  static constexpr int64_t of_values = 4;

  /// A step of three sums in the buffer, the least that is a graph; returns the last one.
  std::unique_ptr<Transfer> step(Collectives& of) {
    computing.begin_step();
    std::unique_ptr<Transfer> last;
    for (size_t sum = 0; sum < 3; ++sum) {
      last =
          of.start_all_reduce_in_step(std::span(buffer.as<float>() + sum * of_values, of_values));
      last->wait();
    }
    computing.end_step();
    return last;
  }
  /// The sums of a step as NCCL is asked for them.
  static Log sums() {
    Log log;
    for (int sum = 0; sum < 3; ++sum)
      for (const char* words : {"{", "all_reduce 4 on computing", "}"}) log.emplace_back(words);
    return log;
  }
  static Log joined(const std::vector<Log>& parts) {
    Log all;
    for (const Log& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
  }
};

TEST_F(NcclSteps, HoldTheirSumsBackAndMarkTheirEndOnce) {
  asked();
  computing.begin_step();
  const auto transfer = collectives->start_all_reduce_in_step(std::span(buffer.as<float>(), 3));
  EXPECT_EQ(asked(), Log{"register 64"});
  EXPECT_TRUE(transfer->is_held_back());
  EXPECT_FALSE(transfer->test());
  transfer->wait();
  EXPECT_EQ(asked(), Log());
  computing.end_step();
  EXPECT_EQ(asked(), (Log{"{", "all_reduce 3 on computing", "}", "event 1 on computing"}));
  EXPECT_TRUE(transfer->test());
  device.events_reached = false;
  EXPECT_FALSE(transfer->test());
}

TEST_F(NcclSteps, AreLaunchedAsGraphsWithTheirSums) {
  step(*collectives);
  const Traffic before = comm->traffic();
  asked();
  step(*collectives);
  EXPECT_EQ(
      asked(),
      joined({{"capture"}, sums(), {"captured", "launch on computing", "event 1 on computing"}}));
  step(*collectives);
  EXPECT_EQ(asked(), (Log{"launch on computing", "event 1 on computing"}));
  EXPECT_EQ(comm->traffic().bytes - before.bytes, 2 * before.bytes) << "it counts in every step";
  EXPECT_EQ(computing.graph_counts().joint, 2);
}

TEST_F(NcclSteps, OtherTransfersAndSumsThatAreMeasuredAreNotHeldBack) {
  asked();
  computing.begin_step();
  EXPECT_FALSE(collectives->start_all_reduce(floats(5))->is_held_back());
  EXPECT_EQ(asked()[3], "all_reduce 5 on sending");
  auto sum = collectives->start_all_reduce_in_step(floats(5));
  comm->start_send_receive(bytes(8), 2, {}, 0);
  EXPECT_EQ(asked(), (Log{"{", "all_reduce 5 on computing", "}", "event 1 on computing",
                          "event 0 on computing", "sending waits for event 0", "{",
                          "send 8 to 2 on sending", "}", "event 2 on sending"}));
  computing.end_step();
  const auto outside = collectives->start_all_reduce_in_step(floats(5));
  EXPECT_FALSE(outside->is_held_back());
  EXPECT_EQ(asked()[3], "all_reduce 5 on sending");
  const auto empty = collectives->start_all_reduce_in_step({});
  EXPECT_FALSE(empty->is_held_back());
}

TEST_F(NcclSteps, HaveSmallSumsInOneShot) {
  EXPECT_EQ(comm->find_one_shot(12), "");
  const auto sums_of_steps = comm->make_collectives({0, 0, 0}, SumOrder::any);
  const auto values = [this](int64_t count) { return std::span(buffer.as<float>(), count); };
  asked();
  computing.begin_step();
  sums_of_steps->start_all_reduce_in_step(values(3));
  sums_of_steps->start_all_reduce_in_step(values(4));
  computing.end_step();
  EXPECT_EQ(asked(), (Log{"register 64", "{", "one shot 3 on computing", "}", "{",
                          "all_reduce 4 on computing", "}", "event 1 on computing"}));
  // Outside of steps they are on the other stream, where kernels of one group could meet.
  sums_of_steps->start_all_reduce_in_step(values(3));
  EXPECT_EQ(asked()[3], "all_reduce 3 on sending");
}

TEST_F(NcclSteps, SayWhyTheyHaveNoSumsInOneShot) {
  EXPECT_EQ(comm->find_one_shot(0), "no bytes");
  const auto sums_of_steps = comm->make_collectives({0, 0, 0}, SumOrder::any);
  computing.begin_step();
  sums_of_steps->start_all_reduce_in_step(std::span(buffer.as<float>(), 3));
  asked();
  computing.end_step();
  EXPECT_EQ(asked()[1], "all_reduce 3 on computing");
}

TEST_F(NcclSteps, EndSumsInOneShotThatWaitForALostRank) {
  comm = make(std::chrono::seconds(1));
  EXPECT_EQ(comm->find_one_shot(12), "");
  auto sums_of_steps = comm->make_collectives({0, 0, 0}, SumOrder::any);
  device.events_reached = false;
  computing.begin_step();
  sums_of_steps->start_all_reduce_in_step(std::span(buffer.as<float>(), 3));
  computing.end_step();
  asked();
  EXPECT_EQ(complaint(*comm), "all_reduce #1 with all ranks: nothing arrived for 1 s");
  const Log log = asked();
  EXPECT_EQ(std::ranges::count(log, "abort one shots"), 1);
  device.events_reached = true;
  sums_of_steps.reset();
  comm.reset();
  EXPECT_EQ(std::ranges::count(asked(), "the end of one shots"), 1);
}

TEST_F(NcclSteps, DoNotHoldBackSumsInTreeOrderWhichHaveSeveralGroups) {
  const auto four = make(std::chrono::seconds(60), 4);
  const auto in_pairs = four->make_collectives({0, 0, 0, 0}, SumOrder::tree);
  computing.begin_step();
  EXPECT_FALSE(in_pairs->start_all_reduce_in_step(floats(5))->is_held_back());
  computing.end_step();
}

TEST_F(NcclSteps, LetGoOfGraphsBeforeTheirMemoryIsDeregistered) {
  for (int time = 0; time < 2; ++time) step(*collectives);
  asked();
  other.reserve(100);
  EXPECT_EQ(asked(), (Log{"free", "allocate 100"})) << "no graph names it";
  buffer.reserve(200);
  EXPECT_EQ(asked(), (Log{"the host waits for computing", "drop a graph",
                          "the host waits for sending", "deregister", "free", "allocate 200"}));
}

TEST_F(NcclSteps, LetGoOfGraphsAlsoWhereNcclRegistersNoMemory) {
  comm = make(std::chrono::seconds(60), 3, false);
  collectives = comm->make_collectives({0, 0, 0}, SumOrder::any);
  for (int time = 0; time < 2; ++time) step(*collectives);
  asked();
  buffer.reserve(200);
  EXPECT_EQ(asked(), (Log{"the host waits for computing", "drop a graph", "free", "allocate 200"}));
}

/// Memory that is freed within a step: what is held back may name it.
TEST_F(NcclSteps, EnqueueWhatIsHeldBackBeforeItsMemoryGoes) {
  computing.begin_step();
  collectives->start_all_reduce_in_step(std::span(buffer.as<float>(), 4));
  asked();
  buffer.reserve(200);
  EXPECT_EQ(asked(), (Log{"{", "all_reduce 4 on computing", "}", "event 1 on computing",
                          "the host waits for computing", "the host waits for sending",
                          "deregister", "free", "allocate 200"}));
  computing.end_step();
}

TEST_F(NcclSteps, LetGoOfGraphsBeforeTheirGroupEnds) {
  for (int time = 0; time < 2; ++time) step(*collectives);
  asked();
  collectives.reset();
  comm.reset();
  EXPECT_EQ(asked().front(), "drop a graph");
}

TEST_F(NcclSteps, HoldExchangesBackAsSums) {
  const auto exchange = [&] {
    computing.begin_step();
    const std::byte* const from = all(buffer).data();
    const std::span<std::byte> to(buffer.as<std::byte>() + 32, 8);
    const Blocks blocks{{{from, 4}, {}, {from + 4, 2}}, {to.first(3), {}, to.subspan(3, 5)}};
    const auto first = comm->start_all_to_all_in_step(blocks);
    const auto second = comm->start_send_receive_in_step({from, 6}, 2, to, 0);
    const auto sum = collectives->start_all_reduce_in_step(std::span(buffer.as<float>() + 12, 3));
    EXPECT_TRUE(first->is_held_back() && second->is_held_back() && sum->is_held_back());
    computing.end_step();
  };
  const Log asked_for{"{",
                      "send 4 to 0 on computing",
                      "receive 3 from 0 on computing",
                      "send 2 to 2 on computing",
                      "receive 5 from 2 on computing",
                      "}",
                      "{",
                      "send 6 to 2 on computing",
                      "receive 8 from 0 on computing",
                      "}",
                      "{",
                      "all_reduce 3 on computing",
                      "}"};
  asked();
  exchange();
  EXPECT_EQ(asked(), joined({{"register 64"}, asked_for, {"event 1 on computing"}}));
  const Traffic once = comm->traffic();
  exchange();
  EXPECT_EQ(asked(), joined({{"capture"},
                             asked_for,
                             {"captured", "launch on computing", "event 1 on computing"}}));
  exchange();
  EXPECT_EQ(asked(), (Log{"launch on computing", "event 1 on computing"}));
  EXPECT_EQ(computing.graph_counts().joint, 2);
  EXPECT_EQ(comm->traffic().bytes, 3 * once.bytes);
}

TEST_F(NcclSteps, StartExchangesAsEverOutsideOfSteps) {
  asked();
  comm->start_send_receive_in_step(bytes(8), 2, {}, 0);
  EXPECT_EQ(asked(), (Log{"event 0 on computing", "sending waits for event 0", "{",
                          "send 8 to 2 on sending", "}", "event 1 on sending"}));
}

/// NCCL's abort would wait for the graphs.
TEST_F(NcclSteps, ThatAreNotDoneInTimeAreNamedAndTheirGraphsGoBeforeTheGroups) {
  const auto hasty = make(std::chrono::seconds(1));
  const auto sums_of_hasty = hasty->make_collectives({0, 0, 0}, SumOrder::any);
  for (int time = 0; time < 2; ++time) step(*sums_of_hasty);
  while (!hasty->progress()) {
  }
  device.events_reached = false;
  step(*sums_of_hasty);
  asked();
  const std::string words = complaint(*hasty);
  EXPECT_NE(words.find("all_reduce #7 with all ranks, and 2 more: nothing arrived for 1 s"),
            std::string::npos)
      << words;
  EXPECT_EQ(asked(), (Log{"drop a graph", "abort"}));
}

/// A launch may wait for other ranks when NCCL's queue is full.
TEST_F(NcclSteps, WhoseLaunchDoesNotReturnAreNamedFromAnotherThread) {
  const auto hasty = make(std::chrono::seconds(1));
  const auto sums_of_hasty = hasty->make_collectives({0, 0, 0}, SumOrder::any);
  for (int time = 0; time < 2; ++time) step(*sums_of_hasty);
  std::string said;
  computing.in_launch = [&] { said = late.get_future().get(); };
  step(*sums_of_hasty);
  computing.in_launch = nullptr;
  EXPECT_EQ(said.find("all_reduce #7 with all ranks: the call has not returned for 1 s"), 0u)
      << said;
}

TEST_F(NcclCalls, AnErrorOfNcclEndsAllGroupsNamingTheOldestTransfer) {
  const auto part = comm->split(0, 0);
  device.events_reached = false;
  part->start_send_receive(bytes(8), 2, bytes(4), 0);
  comm->make_collectives({0, 0, 0}, SumOrder::any)->start_all_reduce(floats(5));
  asked();
  error = "remote process exited";
  EXPECT_NE(complaint(*comm).find("send_receive #1 with ranks 2 and 0: remote process exited"),
            std::string::npos);
  EXPECT_EQ(asked(), (Log{"abort", "part: abort"}));
}

TEST_F(NcclCalls, ATransferThatIsNotDoneInTimeIsNamed) {
  const auto hasty = make(std::chrono::seconds(1));
  device.events_reached = true;
  const auto first = hasty->start_send_receive(bytes(8), 2, bytes(4), 0);
  while (!hasty->progress()) {
  }
  device.events_reached = false;
  hasty->make_collectives({0, 0, 0}, SumOrder::any)->start_all_reduce(floats(5));
  EXPECT_NE(complaint(*hasty).find("all_reduce #2 with all ranks: nothing arrived for 1 s"),
            std::string::npos);
}

/// As when a rank never comes to the first transfer with this one.
TEST_F(NcclCalls, ACallThatDoesNotReturnIsNamedFromAnotherThread) {
  const auto hasty = make(std::chrono::seconds(1));
  hasty->start_send_receive(bytes(8), 2, bytes(4), 0);
  std::string said;
  LoggedNccl::in_end_group = [&] { said = late.get_future().get(); };
  hasty->make_collectives({0, 0, 0}, SumOrder::any)->start_all_reduce(floats(5));
  LoggedNccl::in_end_group = nullptr;
  EXPECT_EQ(said.find("all_reduce #2 with all ranks: the call has not returned for 1 s"), 0u)
      << said;
}

/// As NCCL does, a call returns once its group is aborted, and all groups are before the job ends.
TEST_F(NcclCalls, ACallThatDoesNotReturnIsAbortedWithAllGroupsBeforeTheJobEnds) {
  const auto hasty = make(std::chrono::seconds(1));
  const auto part = hasty->split(0, 0);
  asked();
  std::future<std::string> told = late.get_future();
  LoggedNccl::in_end_group = [&] {
    EXPECT_EQ(told.wait_for(std::chrono::seconds(60)), std::future_status::ready);
  };
  part->start_send_receive(bytes(8), 2, bytes(4), 0);
  LoggedNccl::in_end_group = nullptr;
  const Log log = asked();
  EXPECT_EQ(std::ranges::count(log, "abort"), 1);
  EXPECT_EQ(std::ranges::count(log, "part: abort"), 1);
  EXPECT_EQ(told.get().find("NCCL did not abort"), std::string::npos);
}

TEST_F(NcclCalls, TheJobEndsAlsoWhereNcclDoesNotAbort) {
  std::promise<void> forever;
  {
    const auto hasty = make(std::chrono::seconds(1));
    std::future<std::string> told = late.get_future();
    LoggedNccl::in_abort = [&] { forever.get_future().wait(); };
    LoggedNccl::in_end_group = [&] {
      EXPECT_EQ(told.wait_for(std::chrono::seconds(60)), std::future_status::ready);
    };
    hasty->start_send_receive(bytes(8), 2, bytes(4), 0);
    LoggedNccl::in_end_group = nullptr;
    EXPECT_NE(told.get().find("; NCCL did not abort it in time"), std::string::npos);
    forever.set_value();  // a job has ended by now; here the group waits until it is aborted
  }
  LoggedNccl::in_abort = nullptr;
}

}  // namespace
}  // namespace pecia::comm
