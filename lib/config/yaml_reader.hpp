// Reads YAML (one document, core schema: null, true, false, numbers; quoted scalars are text; anchors and aliases) into
// the same tree as HJSON. A repeated key is a problem. Expects valid UTF-8. Any thread; never throws on bad input.
#pragma once
#include <string_view>

#include "config/document.hpp"

namespace dslaunch::config {

ReadResult read_yaml(std::string_view text);

}  // namespace dslaunch::config
