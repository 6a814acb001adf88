// SPDX-License-Identifier: Apache-2.0
/// States that ranks with some heads write, and ranks with others read.

#include <gtest/gtest.h>

#include <fstream>

#include "lib/base/core/error.hpp"
#include "lib/base/core/files.hpp"
#include "lib/model/recurrence/state_files.hpp"
#include "lib/ranks/parallel/heads.hpp"
#include "tests/recurrence/state_place.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::recurrence {
namespace {

// Two layers, eight heads over two key heads, three rows of tail.
constexpr io::KvStates whole{2, 8, 2, 3, 5, 3};
constexpr int64_t sequence = 7, tokens = 40;

/// A rank of `count`, which cut the heads.
struct CutRank {
  CutRank(int count, int index)
      : part(part_of(count, index)),
        place({whole.layers, part.heads.size(), whole.key_dim, whole.value_dim, whole.tail_rows,
               2 * part.key_heads.size() * whole.key_dim + part.heads.size() * whole.value_dim}) {}

  static StatePart part_of(int count, int index) {
    const auto shard = [&](int of) {
      return parallel::head_shard(whole.heads, whole.key_heads, count, of);
    };
    return {whole, shard(index).q, shard(index).kv,
            index == 0 || shard(index - 1).kv != shard(index).kv, index};
  }

  /// The numbers of its heads, each with a value that follows from its place in the whole model.
  std::vector<float> numbers() const {
    std::vector<float> all;
    const auto add = [&](int64_t layer, int kind, int64_t head, int64_t row, int64_t column) {
      all.push_back(static_cast<float>((((layer * 4 + kind) * 8 + head) * 16 + row) * 16 + column));
    };
    const auto each = [&](parallel::HeadRange heads, const auto& body) {
      for (int64_t head = heads.begin; head < heads.end; ++head) body(head);
    };
    for (int64_t layer = 0; layer < whole.layers; ++layer) {
      each(part.heads, [&](int64_t head) {
        for (int64_t row = 0; row < whole.key_dim; ++row)
          for (int64_t column = 0; column < whole.value_dim; ++column)
            add(layer, 0, head, row, column);
      });
      for (int64_t row = 0; row < whole.tail_rows; ++row) {
        for (const int side : {1, 2})
          each(part.key_heads, [&](int64_t head) {
            for (int64_t column = 0; column < whole.key_dim; ++column)
              add(layer, side, head, row, column);
          });
        each(part.heads, [&](int64_t head) {
          for (int64_t column = 0; column < whole.value_dim; ++column)
            add(layer, 3, head, row, column);
        });
      }
    }
    return all;
  }

  void save(const std::filesystem::path& folder, io::KvSave& save) {
    place.begin(sequence, tokens);
    const std::vector<float> own = numbers();
    place.snapshots.copy_in(sequence, std::as_bytes(std::span(own)));
    for (io::KvPart& written : files.save({sequence, 0, tokens, folder, "text", 40}, [] {})) {
      EXPECT_GT(files.bytes(written), 0);
      save.parts.push_back(std::move(written));
    }
  }
  /// In two passes, the last of which ends with the save.
  void restore(const std::filesystem::path& folder, const io::KvSave& save) {
    place.begin(sequence, tokens / 2);
    files.restore(folder, save, {sequence, 0, tokens / 2, 1, 0});
    EXPECT_FALSE(place.states.contains(sequence)) << "its state is that after the last token";
    place.read(sequence, tokens / 2);
    files.restore(folder, save, {sequence, tokens / 2, tokens / 2, 1, 0});
  }

  StatePart part;
  StatePlace place;
  StateFiles files{part, place.snapshots, place.compute};
};

io::KvSave described() {
  io::KvSave save;
  save.tokens = save.least = tokens;
  save.states = whole;
  return save;
}

io::KvSave written_by(int count, const std::filesystem::path& folder) {
  io::KvSave save = described();
  for (int index = 0; index < count; ++index) CutRank(count, index).save(folder, save);
  return save;
}

TEST(StateFiles, AreReadByRanksThatAreCutInAnyOtherWay) {
  for (const int writers : {1, 2, 4, 8}) {
    const test::TempFolder folder;
    const io::KvSave save = written_by(writers, folder.path());
    EXPECT_EQ(std::ssize(save.parts), writers + std::min(writers, 2))
        << "ranks that have the same key heads write them once";
    for (const int readers : {1, 2, 4, 8})
      for (int index = 0; index < readers; ++index) {
        SCOPED_TRACE(fmt::format("{} writers, reader {} of {}", writers, index, readers));
        CutRank reader(readers, index);
        reader.restore(folder.path(), save);
        EXPECT_EQ(reader.place.state(sequence), reader.numbers());
      }
  }
}

TEST(StateFiles, StayWhereTheLastTokenIs) {
  const test::TempFolder folder;
  const io::KvSave save = written_by(1, folder.path());
  CutRank reader(1, 0);
  reader.place.ledger.add(sequence, {100, 100});
  reader.place.read(sequence, tokens, 0);
  reader.files.restore(folder.path(), save, {sequence, 0, tokens, 0, 0});
  EXPECT_FALSE(reader.place.states.contains(sequence));
}

TEST(StateFiles, SayWhatIsWrongWithThem) {
  const test::TempFolder folder;
  const io::KvSave save = written_by(2, folder.path());
  const auto words = [&](const io::KvSave& changed) {
    CutRank reader(1, 0);
    try {
      reader.restore(folder.path(), changed);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  EXPECT_EQ(words(save), "nothing");
  io::KvSave changed = save;
  changed.parts.pop_back();
  has(words(changed), "no tails of states of head 1");
  changed = save;
  std::erase_if(changed.parts, [](const io::KvPart& part) { return part.head_begin == 4; });
  has(words(changed), "no states of head 4");
  changed = save;
  changed.states.key_dim = 4;
  has(words(changed), "states of another model");
  changed = save;
  changed.parts.front().positions = {{tokens - 2, 1, 1}};
  has(words(changed), "is the state after other tokens than the first 40");
  changed = save;
  changed.parts.front().stamp = 41;
  has(words(changed), "belongs to another save");
  const auto path = folder / save.parts.front().file;
  std::string bytes = text_of_file(path).value();
  for (size_t i = bytes.size() / 2; i < bytes.size(); ++i) bytes[i] ^= 4;
  std::ofstream(path, std::ios::binary) << bytes;
  has(words(save), "the checksum");
}

}  // namespace
}  // namespace pecia::recurrence
