// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Writes prompt shards for tests, whole or broken, through the HDF5 C API alone: what the reader
/// is tested with does not come from the reader's own code.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace pecia::test {

struct ShardTurn {
  std::vector<int32_t> tokens;
};

struct ShardRequest {
  std::string id;
  std::vector<ShardTurn> turns;
};

enum class Strings { fixed_length, variable_length };

struct ShardContent {
  std::vector<ShardRequest> requests;
  /// Root attributes, absent when empty or zero.
  std::string schema = "pecia.prompts/1", followup, tokenizer_sha256, created_by;
  int64_t vocab_size = 0;
  /// Optional datasets, absent when empty: per turn, and arrival_s per request.
  std::vector<int32_t> max_new_tokens;
  std::vector<float> temperature, top_p, min_p;
  std::vector<float> repetition_penalty, presence_penalty, frequency_penalty;
  std::vector<int32_t> top_k, ignore_eos, logprobs;
  std::vector<int64_t> logit_bias_offsets;
  std::vector<int32_t> logit_bias_tokens;
  std::vector<float> logit_bias;
  std::vector<int64_t> seed;
  std::vector<std::string> stop;
  std::vector<double> arrival_s;
  Strings strings = Strings::fixed_length;
};

/// The tokens 1, 2, … count.
std::vector<int32_t> ascending(int32_t count);

/// Makes the shard in place of a file that may be there.
void write_shard(const std::filesystem::path& path, const ShardContent& content);

/// Any HDF5 file: opens an existing one or makes it, and replaces what is named. Closed on
/// destruction.
class Hdf5Editor {
 public:
  explicit Hdf5Editor(const std::filesystem::path& path);
  ~Hdf5Editor();
  Hdf5Editor(const Hdf5Editor&) = delete;
  Hdf5Editor& operator=(const Hdf5Editor&) = delete;

  void remove(const char* dataset);
  void set(const char* dataset, const std::vector<uint8_t>& values);
  void set(const char* dataset, const std::vector<int16_t>& values);
  void set(const char* dataset, const std::vector<int32_t>& values);
  void set(const char* dataset, const std::vector<int64_t>& values);
  void set(const char* dataset, const std::vector<uint64_t>& values);
  void set(const char* dataset, const std::vector<float>& values);
  void set(const char* dataset, const std::vector<double>& values);
  void set(const char* dataset, const std::vector<std::string>& values, Strings strings);
  /// [rows, columns] of zeros.
  void set_matrix(const char* dataset, int64_t rows, int64_t columns);
  /// Chunked int32 of which no chunk is written.
  void set_unwritten(const char* dataset, int64_t rows);
  /// Chunked and deflated.
  void set_compressed(const char* dataset, const std::vector<int32_t>& values);

  void set_attribute(const char* name, const std::string& text, Strings strings);
  void set_attribute(const char* name, int64_t value);

 private:
  void set_values(const char* dataset, int64_t type, const void* values, size_t count);

  int64_t file_;
};

}  // namespace pecia::test
