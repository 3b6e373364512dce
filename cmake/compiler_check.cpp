// What a clang must compile to be taken (Compiler.cmake).
#include <concepts>
#include <optional>
#include <ranges>
#include <string>

static_assert(__clang_major__ >= 14);
