// Compiles fmt's non-template functions once into this room. Header-only, every file that prints would compile them
// again, at a third to a half of each file's compile time. Debian has no static fmt, and a program that is copied to
// other hosts cannot rely on a shared one. cmake/Fmt.cmake says when this is part of the room.
#include <fmt/format-inl.h>

#include "base/format.hpp"

FMT_BEGIN_NAMESPACE
namespace detail {

// The templates that format.h declares as compiled elsewhere, for char.
template auto dragonbox::to_decimal(float x) noexcept -> dragonbox::decimal_fp<float>;
template auto dragonbox::to_decimal(double x) noexcept -> dragonbox::decimal_fp<double>;
template locale_ref::locale_ref(const std::locale& locale);
template auto locale_ref::get<std::locale>() const -> std::locale;
template auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template auto decimal_point_impl(locale_ref) -> char;
template void buffer<char>::append(const char*, const char*);
template void vformat_to(buffer<char>&, string_view, basic_format_args<FMT_BUFFER_CONTEXT(char)>, locale_ref);

}  // namespace detail
FMT_END_NAMESPACE
