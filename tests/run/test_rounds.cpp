// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "lib/run/rounds.hpp"
#include "tests/io/expect_error.hpp"

namespace pecia::run {
namespace {

using namespace std::chrono_literals;

class Lines : public testing::Test {
 protected:
  Lines() { EXPECT_EQ(pipe(ends_.data()), 0); }
  ~Lines() override {
    close(ends_[0]);
    end();
  }
  void write(const std::string& text) {
    EXPECT_EQ(::write(ends_[1], text.data(), text.size()), std::ssize(text));
  }
  void end() {
    if (ends_[1] >= 0) close(std::exchange(ends_[1], -1));
  }
  LineReader reader() const { return LineReader(ends_[0]); }

 private:
  std::array<int, 2> ends_{};
};

TEST_F(Lines, ComeOneByOneAndWhole) {
  LineReader lines = reader();
  EXPECT_EQ(lines.next(1ms), std::nullopt);
  write("first\nsecond\nth");
  EXPECT_EQ(lines.next(1ms), "first");
  EXPECT_EQ(lines.next(1ms), "second");
  EXPECT_EQ(lines.next(1ms), std::nullopt) << "half a line";
  write("ird\n\n");
  EXPECT_EQ(lines.next(1ms), "third");
  EXPECT_EQ(lines.next(1ms), "");
  EXPECT_FALSE(lines.ended());
}

TEST_F(Lines, LastOneNeedsNoEnd) {
  LineReader lines = reader();
  write("last");
  end();
  EXPECT_EQ(lines.next(1ms), std::nullopt);
  EXPECT_FALSE(lines.ended());
  EXPECT_EQ(lines.next(1ms), "last");
  EXPECT_EQ(lines.next(1ms), std::nullopt);
  EXPECT_TRUE(lines.ended());
}

TEST_F(Lines, ThatAreTooLongAreRefused) {
  LineReader lines = reader();
  const std::string part(1 << 15, 'x');
  test::expect_error<InputError>(
      [&] {
        for (int i = 0; i < 1024; ++i) {
          if (i % 8 == 0) write(part);
          lines.next(1ms);
        }
      },
      {"a line above 1 MB is no round"});
}

}  // namespace
}  // namespace pecia::run
