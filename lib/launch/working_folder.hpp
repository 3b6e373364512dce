// The folder that this program was started in.
#pragma once
#include <string>
#include <string_view>

namespace dslaunch::launch {

// Throws UserError(66) when it has been removed; `way_out` follows the advice to leave it.
std::string working_folder(std::string_view way_out = "");

}  // namespace dslaunch::launch
