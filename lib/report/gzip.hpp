// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Text files packed as gzip, as streams: what they hold never stands in memory as a whole.

#include <filesystem>
#include <iosfwd>
#include <memory>
#include <streambuf>
#include <string>

namespace pecia::report {

/// Packs what is written through it into `to`, as one gzip member.
class GzipBuffer : public std::streambuf {
 public:
  explicit GzipBuffer(std::ostream& to);
  ~GzipBuffer() override;

  /// Writes what is left and the end of the member; afterwards nothing may be written. Whether `to`
  /// took it, its state says.
  void finish();

 protected:
  int_type overflow(int_type byte) override;
  int sync() override { return 0; }  // what is packed leaves when there is enough

 private:
  struct State;
  void pack(bool last);

  std::ostream& to_;
  std::unique_ptr<State> state_;
};

/// Lines of a text file, whether it is packed or not.
class GzipLines {
 public:
  /// A file that is missing has no lines.
  explicit GzipLines(const std::filesystem::path& path);
  ~GzipLines();
  GzipLines(const GzipLines&) = delete;
  GzipLines& operator=(const GzipLines&) = delete;

  /// The next line without its end. False after the last whole line, also where the file is cut
  /// short or damaged.
  bool next(std::string& line);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pecia::report
