#include "runtime/state/output_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/writable_directory.hpp"
#include "base/write_all.hpp"

namespace dslaunch::runtime {

OutputFile::OutputFile(const std::string& path, mode_t mode)
    : path_(path), fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode)) {
  if (!fd_.valid()) {
    const bool full = errno == ENOSPC || errno == EDQUOT;
    throw SystemError("create", "'" + path + "'", errno, full ? ExitCode::kIoError : ExitCode::kCannotCreate);
  }
}

void OutputFile::write(const void* data, size_t size) {
  const int error = write_all(fd_.get(), {static_cast<const char*>(data), size});
  if (error != 0) {
    const uint64_t missing = std::max<uint64_t>(size, expected_bytes_ - std::min(written_bytes_, expected_bytes_));
    throw SystemError("write", written_object(path_, missing, error), error);
  }
  written_bytes_ += size;
}

void OutputFile::finish(bool sync) {
  if (sync && ::fsync(fd_.get()) != 0) throw SystemError("fsync", "'" + path_ + "'");
  if (::close(fd_.release()) != 0 && errno != EINTR) throw SystemError("close", "'" + path_ + "'");
}

void sync_directory(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) throw SystemError("open directory", "'" + path + "'");
  // Some network file systems cannot sync directories and return EINVAL; nothing more can be done there.
  if (::fsync(fd.get()) != 0 && errno != EINVAL) throw SystemError("fsync", "'" + path + "'");
}

}  // namespace dslaunch::runtime
