#include "launch/zip_directory.hpp"

#include <algorithm>
#include <fstream>
#include <stdexcept>

namespace dslaunch::launch {
namespace {

uint64_t little_endian(const std::string& bytes, size_t at, int count) {
  uint64_t value = 0;
  for (int i = count - 1; i >= 0; --i) value = value << 8 | static_cast<uint8_t>(bytes.at(at + i));
  return value;
}

std::string read_range(std::ifstream& file, uint64_t begin, size_t count) {
  std::string bytes(count, '\0');
  file.seekg(static_cast<std::streamoff>(begin));
  file.read(bytes.data(), static_cast<std::streamsize>(count));
  if (!file) throw std::out_of_range("the file ends early");
  return bytes;
}

}  // namespace

std::string zip_directory(std::ifstream& file, uint64_t file_bytes) {
  constexpr size_t kEndBytes = 22, kLocatorBytes = 20, kEnd64Bytes = 56, kLongestComment = 65535;
  size_t tail_bytes = std::min<uint64_t>(file_bytes, kEndBytes + kLongestComment + kLocatorBytes);
  uint64_t tail_begin = file_bytes - tail_bytes;
  std::string tail = read_range(file, tail_begin, tail_bytes);
  size_t end = tail.rfind(std::string("PK\5\6", 4));
  if (end == std::string::npos) throw std::out_of_range("it has no end record");
  uint64_t size = little_endian(tail, end + 12, 4), offset = little_endian(tail, end + 16, 4);
  size_t locator = end < kLocatorBytes ? std::string::npos : end - kLocatorBytes;
  if (locator != std::string::npos && tail.compare(locator, 4, std::string("PK\6\7", 4)) == 0) {
    std::string end64 = read_range(file, little_endian(tail, locator + 8, 8), kEnd64Bytes);
    size = little_endian(end64, 40, 8);
    offset = little_endian(end64, 48, 8);
  }
  if (offset > file_bytes || size > file_bytes - offset) throw std::out_of_range("its directory lies outside of it");
  return read_range(file, offset, size);
}

std::vector<std::string> names_in(const std::string& directory) {
  constexpr size_t kEntryBytes = 46;
  std::vector<std::string> names;
  for (size_t at = 0; directory.size() - at >= kEntryBytes && directory.compare(at, 4, "PK\1\2") == 0;) {
    const size_t name_bytes = little_endian(directory, at + 28, 2);
    const size_t rest_bytes = little_endian(directory, at + 30, 2) + little_endian(directory, at + 32, 2);
    names.push_back(directory.substr(at + kEntryBytes, name_bytes));
    at += std::min(kEntryBytes + name_bytes + rest_bytes, directory.size() - at);
  }
  return names;
}

}  // namespace dslaunch::launch
