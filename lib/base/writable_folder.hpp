// Can a folder be written to, or made? Asked before hours of work whose result shall go there.
#pragma once
#include <string>

namespace dslaunch {

// Empty when the folder, or the nearest one above it that exists, takes new entries; else why not. Any thread.
std::string why_not_writable(const std::string& folder);

}  // namespace dslaunch
