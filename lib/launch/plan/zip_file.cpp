#include "launch/plan/zip_file.hpp"

#include <algorithm>
#include <fstream>

#include "base/byte_fields.hpp"
#include "base/zip_directory.hpp"

namespace dslaunch::launch {
namespace {

std::string read_range(std::ifstream& file, uint64_t begin, size_t count) {
  std::string bytes(count, '\0');
  file.seekg(static_cast<std::streamoff>(begin));
  file.read(bytes.data(), static_cast<std::streamsize>(count));
  if (!file) throw WireError("is truncated: is it still being written?");
  return bytes;
}

}  // namespace

ZipFileDirectory read_zip_file_directory(std::ifstream& file, uint64_t file_bytes) {
  const uint64_t tail_bytes = std::min<uint64_t>(file_bytes, kZipEndBytes);
  const auto place = find_zip_directory(read_range(file, file_bytes - tail_bytes, tail_bytes), file_bytes);
  return {read_range(file, place.offset, place.size), place.num_entries};
}

}  // namespace dslaunch::launch
