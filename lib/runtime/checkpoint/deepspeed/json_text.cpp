#include "runtime/checkpoint/deepspeed/json_text.hpp"

#include <nlohmann/json.hpp>

#include "base/dump_json.hpp"

namespace dslaunch::runtime::deepspeed {
namespace {

using Json = nlohmann::ordered_json;
using pickle::Kind;
using pickle::Value;

constexpr int kMaxDepth = 64;
constexpr size_t kMaxValues = 100'000;  // a value that is referenced often is written often

class Writer {
 public:
  Json write(const Value& value, int depth) {
    if (depth > kMaxDepth || ++num_values_ > kMaxValues) return nullptr;
    switch (value.kind) {
      case Kind::kBool:
        return value.boolean;
      case Kind::kInteger:
        return value.integer;
      case Kind::kFloat:
        return value.number;
      case Kind::kText:
        return value.text;
      case Kind::kList:
      case Kind::kTuple:
      case Kind::kSet: {
        Json list = Json::array();
        for (const Value* item : value.items) list.push_back(write(*item, depth + 1));
        return list;
      }
      case Kind::kDict: {
        Json dict = Json::object();
        for (const auto& [key, entry] : value.entries) {
          const Json name = write(*key, kMaxDepth);
          dict[name.is_string() ? name.get<std::string>() : name.dump()] = write(*entry, depth + 1);
        }
        return dict;
      }
      case Kind::kGlobal:
      case Kind::kObject:
        if (const auto number = value.as_number()) return *number;
        return std::string(value.class_name());
      default:
        return nullptr;
    }
  }

 private:
  size_t num_values_ = 0;
};

}  // namespace

std::string to_json_text(const Value& value) {
  return dump_json(Writer().write(value, 0), 1);
}

}  // namespace dslaunch::runtime::deepspeed
