#include "launch/plan/env_file.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/result.hpp"

namespace dslaunch::launch {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr int kMaxErrors = 10;

bool is_blank(char c) {
  return c == ' ' || c == '\t';
}

bool begins_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

bool in_name(char c) {
  return begins_name(c) || (c >= '0' && c <= '9') || c == '.' || c == '-';
}

struct SyntaxError {
  size_t offset;
  std::string what;
};

using Assignment = std::optional<std::pair<std::string, std::string>>;

// Keeps the first error, which moves the reader to the end of the line; later errors are its consequences.
class LineReader {
 public:
  explicit LineReader(std::string_view line) : line_(line) {}

  // Empty for a line without an assignment.
  Result<Assignment, SyntaxError> read() {
    Assignment assignment = read_assignment();
    if (error_) return Failure{std::move(*error_)};
    return assignment;
  }

 private:
  Assignment read_assignment() {
    if (size_t zero = line_.find('\0'); zero != std::string_view::npos) {
      fail(zero, "a zero byte; is this a text file?");
      return {};
    }
    skip_blanks();
    if (at_end() || peek() == '#') return {};
    skip_export();
    std::string name = read_name();
    skip_blanks();
    if (at_end() || peek() != '=') {
      fail(at_, fmt::format("'=' is missing; write {}=VALUE", name));
      return {};
    }
    ++at_;
    skip_blanks();
    return std::pair{std::move(name), read_value()};
  }

  void fail(size_t offset, std::string what) {
    if (!error_) error_ = SyntaxError{offset, std::move(what)};
    at_ = line_.size();
  }
  bool at_end() const { return at_ >= line_.size(); }
  char peek() const { return line_[at_]; }
  void skip_blanks() {
    while (!at_end() && is_blank(peek())) ++at_;
  }

  // "export" may also be a variable's name: "export=1".
  void skip_export() {
    constexpr std::string_view kWord = "export";
    std::string_view rest = line_.substr(at_);
    if (!rest.starts_with(kWord) || rest.size() == kWord.size() || !is_blank(rest[kWord.size()])) return;
    size_t next = rest.find_first_not_of(" \t", kWord.size());
    if (next != std::string_view::npos && rest[next] == '=') return;
    at_ += kWord.size();
    skip_blanks();
  }

  std::string read_name() {
    size_t begin = at_;
    if (at_end() || !begins_name(peek())) fail(at_, "expected a variable name: NAME=VALUE");
    while (!at_end() && in_name(peek())) ++at_;
    if (!at_end() && peek() != '=' && !is_blank(peek())) {
      fail(at_, fmt::format("'{}' is not allowed in a variable name", peek()));
    }
    return std::string(line_.substr(begin, at_ - begin));
  }

  std::string read_value() {
    if (at_end()) return {};
    if (peek() != '\'' && peek() != '"') return read_plain();
    size_t begin = at_;
    std::string value = peek() == '"' ? read_double_quoted() : read_single_quoted();
    size_t behind = at_;
    skip_blanks();
    if (at_end() || peek() == '#') return value;
    fail(behind,
         fmt::format("unexpected text after the value, which ends with the quote that began in column {}", begin + 1));
    return {};
  }

  std::string read_plain() {
    size_t begin = at_;
    while (!at_end() && !(peek() == '#' && is_blank(line_[at_ - 1]))) ++at_;
    // "NAME= # comment" has an empty value.
    if (begin < line_.size() && line_[begin] == '#' && is_blank(line_[begin - 1])) return {};
    std::string_view value = line_.substr(begin, at_ - begin);
    while (!value.empty() && is_blank(value.back())) value.remove_suffix(1);
    return std::string(value);
  }

  std::string refuse_open_quote(size_t begin) {
    fail(begin, fmt::format("the quote {} is not closed on this line", line_[begin]));
    return {};
  }

  std::string read_single_quoted() {
    size_t begin = at_, close = line_.find('\'', begin + 1);
    if (close == std::string_view::npos) return refuse_open_quote(begin);
    at_ = close + 1;
    return std::string(line_.substr(begin + 1, close - begin - 1));
  }

  std::string read_double_quoted() {
    size_t begin = at_++;
    std::string value;
    for (; !at_end() && peek() != '"'; ++at_) {
      if (peek() == '\\' && at_ + 1 < line_.size()) {
        append_escape(value, line_[++at_]);
      } else {
        value += peek();
      }
    }
    if (at_end()) return refuse_open_quote(begin);
    ++at_;
    return value;
  }

  static void append_escape(std::string& value, char letter) {
    constexpr std::string_view kLetters = "nrtabfv\"'\\", kMeanings = "\n\r\t\a\b\f\v\"'\\";
    size_t known = kLetters.find(letter);
    if (known == std::string_view::npos) value += '\\';
    value += known == std::string_view::npos ? letter : kMeanings[known];
  }

  std::string_view line_;
  size_t at_ = 0;
  std::optional<SyntaxError> error_;
};

// Returns the line without its "\n" or "\r\n".
std::string_view take_line(std::string_view& text) {
  size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

}  // namespace

bool is_variable_name(std::string_view text) {
  return !text.empty() && begins_name(text.front()) && std::all_of(text.begin(), text.end(), in_name);
}

Assignments parse_env_file(std::string_view text, const std::string& path) {
  Assignments assignments;
  std::string errors;
  int num_errors = 0;
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  for (int number = 1; !text.empty(); ++number) {
    auto line = LineReader(take_line(text)).read();
    if (line.ok()) {
      if (Assignment assignment = *std::move(line)) assignments.push_back(std::move(*assignment));
      continue;
    }
    const auto& [offset, what] = line.error();
    errors += fmt::format("{}{}:{}:{}: {}", errors.empty() ? "" : "\n", path, number, offset + 1, what);
    if (++num_errors == kMaxErrors && !text.empty()) {
      errors += fmt::format("\n{}: the lines after line {} were not read", path, number);
      break;
    }
  }
  if (!errors.empty()) throw UserError(ExitCode::kBadInput, errors);
  return assignments;
}

std::vector<std::string> default_env_files(const std::string& home, const std::string& dir,
                                           const std::optional<std::string>& name) {
  std::vector<std::string> found;
  for (const auto& place : {home, dir}) {
    if (place.empty()) continue;
    // An absolute name replaces the directory, for both directories.
    std::string path = (std::filesystem::path(place) / name.value_or(".deepspeed_env")).lexically_normal().string();
    std::error_code error;
    bool known = !found.empty() && found.back() == path;
    if (!known && std::filesystem::exists(path, error)) found.push_back(path);
  }
  if (name && found.empty()) {
    throw UserError(ExitCode::kNoInput,
                    fmt::format("DS_ENV_FILE={}: there is no such file in {} or {}; unset it or create the file", *name,
                                home.empty() ? "the home directory (HOME is not set)" : home, dir));
  }
  return found;
}

}  // namespace dslaunch::launch
