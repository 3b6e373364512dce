// The one include of fmt. Header-only: LibTorch brings its own copy in another inline namespace, and nothing of fmt
// stands in a signature between rooms.
#pragma once
#include <fmt/format.h>
#include <fmt/ranges.h>
