// Binds a row of the key table to the member that holds the key's value. The member's type is the key's type, its
// initializer the key's default. The key tables use this through key_rows.hpp.
//
// A path of member pointers leads from a struct to the member: <&JobConfig::zero, &Zero::stage>. A section on the way
// may be optional: storing a value creates it, storing null does not.
#pragma once
#include <cstddef>
#include <optional>
#include <type_traits>
#include <utility>

#include "config/value.hpp"

namespace dslaunch::config {

// Its address identifies a struct.
template <class Struct>
inline constexpr char kStructId = 0;

struct Binding {
  const void* struct_id;  // where the path starts: JobConfig, or the struct of an entry of a user-named section
  // `value`: as coerce() returned it. Null empties an optional member, and leaves any other member as it is.
  void (*store)(void* root, const Value& value);
  Value (*initial)();                     // the member's initializer
  const void* (*find)(const void* root);  // the member; of an absent section: that of a default-constructed section
};

template <class T>
struct MemberPointer;
template <class Struct, class T>
struct MemberPointer<T Struct::*> {
  using Owner = Struct;
};
template <auto kFirst, auto...>
struct PathStart {
  using Struct = typename MemberPointer<decltype(kFirst)>::Owner;
};
template <auto... kPath>
using OwnerOf = typename PathStart<kPath...>::Struct;

template <class T>
inline constexpr bool kIsOptional = false;
template <class T>
inline constexpr bool kIsOptional<std::optional<T>> = true;

template <class Struct>
const Struct& default_constructed() {
  static const Struct once;
  return once;
}

template <auto kFirst, auto... kRest, class Struct>
const auto& find_member(const Struct& root) {
  const auto& member = root.*kFirst;
  using Reached = std::remove_cvref_t<decltype(member)>;
  if constexpr (sizeof...(kRest) == 0) {
    return member;
  } else if constexpr (kIsOptional<Reached>) {
    return find_member<kRest...>(member ? *member : default_constructed<typename Reached::value_type>());
  } else {
    return find_member<kRest...>(member);
  }
}

template <auto kFirst, auto... kRest, class Struct>
auto& reach_member(Struct& root) {
  auto& member = root.*kFirst;
  if constexpr (sizeof...(kRest) == 0) {
    return member;
  } else if constexpr (kIsOptional<std::remove_cvref_t<decltype(member)>>) {
    if (!member) member = typename std::remove_cvref_t<decltype(member)>::value_type{};
    return reach_member<kRest...>(*member);
  } else {
    return reach_member<kRest...>(member);
  }
}

template <auto... kPath>
using MemberOf = std::remove_cvref_t<decltype(find_member<kPath...>(std::declval<const OwnerOf<kPath...>&>()))>;

// `Type`: converts between the member and values, as MemberType does; or has assign(member, value) in place of from().
template <class Type, auto... kPath>
struct BindingOf {
  using Struct = OwnerOf<kPath...>;

  static void store(void* root, const Value& value) {
    auto& start = *static_cast<Struct*>(root);
    if (value.is_null()) {
      if constexpr (kIsOptional<MemberOf<kPath...>>) reach_member<kPath...>(start).reset();
    } else if constexpr (requires { Type::assign(reach_member<kPath...>(start), value); }) {
      Type::assign(reach_member<kPath...>(start), value);
    } else {
      reach_member<kPath...>(start) = Type::from(value);
    }
  }
  static Value initial() { return Type::to_value(find_member<kPath...>(default_constructed<Struct>())); }
  static const void* find(const void* root) { return &find_member<kPath...>(*static_cast<const Struct*>(root)); }

  static constexpr Binding kBinding{&kStructId<Struct>, store, initial, find};
};

}  // namespace dslaunch::config
