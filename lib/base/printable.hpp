// Text from outside as it may stand in a message: control characters as \x1b, so that a terminal takes no orders from a
// damaged file and a message does not end at a zero byte.
#pragma once
#include <string>
#include <string_view>

namespace dslaunch {

std::string printable(std::string_view text);

}  // namespace dslaunch
