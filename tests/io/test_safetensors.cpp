// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstring>

#include "lib/base/core/error.hpp"
#include "lib/files/checkpoint/safetensors.hpp"
#include "lib/files/disk/file.hpp"
#include "lib/files/disk/memory_file.hpp"
#include "lib/files/disk/memory_map.hpp"
#include "tests/io/expect_error.hpp"
#include "tests/support/compare.hpp"
#include "tests/support/safetensors_writer.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::io {
namespace {

using test::float_tensor;
using test::write_safetensors;

std::vector<int64_t> shape_of(const TensorView& view) {
  std::vector<int64_t> shape;
  for (int axis = 0; axis < view.rank(); ++axis) shape.push_back(view.size(axis));
  return shape;
}

TEST(Checkpoint, GivesBackEveryTypeAndShape) {
  const test::TempFolder folder;
  const auto values = test::random_floats(24, 1);
  const int64_t position = -7;
  test::NamedTensor integer{"position", "I64", {1}, std::vector<std::byte>(8)};
  std::memcpy(integer.bytes.data(), &position, 8);
  write_safetensors(folder / "model.safetensors",
                    {integer, float_tensor("w32", DType::fp32, {4, 6}, values),
                     float_tensor("w16", DType::fp16, {2, 3, 4}, values),
                     float_tensor("b16", DType::bf16, {24}, values),
                     float_tensor("none", DType::fp32, {0, 5}, {}),
                     float_tensor("scalar", DType::fp32, {}, std::span(values).first(1))});

  const Checkpoint checkpoint(folder.path());

  EXPECT_EQ(checkpoint.names(),
            (std::vector<std::string>{"b16", "none", "position", "scalar", "w16", "w32"}));
  EXPECT_TRUE(checkpoint.contains("w16"));
  EXPECT_FALSE(checkpoint.contains("w8"));
  EXPECT_EQ(checkpoint.total_bytes(), 8 + 24 * 4 + 24 * 2 + 24 * 2 + 0 + 4);
  EXPECT_EQ(checkpoint.file_of("w16"), folder / "model.safetensors");
  EXPECT_EQ(checkpoint.tensor("position").as<int64_t>()[0], -7);
  EXPECT_EQ(shape_of(checkpoint.tensor("none")), (std::vector<int64_t>{0, 5}));
  EXPECT_EQ(shape_of(checkpoint.tensor("scalar")), (std::vector<int64_t>{1}));
  EXPECT_EQ(checkpoint.tensor("scalar").as<float>()[0], values[0]);
  const TensorView w32 = checkpoint.tensor("w32");
  EXPECT_EQ(shape_of(w32), (std::vector<int64_t>{4, 6}));
  EXPECT_TRUE(test::all_close(std::span<const float>(w32.as<float>(), 24), values, 0));
  for (const auto& [name, dtype] : {std::pair{"w16", DType::fp16}, std::pair{"b16", DType::bf16}}) {
    const auto stored = test::stored_as(dtype, values);
    const TensorView view = checkpoint.tensor(name);
    EXPECT_EQ(view.dtype(), dtype);
    EXPECT_EQ(std::memcmp(view.data(), stored.data(), stored.size()), 0) << name;
  }
}

class EveryMisalignment : public testing::TestWithParam<int> {};

TEST_P(EveryMisalignment, IsHiddenByAPrivateCopy) {
  const test::TempFolder folder;
  const auto values = test::random_floats(10, 2);
  write_safetensors(folder / "model.safetensors",
                    {float_tensor("a", DType::bf16, {5}, std::span(values).first(5)),
                     float_tensor("b", DType::fp32, {5}, std::span(values).last(5))},
                    GetParam());
  const Checkpoint checkpoint(folder.path());

  const TensorView a = checkpoint.tensor("a"), b = checkpoint.tensor("b");

  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data()) % 2, 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b.data()) % 4, 0u);
  EXPECT_TRUE(
      test::all_close(std::span<const float>(b.as<float>(), 5), std::span(values).last(5), 0));
  const auto stored = test::stored_as(DType::bf16, std::span(values).first(5));
  EXPECT_EQ(std::memcmp(a.data(), stored.data(), stored.size()), 0);
  EXPECT_EQ(checkpoint.tensor("b").data(), b.data()) << "copied once, the first view stays valid";
}

INSTANTIATE_TEST_SUITE_P(OfTheData, EveryMisalignment, testing::Range(0, 8));

TEST(Checkpoint, ReadsTheShardsOfAnIndex) {
  const test::TempFolder folder;
  const std::vector<float> one = {1}, two = {2};
  write_safetensors(folder / "model-1.safetensors", {float_tensor("a", DType::fp32, {1}, one)});
  write_safetensors(folder / "model-2.safetensors", {float_tensor("b", DType::fp32, {1}, two),
                                                     float_tensor("extra", DType::fp32, {1}, two)});
  test::write_safetensors_index(folder.path(),
                                {{"a", "model-1.safetensors"}, {"b", "model-2.safetensors"}});

  Checkpoint opened(folder.path());
  const TensorView early = opened.tensor("a");
  const Checkpoint checkpoint = std::move(opened);

  EXPECT_EQ(checkpoint.names(), (std::vector<std::string>{"a", "b", "extra"}));
  EXPECT_EQ(checkpoint.file_of("b"), folder / "model-2.safetensors");
  EXPECT_EQ(checkpoint.tensor("b").as<float>()[0], 2);
  EXPECT_EQ(early.as<float>()[0], 1) << "views outlive a move of the owner";
}

TEST(Checkpoint, MapsACopyWhereItIsToldOfOne) {
  const test::TempFolder folder;
  const std::vector<float> one = {1};
  const auto file = folder / "model.safetensors";
  write_safetensors(file, {float_tensor("a", DType::fp32, {1}, one)});
  EXPECT_EQ(checkpoint_files(folder.path()), std::vector{file});
  const File source = File::open_input(file);
  std::vector<std::byte> bytes(source.size());
  source.read_at(0, bytes);
  const MemoryFile memory(source.size());
  memory.write_at(0, bytes);

  const Checkpoint checkpoint(folder.path(), [&](const auto&) { return memory.path(); });
  write_safetensors(file, {float_tensor("b", DType::fp32, {1}, one)});
  EXPECT_EQ(checkpoint.tensor("a").as<float>()[0], 1);
  EXPECT_EQ(checkpoint.file_of("a"), file) << "messages name the file that was copied";
}

TEST(Checkpoint, MapsPagesAgainThatItLetGo) {
  const test::TempFolder folder;
  const std::vector<float> values(4096, 3);
  write_safetensors(folder / "model.safetensors", {float_tensor("a", DType::fp32, {4096}, values)});
  const Checkpoint checkpoint(folder.path());
  const TensorView tensor = checkpoint.tensor("a");
  EXPECT_EQ(tensor.as<float>()[4095], 3);
  checkpoint.release_pages();
  for (int64_t i = 0; i < 4096; ++i) ASSERT_EQ(tensor.as<float>()[i], 3) << i;
}

TEST(MemoryMap, IsSharedByAllWhoMapIt) {
  const MemoryFile memory(100);
  const MemoryMap one(memory.path(), 100), other(memory.path(), 100);
  one.bytes()[99] = std::byte{7};
  EXPECT_EQ(other.bytes()[99], std::byte{7});
  EXPECT_TRUE(MemoryMap(memory.path(), 0).bytes().empty());
  EXPECT_THROW(MemoryMap("/proc/self/fd/-1", 1), SystemError);
}

TEST(Checkpoint, TakesTheSingleFileWhereAnIndexStandsBesideIt) {
  const test::TempFolder folder;
  const std::vector<float> one = {1};
  write_safetensors(folder / "model.safetensors", {float_tensor("single", DType::fp32, {1}, one)});
  write_safetensors(folder / "model-1.safetensors", {float_tensor("a", DType::fp32, {1}, one)});
  test::write_safetensors_index(folder.path(), {{"a", "model-1.safetensors"}});

  EXPECT_EQ(Checkpoint(folder.path()).names(), (std::vector<std::string>{"single"}));
}

TEST(Checkpoint, IndexHashTellsApartWhatTheIndexTells) {
  const auto hash = [](const std::string& name, DType dtype, const std::vector<int64_t>& shape,
                       float value) {
    const test::TempFolder folder;
    const std::vector<float> values(6, value);
    write_safetensors(folder / "model.safetensors", {float_tensor(name, dtype, shape, values)});
    return Checkpoint(folder.path()).index_sha256();
  };
  const std::string base = hash("a", DType::bf16, {2, 3}, 1);
  EXPECT_EQ(base.size(), 64u);
  EXPECT_EQ(hash("a", DType::bf16, {2, 3}, 2), base) << "the values are not hashed";
  EXPECT_NE(hash("b", DType::bf16, {2, 3}, 1), base);
  EXPECT_NE(hash("a", DType::fp16, {2, 3}, 1), base);
  EXPECT_NE(hash("a", DType::bf16, {3, 2}, 1), base);
}

}  // namespace
}  // namespace pecia::io
