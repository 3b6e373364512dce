#include "config/fingerprint.hpp"

#include <string>

#include "base/format.hpp"
#include "base/hash.hpp"

namespace dslaunch::config {
namespace {

// The kind of a value is part of its text, and texts carry their length: no two values have the same.
std::string text_of(const Value& value) {
  switch (value.type) {
    case Value::Type::kNull:
      return "null";
    case Value::Type::kBool:
      return value.boolean ? "true" : "false";
    case Value::Type::kInt:
      return fmt::format("i{}", value.integer);
    case Value::Type::kFloat:
      return fmt::format("f{}", value.number);
    case Value::Type::kString:
      return fmt::format("s{}:{}", value.text.size(), value.text);
    case Value::Type::kArray: {
      std::string out = "[";
      for (const auto& item : value.items) out += text_of(item) + ",";
      return out + "]";
    }
    case Value::Type::kObject: {
      std::string out = "{";
      for (const auto& member : value.members) {
        out += fmt::format("{}:{}={},", member.key.size(), member.key, text_of(member.value));
      }
      return out + "}";
    }
  }
  return {};
}

}  // namespace

uint64_t fingerprint(const LoadResult& loaded) {
  std::string text;
  for (const auto& [path, setting] : loaded.settings.all()) {
    const bool is_section = setting.spec->kind == Kind::kSection || setting.spec->kind == Kind::kNamed;
    if (!setting.given() || is_section || path == "train.steps" || path == "train.epochs") continue;
    // What "auto" and rules make of a value may depend on the number of ranks.
    const bool is_computed = setting.origin == "auto" || setting.origin == "solved";
    text += fmt::format("{}:{}={};", path.size(), path, is_computed ? "auto" : text_of(setting.value));
  }
  return fnv1a(text);
}

}  // namespace dslaunch::config
