#include "config/value.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "base/format.hpp"

namespace dslaunch::config {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

size_t skip_digits(std::string_view text, size_t at) {
  while (at < text.size() && is_digit(text[at])) ++at;
  return at;
}

// The end of a number in JSON's grammar at the start of `text`, 0 if there is none; `integral` is set if it is an
// integer.
size_t number_end(std::string_view text, bool& integral) {
  size_t at = !text.empty() && text[0] == '-' ? 1 : 0;
  if (at >= text.size() || !is_digit(text[at])) return 0;
  at = text[at] == '0' ? at + 1 : skip_digits(text, at);
  integral = true;
  if (at + 1 < text.size() && text[at] == '.' && is_digit(text[at + 1])) {
    at = skip_digits(text, at + 1);
    integral = false;
  }
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    size_t digits = at + 1;
    if (digits < text.size() && (text[digits] == '+' || text[digits] == '-')) ++digits;
    size_t end = skip_digits(text, digits);
    if (end > digits) {
      at = end;
      integral = false;
    }
  }
  return at;
}

double to_double(std::string_view text) {
  double number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  // from_chars does not distinguish overflow from underflow.
  return error == std::errc::result_out_of_range ? std::strtod(std::string(text).c_str(), nullptr) : number;
}

constexpr std::pair<std::string_view, std::string_view> kPythonWords[] = {
    {"True", "write true"}, {"False", "write false"}, {"None", "leave the key out"}};

// What templates and instructions put around a name that is to be replaced.
constexpr std::pair<std::string_view, std::string_view> kPlaceholderMarks[] = {
    {"{{", "}}"}, {"${", "}"}, {"{", "}"}, {"<", ">"}, {"%", "%"}, {"__", "__"}, {"@", "@"}, {"%(", ")s"}};
constexpr std::string_view kPlaceholderWords[] = {"TODO", "FIXME", "TBD", "XXX", "CHANGEME", "???", "..."};

bool is_placeholder(std::string_view text) {
  const auto is_marked = [&](const auto& marks) {
    return text.size() > marks.first.size() + marks.second.size() && text.starts_with(marks.first) &&
           text.ends_with(marks.second);
  };
  if (std::any_of(std::begin(kPlaceholderMarks), std::end(kPlaceholderMarks), is_marked)) return true;
  if (std::find(std::begin(kPlaceholderWords), std::end(kPlaceholderWords), text) != std::end(kPlaceholderWords))
    return true;
  // CONFIG_BATCH_SIZE, $BATCH_SIZE
  const bool is_variable = text.starts_with("$");
  const std::string_view name = text.substr(is_variable ? 1 : 0);
  const auto is_capital = [](char c) { return (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c); };
  const bool is_in_capitals = !name.empty() && !is_digit(name[0]) && std::all_of(name.begin(), name.end(), is_capital);
  return is_in_capitals && (is_variable || name.find('_') != name.npos);
}

}  // namespace

const Value* Value::find(std::string_view key) const {
  for (const auto& member : members) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

Value Value::of_bool(bool value) {
  Value out;
  out.type = Type::kBool;
  out.boolean = value;
  return out;
}

Value Value::of_int(int64_t value) {
  Value out;
  out.type = Type::kInt;
  out.integer = value;
  return out;
}

Value Value::of_float(double value) {
  Value out;
  out.type = Type::kFloat;
  out.number = value;
  return out;
}

Value Value::of_string(std::string value) {
  Value out;
  out.type = Type::kString;
  out.text = std::move(value);
  return out;
}

Value Value::of_array(std::vector<Value> items) {
  Value out;
  out.type = Type::kArray;
  out.items = std::move(items);
  return out;
}

bool same_content(const Value& a, const Value& b) {
  if (a.type != b.type || a.items.size() != b.items.size() || a.members.size() != b.members.size()) return false;
  if (a.boolean != b.boolean || a.integer != b.integer || a.number != b.number || a.text != b.text) return false;
  for (size_t i = 0; i < a.items.size(); ++i) {
    if (!same_content(a.items[i], b.items[i])) return false;
  }
  for (size_t i = 0; i < a.members.size(); ++i) {
    if (a.members[i].key != b.members[i].key || !same_content(a.members[i].value, b.members[i].value)) return false;
  }
  return true;
}

std::string describe(const Value& value) {
  switch (value.type) {
    case Value::Type::kNull:
      return "null";
    case Value::Type::kBool:
      return value.boolean ? "true" : "false";
    case Value::Type::kInt:
      return std::to_string(value.integer);
    case Value::Type::kFloat:
      return fmt::format("{}", value.number);
    case Value::Type::kArray:
      return "a list";
    case Value::Type::kObject:
      return "an object";
    case Value::Type::kString:
      break;
  }
  constexpr size_t kMax = 60;
  if (value.text.size() <= kMax) return fmt::format("the text \"{}\"", value.text);
  size_t cut = kMax;
  while (cut > 0 && (static_cast<unsigned char>(value.text[cut]) & 0xC0) == 0x80)
    --cut;  // do not cut inside a
            // character
  return fmt::format("the text \"{}…\"", value.text.substr(0, cut));
}

std::string hint_for_text(std::string_view text) {
  const std::string_view word = text.substr(0, text.find_first_of(",}] \t"));  // an unquoted text runs on
  for (const auto& [python, advice] : kPythonWords) {
    if (word == python) return fmt::format("; {} is Python's spelling: {}", python, advice);
  }
  if (!is_placeholder(text) && !is_placeholder(word)) return {};
  return "; it looks like a placeholder that was not filled in: write a value";
}

bool parse_number(std::string_view text, Value& out) {
  bool integral = false;
  if (text.empty() || number_end(text, integral) != text.size()) return false;
  if (integral) {
    int64_t integer = 0;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), integer);
    if (error == std::errc{}) {
      out = Value::of_int(integer);
      return true;
    }
  }
  out = Value::of_float(to_double(text));
  return true;
}

Value value_of_word(std::string_view word) {
  if (word == "null") return {};
  if (word == "true" || word == "false") return Value::of_bool(word == "true");
  Value out;
  if (parse_number(word, out)) return out;
  return Value::of_string(std::string(word));
}

}  // namespace dslaunch::config
