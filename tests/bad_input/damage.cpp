// SPDX-License-Identifier: Apache-2.0
#include "tests/bad_input/damage.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <random>

namespace pecia::test {
namespace {

class Chance {
 public:
  explicit Chance(uint64_t seed) : engine_(seed) {}
  /// Uniform in [0, count).
  size_t below(size_t count) { return count == 0 ? 0 : engine_() % count; }
  template <typename T, size_t n>
  T one_of(const std::array<T, n>& values) {
    return values[below(n)];
  }

 private:
  std::mt19937_64 engine_;
};

uint64_t interesting_number(size_t file_bytes, Chance& chance) {
  constexpr std::array<uint64_t, 8> edges = {0,
                                             1,
                                             0xFFFF,
                                             uint64_t{1} << 31,
                                             uint64_t{1} << 40,
                                             ~uint64_t{0} >> 1,
                                             ~uint64_t{0} - 7,
                                             ~uint64_t{0}};
  return chance.below(2) == 0 ? chance.one_of(edges) : chance.below(file_bytes + 1) / 8 * 8;
}

void change_byte(std::string& content, Chance& chance) {
  const size_t at = chance.below(content.size());
  constexpr std::array<char, 8> edges = {0, 1, 2, 8, 0x20, 0x7F, char(0x80), char(0xFF)};
  if (chance.below(2) == 0)
    content[at] = static_cast<char>(content[at] ^ (1 << chance.below(8)));
  else
    content[at] = chance.one_of(edges);
}

void put_number(std::string& content, Chance& chance) {
  constexpr std::array<size_t, 4> widths = {1, 2, 4, 8};
  const size_t width = chance.one_of(widths), at = chance.below(content.size()) / width * width;
  const uint64_t number = interesting_number(content.size(), chance);
  std::memcpy(content.data() + at, &number, std::min(width, content.size() - at));
}

void put_word(std::string& content, std::string_view word, Chance& chance) {
  const size_t replaced = chance.below(2) == 0 ? 0 : chance.below(2 * word.size() + 1);
  content.replace(chance.below(content.size()), replaced, word);
}

/// Cuts out, repeats, or copies a part to another place.
void move_part(std::string& content, Chance& chance) {
  const size_t from = chance.below(content.size()), bytes = 1 + chance.below(40);
  const std::string part = content.substr(from, bytes);
  switch (chance.below(3)) {
    case 0:
      content.erase(from, bytes);
      break;
    case 1:
      for (size_t times = 1 + chance.below(4); times > 0; --times) content.insert(from, part);
      break;
    case 2:
      content.replace(chance.below(content.size()), bytes, part);
      break;
  }
}

}  // namespace

std::string damaged(const std::string& content, const Damage& damage, uint64_t seed) {
  Chance chance(seed);
  std::string changed = content;
  if (chance.below(16) == 0) changed.resize(chance.below(changed.size()));
  constexpr std::array<size_t, 6> counts = {1, 1, 2, 4, 8, 24};
  for (size_t count = chance.one_of(counts); count > 0 && !changed.empty(); --count) {
    const size_t kind = chance.below(8);
    if (kind < 4 && damage.numbers)
      put_number(changed, chance);
    else if (kind < 4 && !damage.words.empty())
      put_word(changed, damage.words[chance.below(damage.words.size())], chance);
    else if (kind < 7 || damage.numbers)  // parts that move make any offset after them wrong
      change_byte(changed, chance);
    else
      move_part(changed, chance);
  }
  return changed;
}

}  // namespace pecia::test
