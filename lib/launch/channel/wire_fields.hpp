// Values of the control channel as bytes: numbers, texts, lists with a leading u32 count, and types with a list of
// fields.
#pragma once
#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/byte_fields.hpp"
#include "launch/channel/field_list.hpp"

namespace dslaunch::launch {

class FieldWriter : public ByteWriter {
 public:
  void put(bool value) { u8(value ? 1 : 0); }
  void put(char value) { u8(static_cast<uint8_t>(value)); }
  void put(uint8_t value) { u8(value); }
  void put(uint16_t value) { u16(value); }
  void put(uint32_t value) { u32(value); }
  void put(uint64_t value) { u64(value); }
  void put(int value) { i64(value); }
  void put(int64_t value) { i64(value); }
  void put(std::chrono::milliseconds value) { i64(value.count()); }
  void put(const std::string& value) { text(value); }
  template <class T>
  void put(const std::vector<T>& values) {
    count(values.size());
    for (const auto& value : values) put(value);
  }
  template <class T>
  void put(const std::map<std::string, T>& values) {
    count(values.size());
    for (const auto& [key, value] : values) {
      put(key);
      put(value);
    }
  }
  template <class T>
  requires requires { kFieldsOf<T>; }
  void put(const T& value) {
    static_assert(lists_every_member<T>(), "kFields lists every member once");
    std::apply([&](const auto&... entries) { (put_field(value, entries), ...); }, kFieldsOf<T>);
  }

 private:
  template <class Owner, class T>
  void put_field(const Owner& owner, T Owner::*member) {
    put(owner.*member);
  }
  template <class Owner>
  void put_field(const Owner& owner, const BoundedField<Owner>& field) {
    put(owner.*field.member);
  }
  template <class Owner, class Enum>
  void put_field(const Owner& owner, const EnumField<Owner, Enum>& field) {
    u8(static_cast<uint8_t>(owner.*field.member));
  }
  template <class Owner>
  void put_field(const Owner&, const FieldsFollowIf<Owner>&) {}
};

// Throws WireError also for a value that the field may not have: values from another host are used as an index, an exit
// code or a time.
class FieldReader : public ByteReader {
 public:
  explicit FieldReader(std::string_view bytes) : ByteReader(bytes, "the frame ends early") {}

  void get(bool& value) { value = u8() != 0; }
  void get(char& value) { value = static_cast<char>(u8()); }
  void get(uint8_t& value) { value = u8(); }
  void get(uint16_t& value) { value = u16(); }
  void get(uint32_t& value) { value = u32(); }
  void get(uint64_t& value) { value = u64(); }
  void get(int& value) { value = int_between(0, std::numeric_limits<int>::max()); }
  void get(int64_t& value) { value = i64(); }
  void get(std::chrono::milliseconds& value) {
    constexpr std::chrono::milliseconds kMax = std::chrono::days(100000);  // more could overflow a time_point
    value = std::chrono::milliseconds(i64());
    if (value < value.zero() || value > kMax) throw WireError("duration out of range");
  }
  void get(std::string& value) { value = text(SIZE_MAX); }  // the frame's length is limited already
  template <class T>
  void get(std::vector<T>& values) {
    for (uint32_t left = u32(); left > 0; --left) get(values.emplace_back());
  }
  template <class T>
  void get(std::map<std::string, T>& values) {
    for (uint32_t left = u32(); left > 0; --left) {
      std::string key;
      get(key);
      get(values[std::move(key)]);
    }
  }
  template <class T>
  requires requires { kFieldsOf<T>; }
  void get(T& value) {
    std::apply([&](const auto&... entries) { static_cast<void>((get_field(value, entries) && ...)); }, kFieldsOf<T>);
  }

 private:
  int int_between(int low, int high) {
    const int64_t value = i64();
    if (value < low || value > high) throw WireError("number out of range");
    return static_cast<int>(value);
  }

  // False: the fields that follow are not to be read.
  template <class Owner, class T>
  bool get_field(Owner& owner, T Owner::*member) {
    get(owner.*member);
    return true;
  }
  template <class Owner>
  bool get_field(Owner& owner, const BoundedField<Owner>& field) {
    owner.*field.member = int_between(field.low, field.high);
    return true;
  }
  template <class Owner, class Enum>
  bool get_field(Owner& owner, const EnumField<Owner, Enum>& field) {
    const uint8_t value = u8();
    if (value > static_cast<uint8_t>(field.last)) throw WireError("unknown enumerator");
    owner.*field.member = static_cast<Enum>(value);
    return true;
  }
  template <class Owner>
  bool get_field(Owner& owner, const FieldsFollowIf<Owner>& field) {
    if (owner.*field.member == field.value) return true;
    skip_rest();
    return false;
  }
};

}  // namespace dslaunch::launch
