// SPDX-License-Identifier: Apache-2.0
/// Files of `pecia-bench ops --json` that --compare takes and refuses.

#include <gtest/gtest.h>

#include <fstream>

#include "apps/bench/ops/earlier_times.hpp"
#include "lib/base/core/error.hpp"
#include "tests/io/expect_error.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::bench::ops {
namespace {

const std::string machine =
    R"({"machine": "2 threads, avx512", "backend": "cpu", "commit": "abc", "product_flops": 1e12})"
    "\n";

std::string op(const std::string& name, const std::string& shape, double median_s) {
  return fmt::format(R"({{"op": "{}", "shape": "{}", "median_s": {}, "best_s": 9}})", name, shape,
                     median_s) +
         "\n";
}

class EarlierTimesTest : public testing::Test {
 protected:
  EarlierTimes read(const std::string& text) {
    std::ofstream(path_) << text;
    return EarlierTimes(path_);
  }

  void expect_refused(const std::string& text, const std::string& words) {
    SCOPED_TRACE(text);
    test::expect_error<InputError>([&] { read(text); }, {words});
  }

  test::TempFolder folder_;
  std::filesystem::path path_ = folder_ / "ops.jsonl";
};

TEST_F(EarlierTimesTest, ALineIsFoundByOpAndShape) {
  const EarlierTimes times = read(machine + op("linear", "1 row", 0.5) + op("linear", "8 rows", 2) +
                                  op("add", "8 rows", 3));
  EXPECT_EQ(times.median_s("linear", "1 row"), 0.5);
  EXPECT_EQ(times.median_s("linear", "8 rows"), 2);
  EXPECT_EQ(times.median_s("add", "8 rows"), 3);
  EXPECT_NO_THROW(times.require({{"add", "8 rows"}, {"linear", "1 row"}}));
}

TEST_F(EarlierTimesTest, WhatIsMissingIsNamed) {
  const EarlierTimes times = read(machine + op("linear", "1 row", 0.5) + op("add", "8 rows", 3));
  test::expect_error<InputError>(
      [&] {
        times.require({{"linear", "1 row"}, {"add", "1 row"}, {"linear", "8 rows"}});
      },
      {"ops.jsonl (2 threads, avx512, cpu, commit abc) has no line of\n  add, 1 row\n  linear, 8 "
       "rows\n"});
}

TEST_F(EarlierTimesTest, OriginSaysWhereTheTimesAreFrom) {
  EXPECT_EQ(read(machine).origin(), "2 threads, avx512, cpu, commit abc");
  EXPECT_EQ(read(R"({"machine": "m", "backend": "cpu", "commit": "c", "product_flops": 1, )"
                 R"("compute": "bf16"})")
                .origin(),
            "m, cpu, commit c, products of bf16");
}

TEST_F(EarlierTimesTest, LinesOfOtherBenchmarksArePassedOver) {
  const EarlierTimes times = read(machine + op("add", "8 rows", 3) +
                                  R"({"bench": "bench_prefill", "tokens": 512})"
                                  "\n");
  EXPECT_EQ(times.median_s("add", "8 rows"), 3);
}

TEST_F(EarlierTimesTest, AFileOfAnotherSchemaIsRefusedByLineAndKey) {
  expect_refused("", "ops.jsonl: there is nothing in it");
  expect_refused("linear 0.5 ms\n", "ops.jsonl:1: not a JSON object");
  expect_refused("[1]\n", "ops.jsonl:1: not a JSON object");
  expect_refused(R"({"bench": "bench_prefill", "tokens": 512})",
                 "ops.jsonl:1: there is no 'product_flops'");
  expect_refused(R"({"product_flops": 1, "machine": "m"})", "ops.jsonl:1: there is no 'backend'");
  expect_refused(machine + "\n", "ops.jsonl:2: not a JSON object");
  expect_refused(machine + R"({"op": "add", "median_s": 1})", "ops.jsonl:2: there is no 'shape'");
  expect_refused(machine + R"({"op": "add", "shape": 8, "median_s": 1})",
                 "there is no 'shape' that is a text");
  expect_refused(machine + R"({"op": "add", "shape": "8"})", "ops.jsonl:2: there is no 'median_s'");
  for (const char* wrong : {"0", "-1", "null", "\"1\""})
    expect_refused(machine + fmt::format(R"({{"op": "add", "shape": "8", "median_s": {}}})", wrong),
                   "there is no 'median_s' that is a number above 0");
}

TEST_F(EarlierTimesTest, TwoRunsInOneFileAreRefused) {
  const std::string run = machine + op("add", "8 rows", 3);
  expect_refused(run + run, "ops.jsonl:3: a second run begins");
  expect_refused(run + op("add", "8 rows", 4), "ops.jsonl:3: add, 8 rows comes twice");
}

TEST_F(EarlierTimesTest, AFileThatIsNotThereIsRefused) {
  EXPECT_THROW(EarlierTimes(folder_ / "none"), InputError);
}

}  // namespace
}  // namespace pecia::bench::ops
