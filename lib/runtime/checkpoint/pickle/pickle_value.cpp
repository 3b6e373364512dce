#include "runtime/checkpoint/pickle/pickle_value.hpp"

#include <cmath>
#include <cstring>

namespace dslaunch::runtime::pickle {
namespace {

template <class T>
std::optional<double> decode(std::string_view bytes) {
  if (bytes.size() != sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return static_cast<double>(value);
}

// numpy.core.multiarray.scalar(dtype("f8", …), bytes).
std::optional<double> numpy_scalar(const Value& object) {
  if (object.class_name().find("multiarray.scalar") == std::string_view::npos) return std::nullopt;
  if (!object.arguments || object.arguments->items.size() != 2) return std::nullopt;
  const Value &dtype = *object.arguments->items[0], &bytes = *object.arguments->items[1];
  if (dtype.class_name() != "numpy.dtype" || !dtype.arguments || dtype.arguments->items.empty()) return std::nullopt;
  const std::string& name = dtype.arguments->items[0]->text;
  if (name == "f8") return decode<double>(bytes.text);
  if (name == "f4") return decode<float>(bytes.text);
  if (name == "i8") return decode<int64_t>(bytes.text);
  if (name == "i4") return decode<int32_t>(bytes.text);
  if (name == "u8") return decode<uint64_t>(bytes.text);
  if (name == "u4") return decode<uint32_t>(bytes.text);
  if (name == "b1") return decode<uint8_t>(bytes.text);
  return std::nullopt;
}

}  // namespace

const Value* Value::find(std::string_view key) const {
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    if (entry->first->kind == Kind::kText && entry->first->text == key) return entry->second;
  }
  return nullptr;
}

std::string_view Value::class_name() const {
  if (kind == Kind::kGlobal) return text;
  return kind == Kind::kObject && callable && callable->kind == Kind::kGlobal ? std::string_view(callable->text)
                                                                              : std::string_view();
}

const Value* Value::attribute(std::string_view name) const {
  if (state) {
    if (const Value* found = state->find(name)) return found;
    for (const Value* part : state->items) {
      if (const Value* found = part->find(name)) return found;
    }
  }
  return find(name);
}

std::optional<double> Value::as_number() const {
  switch (kind) {
    case Kind::kBool:
      return boolean ? 1 : 0;
    case Kind::kInteger:
      return static_cast<double>(integer);
    case Kind::kFloat:
      return number;
    case Kind::kObject:
      break;
    default:
      return std::nullopt;
  }
  if (const auto value = numpy_scalar(*this)) return value;
  // An enumeration's member is its class called with the value.
  if (!arguments || arguments->items.size() != 1) return std::nullopt;
  const Value& only = *arguments->items[0];
  if (only.kind == Kind::kInteger) return static_cast<double>(only.integer);
  return std::nullopt;
}

std::optional<int64_t> Value::as_integer() const {
  if (kind == Kind::kInteger) return integer;
  const auto value = as_number();
  if (!value || std::trunc(*value) != *value || std::fabs(*value) > 9e15) return std::nullopt;
  return static_cast<int64_t>(*value);
}

}  // namespace dslaunch::runtime::pickle
