// SPDX-License-Identifier: Apache-2.0
#include "tests/bad_input/parsers.hpp"

#include <array>
#include <bit>
#include <cstring>
#include <fstream>
#include <iterator>
#include <numeric>
#include <stdexcept>

#include "lib/files/checkpoint/safetensors.hpp"
#include "lib/files/prompts/prompts.hpp"
#include "lib/files/results/results.hpp"
#include "lib/files/text/answer_text.hpp"
#include "lib/work/job/job.hpp"
#include "tests/io/results_samples.hpp"
#include "tests/support/safetensors_writer.hpp"
#include "tests/support/shards.hpp"

namespace pecia::test {
namespace {

namespace fs = std::filesystem;

std::string bytes_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

size_t whole(const std::string& seed) {
  return seed.size();
}

ShardContent small_shard(Strings strings) {
  ShardContent content;
  content.requests = {{"first", {{{5, 6, 7}}, {{8}}}}, {"second", {{{9, 10}}}}};
  content.strings = strings;
  return content;
}

std::vector<std::string> prompt_seeds(const fs::path& folder) {
  write_shard(folder / "fixed", small_shard(Strings::fixed_length));
  write_shard(folder / "variable", small_shard(Strings::variable_length));
  ShardContent full = small_shard(Strings::fixed_length);
  full.followup = "fork";
  full.tokenizer_sha256 = std::string(64, 'a');
  full.created_by = "a test";
  full.vocab_size = 32;
  full.max_new_tokens = {1, 2, 3};
  full.temperature = {0, 0.5f, 1};
  full.top_p = {1, 0.5f, 0.25f};
  full.seed = {1, -2, 3};
  full.stop = {R"(["\n\n", "\u00e9"])", "", "[]"};
  full.arrival_s = {0, 1.5};
  write_shard(folder / "full", full);
  write_shard(folder / "compressed", small_shard(Strings::fixed_length));
  Hdf5Editor(folder / "compressed").set_compressed("tokens", {5, 6, 7, 8, 9, 10});
  std::vector<std::string> seeds;
  for (const char* name : {"fixed", "variable", "full", "compressed"})
    seeds.push_back(bytes_of(folder / name));
  return seeds;
}

void read_prompts(const fs::path& path) {
  const io::PromptShard shard(path);
  shard.followup();
  shard.tokenizer_sha256();
  shard.vocab_size();
  shard.created_by();
  for (const io::PromptRequest& request : shard.requests())
    for (const io::PromptTurn& turn : request.turns) shard.tokens(turn);
}

std::vector<std::string> results_seeds(const fs::path& folder) {
  std::vector<std::string> seeds;
  for (const auto& [logprobs, prompt_logprobs] :
       {std::pair(0, 0), std::pair(2, 1), std::pair(-1, -1)}) {
    const fs::path path = folder / ("results" + std::to_string(logprobs));
    const io::ResultsLayout layout = sample_layout(5, logprobs, prompt_logprobs);
    io::ResultsFile::create(path, layout);
    io::ResultsFile file(path);
    file.write(1, sample_result(layout, 1, 7), io::TurnState::done);
    file.write(2, sample_result(layout, 2, 2), io::TurnState::partial);
    file.write(4, sample_result(layout, 4, 0), io::TurnState::failed);
    seeds.push_back(bytes_of(path));
  }
  return seeds;
}

/// As a run continues it, and as `pecia inspect` reads it.
void read_results(const fs::path& path) {
  const io::ResultsFile file(path, io::Access::write);
  for (int64_t turn = 0; turn < file.num_turns(); ++turn)
    if (file.state(turn) != io::TurnState::open) file.read(turn);
}

std::vector<std::string> job_seeds(const fs::path&) {
  return {job::default_yaml(), R"(# A job with most kinds of values.
model: {path: model, dtype: auto, compute: fp32, rope_scaling: {type: yarn, factor: 2.0}}
input:
  - prompts/*.h5
  - 'a b.h5'
output: "run\u00e9"
parallel: {dp: 1, cp: auto}
attention: {sparse: csa, drop: {file: tuned.json}, objective: {ttft: 30s}}
generation:
  max_new_tokens: 3
  temperature: 5.0e-1
  stop_token_ids: [2, 3]
  ignore_eos: false
  seed: -9223372036854775808
kv: {dtype: "bf16", memory: 1.5GiB}
limits: {wall_time: 1h30m, grace: 60s}
)"};
}

/// What is accepted is written and read again without a change.
void read_job(const fs::path& path) {
  const job::Job job = job::read_job(path);
  const std::string text = job::to_yaml(job);
  if (job::to_yaml(job::parse_job(text, "again")) != text)
    throw std::logic_error("its job changes when it is written and read again");
}

std::vector<std::string> safetensors_seeds(const fs::path& folder) {
  std::vector<float> values(24);
  std::iota(values.begin(), values.end(), 0.5f);
  const std::span<const float> six(values.data(), 6);
  write_safetensors(folder / "several",
                    {float_tensor("model.embed.weight", DType::fp32, {4, 6}, values),
                     float_tensor("model.layers.0.w", DType::bf16, {2, 3}, six),
                     float_tensor("lm_head", DType::fp16, {6}, six)});
  write_safetensors(folder / "odd", {float_tensor("a", DType::fp32, {1, 1, 2, 3}, six)}, 1);
  write_raw_safetensors(
      folder / "meta",
      R"({"__metadata__": {"format": "pt"}, "é": {"dtype": "I64", "shape": [], )"
      R"("data_offsets": [0, 8]}, "b": {"dtype": "U8", "shape": [0, 7], "data_offsets": [8, 8]}})",
      8);
  return {bytes_of(folder / "several"), bytes_of(folder / "odd"), bytes_of(folder / "meta")};
}

size_t safetensors_head(const std::string& seed) {
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, seed.data(), sizeof header_bytes);
  return sizeof header_bytes + header_bytes;
}

void read_safetensors(const fs::path& path) {
  const io::Checkpoint checkpoint(path.parent_path());
  checkpoint.index_sha256();
  checkpoint.total_bytes();
  uint8_t sum = 0;
  for (const std::string& name : checkpoint.names()) {
    const TensorView tensor = checkpoint.tensor(name);
    const auto* bytes = static_cast<const uint8_t*>(tensor.data());
    for (int64_t i = 0; i < tensor.elements() * size_of(tensor.dtype()); ++i)
      sum = static_cast<uint8_t>(sum + bytes[i]);
  }
  volatile uint8_t used = sum;
  static_cast<void>(used);
}

std::vector<std::string> tokenizer_seeds(const fs::path&) {
  return {R"({"added_tokens": [{"id": 0, "content": "</s>", "special": true}],
"decoder": {"type": "ByteLevel"},
"model": {"type": "BPE", "vocab": {"a": 1, "Ġé": 2, "Ã": 3}, "merges": [["a", "b"], "c d"]}})",
          R"({"decoder": {"type": "Sequence", "decoders": [
{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
{"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
"model": {"vocab": {"▁a": 0, "<0x0A>": 1, "<0xC3>": 2, "▁": 3}}})",
          R"({"decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
"model": {"type": "BPE", "vocab": {"▁a": 3, "b": 1}}})"};
}

void read_tokenizer(const fs::path& path) {
  const io::Detokenizer detokenizer(path);
  for (int32_t first = -1; first < 6; ++first) {
    io::AnswerText answer(detokenizer);
    for (int32_t token = first; token < 6; ++token) answer.read(token);
  }
}

using std::string_view_literals::operator""sv;
constexpr std::array yaml_words = {
    "{"sv,      "}"sv,    "["sv,     "]"sv,   ": "sv,
    "- "sv,     "\n"sv,   "\n  "sv,  "&a "sv, "*a"sv,
    "!!int "sv, "<<: "sv, "|\n"sv,   ">"sv,   "\""sv,
    "'"sv,      "#"sv,    "---\n"sv, "? "sv,  "%YAML 9\n"sv,
    "null"sv,   "auto"sv, "1e999"sv, "-1"sv,  "9223372036854775808"sv,
    ".nan"sv,   "0x10"sv, "1GiB"sv,  "\t"sv,  "\xff"sv,
    "\0"sv};
constexpr std::array json_words = {"{"sv,
                                   "}"sv,
                                   "["sv,
                                   "]"sv,
                                   ":"sv,
                                   ","sv,
                                   "\""sv,
                                   "\\u0000"sv,
                                   "\\ud800"sv,
                                   "-1"sv,
                                   "1e999"sv,
                                   "18446744073709551615"sv,
                                   "9223372036854775807"sv,
                                   "4294967296"sv,
                                   "null"sv,
                                   "\"F8_E4M3\""sv,
                                   "\"BF16\""sv,
                                   "\"shape\""sv,
                                   "\"data_offsets\""sv,
                                   "[[[[[[[["sv,
                                   "\xff"sv,
                                   "\0"sv};

}  // namespace

const std::vector<Parser>& parsers() {
  static const std::vector<Parser> all = {
      {"prompts", {{}, true}, prompt_seeds, whole, "a.h5", read_prompts},
      {"results", {{}, true}, results_seeds, whole, "results.h5", read_results},
      {"job", {yaml_words, false}, job_seeds, whole, "job.yaml", read_job},
      {"safetensors",
       {json_words, false},
       safetensors_seeds,
       safetensors_head,
       "model.safetensors",
       read_safetensors},
      {"tokenizer", {json_words, false}, tokenizer_seeds, whole, "tokenizer.json", read_tokenizer},
  };
  return all;
}

}  // namespace pecia::test
