// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <chrono>

#include "lib/base/core/error.hpp"
#include "lib/work/job/job.hpp"

namespace pecia::job {
namespace {

const std::string minimal = "model: {path: m}\ninput: [p.h5]\noutput: out\n";

/// What the job with `lines` added (from line 4 on) is refused for; empty when it is taken.
std::string refusal(const std::string& lines, const std::vector<std::string>& overrides = {}) {
  try {
    parse_job(minimal + lines, "job.yaml", overrides);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(ParseJob, RanksThatShareAGpuGoByWayOfTheirHostsOrByNccl) {
  const auto sharing = [](const std::string& word) {
    return parse_job(minimal + "allow_gpu_sharing: " + word, "job.yaml").gpu_sharing;
  };
  EXPECT_EQ(sharing("false"), GpuSharing::no);
  EXPECT_EQ(sharing("true"), GpuSharing::staged);
  EXPECT_EQ(sharing("nccl"), GpuSharing::nccl);
  EXPECT_THROW(sharing("mps"), InputError);
}

TEST(ParseJob, LeavesDefaultsWhereTheFileIsSilent) {
  const Job job = parse_job(minimal, "job.yaml");
  EXPECT_EQ(job.model.path, "m");
  EXPECT_EQ(job.input, std::vector<std::filesystem::path>{"p.h5"});
  EXPECT_EQ(job.output, "out");
  EXPECT_EQ(job.parallel.cp, CpSetting());
  EXPECT_EQ(job.attention.sparse, Sparse::off);
  EXPECT_EQ(job.attention.geometry, parallel::Geometry::disjoint);
  EXPECT_EQ(job.attention.levels, std::nullopt);
  EXPECT_EQ(job.attention.drop, std::nullopt);
  EXPECT_EQ(job.attention.pipeline, std::nullopt);
  EXPECT_EQ(job.attention.objective, AttentionGoal());
  EXPECT_EQ(job.attention.decode, SparseDecode::dense);
  EXPECT_EQ(job.generation.max_new_tokens, 256);
  EXPECT_EQ(job.generation.sampling.top_p, 1.0f);
  EXPECT_TRUE(job.batch.prefix_sharing);
  EXPECT_EQ(job.limits.grace_s, 60);
  EXPECT_EQ(job.limits.silence_s, 120);
  EXPECT_EQ(job.limits.wait_s, 1800);
}

TEST(ParseJob, ReadsEverySection) {
  const Job job = parse_job(R"(
model: {path: models/a b, dtype: bf16, compute: fp32, rope_scaling: {type: yarn, factor: 4}, load: spread}
input: [a.h5, 'b*.h5']
output: "runs/x"
backend: cpu
topology: hosts.txt
parallel: {dp: 2, cp: 4, sp: 1, tp: 1, ep: 1, prefill: ring, ring: pass_q, decode: pass_q, shift_threshold: 64}
attention: {sparse: csa, geometry: nested, levels: 3, drop: 0.22, pipeline: 8, objective: {loss: 0.01}, decode: sparse}
generation: {max_new_tokens: 7, temperature: 0.7, top_k: 40, top_p: 0.9, min_p: 0.05,
             repetition_penalty: 1.1, presence_penalty: -0.5, frequency_penalty: 2, seed: -3,
             stop_token_ids: [2, 32000], stop: ["\n\n", 'a "b"', User, 7], ignore_eos: true, logprobs: -1, prompt_logprobs: 5}
kv: {dtype: fp16, memory: 12GiB}
batch: {max_sequences: 8, max_batch_tokens: 4096, order: fcfs, policy: chunked, arrivals: replay, prefix_sharing: false}
limits: {over_length: truncate_middle, wall_time: 1h30m, grace: 10min, silence: 1min, wait: 2h}
report: {trace: full, progress: off}
reproducible: layout
)",
                            "job.yaml");
  EXPECT_EQ(job.model.path, "models/a b");
  EXPECT_EQ(job.model.dtype, Precision::bf16);
  EXPECT_EQ(job.model.compute, Precision::fp32);
  EXPECT_EQ(job.model.load, Load::spread);
  ASSERT_TRUE(job.model.rope_scaling);
  EXPECT_EQ(job.model.rope_scaling->kind, model::RopeScaling::yarn);
  EXPECT_EQ(job.model.rope_scaling->factor, 4);
  EXPECT_EQ(job.input, (std::vector<std::filesystem::path>{"a.h5", "b*.h5"}));
  EXPECT_EQ(job.backend, BackendKind::cpu);
  EXPECT_EQ(job.topology, "hosts.txt");
  EXPECT_FALSE(job.batch.prefix_sharing);
  EXPECT_EQ(job.parallel.dp, 2);
  EXPECT_EQ(job.parallel.cp.degree, 4);
  EXPECT_EQ(job.parallel.ep, 1);
  EXPECT_EQ(job.parallel.ring, AttentionExchange::pass_q);
  EXPECT_EQ(job.parallel.shift_threshold, 64);
  EXPECT_EQ(job.attention.sparse, Sparse::csa);
  EXPECT_EQ(job.attention.geometry, parallel::Geometry::nested);
  EXPECT_EQ(job.attention.levels, 3);
  EXPECT_EQ(job.attention.drop, (DropSetting{0.22, ""}));
  EXPECT_EQ(job.attention.pipeline, parallel::Micros{8});
  EXPECT_EQ(job.attention.objective, (AttentionGoal{0.01, {}}));
  EXPECT_EQ(job.attention.decode, SparseDecode::sparse);
  EXPECT_EQ(job.generation.sampling.temperature, 0.7f);
  EXPECT_EQ(job.generation.sampling.top_k, 40);
  EXPECT_EQ(job.generation.sampling.presence_penalty, -0.5f);
  EXPECT_EQ(job.generation.seed, -3);
  EXPECT_EQ(job.generation.stop_token_ids, (std::vector<int32_t>{2, 32000}));
  EXPECT_EQ(job.generation.stop, (std::vector<std::string>{"\n\n", "a \"b\"", "User", "7"}));
  EXPECT_TRUE(job.generation.ignore_eos);
  EXPECT_EQ(job.generation.logprobs, -1);
  EXPECT_EQ(job.kv.memory, int64_t{12} << 30);
  EXPECT_EQ(job.batch.max_batch_tokens, 4096);
  EXPECT_EQ(job.batch.order, Order::fcfs);
  EXPECT_EQ(job.limits.over_length, OverLength::truncate_middle);
  EXPECT_EQ(job.limits.wall_time_s, 5400);
  EXPECT_EQ(job.limits.grace_s, 600);
  EXPECT_EQ(job.limits.silence_s, 60);
  EXPECT_EQ(job.limits.wait_s, 7200);
  EXPECT_EQ(job.report.trace, Trace::full);
  EXPECT_EQ(job.report.progress, Progress::off);
  EXPECT_EQ(job.reproducible, Reproducible::layout);
}

TEST(ParseJob, TakesJson) {
  const Job job = parse_job(
      R"({"model": {"path": "m"}, "input": ["p.h5"], "output": "o", "generation": {"ignore_eos": true, "seed": 5}})",
      "job.json");
  EXPECT_TRUE(job.generation.ignore_eos);
  EXPECT_EQ(job.generation.seed, 5);
}

TEST(ParseJob, TakesWhereKeysAndValuesAreKept) {
  const auto saving = [](const std::string& value) {
    const Job job = parse_job(minimal + "kv: {save: " + value + "}\n", "job.yaml");
    EXPECT_EQ(parse_job(to_yaml(job), "again").kv.save, job.kv.save);
    return job.kv.save;
  };
  EXPECT_EQ(saving("auto"), (KvSaving{true, ""}));
  EXPECT_EQ(saving("off"), (KvSaving{false, ""}));
  EXPECT_EQ(saving("scratch/kv"), (KvSaving{true, "scratch/kv"}));
  EXPECT_EQ(parse_job(minimal, "job.yaml").kv.save, KvSaving{});
  EXPECT_NE(refusal("kv: {save: [a]}\n").find("kv.save"), std::string::npos);
}

/// The attention section with one of its values, which is the same after the job was written and
/// read again.
Job::Attention attention(const std::string& key, const std::string& value) {
  const Job job = parse_job(minimal + "attention: {" + key + ": " + value + "}\n", "job.yaml");
  EXPECT_EQ(to_yaml(parse_job(to_yaml(job), "yaml")), to_yaml(job));
  EXPECT_EQ(to_yaml(parse_job(to_json(job), "json")), to_yaml(job));
  return parse_job(to_yaml(job), "again").attention;
}

TEST(ParseJob, TakesTheWordsOfSparseAttention) {
  EXPECT_EQ(attention("sparse", "off").sparse, Sparse::off);
  EXPECT_EQ(attention("sparse", "csa").sparse, Sparse::csa);
  EXPECT_EQ(attention("geometry", "disjoint").geometry, parallel::Geometry::disjoint);
  EXPECT_EQ(attention("geometry", "nested").geometry, parallel::Geometry::nested);
  EXPECT_EQ(attention("decode", "dense").decode, SparseDecode::dense);
  EXPECT_EQ(attention("decode", "sparse").decode, SparseDecode::sparse);
}

TEST(ParseJob, TakesHowManyLevelsAndMicroPartitions) {
  EXPECT_EQ(attention("levels", "auto").levels, std::nullopt);
  EXPECT_EQ(attention("levels", "1").levels, 1);
  EXPECT_EQ(attention("levels", "4").levels, 4);
  EXPECT_EQ(attention("pipeline", "auto").pipeline, std::nullopt);
  EXPECT_EQ(attention("pipeline", "1").pipeline, parallel::Micros{1});
  EXPECT_EQ(attention("pipeline", "[8, 2]").pipeline, (parallel::Micros{8, 2}));
  EXPECT_EQ(attention("pipeline", "16").pipeline, parallel::Micros{16});
}

TEST(ParseJob, TakesWhatSparseAttentionDrops) {
  EXPECT_EQ(attention("drop", "auto").drop, std::nullopt);
  EXPECT_EQ(attention("drop", "0").drop, DropSetting());
  EXPECT_EQ(attention("drop", "0.1").drop, (DropSetting{0.1, ""}));
  EXPECT_EQ(attention("drop", "0.95").drop, (DropSetting{0.95, ""}));
  EXPECT_EQ(attention("drop", "{layers: [0, [0.1, 0.4], 0.2, 0]}").drop,
            (DropSetting{0, "", {{0}, {0.1, 0.4}, {0.2}, {0}}}));
  EXPECT_EQ(attention("drop", "{file: tuned.json}").drop, (DropSetting{0, "tuned.json"}));
  EXPECT_EQ(attention("drop", "{file: \"a: b, #c\"}").drop, (DropSetting{0, "a: b, #c"}));
  EXPECT_EQ(attention("drop", "{file: auto}").drop, (DropSetting{0, "auto"}));
}

TEST(ParseJob, TakesWeightsOfFp8InFeedForwardAlone) {
  const auto dtype = [](const std::string& written) {
    return parse_job("model: {path: m, dtype: " + written + "}\ninput: [p.h5]\noutput: o\n",
                     "job.yaml")
        .model.dtype;
  };
  EXPECT_EQ(dtype("{ffn: fp8}"), Precision::fp8_ffn);
  EXPECT_EQ(dtype("fp8"), Precision::fp8);
  EXPECT_TRUE(is_fp8(dtype("{ffn: fp8}")));
  EXPECT_FALSE(is_fp8(dtype("auto")));
  EXPECT_EQ(name_of(Precision::fp8_ffn), "{ffn: fp8}");
  for (const char* wrong : {"{ffn: bf16}", "{attention: fp8}", "{ffn: fp8, head: fp8}", "[fp8]"})
    EXPECT_THROW(dtype(wrong), InputError) << wrong;
}

TEST(ParseJob, TakesWhatSparseAttentionIsChosenFor) {
  EXPECT_EQ(attention("objective", "off").objective, AttentionGoal());
  EXPECT_EQ(attention("objective", "{loss: 0.0}").objective, (AttentionGoal{0.0, {}}));
  EXPECT_EQ(attention("objective", "{loss: 0}").objective, (AttentionGoal{0.0, {}}));
  EXPECT_EQ(attention("objective", "{loss: 0.013}").objective, (AttentionGoal{0.013, {}}));
  EXPECT_EQ(attention("objective", "{ttft: 30s}").objective, (AttentionGoal{{}, 30.0}));
  EXPECT_EQ(attention("objective", "{ttft: 1h30m}").objective, (AttentionGoal{{}, 5400.0}));
  EXPECT_EQ(attention("objective", "{ttft: 0.25}").objective, (AttentionGoal{{}, 0.25}));
  EXPECT_EQ(attention("objective", "{loss: 0.01, retrieval: 0.9}").objective,
            (AttentionGoal{0.01, {}, 0.9}));
}

TEST(ParseJob, TakesWhatABatchIsRunFor) {
  const auto goal = [](const std::string& text) {
    const Job job = parse_job(minimal, "job.yaml", {"batch.objective=" + text});
    EXPECT_EQ(parse_job(to_yaml(job), "again").batch.objective, job.batch.objective);
    return job.batch.objective;
  };
  EXPECT_EQ(goal("auto"), BatchGoal());
  EXPECT_EQ(goal("ttft"), BatchGoal{Objective::ttft});
  EXPECT_EQ(goal("throughput"), BatchGoal{Objective::throughput});
  EXPECT_EQ(goal("{tbt: 50ms}"), (BatchGoal{{}, 0.05}));
  EXPECT_EQ(goal("{tbt: 2}"), (BatchGoal{{}, 2.0}));
  for (const char* bad :
       {"tbt", "{tbt: 0s}", "{tbt: }", "{ttft: 1s}", "{tbt: 1s, ttft: 1s}", "[ttft]"})
    EXPECT_NE(refusal("", {std::string("batch.objective=") + bad}), "") << bad;
}

TEST(ParseJob, TakesASectionWithAllKeysCommentedOut) {
  EXPECT_EQ(refusal("generation:\n  # top_k: 3\n"), "");
  EXPECT_EQ(refusal("attention:\n  # sparse: csa\n"), "");
}

TEST(DefaultYaml, ParsesBackToTheDefaults) {
  Job job = parse_job(default_yaml(), "default");
  EXPECT_EQ(job.model.path, "models/NAME");
  job.model.path.clear();
  job.input.clear();
  job.output.clear();
  EXPECT_EQ(to_yaml(job), to_yaml(Job{}));
}

TEST(DefaultYaml, CommentsEveryKey) {
  const std::string text = default_yaml();
  bool after_comment = false;
  for (size_t begin = 0, end; begin < text.size(); begin = end + 1) {
    end = text.find('\n', begin);
    const std::string line = text.substr(begin, end - begin);
    EXPECT_LE(line.size(), 110u) << line;
    const bool section = line.ends_with(":");
    if (!line.empty() && line.find('#') == std::string::npos && !section) {
      EXPECT_TRUE(after_comment) << line;
    }
    after_comment = line.find('#') != std::string::npos;
  }
}

TEST(ToText, GivesAnyStopStringBack) {
  Job job = parse_job(minimal, "job.yaml");
  job.generation.stop = {"null",     "Null", "~",
                         "yes",      "5",    ".",
                         "- a",      "# b",  "{c",
                         "\"",       "\\",   "\t\r\n ",
                         "\x01\x7f", "é☂𝄞",  "\xc2\x85\xe2\x80\xa8",
                         " ",        "'",    "*",
                         "/",        "a*",   std::string(1, '\0')};
  EXPECT_EQ(parse_job(to_yaml(job), "yaml").generation.stop, job.generation.stop);
  EXPECT_EQ(parse_job(to_json(job), "json").generation.stop, job.generation.stop);
}

TEST(ToText, GivesTheSameJobBack) {
  const Job job = parse_job(
      minimal +
          "generation: {temperature: 0.1, stop_token_ids: [], seed: 9223372036854775807}\n"
          "kv: {memory: 1.5GiB}\nlimits: {wall_time: 90.25s}\n"
          "report: {trace: off}\n",
      "job.yaml", {"model.path='null'", "output=\"a: b, #c\""});
  const Job from_yaml = parse_job(to_yaml(job), "yaml"),
            from_json = parse_job(to_json(job), "json");
  EXPECT_EQ(from_yaml.model.path, "null");
  EXPECT_EQ(from_yaml.output, "a: b, #c");
  EXPECT_EQ(from_yaml.generation.sampling.temperature, 0.1f);
  EXPECT_EQ(from_yaml.generation.stop_token_ids, std::vector<int32_t>{});
  EXPECT_EQ(from_yaml.generation.seed, INT64_MAX);
  EXPECT_EQ(from_yaml.kv.memory, int64_t{3} << 29);
  EXPECT_EQ(from_yaml.limits.wall_time_s, 90.25);
  EXPECT_EQ(to_yaml(from_yaml), to_yaml(job));
  EXPECT_EQ(to_yaml(from_json), to_yaml(job));
  EXPECT_NE(to_json(job).find("\"temperature\": 0.1,"), std::string::npos);
}

struct Bad {
  const char* lines;
  const char* message;
};

void PrintTo(const Bad& bad, std::ostream* out) {
  *out << bad.lines;
}

class EveryBadValue : public testing::TestWithParam<Bad> {};

TEST_P(EveryBadValue, IsRefusedWithLineKeyAndWhatIsAllowed) {
  EXPECT_EQ(refusal(GetParam().lines), GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    OfJobFiles, EveryBadValue,
    testing::Values(
        Bad{"generation: {temperature: -0.1}",
            "job.yaml:4: generation.temperature is -0.1; it may be a number of at least 0"},
        Bad{"generation: {temperature: .nan}",
            "job.yaml:4: generation.temperature is .nan; it may be a number of at least 0"},
        Bad{"generation: {temperature: nan}",
            "job.yaml:4: generation.temperature is nan; it may be a number of at least 0"},
        Bad{"generation: {temperature: 1e99}",
            "job.yaml:4: generation.temperature is 1e99; it may be a number of at least 0"},
        Bad{"generation:\n  top_p: 0",
            "job.yaml:5: generation.top_p is 0; it may be a number above 0, up to 1"},
        Bad{"generation:\n  top_p: 1.01",
            "job.yaml:5: generation.top_p is 1.01; it may be a number above 0, up to 1"},
        Bad{"generation: {min_p: 2}",
            "job.yaml:4: generation.min_p is 2; it may be a number from 0 to 1"},
        Bad{"generation: {top_k: -1}",
            "job.yaml:4: generation.top_k is -1; it may be a whole number of at least 0"},
        Bad{"generation: {max_new_tokens: 0}",
            "job.yaml:4: generation.max_new_tokens is 0; it may be a whole number of at least 1"},
        Bad{"generation: {max_new_tokens: 3000000000}",
            "job.yaml:4: generation.max_new_tokens is 3000000000; it may be a whole number of at "
            "least 1"},
        Bad{"generation: {max_new_tokens: 1.5}",
            "job.yaml:4: generation.max_new_tokens is 1.5; it may be a whole number of at least 1"},
        Bad{"generation: {max_new_tokens: \"5\"}",
            "job.yaml:4: generation.max_new_tokens is \"5\"; it may be a whole number of at least "
            "1"},
        Bad{"generation: {repetition_penalty: 0}",
            "job.yaml:4: generation.repetition_penalty is 0; it may be a number above 0"},
        Bad{"generation: {seed: 1e3}",
            "job.yaml:4: generation.seed is 1e3; it may be a whole number of 64 bits"},
        Bad{"generation: {logprobs: -2}",
            "job.yaml:4: generation.logprobs is -2; it may be a whole number of at least -1"},
        Bad{"generation: {stop_token_ids: [1, -1]}",
            "job.yaml:4: generation.stop_token_ids is a list; it may be auto | a list of token "
            "ids, "
            "each at least 0"},
        Bad{"generation: {stop: [a, \"\"]}",
            "job.yaml:4: generation.stop is a list; it may be a list of texts, none of them empty"},
        Bad{"generation: {stop: [[a]]}",
            "job.yaml:4: generation.stop is a list; it may be a list of texts, none of them empty"},
        Bad{"generation: {stop: }",
            "job.yaml:4: generation.stop is empty; it may be a list of texts, none of them empty"},
        Bad{"generation: {ignore_eos: yes}",
            "job.yaml:4: generation.ignore_eos is yes; it may be true | false"},
        Bad{"generation: {top_k: }",
            "job.yaml:4: generation.top_k is empty; it may be a whole number of at least 0"},
        Bad{"generation: [1]",
            "job.yaml:4: generation is a list; it is a section with the keys max_new_tokens, "
            "temperature, top_k, top_p, min_p, repetition_penalty, presence_penalty, "
            "frequency_penalty, seed, stop_token_ids, stop, ignore_eos, schema, regex, choice, "
            "drafts, logprobs, prompt_logprobs"},
        Bad{"generation: {drafts: 0}",
            "job.yaml:4: generation.drafts is 0; it may be off | auto | a whole number from 1 to "
            "64"},
        Bad{"parallel: {dp: 0}",
            "job.yaml:4: parallel.dp is 0; it may be auto | a whole number from 1 to 1048576"},
        Bad{"parallel: {ring: pass_v}",
            "job.yaml:4: parallel.ring is pass_v; it may be auto | pass_kv | pass_q"},
        Bad{"attention: {sparse: on}", "job.yaml:4: attention.sparse is on; it may be off | csa"},
        Bad{"attention: {sparse: [csa]}",
            "job.yaml:4: attention.sparse is a list; it may be off | csa"},
        Bad{"attention: {geometry: auto}",
            "job.yaml:4: attention.geometry is auto; it may be disjoint | nested"},
        Bad{"attention: {levels: 0}",
            "job.yaml:4: attention.levels is 0; it may be auto | a whole number from 1 to 4"},
        Bad{"attention: {levels: 5}",
            "job.yaml:4: attention.levels is 5; it may be auto | a whole number from 1 to 4"},
        Bad{"attention: {levels: 2.5}",
            "job.yaml:4: attention.levels is 2.5; it may be auto | a whole number from 1 to 4"},
        Bad{"attention:\n  drop: 0.96",
            "job.yaml:5: attention.drop is 0.96; it may be auto | a share from 0 to 0.95 | {file: "
            "a path} | {layers: a list with a share, or a list of one for each KV head, for each "
            "layer}"},
        Bad{"attention: {drop: -0.1}",
            "job.yaml:4: attention.drop is -0.1; it may be auto | a share from 0 to 0.95 | {file: "
            "a path} | {layers: a list with a share, or a list of one for each KV head, for each "
            "layer}"},
        Bad{"attention: {pipeline: 0}",
            "job.yaml:4: attention.pipeline is 0; it may be auto | a whole number from 1 to 16 "
            "| a list of up to 3 such, for levels from 2 on"},
        Bad{"attention: {pipeline: 17}",
            "job.yaml:4: attention.pipeline is 17; it may be auto | a whole number from 1 to 16 "
            "| a list of up to 3 such, for levels from 2 on"},
        Bad{"attention: {objective: {loss: 0.0, ttft: 30s}}",
            "job.yaml:4: attention.objective is a map; it may be off | {loss: a number of at least "
            "0} | {ttft: a time as 60s, 10min, 1h30m, 90 (seconds) or Slurm's 1:30:00 and "
            "2-00:00:00, from 0.001s to 366d}, either with retrieval: a share from 0 to 1"},
        Bad{"attention: {decode: auto}",
            "job.yaml:4: attention.decode is auto; it may be dense | sparse"},
        Bad{"attention: csa",
            "job.yaml:4: attention is csa; it is a section with the keys sparse, geometry, levels, "
            "drop, pipeline, first_tokens, objective, decode"},
        Bad{"kv: {dtype: int8}",
            "job.yaml:4: kv.dtype is int8; it may be auto | fp32 | bf16 | fp16 | fp8"},
        Bad{"kv: {memory: 12g}",
            "job.yaml:4: kv.memory is 12g; it may be auto | a size as 12GiB, 500MB, 12G (1024 "
            "based, "
            "as in Slurm) or a number of bytes"},
        Bad{"limits: {grace: -1s}",
            "job.yaml:4: limits.grace is -1s; it may be a time as 60s, 10min, 1h30m, 90 (seconds) "
            "or Slurm's "
            "1:30:00 and 2-00:00:00, from 0s to 366d"},
        Bad{"backend: gpu", "job.yaml:4: backend is gpu; it may be auto | cpu | cuda"}));

INSTANTIATE_TEST_SUITE_P(
    OfKeys, EveryBadValue,
    testing::Values(
        Bad{"generation:\n  seed: 1\n  topp: 0.5",
            "job.yaml:6: unknown key generation.topp; did you mean generation.top_p?"},
        Bad{"max_tokens: 5",
            "job.yaml:4: unknown key max_tokens; did you mean generation.max_new_tokens?"},
        Bad{"batch: {enable_prefix_caching: false}",
            "job.yaml:4: unknown key batch.enable_prefix_caching; did you mean "
            "batch.prefix_sharing?"},
        Bad{"modle: {path: x}", "job.yaml:4: unknown key modle; did you mean model?"},
        Bad{"webhook: x",
            "job.yaml:4: unknown key webhook; pecia run --print-default shows all keys"},
        Bad{"temperature: 1",
            "job.yaml:4: unknown key temperature; did you mean generation.temperature?"},
        Bad{"batch: {temperature: 1}",
            "job.yaml:4: unknown key batch.temperature; did you mean generation.temperature?"},
        Bad{"attention: {sparse: csa, level: 2}",
            "job.yaml:4: unknown key attention.level; did you mean attention.levels?"},
        Bad{"attention: {window: 64}",
            "job.yaml:4: unknown key attention.window; attention has the keys sparse, geometry, "
            "levels, drop, pipeline, first_tokens, objective, decode"},
        Bad{"pipeline: {kind: summary}",
            "job.yaml:4: this job has a pipeline of several runs: pecia-summarize --job job.yaml "
            "makes them. With --set pipeline=off it is a job of one run, which needs an input"},
        Bad{"pipeline: on",
            "job.yaml:4: pipeline is on; it may be off; a map is for "
            "pecia-summarize --job"},
        Bad{"pipline: {}", "job.yaml:4: unknown key pipline; did you mean pipeline?"},
        Bad{"kv.dtype: fp32",
            "job.yaml:4: kv.dtype has a dot; in a job file a key stands under its section's name"},
        Bad{"output: twice", "job.yaml:4: key 'output' is given twice; keep one"},
        Bad{"kv: {dtype: fp32, dtype: fp16}", "job.yaml:4: key 'dtype' is given twice; keep one"},
        Bad{"kv: &a {dtype: fp32}",
            "job.yaml:4: an anchor (&name); write the value out where it is used"},
        Bad{"kv: {dtype: !!str fp32}", "job.yaml:4: a tag (tag:yaml.org,2002:str); leave it out"},
        Bad{"kv: {? [a] : b}", "job.yaml:4: a key must be a word, this one is a list"},
        Bad{"kv: {dtype: fp32", "job.yaml:4: not valid YAML: end of map flow not found (column 1)"},
        Bad{"---\nkv: {}\n", "job.yaml: a second YAML document (---); a job file holds one"}));

TEST(ParseJob, NamesEveryProblemAtOnce) {
  const std::string message = refusal("kv: {dtype: x}\nbatch:\n  ordr: fcfs\n");
  EXPECT_NE(message.find("job.yaml:4: kv.dtype is x"), std::string::npos) << message;
  EXPECT_NE(message.find("job.yaml:6: unknown key batch.ordr"), std::string::npos) << message;
}

TEST(ParseJob, PipelineIsRefusedBeforeWhatOneRunWouldMiss) {
  const std::string text = "model: {path: m}\noutput: x\npipeline: {kind: summary}\n";
  try {
    parse_job(text, "job.yaml");
    FAIL() << "a pipeline was taken for a run";
  } catch (const InputError& error) {
    EXPECT_EQ(std::string(error.what()).find("input is missing"), std::string::npos);
  }
  const Job round = parse_job(text, "job.yaml", {"pipeline=off", "input=[\"a.h5\"]"});
  EXPECT_EQ(round.input, std::vector<std::filesystem::path>{"a.h5"});
}

TEST(ParseJob, NamesWhatIsMissing) {
  try {
    parse_job("output: x\ninput: [a]\n", "job.yaml");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), "job.yaml: model.path is missing; it is a path, as models/NAME");
  }
  EXPECT_THROW(parse_job("", "job.yaml"), InputError);
  EXPECT_THROW(parse_job("[1, 2]", "job.yaml"), InputError);
  EXPECT_THROW(parse_job("model", "job.yaml"), InputError);
}

TEST(RopeScaling, NeedsTypeAndFactor) {
  for (const char* bad : {"yarn", "{type: yarn}", "{factor: 2}", "{type: llama3, factor: 2}",
                          "{type: yarn, factor: 0.5}", "{type: yarn, factor: 2, extra: 1}",
                          "{type: yarn, factor: inf}"})
    EXPECT_NE(refusal("", {std::string("model.rope_scaling=") + bad}), "") << bad;
  EXPECT_EQ(refusal("", {"model.rope_scaling={factor: 2, type: linear}"}), "");
}

TEST(ParseJob, RefusesOtherFormsOfDrop) {
  for (const char* bad : {"0.951",
                          "-1e-9",
                          "1",
                          "nan",
                          "inf",
                          "\"0.5\"",
                          "half",
                          "[0.5]",
                          "{}",
                          "{file: }",
                          "{file: ''}",
                          "{file: [a]}",
                          "{file: a, share: 0.5}",
                          "{share: 0.5}",
                          "",
                          "20%",
                          "{layers: 0.5}",
                          "{layers: []}",
                          "{layers: [0, []]}",
                          "{layers: [0, 0.96]}",
                          "{layers: [0, [0.1, half]]}",
                          "{layers: [[[0]]]}",
                          "{layers: [0], file: a}"})
    EXPECT_NE(refusal("", {std::string("attention.drop=") + bad}), "") << bad;
}

TEST(ParseJob, RefusesOtherFormsOfPipeline) {
  for (const char* bad : {"[]", "[0]", "[1, 17]", "[1, 2, 4, 8]", "[[1]]", "{2: 4}", "1.5"})
    EXPECT_NE(refusal("", {std::string("attention.pipeline=") + bad}), "") << bad;
}

TEST(ParseJob, RefusesOtherFormsOfTheObjectiveOfAttention) {
  for (const char* bad : {"auto",
                          "loss",
                          "0.0",
                          "{}",
                          "{loss: }",
                          "{loss: -0.1}",
                          "{loss: nan}",
                          "{loss: inf}",
                          "{loss: '0'}",
                          "{loss: off}",
                          "{ttft: }",
                          "{ttft: 0s}",
                          "{ttft: -1s}",
                          "{ttft: 367d}",
                          "{ttft: soon}",
                          "{tbt: 1s}",
                          "{loss: 0, ttft: 1s}",
                          "{loss: 0, extra: 1}",
                          "{retrieval: 0.9}",
                          "{loss: 0, retrieval: 1.1}",
                          "{loss: 0, retrieval: -0.1}",
                          "[loss]",
                          ""})
    EXPECT_NE(refusal("", {std::string("attention.objective=") + bad}), "") << bad;
  EXPECT_NE(refusal("attention: {objective: {loss: 0}}\n", {"attention.objective.ttft=30s"}), "");
}

TEST(Overrides, ReplaceNestedValuesAndLists) {
  const Job job = parse_job(minimal + "generation: {seed: 1, top_k: 5}\n", "job.yaml",
                            {"generation.seed=2", "input=[x.h5, 'y z.h5']", "kv.memory=1GiB",
                             "model.rope_scaling.type=yarn", "model.rope_scaling.factor=2",
                             "generation.stop_token_ids=[1,2]", "generation.seed=3",
                             "attention.drop.file=t.json", "attention.objective.ttft=30s"});
  EXPECT_EQ(job.generation.seed, 3);
  EXPECT_EQ(job.generation.sampling.top_k, 5);
  EXPECT_EQ(job.input, (std::vector<std::filesystem::path>{"x.h5", "y z.h5"}));
  EXPECT_EQ(job.kv.memory, int64_t{1} << 30);
  ASSERT_TRUE(job.model.rope_scaling);
  EXPECT_EQ(job.model.rope_scaling->factor, 2);
  EXPECT_EQ(job.generation.stop_token_ids, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(job.attention.drop, (DropSetting{0, "t.json"}));
  EXPECT_EQ(job.attention.objective, (AttentionGoal{{}, 30.0}));
}

TEST(ParseJob, TakesSlurmsTimesAndSizes) {
  const Job job =
      parse_job(minimal + "limits: {wall_time: 2-00:00:00, grace: 2:30}\nkv: {memory: 12G}\n",
                "job.yaml", {"limits.silence=1:00:00"});
  EXPECT_EQ(job.limits.wall_time_s, 2 * 86400);
  EXPECT_EQ(job.limits.grace_s, 150);
  EXPECT_EQ(job.limits.silence_s, 3600);
  EXPECT_EQ(job.kv.memory, int64_t{12} << 30);
}

TEST(Overrides, AreRefusedByTheirOwnText) {
  EXPECT_EQ(refusal("", {"generation.top_p=2"}),
            "--set generation.top_p=2: generation.top_p is 2; it may be a number above 0, up to 1");
  EXPECT_EQ(refusal("", {"generation.sed=2"}),
            "--set generation.sed=2: unknown key generation.sed; did you mean generation.seed?");
  EXPECT_EQ(refusal("", {"seed"}),
            "--set seed: write it as key.path=value, as in --set generation.seed=7");
  EXPECT_EQ(refusal("", {"a..b=1"}), "--set a..b=1: an empty name in the key");
  EXPECT_EQ(refusal("", {"output="}), "--set output=: output is empty; it may be a path");
}

TEST(HostileYaml, IsRefusedQuickly) {
  std::string bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n";
  for (char name = 'b'; name < 'k'; ++name)
    bomb += fmt::format("{0}: &{0} [*{1}, *{1}, *{1}, *{1}, *{1}, *{1}, *{1}]\n", name,
                        static_cast<char>(name - 1));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_NE(refusal(bomb).find("an anchor"), std::string::npos);
  EXPECT_NE(refusal("x: " + std::string(500'000, '[')).find("nested deeper"), std::string::npos);
  EXPECT_NE(refusal("x: *x").find("not valid YAML"), std::string::npos);
  std::string many;
  for (int i = 0; i < 60'000; ++i) many += fmt::format("key{}: 1\n", i);
  EXPECT_NE(refusal(many).find("unknown key key0"), std::string::npos);
  // Measured: 0.3 s; expanding the bomb would take 7^9 nodes.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

}  // namespace
}  // namespace pecia::job
