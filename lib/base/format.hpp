// The one include of fmt. The parts of fmt that are not templates are compiled into this room (fmt_library.cpp).
// LibTorch brings its own copy in another inline namespace, and no fmt type appears in a signature between rooms.
#pragma once
#include <fmt/format.h>
#include <fmt/ranges.h>

#if FMT_VERSION != DSL_FMT_VERSION
#error "the version of fmt differs from the compiled one: see cmake/Fmt.cmake"
#endif
