// Readers of the two formats of a job file, into one kind of tree. A repeated key is a problem. Both expect valid
// UTF-8. Any thread; they never throw on bad input.
#pragma once
#include <string_view>

#include "config/document.hpp"

namespace dslaunch::config {

// HJSON as DeepSpeed reads it: comments (#, //, /* */), optional commas at line ends, unquoted keys and strings, '...'
// and '''...''' strings, optional braces around the root.
ReadResult read_hjson(std::string_view text);

// YAML: one document, core schema (null, true, false, numbers; quoted scalars are text), anchors and aliases.
ReadResult read_yaml(std::string_view text);

}  // namespace dslaunch::config
