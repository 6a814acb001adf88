#include "tests/support/fake_nccl.hpp"

#include <functional>

#include "lib/comm/collectives.hpp"
#include "lib/core/error.hpp"
#include "tests/support/late_stream.hpp"

namespace pecia::test {
namespace {

class FakeNccl : public comm::Nccl {
 public:
  FakeNccl(std::unique_ptr<comm::Communicator> host, SumsOf sums)
      : host_(std::move(host)),
        sums_(sums),
        for_sums_(host_->split(0, place_in_sums(host_->rank()))),
        collectives_(for_sums_->make_collectives(std::vector<int>(host_->size(), 0),
                                                 comm::SumOrder::tree)) {}

  void start_group() override {
    PECIA_CHECK(!in_group_, "a group in a group");
    in_group_ = true;
  }
  void end_group() override {
    PECIA_CHECK(in_group_, "the end of no group");
    in_group_ = false;
    const int64_t number = host_->next_operation();  // on ranks without messages too
    if (!exchange_.sends.empty() || !exchange_.receives.empty())
      calls_.push_back([this, number, exchange = std::exchange(exchange_, {})] {
        host_->start_exchange(exchange, {"fake_nccl", number})->wait();
      });
    if (calls_.empty()) return;
    submit(*stream_, [calls = std::exchange(calls_, {})] {
      for (const auto& call : calls) call();
    });
  }

  void send(std::span<const std::byte> bytes, int to, device::Stream& stream) override {
    on(stream);
    exchange_.sends.push_back({bytes, to});
  }
  void receive(std::span<std::byte> bytes, int from, device::Stream& stream) override {
    on(stream);
    exchange_.receives.push_back({bytes, from});
  }
  void broadcast(std::span<std::byte> bytes, int root, device::Stream& stream) override {
    on(stream);
    calls_.push_back([=, this] {
      std::vector<std::byte> copy(bytes.begin(), bytes.end());
      host_->broadcast(copy, root);
      PECIA_CHECK(copy.size() == bytes.size(), "{} bytes of rank {} for {}", copy.size(), root,
                  bytes.size());
      std::copy(copy.begin(), copy.end(), bytes.begin());
    });
  }
  void reduce(std::span<const float> values, std::span<float> sum, int root,
              device::Stream& stream) override {
    on(stream);
    calls_.push_back([=, this] {
      std::vector<int64_t> counts(host_->size(), 0);
      counts[place_in_sums(root)] = static_cast<int64_t>(values.size());
      collectives_->start_reduce_scatter(values, counts, sum)->wait();
    });
  }
  void all_reduce(std::span<float> values, device::Stream& stream) override {
    on(stream);
    calls_.push_back([=, this] { collectives_->start_all_reduce(values)->wait(); });
  }

  std::unique_ptr<comm::Nccl> split(int color, int key) override {
    return std::make_unique<FakeNccl>(host_->split(color, key), sums_);
  }
  std::string asynchronous_error() override { return ""; }
  void abort() noexcept override {}

 private:
  void on(device::Stream& stream) {
    PECIA_CHECK(in_group_, "a call outside of a group");
    stream_ = &stream;
  }

  int place_in_sums(int rank) const {
    return sums_ == SumsOf::host ? rank : (rank + 1) % host_->size();
  }

  std::unique_ptr<comm::Communicator> host_;
  SumsOf sums_;
  std::unique_ptr<comm::Communicator> for_sums_;
  std::unique_ptr<comm::Collectives> collectives_;
  bool in_group_ = false;
  device::Stream* stream_ = nullptr;
  std::vector<std::function<void()>> calls_;
  comm::Exchange exchange_;
};

}  // namespace

std::unique_ptr<comm::Nccl> make_fake_nccl(std::unique_ptr<comm::Communicator> host, SumsOf sums) {
  return std::make_unique<FakeNccl>(std::move(host), sums);
}

}  // namespace pecia::test
