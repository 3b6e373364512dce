// JSON documents as text.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace dslaunch {

// `indent`: how many spaces a level, over several lines; -1: all on one line. No line break at the end. Bytes that are
// no UTF-8 (a file's name, a program's words) become U+FFFD: nothing is thrown for them. Any thread.
std::string dump_json(const nlohmann::json& document, int indent = -1);
std::string dump_json(const nlohmann::ordered_json& document, int indent = -1);

}  // namespace dslaunch
