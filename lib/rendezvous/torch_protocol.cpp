#include "rendezvous/torch_protocol.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "rendezvous/wire.hpp"

namespace dslaunch::rendezvous::torch_wire {

namespace {

// The layout after the type: a key count where several keys are allowed, then keys, each with its values, then a
// number.
struct Layout {
  bool counted = false;
  size_t num_keys = 0;  // unless counted
  size_t values_per_key = 0;
  size_t number_bytes = 0;
};

constexpr Layout kBare{}, kKey{false, 1, 0, 0}, kKeyAndValue{false, 1, 1, 0}, kKeys{true, 0, 0, 0};

constexpr std::array<Layout, 18> kLayouts{{
    {false, 0, 0, 4},  // validate
    kKeyAndValue,      // set
    {false, 1, 2, 0},  // compare_set
    kKey,              // get
    {false, 1, 0, 8},  // add
    kKeys,             // check
    kKeys,             // wait
    kBare,             // num_keys
    kKey,              // delete
    kKeyAndValue,      // append
    kKeys,             // multi_get
    {true, 0, 1, 0},   // multi_set
    kBare,             // cancel wait
    {false, 0, 0, 4},  // ping
    kKeyAndValue,      // queue push
    kKey,              // queue pop
    kKey,              // queue length
    kBare,             // list_keys
}};

const Layout& layout_of(Type type) {
  return kLayouts[static_cast<size_t>(type)];
}

}  // namespace

std::optional<Request> RequestReader::next(std::string_view& input) {
  for (Field next = field(); next != Field::kNone; next = field()) {
    if (!take(next, input)) return std::nullopt;
  }
  has_type_ = has_count_ = has_number_ = false;
  request_bytes_ = 0;
  return std::exchange(request_, {});
}

size_t RequestReader::held_bytes() const {
  size_t missing = text_bytes_ ? static_cast<size_t>(*text_bytes_) - text_.size() : 0;
  return request_bytes_ - missing + (request_.keys.size() + request_.values.size()) * sizeof(std::string);
}

RequestReader::Field RequestReader::field() const {
  if (!has_type_) return Field::kType;
  const Layout& layout = layout_of(request_.type);
  if (layout.counted && !has_count_) return Field::kCount;
  if (request_.values.size() < request_.keys.size() * layout.values_per_key) return Field::kValue;
  if (request_.keys.size() < num_keys_) return Field::kKey;
  return layout.number_bytes > 0 && !has_number_ ? Field::kNumber : Field::kNone;
}

bool RequestReader::take(Field field, std::string_view& input) {
  uint64_t number = 0;
  switch (field) {
    case Field::kType:
      if (!take_number(input, 1, number)) return false;
      begin(static_cast<uint8_t>(number));
      return true;
    case Field::kCount:
      if (!take_number(input, 8, num_keys_)) return false;
      if (num_keys_ > kMaxKeys) throw wire::WireError("too many keys in one request");
      return has_count_ = true;
    case Field::kKey:
      return take_text(input, kMaxKeyBytes, request_.keys);
    case Field::kValue:
      return take_text(input, kMaxValueBytes, request_.values);
    case Field::kNumber:
      return has_number_ = take_number(input, layout_of(request_.type).number_bytes, request_.number);
    case Field::kNone:
      break;
  }
  return true;
}

void RequestReader::begin(uint8_t type) {
  if (type >= kLayouts.size()) throw wire::WireError("a request of a type that torch 2.11 does not have");
  request_.type = static_cast<Type>(type);
  num_keys_ = layout_of(request_.type).num_keys;
  has_type_ = true;
}

bool RequestReader::take_number(std::string_view& input, size_t num_bytes, uint64_t& value) {
  size_t taken = std::min(input.size(), num_bytes - piece_.size());
  piece_ += input.substr(0, taken);
  input.remove_prefix(taken);
  if (piece_.size() < num_bytes) return false;
  count_bytes(num_bytes);
  value = wire::Reader(piece_).number(num_bytes);
  piece_.clear();
  return true;
}

bool RequestReader::take_text(std::string_view& input, size_t most_bytes, std::vector<std::string>& to) {
  if (!text_bytes_) {
    uint64_t num_bytes = 0;
    if (!take_number(input, 8, num_bytes)) return false;
    if (num_bytes > most_bytes) throw wire::WireError("a key or value is too long");
    count_bytes(num_bytes);
    text_bytes_ = num_bytes;
  }
  size_t taken = std::min(input.size(), static_cast<size_t>(*text_bytes_) - text_.size());
  text_ += input.substr(0, taken);
  input.remove_prefix(taken);
  if (text_.size() < *text_bytes_) return false;
  to.push_back(std::exchange(text_, {}));
  text_bytes_.reset();
  return true;
}

void RequestReader::count_bytes(size_t num_bytes) {
  request_bytes_ += num_bytes;
  if (request_bytes_ > kMaxRequestBytes) throw wire::WireError("a request is too large");
}

std::string encode_number(int64_t value) {
  return wire::Writer().i64(value).take();
}

std::string encode_value(std::string_view value) {
  return wire::Writer().u64(value.size()).bytes(value).take();
}

}  // namespace dslaunch::rendezvous::torch_wire
