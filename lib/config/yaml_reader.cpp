// Built on yaml-cpp's event interface: it reports marks and distinguishes quoted from plain scalars; repeated keys, the
// depth limit and the growth by aliases are handled here.
#include "config/readers.hpp"

#include <yaml-cpp/anchor.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <map>
#include <sstream>
#include <unordered_map>
#include <utility>

#include "base/format.hpp"

namespace dslaunch::config {
namespace {

// Thrown from yaml-cpp's events: its parser stops for an exception only.
struct SyntaxError {
  Position position;
  std::string message;
};

Position position_of(const YAML::Mark& mark) {
  return {mark.line + 1, mark.column + 1};
}

struct Extent {
  size_t values = 0, bytes = 0;
};

void measure(const Value& value, Extent& extent) {
  ++extent.values;
  extent.bytes += value.text.size();
  for (const auto& item : value.items) measure(item, extent);
  for (const auto& member : value.members) {
    extent.bytes += member.key.size();
    measure(member.value, extent);
  }
}

constexpr std::string_view kStandardTag = "tag:yaml.org,2002:";

// Tests for tags of the YAML standard; quoted texts have the tag "!", everything else "?" or none.
bool is_standard(std::string_view tag, std::initializer_list<std::string_view> names) {
  return tag.starts_with(kStandardTag) &&
         std::find(names.begin(), names.end(), tag.substr(kStandardTag.size())) != names.end();
}

// YAML's core schema in addition to JSON's words: ~, capitalised words, a leading +, a bare point, hex.
Value plain_scalar(const std::string& text) {
  if (text.empty() || text == "~" || text == "Null" || text == "NULL") return {};
  if (text == "True" || text == "TRUE") return Value::of_bool(true);
  if (text == "False" || text == "FALSE") return Value::of_bool(false);
  if (text.rfind("0x", 0) == 0) {
    uint64_t integer = 0;
    auto [end, error] = std::from_chars(text.data() + 2, text.data() + text.size(), integer, 16);
    bool whole = error == std::errc{} && end == text.data() + text.size();
    if (whole && integer <= INT64_MAX) return Value::of_int(static_cast<int64_t>(integer));
  }
  std::string number = text;
  if (number[0] == '+' && number[1] != '-') number.erase(0, 1);
  if (auto point = number.find('.'); point != number.npos) {
    bool digit_before = point > 0 && number[point - 1] >= '0' && number[point - 1] <= '9';
    bool digit_after = point + 1 < number.size() && number[point + 1] >= '0' && number[point + 1] <= '9';
    if (digit_before && !digit_after) number.insert(point + 1, "0");
    if (!digit_before && digit_after) number.insert(point, "0");
  }
  Value out;
  if (parse_number(number, out)) return out;
  return value_of_word(text);
}

class TreeBuilder : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { add(Value{}, mark, anchor); }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
    const bool plain = tag.empty() || tag == "?" || is_standard(tag, {"int", "float", "bool", "null"});
    if (!plain && tag != "!" && !is_standard(tag, {"str"})) refuse_tag(tag, mark);
    // In a text file only an escape can produce these. yaml-cpp decodes two of the escapes to single non-ASCII bytes.
    if (first_non_text(text).line > 0) {
      throw SyntaxError{position_of(mark), "unsupported escape: zero byte, \\N or \\_"};
    }
    if (at_key()) {
      count({1, 0}, position_of(mark));
      take_key(text, position_of(mark));
    } else {
      add(plain ? plain_scalar(text) : Value::of_string(text), mark, anchor);
    }
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    auto found = anchors_.find(anchor);
    if (found == anchors_.end()) throw SyntaxError{position_of(mark), "an alias (*name) is inside its own anchor"};
    add(copy_of(found->second, position_of(mark)), mark, 0);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    if (!tag.empty() && tag != "?" && tag != "!" && !is_standard(tag, {"seq"})) refuse_tag(tag, mark);
    open(Value::Type::kArray, mark, anchor);
  }
  void OnSequenceEnd() override { close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    if (!tag.empty() && tag != "?" && tag != "!" && !is_standard(tag, {"map"})) refuse_tag(tag, mark);
    open(Value::Type::kObject, mark, anchor);
  }
  void OnMapEnd() override { close(); }

  std::optional<Value> root;
  std::vector<Problem> problems;

 private:
  struct Frame {
    Value value;
    YAML::anchor_t anchor = 0;
    bool has_key = false;
    std::string key;
    Position key_position;
    std::unordered_map<std::string, Position> seen;
  };

  [[noreturn]] static void refuse_tag(const std::string& tag, const YAML::Mark& mark) {
    throw SyntaxError{position_of(mark), fmt::format("unsupported tag '{}' in a job file; leave it out", tag)};
  }

  bool at_key() const { return !frames_.empty() && frames_.back().value.is_object() && !frames_.back().has_key; }

  void open(Value::Type type, const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (frames_.size() >= static_cast<size_t>(kMaxLevels)) {
      throw SyntaxError{position_of(mark), fmt::format("nested deeper than {} levels", kMaxLevels)};
    }
    if (at_key() && type == Value::Type::kObject) {
      throw SyntaxError{
          position_of(mark),
          "a key must be a word or a text, not a map; is this a placeholder {{…}} that was not filled in?"};
    }
    if (at_key()) throw SyntaxError{position_of(mark), "a key must be a word or a text, not a list"};
    count({1, 0}, position_of(mark));
    Frame frame;
    frame.value.type = type;
    frame.value.position = position_of(mark);
    frame.anchor = anchor;
    frames_.push_back(std::move(frame));
  }

  void close() {
    Frame frame = std::move(frames_.back());
    frames_.pop_back();
    finish(std::move(frame.value), frame.anchor);
  }

  void add(Value value, const YAML::Mark& mark, YAML::anchor_t anchor) {
    count({1, 0}, position_of(mark));
    value.position = position_of(mark);
    if (at_key()) {
      if (value.is_array() || value.is_object()) {
        throw SyntaxError{value.position, "a key must be a word or a text, not a list or a map"};
      }
      take_key(value.is_string() ? value.text : describe(value), value.position);
    } else {
      finish(std::move(value), anchor);
    }
  }

  void take_key(std::string key, Position position) {
    if (key.size() > kMaxKey) {
      throw SyntaxError{position, fmt::format("a key of {} bytes is too long (at most {})", key.size(), kMaxKey)};
    }
    if (key == "<<") throw SyntaxError{position, "merge keys (<<) are not supported; write the keys out"};
    Frame& frame = frames_.back();
    frame.key = std::move(key);
    frame.key_position = position;
    frame.has_key = true;
  }

  void finish(Value value, YAML::anchor_t anchor) {
    if (anchor != 0) anchors_[anchor] = copy_of(value, value.position);
    if (frames_.empty()) {
      root = std::move(value);
      return;
    }
    Frame& frame = frames_.back();
    if (frame.value.is_array()) {
      frame.value.items.push_back(std::move(value));
      return;
    }
    frame.has_key = false;
    auto [first, is_new] = frame.seen.emplace(frame.key, frame.key_position);
    if (is_new) {
      frame.value.members.push_back({frame.key, frame.key_position, std::move(value)});
    } else {
      problems.push_back({frame.key_position, fmt::format("the key '{}' is given twice in one map (first in line {}, "
                                                          "column {}); remove one",
                                                          frame.key, first->second.line, first->second.column)});
    }
  }

  // Anchored values are stored and aliases are copied, so a small file can expand to a large one: count the copies.
  Value copy_of(const Value& value, Position position) {
    Extent extent;
    measure(value, extent);
    count(extent, position);
    return value;
  }

  void count(const Extent& more, Position position) {
    extent_.values += more.values;
    extent_.bytes += more.bytes;
    if (extent_.values > kMaxValues) throw SyntaxError{position, "too many values, counting those behind aliases"};
    if (extent_.bytes > kMaxBytes) throw SyntaxError{position, "too much text, counting that behind aliases"};
  }

  std::vector<Frame> frames_;
  std::map<YAML::anchor_t, Value> anchors_;
  Extent extent_;  // of everything so far; texts count only when copied
};

// If only blanks precede the end of the file in its line, yaml-cpp takes the end for the closing quote of a text.
// Appending a comment prevents that.
std::string with_marked_end(std::string_view text) {
  const std::string_view to_last_word = text.substr(0, text.find_last_not_of(" \t\r") + 1);
  return to_last_word.ends_with('\n') ? std::string(to_last_word) + '#' : std::string(text);
}

}  // namespace

ReadResult read_yaml(std::string_view text) {
  TreeBuilder builder;
  ReadResult result;
  try {
    std::istringstream stream(with_marked_end(text));
    YAML::Parser parser(stream);
    parser.HandleNextDocument(builder);
    std::optional<Value> first = std::move(builder.root);
    builder.root.reset();
    if (parser.HandleNextDocument(builder)) {
      builder.problems.push_back({builder.root ? builder.root->position : Position{},
                                  "a second document starts here; a job file has only one"});
    } else {
      result.root = std::move(first);
    }
  } catch (const SyntaxError& error) {
    builder.problems.push_back({error.position, error.message});
  } catch (const YAML::Exception& error) {
    builder.problems.push_back({position_of(error.mark), "not YAML: " + error.msg});
  }
  result.problems = std::move(builder.problems);
  return result;
}

}  // namespace dslaunch::config
