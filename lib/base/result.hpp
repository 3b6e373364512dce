// The outcome of an operation whose failure the caller decides upon: it adds the error to a list, prints a warning,
// tries something else or throws. An error that ends the job in any case is thrown (error.hpp). As std::expected of
// C++23.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace dslaunch {

// Converts to any Result with this type of error: `return Failure{"it is a directory"};`.
template <class E>
struct Failure {
  E error;
};
template <class E>
Failure(E) -> Failure<E>;
Failure(const char*)->Failure<std::string>;

// A value, or the error that explains its absence: by default a clause for the end of a message ("it is a directory").
template <class T = void, class E = std::string>
class [[nodiscard]] Result {
 public:
  Result(T value) : outcome_(std::in_place_index<0>, std::move(value)) {}
  Result(Failure<E> failure) : outcome_(std::in_place_index<1>, std::move(failure.error)) {}

  bool ok() const { return outcome_.index() == 0; }
  // The value. Requires ok(); otherwise throws std::bad_variant_access.
  const T& operator*() const& { return std::get<0>(outcome_); }
  T&& operator*() && { return std::get<0>(std::move(outcome_)); }
  const T* operator->() const { return &std::get<0>(outcome_); }
  // Requires !ok(); otherwise throws std::bad_variant_access.
  const E& error() const { return std::get<1>(outcome_); }

 private:
  std::variant<T, E> outcome_;
};

// Success without a value, or an error.
template <class E>
class [[nodiscard]] Result<void, E> {
 public:
  Result() = default;  // success
  Result(Failure<E> failure) : error_(std::move(failure.error)) {}

  bool ok() const { return !error_; }
  // Requires !ok(); otherwise throws std::bad_optional_access.
  const E& error() const { return error_.value(); }

 private:
  std::optional<E> error_;
};

}  // namespace dslaunch
