// SPDX-License-Identifier: Apache-2.0
/// Products are chosen by times, kept for later runs, and as a run began.

#include <gtest/gtest.h>
#include <mpi.h>
#include <stdlib.h>

#include <algorithm>
#include <fstream>

#include "lib/ranks/comm/mpi_communicator.hpp"
#include "lib/settle/measure/kept_products.hpp"
#include "lib/settle/measure/measured.hpp"
#include "lib/settle/measure/product_choice.hpp"
#include "lib/work/resources/compute_place.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::measure {
namespace {

using kernels::CpuProducts;
using kernels::MatmulKind;

/// Milliseconds of a kind at each number of rows: in place, then packed.
struct Milliseconds {
  MatmulKind kind;
  std::vector<double> in_place, packed;
};

std::vector<ProductTime> times_of(const std::vector<Milliseconds>& kinds) {
  std::vector<ProductTime> times;
  for (const Milliseconds& each : kinds) {
    for (size_t i = 0; i < each.in_place.size(); ++i)
      times.push_back({each.kind, false, rows_in_place[i], 1e-3 * each.in_place[i]});
    for (size_t i = 0; i < each.packed.size(); ++i)
      times.push_back({each.kind, true, rows_packed[i], 1e-3 * each.packed[i]});
  }
  return times;
}

// In place 1, 8, 16, 32, 64 and 128 rows; packed 16, 32, 64, 128 and 512.
const Milliseconds fp32{MatmulKind::fp32, {1, 2, 3, 3, 6, 6}, {4, 3.5, 3, 3, 3}};
const Milliseconds bf16{MatmulKind::bf16, {1, 1, 1.5, 2, 2.5, 4}, {3, 2.5, 2.6, 2, 1.5}};

TEST(BestProducts, AreTheUsualOnesWhereTheyAreFastest) {
  EXPECT_EQ(best_products(times_of({fp32, bf16}), MatmulKind::bf16, DType::bf16),
            CpuProducts(MatmulKind::bf16));
}

TEST(BestProducts, OfFewAndOfManyRowsDiffer) {
  const Milliseconds slow_bf16{MatmulKind::bf16, {1, 1, 1.5, 2, 2.5, 5}, {4, 4, 4, 4, 4}};
  EXPECT_EQ(best_products(times_of({fp32, slow_bf16}), MatmulKind::bf16, DType::bf16),
            CpuProducts(MatmulKind::bf16, MatmulKind::fp32, 90));
}

TEST(BestProducts, OfAmxReadFewRowsByVectors) {
  const Milliseconds amx{MatmulKind::amx, {}, {0.5, 0.5, 0.5, 0.5, 0.2}};
  EXPECT_EQ(best_products(times_of({fp32, bf16, amx}), MatmulKind::amx, DType::bf16),
            CpuProducts(MatmulKind::bf16, MatmulKind::amx, 11));
  const Milliseconds late_amx{MatmulKind::amx, {}, {5, 5, 2.6, 1, 0.2}};
  EXPECT_EQ(best_products(times_of({fp32, bf16, late_amx}), MatmulKind::amx, DType::bf16),
            CpuProducts(MatmulKind::amx));
}

TEST(BestProducts, StayAsTheyAreForAGainThatMayBeNoise) {
  Milliseconds nearly = bf16;
  nearly.packed[3] = 3;         // 128 rows, as fp32 takes
  nearly.packed[4] = 3 * 1.04;  // 512 rows, where fp32 takes 3
  EXPECT_EQ(best_products(times_of({fp32, nearly}), MatmulKind::bf16, DType::bf16),
            CpuProducts(MatmulKind::bf16));
  nearly.packed[4] = 3 * 1.06;
  EXPECT_EQ(best_products(times_of({fp32, nearly}), MatmulKind::bf16, DType::bf16),
            CpuProducts(MatmulKind::bf16, MatmulKind::fp32, 90));
}

TEST(BestProducts, OfCodesLeaveTheirPackingAsItIs) {
  Milliseconds packs_early = bf16;
  packs_early.packed = {1.3, 1.7, 2.1, 1.8, 1.5};
  EXPECT_EQ(best_products(times_of({fp32, packs_early}), MatmulKind::bf16, DType::int8),
            CpuProducts(MatmulKind::bf16));
  EXPECT_EQ(best_products(times_of({fp32, packs_early}), MatmulKind::bf16, DType::bf16),
            CpuProducts(MatmulKind::bf16, MatmulKind::bf16, 11));
}

TEST(BestProducts, AreNeverFarFromTheBestKindForAllRows) {
  for (const double slower : {0.3, 0.7, 1.0, 1.5, 3.0})
    for (size_t at = 1; at < std::size(rows_in_place); ++at) {  // few rows have one kind
      Milliseconds other = bf16;
      for (size_t i = at; i < other.in_place.size(); ++i) other.in_place[i] *= slower;
      for (size_t i = 0; i < other.packed.size(); ++i) other.packed[i] *= slower * slower;
      const auto times = times_of({fp32, other});
      const CpuProducts best = best_products(times, MatmulKind::bf16, DType::bf16);
      const auto seconds = [&](const CpuProducts& products, int64_t rows) {
        const bool packed = rows > products.most_few.value_or(usual_most_few(products.many));
        const MatmulKind kind = packed ? products.many : products.few;
        return std::ranges::find_if(times,
                                    [&](const ProductTime& time) {
                                      return time.products == kind && time.packed == packed &&
                                             time.rows == rows;
                                    })
            ->seconds;
      };
      for (const int64_t rows : {1, 8, 64, 512})
        EXPECT_LE(seconds(best, rows),
                  1.05 * std::min(seconds(MatmulKind::fp32, rows), seconds(MatmulKind::bf16, rows)))
            << rows << " rows, " << slower << " from " << at << ": " << products_text(best);
    }
}

TEST(ProductsText, IsReadAgain) {
  for (const CpuProducts& products : {CpuProducts(MatmulKind::fp32), CpuProducts(MatmulKind::amx),
                                      CpuProducts(MatmulKind::bf16, MatmulKind::fp32, 90),
                                      CpuProducts(MatmulKind::bf16, MatmulKind::bf16, 0)})
    EXPECT_EQ(parse_products(products_text(products)), products) << products_text(products);
  for (const char* other :
       {"", "bf17", "bf16 in place up to", "bf16 in place up to x rows, then fp32",
        "bf16 in place up to 90x rows, then fp32", "bf16 in place up to -1 rows, then fp32",
        "fp64 in place up to 90 rows, then fp32"})
    EXPECT_FALSE(parse_products(other)) << other;
}

TEST(Measured, SaysTheProductsOfTheRun) {
  resources::Resources resources;
  const Measured measured{{}, {}, "bf16 in place up to 90 rows, then fp32"};
  const std::string text = to_json(measured, resources);
  EXPECT_EQ(parse_measured(text, resources)->products, measured.products);
  resources.cp = 2;
  EXPECT_EQ(kept_products_of_run(text), measured.products) << "on other degrees, too";
  EXPECT_EQ(kept_products_of_run(to_json({}, resources)), "");
  EXPECT_EQ(kept_products_of_run("no JSON"), "");
}

TEST(Measured, KeepsTheRuleOfKeysAndQueries) {
  resources::Resources resources;
  resources.cp = 2;
  Measured measured;
  EXPECT_FALSE(parse_measured(to_json(measured, resources), resources)->fitted_rule);
  measured.fitted_rule = {0.1, 1.0 / 3, -2};
  EXPECT_EQ(parse_measured(to_json(measured, resources), resources)->fitted_rule,
            measured.fitted_rule);
}

class ChooseProducts : public testing::Test {
 protected:
  ChooseProducts() {
    setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1);
    unsetenv("PECIA_NO_CACHE");
  }
  ~ChooseProducts() override { unsetenv("PECIA_NO_CACHE"); }

  ProductChoice choose(DType weights = DType::bf16, const std::string& kept = {}) {
    return choose_products(job_, weights, {1, {}}, *world_, kept);
  }
  CpuProducts fixed() { return resources::fixed_products(job_, *world_); }
  /// The files of rank 0.
  std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> found;
    std::error_code none;
    for (const auto& file : std::filesystem::directory_iterator(folder_.path() / "pecia", none))
      found.push_back(file.path());
    return found;
  }

  test::TempFolder folder_{"products"};
  std::unique_ptr<comm::Communicator> world_ =
      comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
  job::Job job_;
};

/// The measurement of a machine that is too slow for it is empty.
void expect_same(const std::vector<ProductTime>& one, const std::vector<ProductTime>& other) {
  ASSERT_EQ(one.size(), other.size());
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i].products, other[i].products);
    EXPECT_EQ(one[i].packed, other[i].packed);
    EXPECT_EQ(one[i].rows, other[i].rows);
    EXPECT_EQ(one[i].seconds, other[i].seconds);
  }
}

TEST_F(ChooseProducts, MeasuresOnceAndKeepsIt) {
  const ProductChoice first = choose();
  EXPECT_TRUE(first.is_new);
  EXPECT_EQ(first.warning, "");
  EXPECT_EQ(files().size(), world_->rank() == 0 ? 1u : 0u) << "no part is left";
  const ProductChoice second = choose();
  EXPECT_FALSE(second.is_new);
  EXPECT_EQ(second.products, first.products);
  expect_same(second.times, first.times);
  EXPECT_TRUE(choose(DType::int8).is_new) << "weights of another type";
  const std::string mine = products_text(first.products);
  const auto all = world_->all_gather(std::as_bytes(std::span(mine)));
  for (const auto& bytes : all) EXPECT_EQ(bytes, all.front()) << "every rank has the same";
}

TEST_F(ChooseProducts, TakesWhatTheTimesSay) {
  choose();
  std::string key;
  if (world_->rank() == 0) {
    std::ifstream in(files().at(0));
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    const size_t begin = text.find("\"key\": \"") + 8;
    key = text.substr(begin, text.find("\",", begin) - begin);
    std::filesystem::remove(files().at(0));
    Milliseconds packs_early = fp32;
    packs_early.packed = {0.1, 0.1, 0.1, 0.1, 0.1};
    keep_products(key, times_of({packs_early}));
  }
  world_->barrier();
  const ProductChoice choice = choose();
  EXPECT_FALSE(choice.is_new);
  EXPECT_EQ(choice.products, CpuProducts(MatmulKind::fp32, MatmulKind::fp32, 11));
}

TEST_F(ChooseProducts, MeasuresAgainWhereTheFileIsDamaged) {
  for (const char* damaged : {"", "{", "[]", R"({"schema": "pecia.products/1"})"}) {
    choose();
    if (world_->rank() == 0) std::ofstream(files().at(0)) << damaged;
    world_->barrier();
    EXPECT_TRUE(choose().is_new) << damaged;
    EXPECT_FALSE(choose().is_new) << damaged;
    world_->barrier();
    if (world_->rank() == 0) std::filesystem::remove(files().at(0));
    world_->barrier();
  }
}

TEST_F(ChooseProducts, MeasuresNothingWhereBitsMustNotDependOnIt) {
  setenv("PECIA_NO_CACHE", "1", 1);
  EXPECT_EQ(choose().products, fixed()) << "nothing is kept";
  unsetenv("PECIA_NO_CACHE");
  EXPECT_EQ(choose(DType::fp32).products, fixed());
  job_.reproducible = parallel::Reproducible::layout;
  EXPECT_EQ(choose().products, fixed());
  job_.reproducible = parallel::Reproducible::run;
  job_.model.compute = job::Precision::fp32;
  EXPECT_EQ(choose().products, CpuProducts(MatmulKind::fp32));
  EXPECT_EQ(choose(DType::bf16, "bf16").products, CpuProducts(MatmulKind::fp32))
      << "the job's word";
  EXPECT_TRUE(files().empty());
}

TEST_F(ChooseProducts, GoOnAsTheRunBegan) {
  for (const auto reproducible : {parallel::Reproducible::run, parallel::Reproducible::layout}) {
    job_.reproducible = reproducible;
    EXPECT_EQ(choose(DType::bf16, "fp32").products, CpuProducts(MatmulKind::fp32));
    EXPECT_EQ(choose(DType::bf16, "fp32 in place up to 11 rows, then fp32").products,
              CpuProducts(MatmulKind::fp32, MatmulKind::fp32, 11));
  }
  EXPECT_TRUE(files().empty());
  if (kernels::why_no_products(MatmulKind::amx).empty()) return;
  EXPECT_NE(choose(DType::bf16, "amx").warning.find("began with products of amx"),
            std::string::npos);
}

TEST_F(ChooseProducts, AreTheUsualOnesWhereNothingCanBeKept) {
  if (world_->rank() == 0) std::ofstream(folder_ / "pecia") << "a file where the folder should be";
  world_->barrier();
  const ProductChoice choice = choose();
  EXPECT_EQ(choice.products, fixed());
  EXPECT_NE(choice.warning, "");
}

}  // namespace
}  // namespace pecia::measure
