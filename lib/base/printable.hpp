// Escapes external text for use in messages: control characters and bytes that are not UTF-8 are written as \x1b, so
// that a damaged file or a program's output cannot send a terminal control sequences or end a message at a zero byte.
#pragma once
#include <string>
#include <string_view>

namespace dslaunch {

// `kept`: control characters that stay unescaped.
std::string printable(std::string_view text, std::string_view kept = {});

}  // namespace dslaunch
