// The one include of fmt. What of it is no template is compiled into this room (fmt_library.cpp); LibTorch brings its
// own copy in another inline namespace, and nothing of fmt stands in a signature between rooms.
#pragma once
#include <fmt/format.h>
#include <fmt/ranges.h>

#if FMT_VERSION != DSL_FMT_VERSION
#error "another fmt than the one that is compiled in: see cmake/Fmt.cmake"
#endif
