// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Options of a command line, as data. CLI11 parses them. Its templates take ten seconds to compile
/// in each source that includes them, so only sources that parse do.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace CLI {
class App;
}

namespace pecia::command_line {

/// A number of bytes, written with or without a unit: 64KiB is 65536.
struct Size {
  uint64_t* bytes;
};

/// The variable that receives a value; its type decides how the value is read. A bool is a flag.
/// Numbers of a list are separated by commas; an option with a list of texts may be repeated. The
/// variable must outlive the parsing.
using Target = std::variant<bool*, int*, std::optional<int>*, int64_t*, uint64_t*,
                            std::optional<double>*, Size, std::string*, std::filesystem::path*,
                            std::vector<int64_t>*, std::vector<double>*, std::vector<std::string>*>;

enum class Sign { any, positive, not_negative };
enum class Exists { either, file, folder };

struct Option {
  std::string name;  ///< "--threads"; without dashes: a positional argument
  Target into;
  std::string help;
  std::string type = {};  ///< name of a value in the help, "JOB.yaml"; "": CLI11's name
  bool required = false;
  bool show_default = false;
  Sign sign = Sign::any;
  Exists exists = Exists::either;
  std::optional<std::pair<double, double>> range =
      {};                                 ///< for int, optional numbers and lists of numbers
  std::vector<std::string> among = {};    ///< allowed words; empty: any
  std::string needs = {}, excludes = {};  ///< another option's name
};

void add_option(CLI::App& app, const Option& option);

/// Adds a subcommand to `app`. Parsing calls `chosen` when the arguments name this subcommand.
CLI::App& add_command(CLI::App& app, const std::string& name, const std::string& description,
                      const std::string& footer, const std::function<void()>& chosen);

}  // namespace pecia::command_line
