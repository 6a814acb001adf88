// SPDX-License-Identifier: Apache-2.0
/// Rates are measured together, kept, found again, and measured anew where the file is of no use.

#include <gtest/gtest.h>
#include <mpi.h>
#include <spdlog/sinks/ostream_sink.h>
#include <stdlib.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "lib/ranks/comm/communicator_over.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"
#include "lib/settle/measure/calibration.hpp"
#include "lib/settle/measure/rates_cache.hpp"
#include "tests/support/owned_compute.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::test {
namespace {

namespace fs = std::filesystem;
using parallel::RingRates;

/// Sets an environment variable, or takes it away, as long as it lives.
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) {
    if (const char* before = getenv(name)) before_ = before;
    set(value);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  ~Environment() { set(before_ ? before_->c_str() : nullptr); }

 private:
  void set(const char* value) { value != nullptr ? setenv(name_, value, 1) : unsetenv(name_); }
  const char* name_;
  std::optional<std::string> before_;
};

class Calibration : public testing::Test {
 protected:
  RingRates calibrated(int threads = 1) {
    test::CpuCompute compute(threads);
    spdlog::logger log("", std::make_shared<spdlog::sinks::ostream_sink_st>(said_));
    return measure::calibrate(*world_, *world_, compute, shape_, log);
  }
  /// On rank 0, whose file it is; elsewhere it must not be there.
  fs::path file() const { return folder_ / "pecia/rates.json"; }
  bool first() const { return world_->rank() == 0; }
  std::map<std::string, RingRates> kept() const { return measure::read_rates(file()).by_key; }
  int64_t lines_said() const {
    const std::string text = said_.str();
    return std::count(text.begin(), text.end(), '\n');
  }
  void write(const std::string& text) const {
    fs::create_directories(file().parent_path());
    std::ofstream(file()) << text;
  }

  TempFolder folder_;
  Environment cache_{"XDG_CACHE_HOME", folder_.path().c_str()};
  Environment wanted_{"PECIA_NO_CACHE", nullptr};
  std::unique_ptr<comm::Communicator> world_ =
      comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
  measure::AttentionShape shape_{8, 2, 64, DType::bf16};
  std::ostringstream said_;
};

/// Links that pass no more than this many bytes a second, however fast the machine is.
class TimedLinks : public comm::CommunicatorOver {
 public:
  static constexpr double bytes_per_s = 1e8;

  explicit TimedLinks(std::unique_ptr<comm::Communicator> inner)
      : comm::CommunicatorOver(std::move(inner)) {}

  std::unique_ptr<comm::Transfer> start_send_receive(std::span<const std::byte> send, int to,
                                                     std::span<std::byte> receive,
                                                     int from) override {
    pass(send.size());
    return inner().start_send_receive(send, to, receive, from);
  }
  std::unique_ptr<comm::Transfer> start_all_to_all(const comm::Blocks& blocks) override {
    for (const auto& block : blocks.send) pass(block.size());
    return inner().start_all_to_all(blocks);
  }
  std::unique_ptr<comm::Communicator> split(int color, int key) override {
    return inner().split(color, key);
  }
  std::unique_ptr<comm::Communicator> split_by_host() override { return inner().split_by_host(); }

 private:
  static void pass(size_t bytes) {
    std::this_thread::sleep_for(
        std::chrono::duration<double>(static_cast<double>(bytes) / bytes_per_s));
  }
};

TEST_F(Calibration, MeasuresHowFastLinksAre) {
  TimedLinks links(comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60)));
  test::CpuCompute compute;
  const RingRates rates = measure::measure_rates(*world_, links, compute, shape_);
  for (const double bandwidth : {rates.bandwidth, rates.all_to_all_bandwidth}) {
    EXPECT_LE(bandwidth, 1.001 * TimedLinks::bytes_per_s);  // a clock's rounding
    EXPECT_GE(bandwidth, 0.01 * TimedLinks::bytes_per_s) << "other work slows it, up to a point";
  }
}

TEST_F(Calibration, GivesEveryRankTheSamePlausibleRates) {
  const RingRates rates = calibrated();
  // A core does something between 100 MFLOP/s and 10 TFLOP/s, a link between 1 MB/s and 1 TB/s.
  EXPECT_GT(rates.flops, 1e8);
  EXPECT_LT(rates.flops, 1e13);
  for (const double bandwidth : {rates.bandwidth, rates.all_to_all_bandwidth}) {
    EXPECT_GT(bandwidth, 1e6);
    EXPECT_LT(bandwidth, 1e12);
    const auto mine = static_cast<int64_t>(bandwidth);
    EXPECT_EQ(world_->all_reduce_max(mine), mine);
    EXPECT_EQ(world_->all_reduce_max(-mine), -mine);
  }
  EXPECT_EQ(world_->all_reduce_max(static_cast<int64_t>(rates.flops)),
            static_cast<int64_t>(rates.flops));
}

TEST_F(Calibration, KeepsWhatItMeasuredInRankZerosFile) {
  const RingRates rates = calibrated();
  EXPECT_EQ(fs::exists(file()), first());
  if (!first()) return;
  ASSERT_EQ(kept().size(), 1u);
  EXPECT_EQ(kept().begin()->second.flops, rates.flops);
  EXPECT_EQ(kept().begin()->second.bandwidth, rates.bandwidth);
  EXPECT_EQ(kept().begin()->second.all_to_all_bandwidth, rates.all_to_all_bandwidth);
  const auto entries = fs::directory_iterator(file().parent_path());
  EXPECT_EQ(std::distance(fs::begin(entries), fs::end(entries)), 1) << "no part is left";
}

TEST_F(Calibration, TakesWhatAnEarlierRunKept) {
  calibrated();
  if (first()) measure::write_rates(file(), {{kept().begin()->first, {123, 456, 789}}});
  const RingRates rates = calibrated();
  EXPECT_EQ(rates.flops, 123);
  EXPECT_EQ(rates.bandwidth, 456);
  EXPECT_EQ(rates.all_to_all_bandwidth, 789);
  EXPECT_EQ(lines_said(), 0);
}

TEST_F(Calibration, MeasuresAnewForAnotherKeyAndKeepsBoth) {
  calibrated(1);
  if (first()) measure::write_rates(file(), {{kept().begin()->first, {123, 456, 789}}});
  EXPECT_NE(calibrated(2).flops, 123);
  for (const DType dtype : {DType::fp32, DType::fp8}) {
    shape_.kv_dtype = dtype;
    const RingRates rates = calibrated(1);
    EXPECT_NE(rates.flops, 123);
    EXPECT_GT(rates.flops, 0);
  }
  if (first()) {
    EXPECT_EQ(kept().size(), 4u);
  }
  shape_.kv_dtype = DType::bf16;
  EXPECT_EQ(calibrated(1).flops, 123);
}

struct Damaged : Calibration, testing::WithParamInterface<std::string> {};

TEST_P(Damaged, FileIsSaidOnceAndReplaced) {
  if (first()) write(GetParam());
  calibrated();
  EXPECT_EQ(lines_said(), first() ? 1 : 0) << said_.str();
  if (first()) {
    EXPECT_NE(said_.str().find(file().string()), std::string::npos) << said_.str();
    EXPECT_EQ(kept().size(), 1u);
  }
  calibrated();
  EXPECT_EQ(lines_said(), first() ? 1 : 0) << "the second run finds a good file";
}

INSTANTIATE_TEST_SUITE_P(
    Files, Damaged,
    testing::Values("", "{", "[]", "null", R"({"schema": "pecia.rates/1", "rates": {}})",
                    R"({"schema": "pecia.rates/2"})",
                    R"({"schema": "pecia.rates/2", "rates": {"a": {"attention_flops": 1}}})",
                    R"({"schema": "pecia.rates/2", "rates": {"a": {
                        "attention_flops": 1, "ring_bandwidth": 1}}})",
                    R"({"schema": "pecia.rates/2", "rates": {"a": {
                        "attention_flops": 0, "ring_bandwidth": 1, "all_to_all_bandwidth": 1}}})",
                    R"({"schema": "pecia.rates/2", "rates": {"a": {
                        "attention_flops": "1", "ring_bandwidth": 1, "all_to_all_bandwidth": 1}}})"));

TEST_F(Calibration, RunsWithoutACacheWhereNoneCanBe) {
  if (first()) std::ofstream(folder_ / "pecia") << "a file where the folder should be";
  EXPECT_GT(calibrated().flops, 0);
  EXPECT_EQ(lines_said(), first() ? 1 : 0) << said_.str();
}

TEST_F(Calibration, NeitherReadsNorWritesWhenAskedNotTo) {
  calibrated();
  if (first()) measure::write_rates(file(), {{kept().begin()->first, {123, 456, 789}}});
  const Environment unwanted("PECIA_NO_CACHE", "1");
  EXPECT_NE(calibrated().flops, 123);
  if (first()) {
    EXPECT_EQ(kept().begin()->second.flops, 123);
  }
}

TEST(RatesCachePath, FollowsTheEnvironmentAsUsersExpect) {
  const Environment wanted("PECIA_NO_CACHE", nullptr), home("HOME", "/home/ada");
  const auto path = [](const char* xdg) {
    const Environment cache("XDG_CACHE_HOME", xdg);
    return measure::rates_cache_path();
  };
  EXPECT_EQ(path("/scratch/ada"), "/scratch/ada/pecia/rates.json");
  EXPECT_EQ(path(nullptr), "/home/ada/.cache/pecia/rates.json");
  EXPECT_EQ(path(""), "/home/ada/.cache/pecia/rates.json");
  EXPECT_EQ(path("relative"), "/home/ada/.cache/pecia/rates.json");
  const Environment homeless("HOME", nullptr);
  EXPECT_EQ(path(nullptr), std::nullopt);
  const Environment empty("PECIA_NO_CACHE", "");
  EXPECT_EQ(path("/scratch/ada"), "/scratch/ada/pecia/rates.json");
  const Environment unwanted("PECIA_NO_CACHE", "1");
  EXPECT_EQ(path("/scratch/ada"), std::nullopt);
}

}  // namespace
}  // namespace pecia::test
