// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fstream>

#include "lib/base/core/error.hpp"
#include "lib/files/checkpoint/safetensors.hpp"
#include "lib/files/disk/sha256.hpp"
#include "tests/io/expect_error.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::io {
namespace {

std::string sha256(std::string_view text) {
  Sha256 hash;
  hash.update(text);
  return hash.hex();
}

// The examples published with FIPS 180.
TEST(Sha256, GivesThePublishedDigests) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, DoesNotDependOnHowTheBytesAreCut) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += static_cast<char>(i * 7);
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    Sha256 hash;
    hash.update(std::string_view(text).substr(0, cut));
    hash.update(std::string_view(text).substr(cut));
    ASSERT_EQ(hash.hex(), sha256(text)) << "cut at " << cut;
  }
}

TEST(Sha256OfFile, HashesFilesLongerThanOnePiece) {
  const test::TempFolder folder;
  std::ofstream(folder / "a") << std::string((2 << 20) + 3, 'x');
  EXPECT_EQ(sha256_of_file(folder / "a"), sha256(std::string((2 << 20) + 3, 'x')));
  test::expect_error<InputError>([&] { sha256_of_file(folder / "b"); },
                                 {(folder / "b").string(), "No such file"});
}

}  // namespace
}  // namespace pecia::io
