// The files in assets/, embedded in the program by the build.
#pragma once
#include <string_view>

namespace dslaunch::launch {

extern const std::string_view kPageStyle;
extern const std::string_view kPageScript;

}  // namespace dslaunch::launch
