// The folder that this program was started in, and what paths mean there.
#pragma once
#include <string>
#include <string_view>

namespace dslaunch::launch {

// Throws UserError(66) when it has been removed; `way_out` follows the advice to leave it.
std::string working_folder(std::string_view way_out = "");

// Absolute and without "." and ".."; an empty path stays empty. Throws UserError(66) for a relative one where the
// folder that it begins in has been removed.
std::string absolute_path(const std::string& path);

}  // namespace dslaunch::launch
