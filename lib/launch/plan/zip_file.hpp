// The directory of a zip archive that lies on disk, read from the file's end alone. Any thread.
#pragma once
#include <cstdint>
#include <iosfwd>
#include <string>

namespace dslaunch::launch {

struct ZipFileDirectory {
  std::string bytes;
  uint64_t num_entries = 0;
};
// Throws WireError for something else than an archive, as base/zip_directory.hpp says.
ZipFileDirectory read_zip_file_directory(std::ifstream& file, uint64_t file_bytes);

}  // namespace dslaunch::launch
