#include "runtime/generated_kernels/kernel_files.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/format.hpp"
#include "base/hash.hpp"
#include "base/small_file.hpp"
#include "base/unique_fd.hpp"
#include "base/write_all.hpp"

namespace dslaunch::runtime::generated_kernels {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFormat = "dslaunch kernel 1\n";

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

// Format, length of the key, checksum of key and machine code, key, machine code.
std::string file_contents(const std::string& key, const std::string& cubin) {
  return fmt::format("{}{:016x} {:016x}\n", kFormat, key.size(), fnv1a(key + cubin)) + key + cubin;
}

}  // namespace

std::string kernel_directory() {
  if (const auto cache = variable("XDG_CACHE_HOME"); !cache.empty()) return cache + "/dslaunch/kernels";
  const auto home = variable("HOME");
  return home.empty() ? std::string() : home + "/.cache/dslaunch/kernels";
}

std::string KernelFiles::path_of(const std::string& key) const {
  return fmt::format("{}/{:016x}{:016x}.kernel", directory_, fnv1a(key), fnv1a(key + "."));
}

std::optional<std::string> KernelFiles::read(const std::string& key) const {
  const auto file = read_plain_file(path_of(key));
  if (!file.outcome.ok() || file.too_large) return std::nullopt;
  const size_t header = file_contents("", "").size();
  if (file.bytes.size() < header + key.size()) return std::nullopt;
  std::string cubin = file.bytes.substr(header + key.size());
  if (cubin.empty() || file.bytes != file_contents(key, cubin)) return std::nullopt;
  return cubin;
}

Result<> KernelFiles::write(const std::string& key, const std::string& cubin) const {
  std::error_code error;
  fs::create_directories(directory_, error);
  if (error) return Failure{fmt::format("'{}' cannot be created: {}", directory_, error.message())};
  static std::atomic<unsigned> count{0};
  const std::string path = path_of(key), draft = fmt::format("{}.{}.{}", path, ::getpid(), ++count);
  UniqueFd file(::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid()) return Failure{fmt::format("'{}' cannot be written: {}", directory_, std::strerror(errno))};
  int failed = write_all(file.get(), file_contents(key, cubin));
  // Without fsync: after a crash of the machine the checksum tells.
  if (failed == 0 && ::rename(draft.c_str(), path.c_str()) != 0) failed = errno;
  if (failed == 0) return {};
  ::unlink(draft.c_str());
  return Failure{fmt::format("'{}' cannot be written: {}", directory_, std::strerror(failed))};
}

}  // namespace dslaunch::runtime::generated_kernels
