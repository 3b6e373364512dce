// The list of a type's fields, in the order in which the control channel carries them. It stands beside the type and
// serves both directions (wire_fields.hpp). An entry is a pointer to a member, or one of the functions below.
#pragma once
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>

namespace dslaunch::launch {

// An int within bounds. A plain pointer to an int: not negative.
template <class Owner>
struct BoundedField {
  int Owner::*member;
  int low, high;
};
template <class Owner>
constexpr BoundedField<Owner> between(int low, int high, int Owner::*member) {
  return {member, low, high};
}

// An enumeration whose enumerators are 0, 1, ... `last`.
template <class Owner, class Enum>
struct EnumField {
  Enum Owner::*member;
  Enum last;
};
template <class Owner, class Enum>
constexpr EnumField<Owner, Enum> up_to(Enum last, Enum Owner::*member) {
  return {member, last};
}

// Reads the member again as a condition: unless it has this value, the fields that follow are skipped when read.
template <class Owner>
struct FieldsFollowIf {
  uint32_t Owner::*member;
  uint32_t value;
};
template <class Owner>
constexpr FieldsFollowIf<Owner> rest_only_if(uint32_t Owner::*member, uint32_t value) {
  return {member, value};
}

// The list: the type's own, or a specialization for a type of another room.
template <class T>
inline constexpr std::nullptr_t kFieldsOf = nullptr;  // none
template <class T>
requires requires {
  T::kFields;
}
inline constexpr auto kFieldsOf<T> = T::kFields;
template <class T>
concept HasFieldList = !std::is_null_pointer_v<std::remove_cv_t<decltype(kFieldsOf<T>)>>;

namespace field_list_detail {

struct AnyValue {
  template <class T>
  operator T() const;
};

template <class T, class... Values>
consteval size_t num_members() {
  if constexpr (requires { T{Values()..., AnyValue()}; }) {
    return num_members<T, Values..., AnyValue>();
  } else {
    return sizeof...(Values);
  }
}

template <class Owner>
constexpr size_t num_listed(const FieldsFollowIf<Owner>&) {
  return 0;
}
template <class Entry>
constexpr size_t num_listed(const Entry&) {
  return 1;
}

}  // namespace field_list_detail

// False if a member is missing in the list. An aggregate without arrays as members.
template <class T>
consteval bool lists_every_member() {
  const size_t num_listed = std::apply(
      [](const auto&... entries) { return (size_t{0} + ... + field_list_detail::num_listed(entries)); }, kFieldsOf<T>);
  return num_listed == field_list_detail::num_members<T>();
}

}  // namespace dslaunch::launch
