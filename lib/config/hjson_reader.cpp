// A recursive-descent parser with one function per kind of value. An unquoted string extends to the end of its line,
// commas and braces included; null, true, false and numbers end at a comma, a closing bracket or a comment. A missing
// quote therefore swallows the rest of a line, and the parser fails much later: `unquoted_` stores the suspect so that
// the message can name it. The first error moves the parser to the end of the text, where every loop ends; later errors
// are its consequences and are not reported.
#include "config/readers.hpp"

#include <algorithm>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/format.hpp"
#include "base/utf8.hpp"

namespace dslaunch::config {
namespace {

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\v' || c == '\f';
}
bool is_punctuator(char c) {
  return c == '{' || c == '}' || c == '[' || c == ']' || c == ',' || c == ':';
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

class HjsonReader {
 public:
  explicit HjsonReader(std::string_view text) : text_(text) {}

  ReadResult read() {
    Value root = read_root();
    if (!error_) return {std::move(root), std::move(problems_)};
    problems_.push_back(std::move(*error_));
    return {std::nullopt, std::move(problems_)};
  }

 private:
  Value read_root() {
    skip_blanks();
    if (at_end()) return {};  // blanks and comments only
    if (at_template()) return fail_template();
    Position start = position();
    Value root;
    if (peek() == '{' || peek() == '[' || !starts_with_key()) {
      root = read_value(0);
    } else {
      root = read_members(start, /*braced=*/false, 0);
    }
    skip_blanks();
    if (!at_end()) fail(position(), fmt::format("expected the end of the file after its object, got {}", here()));
    return root;
  }

  // Without braces around the root, the text begins with a key and a colon.
  bool starts_with_key() {
    const auto start = std::tuple(at_, position_, error_);
    read_key();
    skip_blanks();
    const bool found = peek() == ':';
    std::tie(at_, position_, error_) = start;
    return found;
  }

  Value read_value(int level) {
    skip_blanks();
    Position start = position();
    if (at_end()) return fail_at_end(start, "a value is missing at the end of the file");
    if (++num_values_ > kMaxValues) return fail(start, fmt::format("more than {} values", kMaxValues));
    char c = peek();
    Value value;
    if (at_template()) {
      value = read_template();
    } else if (c == '{' || c == '[') {
      if (level >= kMaxLevels) return fail(start, fmt::format("nested deeper than {} levels", kMaxLevels));
      step();
      value = c == '{' ? read_members(start, /*braced=*/true, level + 1) : read_items(start, level + 1);
    } else if (text_.substr(at_, 3) == "'''") {
      value = Value::of_string(read_multiline());
    } else if (c == '"' || c == '\'') {
      value = Value::of_string(read_quoted());
    } else {
      value = read_unquoted();
    }
    value.position = start;
    return value;
  }

  Value read_members(Position start, bool braced, int level) {
    Value object;
    object.type = Value::Type::kObject;
    object.position = start;
    std::unordered_map<std::string, Position> seen;
    while (true) {
      skip_blanks();
      if (at_end()) {
        if (!braced) return object;
        return fail_unclosed(start);
      }
      if (braced && peek() == '}') {
        note_brace_of_outer_object(start);
        step();
        return object;
      }
      Member member;
      member.position = position();
      member.key = read_key();
      if (member.key.size() > kMaxKey) {
        return fail(member.position,
                    fmt::format("a key of {} bytes is too long (at most {})", member.key.size(), kMaxKey));
      }
      skip_blanks();
      if (peek() != ':') {
        return fail(position(), fmt::format("expected a ':' after the key '{}', got {}", member.key, here()));
      }
      step();
      member.value = read_value(level);
      skip_blanks();
      if (error_) return {};
      if (peek() == ',') step();
      insert_first(seen, object, std::move(member));
    }
  }

  void insert_first(std::unordered_map<std::string, Position>& seen, Value& object, Member member) {
    auto [first, is_new] = seen.emplace(member.key, member.position);
    if (is_new) {
      object.members.push_back(std::move(member));
    } else {
      problems_.push_back({member.position, fmt::format("the key '{}' is given twice in one object (first in line {}, "
                                                        "column {}); remove one",
                                                        member.key, first->second.line, first->second.column)});
    }
  }

  Value read_items(Position start, int level) {
    Value array;
    array.type = Value::Type::kArray;
    while (true) {
      skip_blanks();
      if (at_end()) return fail_at_end(start, "the list that opens here is never closed: a ']' is missing");
      if (peek() == ']') {
        step();
        return array;
      }
      array.items.push_back(read_value(level));
      skip_blanks();
      if (peek() == ',') step();
    }
  }

  std::string read_key() {
    if (peek() == '"' || peek() == '\'') return read_quoted();
    if (is_punctuator(peek())) {
      at_template() ? fail_template() : fail(position(), fmt::format("expected a key, got {}", here()));
      return {};
    }
    size_t start = at_;
    while (!at_end() && !is_blank(peek()) && !is_punctuator(peek())) step();
    return std::string(text_.substr(start, at_ - start));
  }

  std::string read_quoted() {
    Position start = position();
    char quote = peek();
    step();
    std::string out;
    while (true) {
      if (at_end() || peek() == '\n') {
        fail(start, "the string that opens here is not closed on its line");
        return {};
      }
      char c = peek();
      if (c == quote) {
        step();
        return out;
      }
      if (c == '\\') {
        read_escape(out);
      } else {
        out += c;
        step();
      }
    }
  }

  void read_escape(std::string& out) {
    Position start = position();
    step();
    char c = peek();
    constexpr std::string_view kNames = "bfnrt\"'\\/";
    constexpr std::string_view kMeanings = "\b\f\n\r\t\"'\\/";
    if (size_t index = kNames.find(c); !at_end() && index != kNames.npos) {
      out += kMeanings[index];
      step();
    } else if (!at_end() && c == 'u') {
      step();
      append_utf8(out, read_code_point(start));
    } else {
      fail(start, "unknown escape in a string; known are \\\" \\' \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX");
    }
  }

  // A surrogate pair gives one character; an unpaired surrogate becomes the replacement character, and so does zero.
  uint32_t read_code_point(Position start) {
    constexpr uint32_t kReplacement = 0xFFFD;
    uint32_t high = read_hex4(start);
    if (high < 0xD800 || high > 0xDFFF) return high == 0 ? kReplacement : high;
    if (high > 0xDBFF || text_.substr(at_, 2) != "\\u") return kReplacement;
    auto after_high_surrogate = std::pair(at_, position_);
    step();
    step();
    uint32_t low = read_hex4(start);
    if (error_) return kReplacement;
    if (low >= 0xDC00 && low <= 0xDFFF) return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
    std::tie(at_, position_) = after_high_surrogate;  // the second escape is a separate character
    return kReplacement;
  }

  uint32_t read_hex4(Position start) {
    uint32_t code = 0;
    for (int i = 0; i < 4; ++i) {
      char c = peek();
      uint32_t digit = c >= '0' && c <= '9'   ? static_cast<uint32_t>(c - '0')
                       : c >= 'a' && c <= 'f' ? static_cast<uint32_t>(c - 'a' + 10)
                       : c >= 'A' && c <= 'F' ? static_cast<uint32_t>(c - 'A' + 10)
                                              : 16u;
      if (at_end() || digit == 16) {
        fail(start, "\\u needs four hexadecimal digits");
        return 0;
      }
      code = code * 16 + digit;
      step();
    }
    return code;
  }

  // '''...''': removes as much indentation from each line as the opening quotes have (all of it from the first line);
  // drops the line break before the closing quotes and an empty first line.
  std::string read_multiline() {
    Position start = position();
    for (int i = 0; i < 3; ++i) step();
    while (peek() == ' ' || peek() == '\t' || peek() == '\r') step();
    if (peek() == '\n') {
      step();
      skip_indent(start.column - 1);
    }
    std::string out;
    while (text_.substr(at_, 3) != "'''") {
      if (at_end()) {
        fail(start, "the ''' string that opens here is never closed");
        return {};
      }
      char c = peek();
      step();
      if (c != '\r') out += c;
      if (c == '\n') skip_indent(start.column - 1);
    }
    for (int i = 0; i < 3; ++i) step();
    if (!out.empty() && out.back() == '\n') out.pop_back();
    return out;
  }

  void skip_indent(int columns) {
    for (; columns > 0 && (peek() == ' ' || peek() == '\t') && !at_end(); --columns) step();
  }

  Value read_unquoted() {
    if (is_punctuator(peek())) return fail(position(), fmt::format("expected a value, got {}", here()));
    Position start_position = position();
    size_t start = at_;
    while (!at_line_end() && !ends_word()) step();
    Value value = value_of_word(trimmed(text_.substr(start, at_ - start)));
    if (!value.is_string()) return value;
    // It is a text: characters that would end a word are part of it.
    while (!at_line_end()) step();
    value.text = trimmed(text_.substr(start, at_ - start));
    if (value.text.find_first_of("{}[],") != value.text.npos) unquoted_ = {start_position, value.text};
    return value;
  }

  // "{{ name }}" and "{% … %}" of templates, which begin no object.
  bool at_template() const { return peek() == '{' && (next() == '{' || next() == '%'); }

  // Up to its "}}", so that the key behind is found and the value's own key can refuse it.
  Value read_template() {
    const size_t start = at_, end = text_.find("}}", at_), line_end = text_.find('\n', at_);
    while (!at_end() && at_ < std::min(line_end, end == text_.npos ? end : end + 2)) step();
    return Value::of_string(std::string(trimmed(text_.substr(start, at_ - start))));
  }

  bool at_line_end() const { return at_end() || peek() == '\n'; }

  bool ends_word() const {
    char c = peek();
    return c == ',' || c == '}' || c == ']' || c == '#' || (c == '/' && (next() == '/' || next() == '*'));
  }

  void skip_blanks() {
    while (!at_end()) {
      if (is_blank(peek())) {
        step();
      } else if (peek() == '#' || (peek() == '/' && next() == '/')) {
        while (!at_end() && peek() != '\n') step();
      } else if (peek() == '/' && next() == '*') {
        skip_block_comment();
      } else {
        return;
      }
    }
  }

  void skip_block_comment() {
    Position start = position();
    step();
    step();
    while (!(peek() == '*' && next() == '/')) {
      if (at_end()) {
        fail(start, "the comment that opens here is never closed: a */ is missing");
        return;
      }
      step();
    }
    step();
    step();
  }

  // Both return null, for callers that return a value.
  Value fail(Position where, std::string message) {
    if (!error_) error_ = Problem{where, std::move(message)};
    at_ = text_.size();
    return {};
  }

  Value fail_template() { return fail(position(), "a template starts here, not a key; fill in its values first"); }

  Value fail_at_end(Position where, std::string message) {
    if (unquoted_.position.line > 0) {
      message += fmt::format("; {} in line {}, column {} runs to the end of its line because it has no quotes{}",
                             describe(Value::of_string(unquoted_.message)), unquoted_.position.line,
                             unquoted_.position.column, hint_for_text(unquoted_.message));
    }
    return fail(where, std::move(message));
  }

  // By the indentation, the brace here closes an object around the one that opened at `start`, whose own is missing.
  void note_brace_of_outer_object(Position start) {
    const Position brace = position();
    if (misplaced_brace_.line > 0 || brace.line == start.line || indent_of(brace.line) + 1 != brace.column) return;
    if (indent_of(brace.line) >= indent_of(start.line)) return;
    likely_unclosed_ = start;
    misplaced_brace_ = brace;
  }

  int indent_of(int line) const {
    size_t begin = 0;
    for (int i = 1; i < line; ++i) begin = text_.find('\n', begin) + 1;
    const size_t first = text_.find_first_not_of(" \t", begin);
    return static_cast<int>((first == text_.npos ? text_.size() : first) - begin);
  }

  Value fail_unclosed(Position start) {
    if (misplaced_brace_.line == 0) {
      return fail_at_end(start, "the object that opens here is never closed: a '}' is missing");
    }
    return fail_at_end(likely_unclosed_,
                       fmt::format("the object that opens here is not closed: a '}}' is missing before the one in line "
                                   "{}, which is indented as that of an outer object",
                                   misplaced_brace_.line));
  }

  // The current character, for messages.
  std::string here() const {
    if (at_end()) return "the end of the file";
    size_t length = 1;
    while (at_ + length < text_.size() && (static_cast<unsigned char>(text_[at_ + length]) & 0xC0) == 0x80) ++length;
    return fmt::format("'{}'", text_.substr(at_, length));
  }

  bool at_end() const { return at_ >= text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[at_]; }
  char next() const { return at_ + 1 < text_.size() ? text_[at_ + 1] : '\0'; }
  Position position() const { return position_; }

  void step() {
    if (at_end()) return;
    if (text_[at_] == '\n') {
      ++position_.line;
      position_.column = 1;
    } else if (at_ + 1 >= text_.size() || (static_cast<unsigned char>(text_[at_ + 1]) & 0xC0) != 0x80) {
      ++position_.column;  // counted with the last byte of a character
    }
    ++at_;
  }

  std::string_view text_;
  size_t at_ = 0;
  Position position_{1, 1};
  size_t num_values_ = 0;
  Problem unquoted_;
  Position likely_unclosed_{}, misplaced_brace_{};  // line 0: every closing brace is indented as its object
  std::optional<Problem> error_;
  std::vector<Problem> problems_;
};

}  // namespace

ReadResult read_hjson(std::string_view text) {
  return HjsonReader(text).read();
}

}  // namespace dslaunch::config
