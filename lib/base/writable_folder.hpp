// Can a folder, or a file, be written to or made? Asked before hours of work whose result shall go there.
#pragma once
#include <string>

namespace dslaunch {

// Empty when the folder, or the nearest one above it that exists, takes new entries; else why not. Any thread.
std::string why_not_writable(const std::string& folder);

// The same for one file. Any thread.
std::string why_not_writable_file(const std::string& path);

}  // namespace dslaunch
