// SPDX-License-Identifier: Apache-2.0
#include "lib/files/text/detokenizer.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>

#include "lib/base/core/error.hpp"
#include "lib/base/core/json.hpp"
#include "lib/files/disk/file.hpp"
#include "lib/files/disk/strict_json.hpp"

namespace pecia::io {
namespace {

using nlohmann::json;

constexpr int64_t max_file_bytes = int64_t{1} << 28;  // the largest known have 40 MB
constexpr int64_t max_tokens = 10'000'000;            // the largest known have 300 thousand
// What a decoder makes of a token is bounded, too: "a" can become a thousand others, which the next one replaces again.
constexpr size_t max_token_bytes = 4096;  // of a token's text; the longest known have 1 kB
constexpr size_t max_text_bytes = size_t{1} << 26;  // of all tokens; the largest known have 4 MB
constexpr size_t max_decoders = 64;                 // the most known are 5
constexpr const char* remedy = "download or save the model again, or leave stop strings out";

/// The decoders of a tokenizer.json, in the order in which they are applied.
struct Decoders {
  struct Replace {
    std::string from, to;
    bool dropped_in_first = false;  ///< Metaspace with a blank before the text
  };
  std::vector<Replace> replaces;
  bool byte_level = false, byte_fallback = false, fuse = false;
  int64_t strip_first = 0;
  char stripped = ' ';
};

class TokenizerJson {
 public:
  explicit TokenizerJson(const std::filesystem::path& path) : path_(path.string()) {
    const File file = File::open_input(path);
    if (file.size() > max_file_bytes)
      fail<InputError>("{}: {} bytes, more than the {} of any tokenizer: {}", path_, file.size(),
                       max_file_bytes, remedy);
    std::string text(file.size(), '\0');
    file.read_at(0, std::as_writable_bytes(std::span(text)));
    root_ = parse_strict_json(path, text, "merges");
    if (!root_.is_object()) wrong("its JSON is no object");
  }

  /// Calls `take` with each token's id and text. For one id, later texts in the file replace
  /// earlier ones.
  void for_each_token(const std::function<void(int64_t, const std::string&)>& take) const {
    const json& model = member(root_, "model");
    const json& vocab = member(model, "vocab");
    const std::string type = model.contains("type") ? text_of(model, "type") : "BPE";
    if (type != "BPE") unsupported(fmt::format("the model type '{:.60}'", type), "BPE");
    if (!vocab.is_object()) wrong("model.vocab is no object");
    for (const auto& [text, id] : vocab.items()) take(number(id, "token id"), text);
    for (const json& token : added_tokens())
      take(number(member(token, "id"), "token id"), text_of(token, "content"));
  }

  /// Throws where the text of a token, or of all up to it, is longer than any model's.
  void check_length(int64_t id, size_t bytes, size_t bytes_of_all) const {
    if (bytes > max_token_bytes)
      wrong(fmt::format("the text of token {} has more than {} bytes, which no tokenizer needs", id,
                        max_token_bytes));
    if (bytes_of_all > max_text_bytes)
      wrong(
          fmt::format("the texts of its tokens have more than {} bytes together, which no "
                      "tokenizer needs",
                      max_text_bytes));
  }

  /// Texts of the tokens that are not part of an answer's text.
  std::unordered_set<std::string> special_texts() const {
    std::unordered_set<std::string> texts;
    for (const json& token : added_tokens())
      if (token.contains("special") && token["special"] == true)
        texts.insert(text_of(token, "content"));
    return texts;
  }

  Decoders decoders() const {
    Decoders found;
    const auto decoder = root_.find("decoder");
    if (decoder == root_.end() || decoder->is_null())
      unsupported("no decoder", "ByteLevel, or a Sequence with ByteFallback");
    add_decoder(*decoder, found);
    return found;
  }

 private:
  [[noreturn]] void wrong(const std::string& what) const {
    fail<InputError>("{}: {}: {}", path_, what, remedy);
  }
  [[noreturn]] void unsupported(const std::string& what, const char* known) const {
    fail<Unsupported>(
        "{}: it has {}, for which stop strings are not in this version, which knows {}; use "
        "generation.stop_token_ids",
        path_, what, known);
  }

  const json& member(const json& object, const char* key) const {
    if (!object.is_object() || !object.contains(key)) wrong(fmt::format("it has no '{}'", key));
    return object[key];
  }
  std::string text_of(const json& object, const char* key) const {
    const json& value = member(object, key);
    if (!value.is_string()) wrong(fmt::format("'{}' is no text", key));
    return value.get<std::string>();
  }
  int64_t number(const json& value, const char* what) const {
    if (!value.is_number_unsigned() || value.get<uint64_t>() >= max_tokens)
      wrong(fmt::format("{:.60} is no {}", json_text(value), what));
    return value.get<int64_t>();
  }

  json added_tokens() const {
    const auto found = root_.find("added_tokens");
    if (found == root_.end() || found->is_null()) return json::array();
    if (!found->is_array()) wrong("added_tokens is no list");
    return *found;
  }

  void add_decoder(const json& decoder, Decoders& found) const {
    const std::string type = text_of(decoder, "type");
    const auto only_before_fuse = [&] {
      if (found.fuse) unsupported(fmt::format("a decoder {} after Fuse", type), "it before Fuse");
    };
    if (found.replaces.size() == max_decoders)
      wrong(fmt::format("it has more than {} decoders that replace text", max_decoders));
    if (found.byte_level) unsupported("a decoder after ByteLevel", "ByteLevel alone");
    if (type == "Sequence") {
      const json& decoders = member(decoder, "decoders");
      if (!decoders.is_array()) wrong("'decoders' is no list");
      for (const json& each : decoders) add_decoder(each, found);
    } else if (type == "ByteLevel") {
      if (!found.replaces.empty() || found.byte_fallback || found.fuse)
        unsupported("a decoder ByteLevel after others", "ByteLevel alone");
      found.byte_level = true;
    } else if (type == "Replace") {
      only_before_fuse();
      const json& pattern = member(decoder, "pattern");
      if (!pattern.is_object() || !pattern.contains("String"))
        unsupported("a decoder Replace of a regular expression", "Replace of a text");
      found.replaces.push_back({text_of(pattern, "String"), text_of(decoder, "content")});
      if (found.replaces.back().from.empty()) wrong("a decoder Replace replaces nothing");
      if (found.byte_fallback)
        unsupported("a decoder Replace after ByteFallback", "Replace before it");
    } else if (type == "Metaspace") {
      only_before_fuse();
      if (found.byte_fallback)
        unsupported("a decoder Metaspace after ByteFallback", "Metaspace before it");
      found.replaces.push_back({text_of(decoder, "replacement"), " ", has_blank_before(decoder)});
      if (found.replaces.back().from.empty()) wrong("a decoder Metaspace replaces nothing");
    } else if (type == "ByteFallback") {
      only_before_fuse();
      found.byte_fallback = true;
    } else if (type == "Fuse") {
      found.fuse = true;
    } else if (type == "Strip") {
      if (!found.fuse) unsupported("a decoder Strip before Fuse", "Strip after Fuse");
      add_strip(decoder, found);
    } else {
      unsupported(fmt::format("a decoder '{:.60}'", type),
                  "ByteLevel, Replace, Metaspace, ByteFallback, Fuse and Strip");
    }
  }

  bool has_blank_before(const json& metaspace) const {
    if (metaspace.contains("prepend_scheme"))
      return text_of(metaspace, "prepend_scheme") != "never";
    return !metaspace.contains("add_prefix_space") || metaspace["add_prefix_space"] != false;
  }

  void add_strip(const json& decoder, Decoders& found) const {
    const std::string content = text_of(decoder, "content");
    const int64_t start = number(member(decoder, "start"), "number of characters");
    if (found.strip_first != 0) unsupported("two decoders Strip", "one");
    if (member(decoder, "stop") != 0)
      unsupported("a decoder Strip at the end of the text", "Strip at its beginning");
    if (content.size() != 1)
      unsupported("a decoder Strip of another character", "Strip of a blank");
    found.strip_first = start;
    found.stripped = content.front();
  }

  std::string path_;
  json root_;
};

/// The code points that ByteLevel writes for bytes, indexed by byte. Printable ones are unchanged,
/// the others are numbered from 256 on.
std::array<int, 256> byte_level_code_points() {
  std::array<int, 256> code_points{};
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) ||
                           (byte >= 0xae && byte <= 0xff);
    code_points[byte] = printable ? byte : next++;
  }
  return code_points;
}

/// The bytes that a token of a ByteLevel vocabulary means. A text with any other character, such as
/// a blank in an added token, means itself.
std::string byte_level_bytes(const std::string& text) {
  static const auto byte_of = [] {
    std::array<int, 512> bytes;
    bytes.fill(-1);
    const auto code_points = byte_level_code_points();
    for (int byte = 0; byte < 256; ++byte) bytes[code_points[byte]] = byte;
    return bytes;
  }();
  std::string bytes;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto lead = static_cast<unsigned char>(text[i]);
    size_t code_point = lead;
    if (lead >= 0x80) {
      if (lead >= 0xe0) return text;  // at least 3 bytes: the code point is beyond 511
      code_point = (lead & 0x1fu) << 6 | (static_cast<unsigned char>(text[++i]) & 0x3fu);
    }
    if (code_point >= byte_of.size() || byte_of[code_point] < 0) return text;
    bytes += static_cast<char>(byte_of[code_point]);
  }
  return bytes;
}

/// Ends early where the result is longer than any token's.
std::string replaced(const std::string& text, const std::string& from, const std::string& to) {
  std::string result;
  size_t end = 0;
  for (size_t at = text.find(from); at != std::string::npos && result.size() <= max_token_bytes;
       at = text.find(from, end)) {
    result.append(text, end, at - end).append(to);
    end = at + from.size();
  }
  return result.append(text, end);
}

/// The byte in a name like "<0x0A>".
std::optional<uint8_t> named_byte(const std::string& text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text.back() != '>') return {};
  uint8_t byte = 0;
  const auto [end, error] = std::from_chars(text.data() + 3, text.data() + 5, byte, 16);
  if (error != std::errc() || end != text.data() + 5) return {};
  return byte;
}

}  // namespace

Detokenizer::Detokenizer(const std::filesystem::path& tokenizer_json) {
  const TokenizerJson from(tokenizer_json);
  const Decoders decoders = from.decoders();
  joins_bytes_ = decoders.byte_level;
  strip_first_ = decoders.strip_first;
  stripped_ = decoders.stripped;
  const bool drops = std::any_of(decoders.replaces.begin(), decoders.replaces.end(),
                                 [](const auto& replace) { return replace.dropped_in_first; });
  const std::unordered_set<std::string> special = from.special_texts();

  size_t bytes_of_all = 0;
  from.for_each_token([&](int64_t id, const std::string& text) {
    from.check_length(id, text.size(), bytes_of_all);
    if (id >= static_cast<int64_t>(kinds_.size())) {
      kinds_.resize(id + 1, Kind::none);
      bytes_.resize(id + 1);
      if (drops) first_bytes_.resize(id + 1);
    }
    kinds_[id] = special.contains(text) ? Kind::none : Kind::text;
    std::string& bytes = bytes_[id] = decoders.byte_level ? byte_level_bytes(text) : text;
    std::string first = bytes;
    for (const Decoders::Replace& replace : decoders.replaces) {
      bytes = replaced(bytes, replace.from, replace.to);
      first = replaced(first, replace.from, replace.dropped_in_first ? "" : replace.to);
      from.check_length(id, std::max(bytes.size(), first.size()), bytes_of_all);
    }
    bytes_of_all += bytes.size() + (drops ? first.size() : 0);
    from.check_length(id, bytes.size(), bytes_of_all);
    if (drops) first_bytes_[id] = std::move(first);
    if (!decoders.byte_fallback || kinds_[id] == Kind::none) return;
    if (const auto byte = named_byte(bytes)) {
      kinds_[id] = Kind::byte;
      bytes.assign(1, static_cast<char>(*byte));
      if (drops) first_bytes_[id] = bytes;
    }
  });
}

Detokenizer::Piece Detokenizer::piece_of(const std::vector<std::string>& bytes,
                                         int32_t token) const {
  if (token < 0 || token >= static_cast<int64_t>(kinds_.size())) return {};
  return {kinds_[token], bytes[token]};
}

Detokenizer::Piece Detokenizer::piece(int32_t token) const {
  return piece_of(bytes_, token);
}

Detokenizer::Piece Detokenizer::first_piece(int32_t token) const {
  return piece_of(first_bytes_.empty() ? bytes_ : first_bytes_, token);
}

}  // namespace pecia::io
