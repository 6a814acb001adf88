// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fstream>

#include "lib/base/core/error.hpp"
#include "lib/files/checkpoint/safetensors.hpp"
#include "tests/io/expect_error.hpp"
#include "tests/support/safetensors_writer.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::io {
namespace {

using test::write_safetensors;

struct Broken {
  const char* name;
  const char* header;
  size_t data_bytes;
  std::vector<std::string> message;  ///< parts; the file's path is expected always
};

const Broken broken_files[] = {
    {"NotJson", "{\"a\":", 0, {"JSON cannot be read"}},
    {"NoObject", "[1]", 0, {"no JSON object"}},
    {"Invalid", "{\"a\xff\":1}", 0, {"JSON cannot be read"}},
    {"EntryIsNoObject", R"({"a":3})", 0, {"tensor 'a'", "no JSON object"}},
    {"SameTensorTwice",
     R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
     8,
     {"'a' appears twice"}},
    {"SameFieldTwice",
     R"({"a":{"dtype":"F32","dtype":"F16","shape":[1],"data_offsets":[0,4]}})",
     4,
     {"'dtype' appears twice"}},
    {"NoDtype", R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4, {"tensor 'a' has no 'dtype'"}},
    {"NoShape", R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4, {"tensor 'a' has no 'shape'"}},
    {"NoOffsets", R"({"a":{"dtype":"F32","shape":[1]}})", 4, {"'a' has no 'data_offsets'"}},
    {"DtypeIsANumber",
     R"({"a":{"dtype":32,"shape":[1],"data_offsets":[0,4]}})",
     4,
     {"tensor 'a'", "dtype is no string"}},
    {"UnknownDtype",
     R"({"a":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}})",
     4,
     {"tensor 'a'", "dtype F33", "BF16"}},
    {"Fp8OfOtherBits",
     R"({"a":{"dtype":"F8_E5M2","shape":[4],"data_offsets":[0,4]}})",
     4,
     {"tensor 'a'", "dtype F8_E5M2"}},
    {"NegativeExtent",
     R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})",
     4,
     {"tensor 'a'", "extent -1"}},
    {"FractionalExtent",
     R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})",
     4,
     {"tensor 'a'", "extent 1.5"}},
    {"ExtentBeyondInt64",
     R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})",
     4,
     {"tensor 'a'", "extent 18446744073709551615"}},
    {"ShapeOverflows",
     R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})",
     0,
     {"tensor 'a'", "more than 2^63 bytes"}},
    {"ShapeIsNoArray",
     R"({"a":{"dtype":"F32","shape":1,"data_offsets":[0,4]}})",
     4,
     {"tensor 'a'", "shape is no array"}},
    {"ThreeOffsets",
     R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,2,4]}})",
     4,
     {"tensor 'a'", "no pair"}},
    {"OffsetsBackwards",
     R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})",
     4,
     {"tensor 'a'", "[4, 0]"}},
    {"NegativeOffset",
     R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}})",
     4,
     {"tensor 'a'", "offset -4"}},
    {"OffsetsBeyondTheFile",
     R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
     4,
     {"tensor 'a'", "[0, 8]", "4 data bytes"}},
    {"ShapeAndOffsetsDisagree",
     R"({"a":{"dtype":"BF16","shape":[3],"data_offsets":[0,8]}})",
     8,
     {"tensor 'a'", "8 bytes", "needs 6"}},
    {"Overlap",
     R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
     12,
     {"tensor 'b' overlaps 'a' by 4 bytes"}},
    {"Hole",
     R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
     12,
     {"4 bytes before tensor 'b'"}},
    {"HoleAtTheBegin",
     R"({"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
     8,
     {"4 bytes before tensor 'b'"}},
    {"HoleAtTheEnd",
     R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
     7,
     {"last 3 bytes", "tensor 'a'"}},
    {"DataOfNoTensor", "{}", 5, {"last 5 bytes"}},
};

class EveryBrokenFile : public testing::TestWithParam<Broken> {};

TEST_P(EveryBrokenFile, IsRefusedWithThePlaceNamed) {
  const test::TempFolder folder;
  const auto path = folder / "model.safetensors";
  test::write_raw_safetensors(path, GetParam().header, GetParam().data_bytes);
  auto parts = GetParam().message;
  parts.push_back(path.string());
  test::expect_error<InputError>([&] { Checkpoint{folder.path()}; }, parts);
}

INSTANTIATE_TEST_SUITE_P(Refused, EveryBrokenFile, testing::ValuesIn(broken_files),
                         [](const auto& broken) { return broken.param.name; });

TEST(RefusedCheckpoint, LiesAboutItsHeader) {
  const test::TempFolder folder;
  const auto path = folder / "model.safetensors";
  test::write_raw_safetensors(path, "{}", 0, 3);
  test::expect_error<InputError>([&] { Checkpoint{folder.path()}; },
                                 {path.string(), "header of 3 bytes", "cut off"});
  test::write_raw_safetensors(path, "{}", 0, 100'000'001);
  test::expect_error<InputError>([&] { Checkpoint{folder.path()}; },
                                 {path.string(), "100000001 bytes; 100000000"});
  test::write_raw_safetensors(path, "{}", 0, UINT64_MAX);
  test::expect_error<InputError>([&] { Checkpoint{folder.path()}; }, {path.string(), "header"});
}

TEST(RefusedCheckpoint, IsCutOffAnywhere) {
  const test::TempFolder folder;
  const auto path = folder / "model.safetensors";
  const std::vector<float> values(64, 1);
  write_safetensors(path, {test::float_tensor("a", DType::fp32, {64}, values)});
  ASSERT_NO_THROW(Checkpoint{folder.path()});
  for (auto size = std::filesystem::file_size(path); size-- > 0;) {
    std::filesystem::resize_file(path, size);
    test::expect_error<InputError>([&] { Checkpoint{folder.path()}; }, {path.string()});
  }
}

TEST(RefusedCheckpoint, IsNotThere) {
  const test::TempFolder folder;
  test::expect_error<InputError>([&] { Checkpoint{folder / "m"}; }, {(folder / "m").string()});
  test::expect_error<InputError>([&] { Checkpoint{folder.path()}; },
                                 {folder.path().string(), "model.safetensors"});
}

class RefusedIndex : public testing::Test {
 protected:
  void SetUp() override {
    const std::vector<float> one = {1};
    write_safetensors(folder_ / "1.safetensors", {test::float_tensor("a", DType::fp32, {1}, one)});
    write_safetensors(folder_ / "2.safetensors", {test::float_tensor("b", DType::fp32, {1}, one)});
  }
  void expect_refused(const std::vector<std::string>& parts) {
    test::expect_error<InputError>([&] { Checkpoint{folder_.path()}; }, parts);
  }
  std::string index() const { return (folder_ / "model.safetensors.index.json").string(); }

  test::TempFolder folder_;
};

TEST_F(RefusedIndex, NamesAMissingShard) {
  test::write_safetensors_index(folder_.path(), {{"a", "1.safetensors"}, {"c", "3.safetensors"}});
  expect_refused({index(), "tensor 'c'", "3.safetensors", "missing"});
}

TEST_F(RefusedIndex, NamesATensorThatIsNotThere) {
  test::write_safetensors_index(folder_.path(), {{"a", "1.safetensors"}, {"c", "1.safetensors"}});
  expect_refused({index(), "tensor 'c'", "1.safetensors", "does not hold"});
  test::write_safetensors_index(folder_.path(), {{"a", "2.safetensors"}, {"b", "1.safetensors"}});
  expect_refused({index(), "tensor 'a'", "2.safetensors", "does not hold"});
}

TEST_F(RefusedIndex, LeadsToATensorInTwoShards) {
  const std::vector<float> one = {1};
  write_safetensors(folder_ / "2.safetensors", {test::float_tensor("a", DType::fp32, {1}, one)});
  test::write_safetensors_index(folder_.path(), {{"a", "1.safetensors"}, {"b", "2.safetensors"}});
  expect_refused({(folder_ / "2.safetensors").string(), "tensor 'a'", "1.safetensors"});
}

TEST_F(RefusedIndex, LeavesTheFolder) {
  test::write_safetensors_index(folder_.path(), {{"a", "../1.safetensors"}});
  expect_refused({index(), "tensor 'a'", "../1.safetensors", "no file name"});
}

TEST_F(RefusedIndex, HasNoMap) {
  std::ofstream(index()) << "{}";
  expect_refused({index(), "weight_map"});
  std::ofstream(index()) << R"({"weight_map": {"a": "1.safetensors", "a": "2.safetensors"}})";
  expect_refused({index(), "'a' appears twice"});
}

TEST(Checkpoint, RefusesAbsentTensorsAndFiveDimensions) {
  const test::TempFolder folder;
  const std::vector<float> one = {1};
  write_safetensors(folder / "model.safetensors",
                    {test::float_tensor("a", DType::fp32, {1, 1, 1, 1, 1}, one)});
  const Checkpoint checkpoint(folder.path());
  test::expect_error<InputError>([&] { checkpoint.tensor("b"); },
                                 {folder.path().string(), "tensor 'b'"});
  test::expect_error<InputError>([&] { checkpoint.tensor("a"); },
                                 {folder.path().string(), "tensor 'a'", "5 dimensions"});
}

}  // namespace
}  // namespace pecia::io
