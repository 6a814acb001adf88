// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "lib/base/core/error.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"
#include "lib/ranks/comm/one_shot_trial.hpp"
#include "tests/support/late_stream.hpp"
#include "tests/support/separate_device.hpp"

namespace pecia::comm {
namespace {

/// Sums over MPI, in the host's memory. Number `wrong` of the last rank's second sum is wrong.
class PlainOneShot : public OneShot {
 public:
  PlainOneShot(Communicator& host, int64_t wrong, bool fails = false)
      : host_(host), wrong_(wrong), fails_(fails) {}

  int64_t most_bytes() const override { return int64_t{1} << 20; }
  void all_reduce(const Addends& values, device::Stream& stream) override {
    if (fails_ && host_.rank() == 0) fail<SystemError>("an illegal instruction");
    test::submit(stream, [this, values] { add(values); });
  }
  std::string asynchronous_error() override { return ""; }
  void abort() noexcept override { ++aborts; }

  int aborts = 0;

 private:
  void add(const Addends& values) {
    if (fails_) return;  // as if the other ranks had come
    ++sums_;
    std::vector<float> sum(values.count());
    for (const auto& bytes : host_.all_gather(values.bytes())) {
      std::vector<float> theirs(values.count());
      std::memcpy(theirs.data(), bytes.data(), bytes.size());
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += theirs[i];
    }
    if (wrong_ >= 0 && sums_ == 2 && host_.rank() == host_.size() - 1) sum.at(wrong_) = NAN;
    std::ranges::copy(sum, values.as<float>());
  }

  Communicator& host_;
  int64_t wrong_;
  bool fails_;
  int sums_ = 0;
};

class OneShotTrial : public testing::Test {
 protected:
  std::string tried(PlainOneShot& sums, device::Device& device, int milliseconds = 60000) {
    return try_one_shot(sums, *world_, device, std::chrono::milliseconds(milliseconds));
  }
  std::unique_ptr<Communicator> world_ =
      make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
  std::unique_ptr<device::Device> host_ = device::make_host_device(1);
};

TEST_F(OneShotTrial, IsPassedByRightSums) {
  PlainOneShot sums(*world_, -1);
  EXPECT_EQ(tried(sums, *host_), "");
  EXPECT_EQ(sums.aborts, 0);
}

TEST_F(OneShotTrial, TellsAllRanksOfOneWrongNumber) {
  for (const int64_t number : {0, 777, 4999}) {
    PlainOneShot sums(*world_, number);
    EXPECT_EQ(tried(sums, *host_)
                  .find(fmt::format("rank {}: number {} of sum 1 is nan in place of ",
                                    world_->size() - 1, number)),
              0U);
  }
}

TEST_F(OneShotTrial, TellsAllRanksOfAnError) {
  PlainOneShot sums(*world_, -1, true);
  EXPECT_EQ(tried(sums, *host_), "rank 0: an illegal instruction");
}

TEST_F(OneShotTrial, EndsWhereOtherRanksDoNotCome) {
  const auto device = test::make_separate_device();  // its work waits for the host
  PlainOneShot sums(*world_, -1);
  EXPECT_EQ(tried(sums, *device, 20), "rank 0: other ranks did not come within 0.02 s");
  EXPECT_EQ(sums.aborts, 1);
}

}  // namespace
}  // namespace pecia::comm
