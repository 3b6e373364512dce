// The table of contents of a zip archive, read from the file's end alone. Any thread.
#pragma once
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace dslaunch::launch {

// The central directory, found from its end record (APPNOTE 4.3.16; 4.3.14 and 4.3.15 for archives beyond 4 GiB).
// Throws std::out_of_range for something else than an archive.
std::string zip_directory(std::ifstream& file, uint64_t file_bytes);

// Of its entries (4.3.12), as far as they can be read.
std::vector<std::string> names_in(const std::string& directory);

}  // namespace dslaunch::launch
