// The tree that both readers (HJSON, YAML) build from a job file: every value and every key has its line and column.
// Plain data, any thread.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::config {

// From 1; columns count characters, not bytes. Line 0: not from a file (a default, the command line).
struct Position {
  int line = 0;
  int column = 0;
};

struct Member;

struct Value {
  enum class Type { kNull, kBool, kInt, kFloat, kString, kArray, kObject };

  Type type = Type::kNull;
  Position position;
  bool boolean = false;
  int64_t integer = 0;
  double number = 0;            // kFloat; an integer that does not fit into 64 bits is a kFloat, too
  std::string text;             // kString
  std::vector<Value> items;     // kArray
  std::vector<Member> members;  // kObject, in the order of the file; keys are distinct

  bool is_null() const { return type == Type::kNull; }
  bool is_bool() const { return type == Type::kBool; }
  bool is_int() const { return type == Type::kInt; }
  bool is_float() const { return type == Type::kFloat; }
  bool is_string() const { return type == Type::kString; }
  bool is_array() const { return type == Type::kArray; }
  bool is_object() const { return type == Type::kObject; }
  bool is_text(std::string_view wanted) const { return is_string() && text == wanted; }

  // The member of that name; null when there is none or this value is not an object.
  const Value* find(std::string_view key) const;

  static Value of_bool(bool value);
  static Value of_int(int64_t value);
  static Value of_float(double value);
  static Value of_string(std::string value);
  static Value of_array(std::vector<Value> items);
};

struct Member {
  std::string key;
  Position position;
  Value value;
};

// Same type and content; ignores positions.
bool same_content(const Value& a, const Value& b);

// For messages: `2`, `1.5`, `true`, `null`, `the text "abc"`, `a list`, `an object`. Long texts are truncated.
std::string describe(const Value& value);
// For the end of a message about a text that is not the value a key takes: what it is if it looks like Python's
// spelling of a value, or like a placeholder of a template. Empty: neither.
std::string hint_for_text(std::string_view text);

// The meaning of an unquoted word: null, true, false or a number in JSON's notation; everything else is text.
Value value_of_word(std::string_view word);
// Parses the whole text as a number in JSON's notation; returns false and leaves `out` unchanged if it is not one.
bool parse_number(std::string_view text, Value& out);

}  // namespace dslaunch::config
