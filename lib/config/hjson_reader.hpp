// HJSON as DeepSpeed reads it: comments (#, //, /* */), optional commas at line ends, unquoted keys and strings, '...'
// and '''...''' strings, optional braces around the root. Our addition: a repeated key is a problem. Expects valid
// UTF-8. Any thread; never throws on bad input.
#pragma once
#include <string_view>

#include "config/document.hpp"

namespace dslaunch::config {

ReadResult read_hjson(std::string_view text);

}  // namespace dslaunch::config
