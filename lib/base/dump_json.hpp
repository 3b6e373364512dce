// JSON documents as text.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace dslaunch {

// `indent`: spaces per level, over several lines; -1: all on one line. No line break at the end. Bytes that are not
// UTF-8 (in a file name, in a program's output) become U+FFFD and throw nothing. Any thread.
std::string dump_json(const nlohmann::json& document, int indent = -1);
std::string dump_json(const nlohmann::ordered_json& document, int indent = -1);

}  // namespace dslaunch
