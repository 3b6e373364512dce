// Text from outside as it may stand in a message: control characters and bytes that are not UTF-8 as \x1b, so that a
// terminal takes no orders from a damaged file or a program's output, and a message does not end at a zero byte.
#pragma once
#include <string>
#include <string_view>

namespace dslaunch {

// `kept`: control characters that stay as they are.
std::string printable(std::string_view text, std::string_view kept = {});

}  // namespace dslaunch
