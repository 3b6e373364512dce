#include "config/document.hpp"

#include <algorithm>
#include <cctype>

#include "base/format.hpp"
#include "base/split.hpp"
#include "config/readers.hpp"

namespace dslaunch::config {
namespace {

// Length of the UTF-8 character at `at`; 0: not one (too short, overlong, a surrogate, out of range, a zero byte).
size_t utf8_length(std::string_view text, size_t at) {
  auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  unsigned lead = byte(at);
  if (lead < 0x80) return lead == 0 ? 0 : 1;
  size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  uint32_t code = lead & (0xFFu >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return 0;
    code = code << 6 | (byte(at + i) & 0x3F);
  }
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  bool wrong = code < kSmallest[length] || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF);
  return wrong ? 0 : length;
}

ReadResult only(Position position, std::string message) {
  return {std::nullopt, {{position, std::move(message)}}};
}

std::string_view kind_of_binary(std::string_view text) {
  if (text.substr(0, 4) == "PK\x03\x04") return ": it is a zip archive, as models and checkpoints are";
  if (text.substr(0, 2) == "\xFF\xFE" || text.substr(0, 2) == "\xFE\xFF") return ": it is UTF-16; save it as UTF-8";
  if (text.substr(0, 2) == "\x1F\x8B") return ": it is compressed by gzip";
  return "";
}

bool is_toml_name(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.' || c == ' ';
  });
}

// "[training]" or "steps = 10", which is no HJSON: the first line that is neither empty nor a comment.
std::string first_line_of_toml(std::string_view text) {
  for (auto line : split(text, '\n')) {
    while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back())) != 0) line.pop_back();
    line.erase(0, std::min(line.find_first_not_of(" \t"), line.size()));
    if (line.empty() || line.front() == '#') continue;
    const std::string_view inner = line;
    const bool is_table = line.size() > 2 && line.front() == '[' && line.back() == ']' &&
                          std::isalpha(static_cast<unsigned char>(line[1])) != 0 &&
                          is_toml_name(inner.substr(1, line.size() - 2));
    const size_t equals = line.find('=');
    return is_table || (equals != line.npos && is_toml_name(inner.substr(0, equals))) ? line : "";
  }
  return {};
}

}  // namespace

Format format_of(std::string_view file_name) {
  std::string lower(file_name);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  auto ends_with = [&](std::string_view end) { return lower.size() >= end.size() && lower.ends_with(end); };
  return ends_with(".yaml") || ends_with(".yml") ? Format::kYaml : Format::kHjson;
}

bool is_config_text(std::string_view argument) {
  const size_t first = argument.find_first_not_of(" \t\r\n");
  return argument.find('\n') != argument.npos || (first != argument.npos && argument[first] == '{');
}

Format format_of_text(std::string_view text) {
  for (;;) {
    const size_t first = text.find_first_not_of(" \t\r\n");
    if (first == text.npos) return Format::kYaml;
    text.remove_prefix(first);
    std::string_view end = text.starts_with("#") || text.starts_with("//") ? "\n" : "";
    if (text.starts_with("/*")) end = "*/";
    if (end.empty()) return text.starts_with("{") ? Format::kHjson : Format::kYaml;
    text.remove_prefix(std::min(text.find(end), text.size() - end.size()) + end.size());
  }
}

Position first_non_text(std::string_view text) {
  Position position{1, 1};
  for (size_t at = 0; at < text.size();) {
    size_t length = utf8_length(text, at);
    if (length == 0) return position;
    if (text[at] == '\n') {
      position = {position.line + 1, 1};
    } else {
      ++position.column;
    }
    at += length;
  }
  return {};
}

ReadResult read_document(std::string_view text, Format format) {
  constexpr std::string_view kEmpty = "the file has no object; write {} to use every default, or see docs/config.md";
  if (text.size() > kMaxBytes) {
    return only({1, 1}, fmt::format("{} bytes are too many for a job file (at most {})", text.size(), kMaxBytes));
  }
  if (text.substr(0, 3) == "\xEF\xBB\xBF") text.remove_prefix(3);
  if (Position bad = first_non_text(text); bad.line > 0) {
    return only(bad, fmt::format("not a text file (UTF-8){}", kind_of_binary(text)));
  }
  auto blank = [](unsigned char c) { return std::isspace(c) != 0; };
  if (std::all_of(text.begin(), text.end(), blank)) return only({1, 1}, fmt::format("empty: {}", kEmpty));

  if (const auto line = format == Format::kHjson ? first_line_of_toml(text) : ""; !line.empty()) {
    return only({1, 1}, fmt::format("this is TOML ({}), as torchtitan's configs are; a job file is JSON, HJSON or YAML "
                                    "with DeepSpeed's keys and those of docs/config.md",
                                    line.substr(0, 60)));
  }
  ReadResult result = format == Format::kYaml ? read_yaml(text) : read_hjson(text);
  if (result.root && !result.root->is_object()) {
    Position position = result.root->position.line > 0 ? result.root->position : Position{1, 1};
    result.problems.push_back({position, result.root->is_null() ? fmt::format("empty: {}", kEmpty)
                                                                : fmt::format("expected an object with keys, got {}",
                                                                              describe(*result.root))});
    result.root.reset();
  }
  if (!result.root && result.problems.empty()) return only({1, 1}, fmt::format("empty: {}", kEmpty));
  return result;
}

}  // namespace dslaunch::config
