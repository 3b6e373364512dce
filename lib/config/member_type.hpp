// How a member of the typed sections holds a value of the job file: MemberType<T> has the kind of key that a T makes,
// and converts both ways. Enumerations take the table of their texts: EnumMember<kTable>.
#pragma once
#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "config/job_config.hpp"
#include "config/key_spec.hpp"
#include "config/value.hpp"

namespace dslaunch::config {

// from() expects a value that coerce() accepted for kKind, and not null.
template <class T>
struct MemberType;

template <>
struct MemberType<bool> {
  static constexpr Kind kKind = Kind::kBool;
  static bool from(const Value& value) { return value.boolean; }
  static Value to_value(bool member) { return Value::of_bool(member); }
};

template <std::integral T>
struct MemberType<T> {
  static constexpr Kind kKind = Kind::kInt;
  static T from(const Value& value) { return static_cast<T>(value.integer); }
  static Value to_value(T member) { return Value::of_int(static_cast<int64_t>(member)); }
};

template <>
struct MemberType<double> {
  static constexpr Kind kKind = Kind::kFloat;
  static double from(const Value& value) { return value.number; }
  static Value to_value(double member) { return Value::of_float(member); }
};

template <>
struct MemberType<std::string> {
  static constexpr Kind kKind = Kind::kString;
  static std::string from(const Value& value) { return value.text; }
  static Value to_value(const std::string& member) { return Value::of_string(member); }
};

template <class T>
struct MemberType<std::vector<T>> {
  static constexpr Kind kKind = std::is_same_v<T, std::string> ? Kind::kStringList
                                : std::is_same_v<T, double>    ? Kind::kFloatList
                                                               : Kind::kIntList;
  static std::vector<T> from(const Value& value) {
    std::vector<T> out;
    for (const auto& item : value.items) out.push_back(MemberType<T>::from(item));
    return out;
  }
  static Value to_value(const std::vector<T>& member) {
    std::vector<Value> items;
    for (const T& item : member) items.push_back(MemberType<T>::to_value(item));
    return Value::of_array(std::move(items));
  }
};

// The key may be a list with one number per optimizer group.
template <>
struct MemberType<PerGroup> {
  static constexpr Kind kKind = Kind::kFloat;
  static PerGroup from(const Value& value) {
    if (!value.is_array()) return value.number;
    std::vector<double> each;
    for (const auto& item : value.items) each.push_back(item.number);
    return PerGroup(std::move(each));
  }
  static Value to_value(const PerGroup& member) { return Value::of_float(member.values.front()); }
};

template <class T>
struct MemberType<std::optional<T>> {
  static constexpr Kind kKind = MemberType<T>::kKind;
  static T from(const Value& value) { return MemberType<T>::from(value); }
  static Value to_value(const std::optional<T>& member) { return member ? MemberType<T>::to_value(*member) : Value(); }
};

// A bool that may be "auto": empty.
struct AutoBool {
  static constexpr Kind kKind = Kind::kBool;
  static std::optional<bool> from(const Value& value) {
    return value.is_text("auto") ? std::nullopt : std::optional(value.boolean);
  }
  static Value to_value(const std::optional<bool>& member) {
    return member ? Value::of_bool(*member) : Value::of_string("auto");
  }
};

// One text of an enumeration's table. Several texts may stand for one value: the first is written.
template <class E>
struct EnumName {
  std::string_view text;
  E value;
};

// The value with this text; the texts are compared as they are, as coerce() returns them.
template <class E, size_t N>
std::optional<E> find_value(const EnumName<E> (&table)[N], std::string_view text) {
  for (const auto& name : table) {
    if (name.text == text) return name.value;
  }
  return std::nullopt;
}

// The first text with this value; empty: there is none.
template <class E, size_t N>
std::string_view name_of(const EnumName<E> (&table)[N], E value) {
  for (const auto& name : table) {
    if (name.value == value) return name.text;
  }
  return {};
}

// A value without a text is null: the key was not given.
template <const auto& kTable>
struct EnumMember {
  static constexpr Kind kKind = Kind::kEnum;
  using Enum = std::remove_cvref_t<decltype(kTable[0].value)>;

  static Enum from(const Value& value) { return find_value(kTable, value.text).value(); }
  static Value to_value(Enum member) {
    for (const auto& name : kTable) {
      if (name.value == member) return Value::of_string(std::string(name.text));
    }
    return {};
  }
  static Value to_value(const std::optional<Enum>& member) { return member ? to_value(*member) : Value(); }
  static std::vector<std::string> names() {
    std::vector<std::string> out;
    for (const auto& name : kTable) out.emplace_back(name.text);
    return out;
  }
};

}  // namespace dslaunch::config
