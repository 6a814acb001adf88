// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <map>

#include "kernels/api/gpu_traits.hpp"
#include "lib/ranks/parallel/virtual_ranks.hpp"
#include "tests/simulation/small_cluster.hpp"
#include "tests/simulation/small_grid.hpp"

namespace pecia::simulation {
namespace {

using parallel::Sharding;

/// Each step with its layer, section after section.
std::vector<std::pair<int64_t, Step>> flat(const Program& program) {
  std::vector<std::pair<int64_t, Step>> all;
  for (const Section& section : program)
    for (int64_t time = 0; time < section.times; ++time)
      for (const Step& step : section.steps)
        all.emplace_back(section.layer < 0 ? -1 : section.layer + time, step);
  return all;
}

TEST(Program, OfFoldedLayersIsThatOfEachLayer) {
  const model::ModelConfig config = small_model(9);
  for (const Grid& grid : grids()) {
    const schedule::Plan plans[] = {grid.passes().feed(0, 2, 48), grid.passes().feed(0, 1, 6, 90),
                                    grid.passes().step(0, 5, 40, true)};
    for (const schedule::Plan& plan : plans)
      for (int rank = 0; rank < grid.ranks(); ++rank) {
        const Recording recording{grid.settings(rank), {}, plan};
        const Program folded = record(config, recording, Layers::folded);
        const Program each = record(config, recording, Layers::each);
        EXPECT_TRUE(flat(folded) == flat(each)) << grid.name << ", rank " << rank;
        EXPECT_EQ(num_steps(folded), num_steps(each));
        size_t kept = 0;
        for (const Section& section : folded) kept += section.steps.size();
        EXPECT_LT(static_cast<double>(kept), 0.6 * static_cast<double>(num_steps(each)))
            << grid.name << " is not folded";
      }
  }
}

TEST(Program, MultipliesRowsOfFp32AsTheWeightsAreMultiplied) {
  const model::ModelConfig config = small_model(2);
  const Grid& alone = grids().front();
  for (const DType multiplied : {DType::fp32, DType::bf16}) {
    execute::PhantomSettings settings = alone.settings(0);
    settings.traits.operand_type = [=](DType) { return multiplied; };
    const Program program =
        record(config, {settings, {}, alone.passes().feed(0, 1, 8)}, Layers::each);
    int products = 0;
    for (const auto& [layer, step] : flat(program))
      if (const auto* op = std::get_if<kernels::OpWork>(&step.what); op && op->name == "linear") {
        ++products;
        EXPECT_EQ(op->operands, multiplied) << step.span << ", layer " << layer;
      }
    EXPECT_GT(products, 0);
  }
}

/// Attention of a ring's later blocks goes on from the result so far, or is a part that is merged.
TEST(Program, MergesPartsOnlyWhereTheBackendDoesNotContinueResults) {
  const model::ModelConfig config = small_model(2);
  const Grid& ring = grids()[1];
  const auto count = [&](bool continues, std::string_view name) {
    execute::PhantomSettings settings = ring.settings(0);
    settings.traits.continues_attention = continues;
    const Program program =
        record(config, {settings, {}, ring.passes().feed(0, 1, 48)}, Layers::each);
    int64_t calls = 0;
    for (const auto& [layer, step] : flat(program))
      if (const auto* op = std::get_if<kernels::OpWork>(&step.what)) calls += op->name == name;
    return calls;
  };
  EXPECT_GT(count(false, "merge"), 0);
  EXPECT_EQ(count(true, "merge"), 0);
  EXPECT_EQ(count(true, "attention"), count(false, "attention"));
}

/// Sums of a block of rows start before later blocks are attended, which see all rows before them.
TEST(Program, AttendsBlocksOfRowsBesideTheSumsOfOthers) {
  const model::ModelConfig config = small_model(2);
  for (const Sharding sharding : {Sharding::base, Sharding::sp_tp}) {
    const Grid grid{.name = "tp", .tp = 4, .sharding = sharding};
    const Program program =
        record(config, {grid.settings(0), {}, grid.passes().feed(0, 1, 2048)}, Layers::each);
    std::string order;
    for (const auto& [layer, step] : flat(program)) {
      if (layer != 0) continue;
      if (const auto* op = std::get_if<kernels::OpWork>(&step.what); op && op->name == "attention")
        order += 'a';
      if (std::holds_alternative<comm::PhantomStart>(step.what) && order.ends_with('a'))
        order += 's';
    }
    EXPECT_EQ(order, "asasasas") << static_cast<int>(sharding);
  }
}

/// The ops that test_production_types counts on the CUDA backend, here from a machine without it.
TEST(Program, HasAGpusOpsInALayerOfADecodeStep) {
  const model::ModelConfig two = small_model(2), one = small_model(1);
  const auto ops = [](const model::ModelConfig& config, int64_t rows) {
    execute::PhantomSettings settings = grids().front().settings(0);
    settings.traits = kernels::gpu_traits();
    const Program program = record(
        config, {settings, {}, grids().front().passes().step(0, rows, 16, true)}, Layers::each);
    std::map<std::string_view, int64_t> count;
    for (const auto& [layer, step] : flat(program))
      if (const auto* op = std::get_if<kernels::OpWork>(&step.what)) ++count[op->name];
    return count;
  };
  using Count = std::map<std::string_view, int64_t>;
  const auto of_a_layer = [&](int64_t rows) {
    Count count = ops(two, rows);
    for (const auto& [name, times] : ops(one, rows))
      if ((count[name] -= times) == 0) count.erase(name);
    return count;
  };
  EXPECT_EQ(of_a_layer(16), (Count{{"attention", 1},
                                   {"gated_linear", 1},
                                   {"linear", 3},
                                   {"rms_norm", 2},
                                   {"rotate_and_store", 1}}));
  EXPECT_EQ(of_a_layer(17), (Count{{"attention", 1},
                                   {"gated_activation", 1},
                                   {"linear", 4},
                                   {"rms_norm", 2},
                                   {"rotate_and_store", 1}}));
}

/// One launch, and each number once, between the products of a layer and its attention.
TEST(Program, RotatesAndStoresHeadsAtOnceInPassesOfManyRowsOfAGpu) {
  const model::ModelConfig config = small_model(1);
  const Grid& alone = grids().front();
  for (const int64_t rows : {127, 128, 512}) {
    execute::PhantomSettings settings = alone.settings(0);
    settings.traits = kernels::gpu_traits();
    std::map<std::string_view, int64_t> count;
    for (const auto& [layer, step] :
         flat(record(config, {settings, {}, alone.passes().feed(0, 1, rows)}, Layers::each)))
      if (const auto* op = std::get_if<kernels::OpWork>(&step.what)) ++count[op->name];
    EXPECT_EQ(count["rotate_and_store"], 1) << rows;
    EXPECT_EQ(count["rope"] + count["kv_store"], 0) << rows;
  }
}

/// Queries of 128 rows or more: of type fp32 from their product, rounded where they are rotated.
TEST(Program, HasRoundedQueriesInPassesOfManyRowsOfAGpu) {
  model::ModelConfig config = small_model(1);
  config.head_dim = config.rope.rotary_dim = 64;
  for (const Grid& grid : {grids()[0], grids()[4]})
    for (const int64_t rows : {127, 128}) {
      SCOPED_TRACE(testing::Message() << grid.name << ", " << rows << " rows");
      const auto work = [&](bool rounds) {
        execute::PhantomSettings settings = grid.settings(0);
        settings.traits = kernels::gpu_traits();
        settings.replica.kv_dtype = DType::bf16;
        if (!rounds) settings.traits.query_type = {};
        int64_t rope = 0, attention = 0, messages = 0;
        for (const auto& [layer, step] :
             flat(record(config, {settings, {}, grid.passes().feed(0, 1, rows)}, Layers::each))) {
          if (const auto* op = std::get_if<kernels::OpWork>(&step.what)) {
            if (op->name == "rope" || op->name == "rotate_and_store") rope += op->bytes_written;
            if (op->name == "attention") attention += op->bytes_read;
          }
          if (const auto* start = std::get_if<comm::PhantomStart>(&step.what))
            for (const comm::PhantomMessage& message : start->sends) messages += message.bytes;
        }
        return std::array{rope, attention, messages};
      };
      const auto rounded = work(true), wide = work(false);
      // Two bytes less for each number: those that a rank has, and attends. All travel in bf16.
      const int64_t numbers = rows == 128 ? 2 * rows * config.num_heads * config.head_dim : 0;
      EXPECT_EQ(wide[0] - rounded[0], numbers / grid.sp);
      EXPECT_EQ(wide[1] - rounded[1], numbers / grid.sp);
      EXPECT_EQ(wide[2], rounded[2]);
    }
}

/// What gate and up write and their activation reads.
TEST(Program, HasRoundedGatesInPassesOfManyRowsOfAGpu) {
  model::ModelConfig config = small_model(1);
  config.ffn = 192;  // more columns than q, k and v have together
  const Grid& alone = grids().front();
  for (const int64_t rows : {127, 128}) {
    execute::PhantomSettings settings = alone.settings(0);
    settings.traits = kernels::gpu_traits();
    int64_t of_products = 0, of_activation = 0;
    for (const auto& [layer, step] :
         flat(record(config, {settings, {}, alone.passes().feed(0, 1, rows)}, Layers::each)))
      if (const auto* op = std::get_if<kernels::OpWork>(&step.what)) {
        if (op->name == "linear" && op->width >= config.ffn) of_products += op->bytes_written;
        if (op->name == "gated_activation") of_activation += op->bytes_read;
      }
    const int64_t numbers = 2 * rows * config.ffn;
    const int64_t vocab = config.vocab * size_of(DType::fp32);  // of the last row
    EXPECT_EQ(of_products - vocab, numbers * (rows == 128 ? 2 : 4)) << rows;
    EXPECT_EQ(of_activation, numbers * (rows == 128 ? 2 : 4)) << rows;
  }
}

/// `reproducible: layout` has the parts of virtual ranks as items of one call, or as single calls.
TEST(Program, AttendsPartsOfLayoutInOneCallWhereTheBackendMergesThem) {
  const model::ModelConfig config = small_model(1);
  const auto calls = [&](bool merges, std::string_view name) {
    execute::PhantomSettings settings = grids().front().settings(0);
    settings.traits.merges_attention = merges;
    settings.replica.layout_invariant = true;
    execute::TrialPasses passes = grids().front().passes();
    passes.virtual_ranks = 8;
    const Program program = record(config, {settings, {}, passes.feed(0, 1, 48)}, Layers::each);
    int64_t count = 0;
    for (const auto& [layer, step] : flat(program))
      if (const auto* op = std::get_if<kernels::OpWork>(&step.what)) count += op->name == name;
    return count;
  };
  EXPECT_EQ(calls(true, "attention"), 1);
  EXPECT_EQ(calls(true, "merge"), 0);
  EXPECT_GT(calls(false, "attention") + calls(false, "merge"), 1);
}

/// Ranks of TP have columns of o and down, as slices of one resident matrix.
TEST(Program, SaysWhereRowsOfWeightsLieApart) {
  const model::ModelConfig config = small_model(2);
  for (const Grid& grid : {grids()[0], grids()[6]}) {
    const Program program =
        record(config, {grid.settings(0), {}, grid.passes().step(0, 1, 16, true)}, Layers::each);
    int64_t apart = 0;
    for (const auto& [layer, step] : flat(program))
      if (const auto* op = std::get_if<kernels::OpWork>(&step.what); op && op->piece_bytes > 0) {
        ++apart;
        EXPECT_DOUBLE_EQ(static_cast<double>(op->piece_bytes), 2 * op->depth) << step.span;
      }
    EXPECT_EQ(apart, grid.tp > 1 ? 2 * config.layers : 0) << grid.name;
  }
}

TEST(Program, HasEachLayerWhereLayersDiffer) {
  model::ModelConfig config = small_model(7);
  config.pattern[4].window = 16;
  const Grid grid{"alone"};
  const Program program =
      record(config, {grid.settings(0), {}, grid.passes().feed(0, 1, 100)}, Layers::folded);
  double of_window = 0, of_others = 0;
  for (const auto& [layer, step] : flat(program)) {
    const auto* const op = std::get_if<kernels::OpWork>(&step.what);
    if (op == nullptr || op->name != "attention") continue;
    (layer == 4 ? of_window : of_others) += op->flops;
  }
  // 16 keys for each row but the first; half of all pairs in the six other layers.
  EXPECT_DOUBLE_EQ(of_window, 4.0 * 64 * (16 * 100 - 16 * 15 / 2));
  EXPECT_DOUBLE_EQ(of_others, 6 * 4.0 * 64 * (100 * 101 / 2));
}

/// So a plan takes the speed of bf16 for them, not that of fp8.
TEST(Program, MultipliesExpertsOfFp8InBf16) {
  const auto nowhere = [](DType type, std::initializer_list<int64_t> shape) {
    static constexpr std::byte some{};
    return TensorView(const_cast<std::byte*>(&some), type, shape);
  };
  kernels::OpWork work;
  const auto phantom = kernels::make_phantom_backend([&](const kernels::OpWork& op) { work = op; },
                                                     kernels::gpu_traits());
  const TensorView up = nowhere(DType::fp8, {16, 32}), down = nowhere(DType::fp8, {32, 16});
  const kernels::Expert expert{.gate = up,
                               .up = up,
                               .down = down,
                               .gate_scales = nowhere(DType::fp32, {16}),
                               .up_scales = nowhere(DType::fp32, {16}),
                               .down_scales = nowhere(DType::fp32, {32})};
  device::Stream stream(1);
  phantom->experts({.x = nowhere(DType::fp32, {100, 32}),
                    .chosen = nowhere(DType::int32, {100, 1}),
                    .weights = nowhere(DType::fp32, {100, 1}),
                    .experts = std::span(&expert, 1),
                    .y = nowhere(DType::fp32, {100, 32})},
                   stream);
  EXPECT_EQ(work.name, "experts");
  EXPECT_EQ(work.dtype, DType::fp8);
  EXPECT_EQ(work.operands, DType::bf16);
}

TEST(Program, DoesWhatThePhantomCounts) {
  const model::ModelConfig config = small_model(5);
  for (const Grid& grid : grids()) {
    const schedule::Plan plan = grid.passes().feed(0, 2, 36);
    for (int rank = 0; rank < grid.ranks(); ++rank) {
      execute::PhantomRank phantom(config, grid.settings(rank));
      phantom.execute(plan);
      double flops = 0;
      int64_t messages = 0, bytes = 0;
      for (const auto& [layer, step] :
           flat(record(config, {grid.settings(rank), {}, plan}, Layers::folded))) {
        if (const auto* op = std::get_if<kernels::OpWork>(&step.what)) flops += op->flops;
        if (const auto* start = std::get_if<comm::PhantomStart>(&step.what))
          for (const comm::PhantomMessage& message : start->sends)
            ++messages, bytes += message.bytes;
      }
      EXPECT_DOUBLE_EQ(flops, phantom.work().flops) << grid.name;
      EXPECT_EQ(messages, phantom.traffic().messages) << grid.name;
      EXPECT_EQ(bytes, phantom.traffic().bytes) << grid.name;
    }
  }
}

/// What a pass does follows from where the tokens before it lie, and that from the passes that read
/// them.
TEST(Program, OfAPassThatFollowsOthersIsThatOfOneThatIsToldOfThem) {
  const model::ModelConfig config = small_model(7);
  Grid levels{"levels", 4}, home{"levels at home", 1, 1, 4}, layout{"layout", 2};
  execute::TrialPasses by_levels = levels.passes(), head_parallel = home.passes(),
                       same = layout.passes();
  by_levels.levels_from = head_parallel.levels_from = 256;
  same.virtual_ranks = parallel::layout_ranks;
  for (const auto& [grid, trial] :
       {std::pair(levels, by_levels), {home, head_parallel}, {layout, same}}) {
    execute::TrialPasses passes = trial;
    passes.tokens_per_pass = 300;
    for (int rank = 0; rank < grid.ranks(); ++rank) {
      Recording told{grid.settings(rank), {}, passes.feed(0, 1, 290, 650)};
      told.rank.replica.layout_invariant = trial.virtual_ranks > grid.cp;
      told.rank.replica.places = small_cluster().places(grid.ranks());
      if (trial.levels_from)
        told.rank.replica.sparse = {{parallel::Geometry::disjoint, 0.3}, {}, parallel::Micros{2}};
      Recording read = told;
      for (const auto& [first, count] :
           {std::pair<int64_t, int64_t>{0, 300}, {300, 300}, {600, 50}})
        read.before.push_back(passes.feed(0, 1, count, first, false));
      read.before[0].added[0].state.reserved = told.pass.added[0].state.reserved;
      for (schedule::Plan* plan : {&read.before[1], &read.before[2], &read.pass})
        plan->added.clear(), plan->turns.clear();
      const auto expected = flat(record(config, read, Layers::each));
      EXPECT_TRUE(flat(record(config, told, Layers::each)) == expected) << grid.name << rank;
      EXPECT_TRUE(flat(record(config, told, Layers::folded)) == expected) << grid.name << rank;
      EXPECT_LT(record(config, told, Layers::folded).size(), size_t{9}) << grid.name;
    }
  }
}

TEST(Program, BeginsAfterEarlierPasses) {
  const model::ModelConfig config = small_model(5);
  const Grid grid{"pass_q", 2, 1, 1, parallel::AttentionExchange::pass_q};
  const execute::TrialPasses passes = grid.passes();
  // Two requests whose 40 tokens were read, and the same when the map is told of them.
  const Recording read{grid.settings(0), {passes.feed(0, 2, 40)}, passes.step(0, 2, 40)};
  const Recording told{grid.settings(0), {}, passes.step(0, 2, 40, true)};
  EXPECT_TRUE(flat(record(config, read, Layers::folded)) ==
              flat(record(config, told, Layers::folded)));
}

}  // namespace
}  // namespace pecia::simulation
