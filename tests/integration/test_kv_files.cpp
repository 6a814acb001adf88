// SPDX-License-Identifier: Apache-2.0
/// Keys and values that some ranks write and others read, cut in other ways: the same bits for each
/// token, head and layer, and an answer that goes on as if nothing had been between.

#include <gtest/gtest.h>
#include <mpi.h>

#include <cmath>
#include <cstring>
#include <fstream>

#include "lib/engine/execute/replica.hpp"
#include "lib/model/layers/recurrent_mixer.hpp"
#include "lib/model/weights/device_weights.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"
#include "lib/ranks/comm/of_first.hpp"
#include "lib/ranks/comm/staged_communicator.hpp"
#include "lib/ranks/parallel/virtual_ranks.hpp"
#include "tests/support/goldens.hpp"
#include "tests/support/owned_compute.hpp"
#include "tests/support/replica.hpp"
#include "tests/support/separate_device.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::test {
namespace {

using parallel::PassSequence;

struct Layout {
  int ranks = 1, sp = 1, tp = 1;
  DType dtype = DType::fp32;
  bool invariant = false;
  bool separate = false;        ///< in memory that the host cannot touch
  bool windows = false;         ///< a model with windows in two of three layers
  bool recent = false;          ///< these keep recent tokens alone
  bool latents = false;         ///< a model whose values lie in its keys
  bool chunks = false;          ///< with windows: one with chunks of 20 in three of four layers
  const char* other = nullptr;  ///< another model, if any: with heads of their own in full layers
};

std::string text_of(const Layout& of) {
  return fmt::format("{} ranks, SP {}, TP {}, {}{}{}{}", of.ranks, of.sp, of.tp, name_of(of.dtype),
                     of.invariant ? ", invariant" : "", of.separate ? ", separate" : "",
                     of.recent ? ", recent tokens" : "");
}

/// 8 heads over 4 KV heads, 2 layers; or 4 over 2, windows of 16 in two of 3 layers; or 8 heads with
/// one row of latents, 3 layers.
const char* model_name(const Layout& of) {
  if (of.other != nullptr) return of.other;
  if (of.latents) return "deepseek3-groups";
  if (of.chunks) return "llama4-chunks";
  return of.windows ? "gemma3-windows" : "llama-gqa-fp32";
}
constexpr int64_t sequence = 3;
/// The fewest of 2048 tokens that may be read where layers with a window keep recent tokens.
constexpr int64_t least_of_2048 = 2048 - attention::RecentSlots::margin;

/// A replica that feeds one sequence.
class Machine {
 public:
  Machine(comm::Communicator& replica, const Layout& layout)
      : replica_(replica),
        layout_(layout),
        config_(model::read_config(golden(model_name(layout)))),
        weights_(config_, io::Checkpoint(golden(model_name(layout))), {},
                 execute::Replica::weight_cut(replica.rank(), 1, layout.tp)),
        compute_(layout.separate ? std::make_unique<OwnedCompute>(make_separate_device(),
                                                                  make_separate_backend())
                                 : std::make_unique<CpuCompute>()) {
    if (layout.separate) {
      compute_->time_by_device();
      there_.emplace(weights_, *compute_->device, *compute_->stream, *compute_->backend,
                     model::Quantize::nothing);
      tensors_ = comm::make_staged_communicator(replica.split(0, replica.rank()), *compute_->device,
                                                *compute_->stream);
    }
    rank_.emplace(tensors_ ? *tensors_ : replica, config_,
                  there_ ? *there_ : static_cast<const model::WeightViews&>(weights_), *compute_,
                  execute::Replica::Settings{.sp = layout.sp,
                                             .tp = layout.tp,
                                             .kv_dtype = layout.dtype,
                                             .kv_tokens = 6000,
                                             .kv_recent_tokens = layout.recent ? 2048 + 512 : 0,
                                             .states = 2,
                                             .states_may_be_any = false,
                                             .layout_invariant = layout.invariant});
  }

  /// The next tokens of the text; `owner` of one that was generated. What it samples, if it does.
  schedule::Outcome feed(int64_t count, const std::filesystem::path& restore = {},
                         bool sample = false, int32_t owner = PassSequence::balanced) {
    schedule::Plan plan;
    plan.number = number_++;
    plan.teams = {parallel::team_of_all(rank_->groups().cp)};
    if (length_ == 0) {
      plan.added.push_back({sequence,
                            {schedule::NewSequence::no_parent,
                             0,
                             std::vector<int64_t>(rank_->groups().cp, 4800),
                             {}}});
      plan.turns.push_back({sequence, {}, 0, 1 << 20});
    }
    const std::vector<int32_t> text = random_tokens(5000, config_.vocab, 7);
    const int32_t virtual_ranks = layout_.invariant ? parallel::layout_ranks : 0;
    plan.items.push_back({{sequence, length_, count, owner, virtual_ranks},
                          {text.begin() + length_, text.begin() + length_ + count},
                          int64_t{1} << 20,
                          sample ? 0 : -1});
    plan.restore = restore.string();
    length_ += count;
    return rank_->execute(plan);
  }

  /// Writes positions [begin, end) beside what `save` describes already.
  void save(const std::filesystem::path& folder, int64_t begin, int64_t end, io::KvSave& save) {
    schedule::Plan plan;
    plan.save = {sequence, begin, end, folder.string(), "text", 40 + begin, 60};
    const schedule::Outcome mine = rank_->execute(plan);
    EXPECT_EQ(mine.kv.error, "");
    std::erase_if(save.parts, [](const io::KvPart& part) { return are_states(part.layers); });
    for (const auto& bytes : replica_.all_gather(to_bytes(mine)))
      for (const io::KvPart& part : from_bytes<schedule::Outcome>(bytes).kv.parts)
        save.parts.push_back(part);
    save.tokens = end;
    const model::KvHeads heads = config_.widest_heads();
    save.layers = config_.num_layers(model::MixerKind::attention) - config_.sharing_layers;
    if (config_.recurrent) save.states = model::RecurrentMixer::saved_states(config_);
    save.kv_heads = heads.count;
    save.head_dim = heads.dim;
    save.dtype = layout_.dtype;
    save.sides = rank_->cache().shape().stores_values() ? 2 : 1;
    if (config_.full_heads) {
      save.window_heads = {config_.num_kv_heads, config_.head_dim};
      save.window_layers = 0;
      for (int64_t layer = 0; layer < save.layers; ++layer)
        save.window_layers += config_.pattern[layer].window > 0 ? 1 : 0;
    }
    if (layout_.recent) {
      save.window_layers = config_.layers_with_window();
      save.recent_from = std::max<int64_t>(0, rank_->cache().recent().first_kept(end));
      save.least = std::max<int64_t>(0, end - attention::RecentSlots::margin);
    }
    replica_.barrier();
    if (replica_.rank() == 0) io::write_kv_save(folder, save);
    replica_.barrier();
  }

  /// The bits of all keys and values, by layer [sides, KV heads, tokens], gathered from all ranks.
  std::vector<std::byte> bits() {
    const attention::KvCache& cache = rank_->cache();
    std::vector<std::byte> mine;
    const attention::HeldTokens held = rank_->attention().ledger().held(sequence);
    std::vector<int64_t> slots;
    int64_t used = 0;
    for (const parallel::SlotRange& range : held.slots) {
      for (int64_t slot = range.begin; slot < range.end; ++slot) slots.push_back(slot);
      used = std::max(used, range.end);
    }
    for (int64_t layer = 0; layer < cache.layers(); ++layer) {
      if (!cache.is_stored(layer)) continue;
      const attention::KvShape& shape = cache.shape(layer);
      const int64_t vector = shape.head_dim * size_of(shape.dtype);
      const int64_t scale = shape.dtype == DType::fp8 ? 4 : 0, token = vector + scale;
      const int64_t all_heads = config_.heads(layer).count;
      const parallel::HeadRange heads =
          attention::Attention::held_heads(rank_->groups().place, config_.num_heads, all_heads).kv;
      for (const attention::KvCache::Stored& stored : cache.stored(layer)) {
        const auto begin = std::ssize(mine);
        mine.resize(begin + all_heads * length_ * token);
        for (int64_t head = heads.begin; head < heads.end; ++head) {
          const auto vectors = on_host(stored.vectors.row(head - heads.begin), used * vector);
          std::vector<std::byte> scales;
          if (scale > 0) scales = on_host(stored.scales.row(head - heads.begin), used * scale);
          size_t next = 0;
          for (const parallel::StridedRange& range : held.positions)
            for (int64_t i = 0; i < range.count; ++i, ++next) {
              std::byte* const to =
                  mine.data() + begin + (head * length_ + range.position(i)) * token;
              std::memcpy(to, vectors.data() + slots[next] * vector, vector);
              if (scale > 0) std::memcpy(to + vector, scales.data() + slots[next] * scale, scale);
            }
        }
      }
    }
    std::vector<std::byte> all(mine.size());
    for (const auto& part : replica_.all_gather(mine))  // where several have a head, the same bits
      for (size_t i = 0; i < all.size(); ++i) all[i] |= part[i];
    return all;
  }

  /// The next token's log-probability, which one of the ranks has.
  double logprob(const schedule::Outcome& mine) {
    double sum = 0;
    for (const auto& bytes : replica_.all_gather(to_bytes(mine)))
      for (const float value : from_bytes<schedule::Outcome>(bytes).sampled.logprobs) sum += value;
    return sum;
  }

  schedule::Outcome execute(const schedule::Plan& plan) { return rank_->execute(plan); }
  int64_t length() const { return length_; }

 private:
  std::vector<std::byte> on_host(const void* there, int64_t bytes) {
    std::vector<std::byte> here(bytes);
    compute_->device->copy(here.data(), there, bytes, *compute_->stream);
    compute_->stream->synchronize();
    return here;
  }

  comm::Communicator& replica_;
  Layout layout_;
  model::ModelConfig config_;
  model::Weights weights_;
  std::unique_ptr<OwnedCompute> compute_;
  std::optional<model::DeviceWeights> there_;
  std::unique_ptr<comm::Communicator> tensors_;
  std::optional<execute::Replica> rank_;
  int64_t length_ = 0, number_ = 0;
};

/// After the first of `parts` equal parts of the file, which is among its keys or values.
void flip_a_bit_of(const std::filesystem::path& path, int parts) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  const auto at = static_cast<std::streamoff>(std::filesystem::file_size(path)) / parts;
  file.seekg(at);
  const char old = static_cast<char>(file.get());
  file.seekp(at);
  file.put(static_cast<char>(old ^ 0x10));
}

class KvFiles : public testing::Test {
 protected:
  KvFiles() {
    if (world_->rank() == 0) own_.emplace();
    folder_ = comm::of_first(*world_, own_ ? own_->path().string() : "");
  }
  ~KvFiles() override { world_->barrier(); }

  /// On the first ranks of the world; the others wait.
  void on(const Layout& layout, const std::function<void(Machine&)>& work) {
    SCOPED_TRACE(text_of(layout));
    const bool takes_part = world_->rank() < layout.ranks;
    const auto group = world_->split(takes_part ? 0 : 1, world_->rank());
    if (takes_part) {
      Machine machine(*group, layout);
      work(machine);
    }
    world_->barrier();
  }

  std::filesystem::path fresh_folder() {
    const auto folder = folder_ / std::to_string(++folders_);
    if (world_->rank() == 0) std::filesystem::create_directory(folder);
    world_->barrier();
    return folder;
  }

  /// All layouts of so many of the world's ranks.
  std::vector<Layout> layouts(DType dtype) const {
    std::vector<Layout> all;
    for (const Layout& each : {Layout{1, 1, 1}, Layout{2, 1, 1}, Layout{2, 2, 1}, Layout{2, 1, 2},
                               Layout{3, 1, 1}, Layout{4, 1, 1}, Layout{4, 2, 1}, Layout{4, 1, 2},
                               Layout{4, 2, 2}, Layout{8, 2, 2}, Layout{8, 4, 2}, Layout{8, 1, 8}})
      if (each.ranks <= world_->size())
        all.push_back({each.ranks, each.sp, each.tp, dtype, false, false});
    return all;
  }

  /// Two chunks of a prompt and some generated tokens, saved in two steps.
  std::vector<std::byte> write(const Layout& layout, const std::filesystem::path& folder) {
    std::vector<std::byte> bits;
    on(layout, [&](Machine& machine) {
      io::KvSave save;
      machine.feed(1500);
      machine.feed(700);
      machine.save(folder, 0, 1900, save);
      const int cp =
          layout.invariant ? parallel::layout_ranks : layout.ranks / (layout.sp * layout.tp);
      for (int32_t i = 0; i < 7; ++i) machine.feed(1, {}, false, i % cp);
      machine.save(folder, 1900, machine.length(), save);
      bits = machine.bits();
    });
    return bits;
  }

  /// Reads them in other chunks.
  std::vector<std::byte> read(const Layout& layout, const std::filesystem::path& folder,
                              bool expected = true) {
    std::vector<std::byte> bits;
    on(layout, [&](Machine& machine) {
      for (const int64_t count : {1100, 1100, 7}) {
        const schedule::Outcome outcome = machine.feed(count, folder);
        EXPECT_EQ(outcome.kv.done != 0, expected) << outcome.kv.error;
      }
      bits = machine.bits();
    });
    return bits;
  }

  std::unique_ptr<comm::Communicator> world_ =
      comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
  std::optional<TempFolder> own_;
  std::filesystem::path folder_;
  int folders_ = 0;
};

TEST_F(KvFiles, AreReadByAnyRanksWithTheSameBits) {
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp8})
    for (const Layout& writers : layouts(dtype)) {
      SCOPED_TRACE("written by " + text_of(writers));
      const auto folder = fresh_folder();
      const auto written = write(writers, folder);
      for (const Layout& readers : layouts(dtype)) {
        const bool all_of_both = dtype == DType::fp32 || readers.ranks != writers.ranks;
        if (!all_of_both) continue;
        const auto found = read(readers, folder);
        if (world_->rank() == 0) {
          EXPECT_TRUE(found == written) << "read by " << text_of(readers);
        }
      }
    }
}

/// Ranks of SP and TP have the same rows, of which one writes them.
TEST_F(KvFiles, OfLatentsHaveKeysAlone) {
  for (const DType dtype : {DType::fp32, DType::fp8}) {
    for (Layout writers : layouts(dtype)) {
      if (writers.ranks > 4) continue;
      SCOPED_TRACE("written by " + text_of(writers));
      writers.latents = true;
      const auto folder = fresh_folder();
      const auto written = write(writers, folder);
      for (Layout readers : {layouts(dtype).front(), layouts(dtype).back()}) {
        readers.latents = true;
        const auto found = read(readers, folder);
        if (world_->rank() == 0) {
          EXPECT_TRUE(found == written) << "read by " << text_of(readers);
        }
      }
    }
  }
}

/// Layers with a window have files of their own, with other heads, which other ranks write; layers
/// that attend what others store have none.
TEST_F(KvFiles, OfLayersWithHeadsOfTheirOwnAreOnesForEachKind) {
  for (const char* model : {"gemma4-keys-as-values", "gemma4-shared-keys"})
    for (const DType dtype : {DType::fp32, DType::fp8})
      for (Layout writers : layouts(dtype)) {
        if (writers.ranks > 4) continue;
        SCOPED_TRACE(fmt::format("{} written by {}", model, text_of(writers)));
        writers.other = model;
        const auto folder = fresh_folder();
        const auto written = write(writers, folder);
        for (Layout readers : {layouts(dtype).front(), layouts(dtype).back()}) {
          readers.other = model;
          const auto found = read(readers, folder);
          if (world_->rank() == 0) {
            EXPECT_TRUE(found == written) << "read by " << text_of(readers);
          }
        }
      }
}

TEST_F(KvFiles, ServeLayoutsOfVirtualRanks) {
  const int most = world_->size() >= 4 ? 4 : world_->size() >= 2 ? 2 : 1;
  const auto folder = fresh_folder();
  const auto written = write({most, 1, 1, DType::fp32, true}, folder);
  for (const Layout& readers : {Layout{1, 1, 1, DType::fp32, true},
                                Layout{most, 1, 1, DType::fp32, true}, Layout{most, 1, 1}}) {
    const auto found = read(readers, folder);
    if (world_->rank() == 0) {
      EXPECT_TRUE(found == written) << text_of(readers);
    }
  }
}

TEST_F(KvFiles, ServeMemoryThatTheHostCannotTouch) {
  const int ranks = std::min(world_->size(), 2);
  for (const DType dtype : {DType::bf16, DType::fp8}) {
    const auto folder = fresh_folder();
    const auto written = write({ranks, 1, 1, dtype, false, true}, folder);
    for (const bool separate : {true, false}) {
      const auto found = read({ranks, 1, 1, dtype, false, separate}, folder);
      if (world_->rank() == 0) {
        EXPECT_TRUE(found == written) << separate;
      }
    }
  }
}

TEST_F(KvFiles, LetAnAnswerGoOn) {
  for (const Layout& layout : layouts(DType::fp32)) {
    const auto folder = fresh_folder();
    double straight = 0, restored = 0, elsewhere = 0;
    on(layout, [&](Machine& machine) {
      machine.feed(1024);
      machine.feed(1024);
      io::KvSave save;
      machine.save(folder, 0, machine.length(), save);
      straight = machine.logprob(machine.feed(300, {}, true));
    });
    const auto go_on = [&](const Layout& with, double& logprob) {
      on(with, [&](Machine& machine) {
        machine.feed(1024, folder);
        machine.feed(1024, folder);
        logprob = machine.logprob(machine.feed(300, {}, true));
      });
    };
    go_on(layout, restored);
    go_on({1}, elsewhere);
    if (world_->rank() != 0) continue;
    EXPECT_LT(straight, 0);
    EXPECT_EQ(restored, straight) << text_of(layout);
    // fp32 sums of 2348 keys in another order.
    EXPECT_NEAR(elsewhere, straight, 1e-4) << text_of(layout);
  }
}

/// Caches that keep all tokens and caches that keep recent ones write for each other.
TEST_F(KvFiles, OfRecentTokensLetAnAnswerGoOn) {
  const int most = world_->size() >= 4 ? 4 : world_->size();
  for (const Layout& writer : {Layout{1}, Layout{most}, most % 2 == 0 ? Layout{most, 2} : Layout{1},
                               most % 2 == 0 ? Layout{most, 1, 2} : Layout{1}})
    for (const auto& [writes_recent, chunks] :
         {std::pair(true, false), {false, false}, {true, true}, {false, true}}) {
      const auto folder = fresh_folder();
      double straight = 0;
      Layout from = writer;
      from.windows = true, from.recent = writes_recent, from.chunks = chunks;
      on(from, [&](Machine& machine) {
        machine.feed(700);
        io::KvSave save;
        machine.save(folder, 0, machine.length(), save);
        machine.feed(324);
        machine.feed(1024);
        machine.save(folder, 700, machine.length(), save);
        straight = machine.logprob(machine.feed(300, {}, true));
      });
      for (const bool reads_recent : {true, false})
        for (const int ranks : {1, most}) {
          Layout to{ranks};
          to.windows = true, to.recent = reads_recent, to.chunks = from.chunks;
          double again = 0;
          on(to, [&](Machine& machine) {
            EXPECT_EQ(machine.feed(1000, folder).kv.error, "");
            EXPECT_EQ(machine.feed(least_of_2048 - 1000, folder).kv.error, "");
            machine.feed(2048 - least_of_2048);
            again = machine.logprob(machine.feed(300, {}, true));
          });
          if (world_->rank() != 0) continue;
          EXPECT_LT(straight, 0);
          EXPECT_NEAR(again, straight, 1e-4) << text_of(from) << " for " << text_of(to);
        }
    }
}

/// A pass in the middle could not be computed, so the first one finds it.
TEST_F(KvFiles, OfRecentTokensAreVerifiedBeforeTheFirstIsRead) {
  const Layout layout{.ranks = std::min(world_->size(), 2), .windows = true, .recent = true};
  const auto folder = fresh_folder();
  on(layout, [&](Machine& machine) {
    io::KvSave save;
    machine.feed(2048);
    machine.save(folder, 0, machine.length(), save);
  });
  const auto save = io::read_kv_save(folder);
  ASSERT_TRUE(save.has_value());
  for (const io::KvPart& part : save->parts)
    EXPECT_EQ(part.layers == io::KvLayers::with_window,
              part.tokens() <= 16 + attention::RecentSlots::margin)
        << part.file;
  const auto path = folder / save->parts.back().file;  // of recent tokens
  const auto flip_a_bit = [&] {
    world_->barrier();
    if (world_->rank() == 0) flip_a_bit_of(path, 2);
    world_->barrier();
  };
  flip_a_bit();
  on(layout, [&](Machine& machine) { EXPECT_EQ(machine.feed(500, folder).kv.done, 0); });
  flip_a_bit();
  std::optional<Machine> reader;
  const auto group = world_->split(world_->rank() < layout.ranks ? 0 : 1, world_->rank());
  if (world_->rank() < layout.ranks) {
    reader.emplace(*group, layout);
    EXPECT_EQ(reader->feed(500, folder).kv.error, "");
  }
  flip_a_bit();
  if (reader) {
    EXPECT_THROW(reader->feed(least_of_2048 - 500, folder), SystemError);
  }
}

/// Any ranks go on from the states that others have written: after all saved tokens.
TEST_F(KvFiles, OfStatesLetAnAnswerGoOn) {
  for (const char* model : {"qwen3next-delta", "granitehybrid-experts"}) {
    std::vector<Layout> all;
    for (Layout layout : layouts(DType::fp32)) {
      layout.other = model;
      if (layout.sp * layout.tp <= 4) all.push_back(layout);
    }
    for (const Layout& from : all) {
      const auto folder = fresh_folder();
      double straight = 0;
      on(from, [&](Machine& machine) {
        io::KvSave save;
        machine.feed(300);
        machine.save(folder, 0, machine.length(), save);
        machine.feed(101);
        machine.save(folder, 300, machine.length(), save);
        straight = machine.logprob(machine.feed(50, {}, true));
      });
      for (const Layout& to : all) {
        double again = 0;
        on(to, [&](Machine& machine) {
          EXPECT_EQ(machine.feed(250, folder).kv.error, "");
          EXPECT_EQ(machine.feed(151, folder).kv.error, "");
          again = machine.logprob(machine.feed(50, {}, true));
        });
        if (world_->rank() != 0) continue;
        EXPECT_LT(straight, 0);
        EXPECT_NEAR(again, straight, 1e-4) << text_of(from) << " for " << text_of(to);
      }
      const auto save = io::read_kv_save(folder);
      ASSERT_TRUE(save.has_value());
      world_->barrier();
      const auto damaged = folder / save->parts.back().file;
      if (world_->rank() == 0) resize_file(damaged, file_size(damaged) / 2);
      world_->barrier();
      on(all.front(), [&](Machine& machine) {
        EXPECT_EQ(machine.feed(250, folder).kv.done, 0) << "no later pass could be computed";
      });
    }
  }
}

TEST_F(KvFiles, ThatAreDamagedAreComputedByAllRanks) {
  const Layout layout{world_->size() == 3 ? 3 : std::min(world_->size(), 4)};
  const auto folder = fresh_folder();
  const auto written = write(layout, folder);
  if (world_->rank() == 0) {
    const auto save = io::read_kv_save(folder);
    ASSERT_TRUE(save.has_value());
    for (const io::KvPart& part : save->parts) flip_a_bit_of(folder / part.file, 3);
  }
  world_->barrier();
  const auto computed = read(layout, folder, false);
  EXPECT_FALSE(computed.empty() && world_->rank() == 0);
  std::filesystem::path gone = folder / "gone";
  const auto without = read(layout, gone, false);
  if (world_->rank() == 0) {
    EXPECT_TRUE(without == computed) << "computed in the same passes";
  }
}

TEST_F(KvFiles, GiveUpWhenTheTimeIsOver) {
  const auto folder = fresh_folder();
  on({world_->size() == 3 ? 3 : 1}, [&](Machine& machine) {
    machine.feed(100);
    schedule::Plan plan;
    plan.save = {sequence, 0, 100, folder.string(), "text", 1, 0};
    const schedule::Outcome outcome = machine.execute(plan);
    EXPECT_EQ(outcome.kv.done, 0);
    EXPECT_NE(outcome.kv.error.find("not written within"), std::string::npos) << outcome.kv.error;
  });
  if (world_->rank() == 0) {
    EXPECT_TRUE(std::filesystem::is_empty(folder));
  }
}

}  // namespace
}  // namespace pecia::test
