// SPDX-License-Identifier: Apache-2.0
#pragma once
/// An open results file as columns: knows where each dataset's data lie, and reads and writes
/// values there.

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/files/disk/file.hpp"
#include "lib/files/hdf5/hdf5.hpp"
#include "lib/files/results/results.hpp"

namespace pecia::io {

/// Uses HDF5 only in the constructor; afterwards the bytes are read and written in place. Datasets
/// have the names of results_datasets(). Indices count elements, also in matrices.
class ResultsColumns {
 public:
  /// Throws InputError unless the file is exactly as ResultsFile::create makes it.
  ResultsColumns(const std::filesystem::path& path, Access access);

  const ResultsLayout& layout() const { return layout_; }
  const File& file() const { return file_; }
  int64_t first_slot(int64_t turn) const { return slots_[turn]; }
  int64_t first_prompt_slot(int64_t turn) const { return prompt_slots_[turn]; }
  int64_t first_vector(int64_t turn) const { return vectors_[turn]; }
  int64_t first_score(int64_t turn) const { return scores_[turn]; }
  int64_t first_score_token(int64_t turn) const { return score_tokens_[turn]; }

  /// Whether the file has `dataset`; files of earlier versions lack some.
  bool has(std::string_view dataset) const { return places_.contains(dataset); }

  TurnState state(int64_t turn) const;
  std::vector<TurnState> states() const;

  template <typename T>
  void put(std::string_view dataset, int64_t index, std::span<const T> values) const {
    file_.write_at(offset_of(dataset, index), std::as_bytes(values));
  }
  template <typename T>
  void put(std::string_view dataset, int64_t index, const T& value) const {
    put(dataset, index, std::span<const T>(&value, 1));
  }
  void put_text(std::string_view dataset, int64_t index, std::string_view text) const;

  template <typename T>
  T get(std::string_view dataset, int64_t index) const {
    T value;
    file_.read_at(offset_of(dataset, index), std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  template <typename T>
  std::vector<T> get(std::string_view dataset, int64_t index, int64_t count) const {
    std::vector<T> values(count);
    if (count > 0)
      file_.read_at(offset_of(dataset, index), std::as_writable_bytes(std::span(values)));
    return values;
  }
  std::string get_text(std::string_view dataset, int64_t index) const;

 private:
  struct Place {
    int64_t offset = 0;
    int64_t element_bytes = 0;
  };

  explicit ResultsColumns(File file);
  ResultsColumns(const Hdf5File& hdf5, File&& file);
  void locate(const Hdf5File& hdf5);
  TurnState checked_state(uint8_t value, int64_t turn) const;
  const Place& place(std::string_view dataset) const;
  int64_t offset_of(std::string_view dataset, int64_t index) const;

  ResultsLayout layout_;
  File file_;
  std::map<std::string_view, Place> places_;
  std::vector<int64_t> slots_, prompt_slots_, vectors_, scores_, score_tokens_;
};

}  // namespace pecia::io
