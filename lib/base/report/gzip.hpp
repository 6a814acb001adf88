// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Streams of text files packed as gzip. The contents never stand in memory as a whole.

#include <filesystem>
#include <iosfwd>
#include <memory>
#include <streambuf>
#include <string>

namespace pecia::report {

/// Packs the text written to it into `to`, as one gzip member.
class GzipBuffer : public std::streambuf {
 public:
  explicit GzipBuffer(std::ostream& to);
  ~GzipBuffer() override;

  /// Writes the remaining data and the end of the member; nothing may be written afterwards. The
  /// state of `to` says whether it took the data.
  void finish();

 protected:
  int_type overflow(int_type byte) override;
  int sync() override { return 0; }  // packed bytes are written when enough have gathered

 private:
  struct State;
  void pack(bool last);

  std::ostream& to_;
  std::unique_ptr<State> state_;
};

/// Reads lines of a text file, packed or not.
class GzipLines {
 public:
  /// A missing file has no lines.
  explicit GzipLines(const std::filesystem::path& path);
  ~GzipLines();
  GzipLines(const GzipLines&) = delete;
  GzipLines& operator=(const GzipLines&) = delete;

  /// Reads the next line without its end. Returns false after the last complete line, also when the
  /// file is cut short or damaged.
  bool next(std::string& line);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pecia::report
