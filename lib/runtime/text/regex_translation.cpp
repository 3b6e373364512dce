// The regular expressions of tokenizer.json for PCRE2.
#include <algorithm>
#include <iterator>
#include <optional>
#include <vector>

#include "base/format.hpp"
#include "base/utf8.hpp"
#include "runtime/text/characters.hpp"
#include "runtime/text/text_pattern.hpp"

namespace dslaunch::runtime::text {
namespace {

constexpr std::string_view kWhitespace =
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";

// General categories whose newer characters the table has, and that no character has left.
constexpr std::string_view kCategories[] = {"L",  "M",  "N",  "P",  "S",  "Z",  "Lu", "Ll", "Lt",
                                            "Lm", "Lo", "Me", "Nd", "Nl", "No", "Zs", "Zl", "Zp"};

std::string literal(char32_t code) {
  return fmt::format("\\x{{{:x}}}", static_cast<uint32_t>(code));
}

// The items of a class for \p{name}; none: not supported.
std::optional<std::string> property_items(std::string_view name) {
  if (name == "Han") return "\\p{sc:Han}\\x{2b739}\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}";
  if (std::find(std::begin(kCategories), std::end(kCategories), name) == std::end(kCategories)) return std::nullopt;
  std::string items = fmt::format("\\p{{{}}}", name);
  for (const auto& newer : newer_characters()) {
    if (newer.category.starts_with(name)) items += literal(newer.first) + "-" + literal(newer.last);
  }
  return items;
}

// What `\` and the characters after it stand for.
struct Escape {
  std::optional<char32_t> character;
  std::string items;  // otherwise: of a class
  bool is_negated = false;
};

class Translator {
 public:
  explicit Translator(std::string_view pattern) : rest_(pattern) {}

  Result<std::string> run() {
    while (!rest_.empty() && error_.empty()) translate_item();
    if (error_.empty() && !groups_.empty()) fail("a group without its end");
    if (!error_.empty()) return Failure{error_};
    return out_;
  }

 private:
  void fail(std::string what) {
    if (error_.empty()) error_ = std::move(what);
    rest_ = {};
  }
  bool take(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }
  char32_t take_character() {
    const auto [code, length] = first_character(rest_);
    rest_.remove_prefix(length);
    return code;
  }

  void translate_item() {
    if (take("[")) return translate_class();
    if (take("(")) return open_group();
    if (take(")")) return close_group();
    if (rest_[0] == '\\') return translate_escape();
    if (rest_[0] == '{' || std::string_view("*+?").find(rest_[0]) != std::string_view::npos) return translate_repeat();
    if (std::string_view("|.^$").find(rest_[0]) != std::string_view::npos) {
      out_ += rest_[0];
      last_letter_ = 0;
      rest_.remove_prefix(1);
      return;
    }
    add_literal(take_character());
  }

  void add_literal(char32_t code) {
    refuse_fold(code);
    out_ += literal(code);
  }

  // Oniguruma folds some letters together: (?i:ss) finds a sharp s.
  void refuse_fold(char32_t code) {
    const auto lower = static_cast<char32_t>(code >= 'A' && code <= 'Z' ? code + 32 : code);
    if (is_caseless() && code >= 0x80) fail("(?i:) with letters beyond ASCII");
    for (const std::string_view pair : {"ss", "ff", "fi", "fl", "st"}) {
      if (is_caseless() && last_letter_ == static_cast<char32_t>(pair[0]) && lower == static_cast<char32_t>(pair[1])) {
        fail(fmt::format("(?i:) with the letters '{}'", pair));
      }
    }
    last_letter_ = lower;
  }

  bool is_caseless() const { return !groups_.empty() && groups_.back(); }

  void open_group() {
    for (const std::string_view kind : {"?:", "?=", "?!", "?<=", "?<!", "?>", "?i:"}) {
      if (!take(kind)) continue;
      out_ += fmt::format("({}", kind);
      groups_.push_back(is_caseless() || kind == "?i:");
      last_letter_ = 0;
      return;
    }
    if (rest_.starts_with("?")) return fail(fmt::format("the group ({}", rest_.substr(0, 3)));
    out_ += "(?:";  // what a group has matched is not used
    groups_.push_back(is_caseless());
    last_letter_ = 0;
  }

  void close_group() {
    if (groups_.empty()) return fail("a ')' without its group");
    groups_.pop_back();
    out_ += ")";
    last_letter_ = 0;
  }

  void translate_repeat() {
    last_letter_ = 0;
    if (rest_[0] != '{') {
      out_ += rest_[0];
      rest_.remove_prefix(1);
    } else {
      const size_t end = rest_.find('}');
      std::string_view counts = rest_.substr(1, end == rest_.npos ? 0 : end - 1);
      const bool is_count = !counts.empty() && counts != "," && std::count(counts.begin(), counts.end(), ',') < 2 &&
                            counts.find_first_not_of("0123456789,") == counts.npos;
      if (!is_count) return fail("a '{' that is not a count");
      out_ += fmt::format("{{{}{}}}", counts.starts_with(',') ? "0" : "", counts);
      rest_.remove_prefix(end + 1);
      // They mean other things to the two libraries.
      if (rest_.starts_with("+") || (rest_.starts_with("?") && counts.find(',') == counts.npos)) {
        return fail("a count with '+' or '?' after it");
      }
    }
    for (const char mode : {'?', '+'}) {
      if (!rest_.starts_with(mode) || out_.back() == '}') continue;
      out_ += mode;
      rest_.remove_prefix(1);
      break;
    }
    if (out_.back() == '}' && take("?")) out_ += '?';
    if (!rest_.empty() && std::string_view("*+?{").find(rest_[0]) != std::string_view::npos) {
      fail("a repetition of a repetition");
    }
  }

  void translate_escape() {
    if (take("\\A")) return void(out_ += "\\A");
    if (take("\\z")) return void(out_ += "\\z");
    const auto escape = take_escape();
    if (!escape) return;
    if (escape->character) return add_literal(*escape->character);
    last_letter_ = 0;
    out_ += fmt::format("[{}{}]", escape->is_negated ? "^" : "", escape->items);
  }

  std::optional<Escape> take_escape() {
    const std::string_view begin = rest_;
    rest_.remove_prefix(1);
    if (rest_.empty()) return fail("a '\\' at the end"), std::nullopt;
    const char32_t kind = take_character();
    constexpr std::string_view kNamed = "tnrfvae", kCodes = "\t\n\r\f\v\a\x1b";
    if (const size_t at = kind < 128 ? kNamed.find(static_cast<char>(kind)) : kNamed.npos; at != kNamed.npos) {
      return Escape{static_cast<char32_t>(kCodes[at]), {}};
    }
    if (kind == 's' || kind == 'S') return Escape{{}, std::string(kWhitespace), kind == 'S'};
    if (kind == 'd' || kind == 'D') return Escape{{}, *property_items("Nd"), kind == 'D'};
    if (kind == 'p' || kind == 'P') return take_property(kind == 'P', begin);
    if (kind == 'x' || kind == 'u') return take_code(kind == 'x' ? 2 : 4, begin);
    const bool is_alphanumeric =
        (kind >= '0' && kind <= '9') || (kind >= 'A' && kind <= 'Z') || (kind >= 'a' && kind <= 'z');
    if (kind >= 128 || is_alphanumeric) return fail(fmt::format("the escape {}", escape_text(begin))), std::nullopt;
    return Escape{kind, {}};
  }

  static std::string_view escape_text(std::string_view begin) {
    return begin.substr(0, 1 + first_character(begin.substr(1)).length);
  }

  std::optional<Escape> take_property(bool is_negated, std::string_view begin) {
    const size_t end = rest_.find('}');
    if (!rest_.starts_with('{') || end == rest_.npos) {
      return fail(fmt::format("the escape {}", escape_text(begin))), std::nullopt;
    }
    std::string_view name = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    if (name.starts_with('^')) {
      is_negated = !is_negated;
      name.remove_prefix(1);
    }
    auto items = property_items(name);
    if (!items) return fail(fmt::format("the property \\p{{{}}}", name)), std::nullopt;
    return Escape{{}, std::move(*items), is_negated};
  }

  // \xHH, \x{H...}, \uHHHH
  std::optional<Escape> take_code(size_t num_digits, std::string_view begin) {
    const bool has_braces = num_digits == 2 && take("{");
    const size_t end = has_braces ? std::min(rest_.find('}'), size_t{7}) : num_digits;
    const std::string digits(rest_.substr(0, end));
    const bool is_code = !digits.empty() && digits.find_first_not_of("0123456789abcdefABCDEF") == digits.npos &&
                         (has_braces ? rest_.size() > end && rest_[end] == '}' : digits.size() == num_digits);
    const unsigned long code = is_code ? std::stoul(digits, nullptr, 16) : 0;
    if (!is_code || (!has_braces && num_digits == 2 && code >= 0x80) || code > 0x10ffff ||
        (code >= 0xd800 && code < 0xe000)) {
      return fail(fmt::format("the escape {}", escape_text(begin))), std::nullopt;
    }
    rest_.remove_prefix(end + (has_braces ? 1 : 0));
    return Escape{static_cast<char32_t>(code), {}};
  }

  // A class, or a class within a class: PCRE2's classes have neither those nor intersections, so what is not a list of
  // characters becomes a group that matches one character.
  struct Class {
    std::string items;                // of a class of PCRE2
    std::vector<std::string> others;  // each matches one character

    bool is_empty() const { return items.empty() && others.empty(); }
    std::string pattern() const {
      std::string out = items.empty() ? "" : fmt::format("[{}]", items);
      for (const auto& other : others) out += (out.empty() ? "" : "|") + other;
      return others.size() + (items.empty() ? 0 : 1) > 1 ? fmt::format("(?:{})", out) : out;
    }
    void add(const Class& more) {
      items += more.items;
      others.insert(others.end(), more.others.begin(), more.others.end());
    }
  };

  static Class negated(const Class& of) {
    if (of.others.empty()) return {{}, {fmt::format("[^{}]", of.items)}};
    return {{}, {fmt::format("(?:(?!{})(?s:.))", of.pattern())}};
  }

  static Class intersection(const std::vector<Class>& of) {
    if (of.size() == 1) return of[0];
    std::string out;
    for (size_t i = 0; i + 1 < of.size(); ++i) out += fmt::format("(?={})", of[i].pattern());
    return {{}, {fmt::format("(?:{}{})", out, of.back().pattern())}};
  }

  // A character of a class, or what stands for several.
  std::optional<Escape> take_class_item() {
    if (rest_[0] != '\\') return Escape{take_character(), {}};
    return take_escape();
  }

  // One or a range of characters, or a set.
  void add_class_item(Class& to) {
    const auto item = take_class_item();
    if (!item) return;
    if (item->character && is_caseless() && *item->character >= 0x80) return fail("(?i:) with letters beyond ASCII");
    if (!item->character) return to.add(item->is_negated ? negated({item->items, {}}) : Class{item->items, {}});
    to.items += literal(*item->character);
    const bool is_range =
        rest_.size() > 1 && rest_[0] == '-' && rest_[1] != ']' && rest_[1] != '[' && !rest_.starts_with("-&&");
    if (!is_range) return;
    rest_.remove_prefix(1);
    const auto last = take_class_item();
    if (!last) return;
    if (!last->character || *last->character < *item->character) return fail("a range without an end");
    to.items += "-" + literal(*last->character);
  }

  // Behind its '['.
  std::optional<Class> take_class() {
    const bool is_negated = take("^");
    std::vector<Class> operands(1);
    while (error_.empty() && !rest_.starts_with("]")) {
      if (rest_.empty()) return fail("a class without its end"), std::nullopt;
      if (rest_.starts_with("[:")) return fail("a POSIX class"), std::nullopt;
      if (take("&&")) {
        if (operands.back().is_empty()) return fail("an intersection without an operand"), std::nullopt;
        operands.emplace_back();
      } else if (take("[")) {
        const auto inner = take_class();
        if (inner) operands.back().add(*inner);
      } else {
        add_class_item(operands.back());
      }
    }
    if (!error_.empty()) return std::nullopt;
    if (operands.back().is_empty()) return fail("a class without characters"), std::nullopt;
    take("]");
    const Class all = intersection(operands);
    return is_negated ? negated(all) : all;
  }

  void translate_class() {
    last_letter_ = 0;
    if (const auto found = take_class()) out_ += found->pattern();
  }

  std::string_view rest_;
  std::string out_, error_;
  std::vector<bool> groups_;  // that are open: whether they ignore case
  char32_t last_letter_ = 0;  // in lower case; 0: something else came
};

}  // namespace

Result<std::string> translate_regex(std::string_view pattern) {
  return Translator(pattern).run();
}

}  // namespace dslaunch::runtime::text
