// SPDX-License-Identifier: Apache-2.0
#include "tests/support/work_clock.hpp"

#include <algorithm>

#include "lib/ranks/comm/communicator_over.hpp"

namespace pecia::test {
namespace {

class ClockedTransfer : public comm::Transfer {
 public:
  ClockedTransfer(std::unique_ptr<comm::Transfer> inner, WorkClock& clock, std::string name,
                  int64_t number)
      : inner_(std::move(inner)),
        clock_(clock),
        operation_(std::move(name), number),
        start_(clock.now) {}

  bool test() override {
    // Nobody asks so often between two ticks who does not wait.
    constexpr int tests_of_a_wait = 100;
    if (clock_.now == start_ && ++tests_ < tests_of_a_wait) return false;
    wait();
    return true;
  }
  void wait() override {
    if (!done_ && clock_.now == start_) {
      clock_.exposed.insert(operation_);
      ++clock_.now;
    }
    done_ = true;
    inner_->wait();
  }

 private:
  std::unique_ptr<comm::Transfer> inner_;
  WorkClock& clock_;
  std::pair<std::string, int64_t> operation_;
  int64_t start_;
  int tests_ = 0;
  bool done_ = false;
};

bool is_empty(const comm::Exchange& exchange) {
  const auto has_none = [](const auto& message) { return message.bytes.empty(); };
  return std::all_of(exchange.sends.begin(), exchange.sends.end(), has_none) &&
         std::all_of(exchange.receives.begin(), exchange.receives.end(), has_none);
}

class ClockedCommunicator : public comm::CommunicatorOver {
 public:
  ClockedCommunicator(std::unique_ptr<comm::Communicator> inner, WorkClock& clock)
      : CommunicatorOver(std::move(inner)), clock_(clock) {}

  std::unique_ptr<comm::Transfer> start_send_receive(std::span<const std::byte> send, int to,
                                                     std::span<std::byte> receive,
                                                     int from) override {
    return timed(inner().start_send_receive(send, to, receive, from), "send_receive",
                 ++clock_.started);
  }
  std::unique_ptr<comm::Transfer> start_all_to_all(const comm::Blocks& blocks) override {
    return timed(inner().start_all_to_all(blocks), "all_to_all", ++clock_.started);
  }
  std::unique_ptr<comm::Transfer> start_exchange(const comm::Exchange& exchange,
                                                 const comm::Operation& operation) override {
    auto transfer = inner().start_exchange(exchange, operation);
    if (is_empty(exchange)) return transfer;
    return timed(std::move(transfer), operation.name, operation.number);
  }
  bool progress() override {
    ++clock_.now;
    inner().progress();
    return true;
  }
  std::unique_ptr<comm::Communicator> split(int color, int key) override {
    return clocked(inner().split(color, key), clock_);
  }
  std::unique_ptr<comm::Communicator> split_by_host() override {
    return clocked(inner().split_by_host(), clock_);
  }

 private:
  std::unique_ptr<comm::Transfer> timed(std::unique_ptr<comm::Transfer> transfer, std::string name,
                                        int64_t number) {
    return std::make_unique<ClockedTransfer>(std::move(transfer), clock_, std::move(name), number);
  }

  WorkClock& clock_;
};

}  // namespace

int64_t WorkClock::count_exposed(const std::string& name) const {
  return std::count_if(exposed.begin(), exposed.end(),
                       [&](const auto& operation) { return operation.first == name; });
}

std::unique_ptr<comm::Communicator> clocked(std::unique_ptr<comm::Communicator> inner,
                                            WorkClock& clock) {
  return std::make_unique<ClockedCommunicator>(std::move(inner), clock);
}

}  // namespace pecia::test
