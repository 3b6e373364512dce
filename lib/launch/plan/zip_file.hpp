// Reads the directory of a zip archive on disk from the end of the file alone. Any thread.
#pragma once
#include <cstdint>
#include <iosfwd>
#include <string>

namespace dslaunch::launch {

struct ZipFileDirectory {
  std::string bytes;
  uint64_t num_entries = 0;
};
// Throws WireError if the file is not an archive, as base/zip_directory.hpp describes.
ZipFileDirectory read_zip_file_directory(std::ifstream& file, uint64_t file_bytes);

}  // namespace dslaunch::launch
