// A folder of the test's own under the system's temporary folder, removed with everything in it; files in one call.
#pragma once
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>

namespace dslaunch::test {

inline void write_file(const std::string& path, std::string_view content) {
  std::ofstream out(path, std::ios::binary);
  out.write(content.data(), static_cast<std::streamsize>(content.size()));
  if (!out.flush()) throw std::runtime_error("cannot write " + path);
}

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class TempDir {
 public:
  explicit TempDir(const std::filesystem::path& parent = std::filesystem::temp_directory_path()) {
    std::string pattern = (parent / "dsl-test-XXXXXX").string();
    if (!::mkdtemp(pattern.data())) throw std::runtime_error("mkdtemp failed for " + pattern);
    path_ = pattern;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }
  // Writes a file and returns its path.
  std::string write(std::string_view name, std::string_view content) const {
    const std::string path = *this / name;
    write_file(path, content);
    return path;
  }

 private:
  std::string path_;
};

// The same in memory, where the machine has room there: for tests that make sure of files by the hundred, each of which
// would wait for the disk.
class MemoryDir : public TempDir {
 public:
  MemoryDir() : TempDir(has_room() ? kMemory : std::filesystem::temp_directory_path()) {}

 private:
  static constexpr const char* kMemory = "/dev/shm";

  static bool has_room() {
    std::error_code none;
    const auto space = std::filesystem::space(kMemory, none);
    return !none && space.available > (1U << 30) && ::access(kMemory, W_OK) == 0;
  }
};

}  // namespace dslaunch::test
