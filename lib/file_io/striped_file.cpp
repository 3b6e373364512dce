#include "file_io/striped_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "base/writable_directory.hpp"

namespace dslaunch::file_io {
namespace {

[[noreturn]] void fail(const char* what, int64_t bytes, const std::string& directory, int error) {
  const bool is_full = error == ENOSPC || error == EDQUOT;  // which may pass
  throw SystemError(fmt::format("{} {} bytes in", what, bytes),
                    written_object(directory, static_cast<uint64_t>(bytes), error), error,
                    is_full ? ExitCode::kIoError : ExitCode::kCannotCreate);
}

bool is_aligned(const Block& block) {
  const auto address = reinterpret_cast<uintptr_t>(block.data);
  return address % kDirectAlignment == 0 && block.bytes % kDirectAlignment == 0 && block.offset % kDirectAlignment == 0;
}

}  // namespace

UniqueFd open_unnamed(const std::string& directory) {
  UniqueFd file(::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (file.valid() || (errno != EOPNOTSUPP && errno != EISDIR)) return file;
  std::string path = directory + "/dslaunch-offload-XXXXXX";
  file = UniqueFd(::mkostemp(path.data(), O_CLOEXEC));
  if (file.valid()) ::unlink(path.c_str());
  return file;
}

StripedFile::StripedFile(StripedFileOptions options) : options_(std::move(options)) {
  DSL_CHECK(!options_.directories.empty(), "a striped file needs a directory");
  DSL_CHECK(options_.stripe_bytes > 0 && options_.stripe_bytes % kDirectAlignment == 0, "stripes are not aligned");
  if (!options_.note) options_.note = [](const std::string& line) { log::warning("{}", line); };
  for (size_t i = 0; i < options_.directories.size(); ++i) {
    files_.push_back(std::make_unique<File>());
    open(i);
  }
}

void StripedFile::open(size_t file) {
  const std::string& directory = options_.directories[file];
  const int64_t bytes = bytes_of(file);
  UniqueFd& buffered = files_[file]->buffered;
  buffered = open_unnamed(directory);
  if (!buffered.valid()) fail("create a file of", bytes, directory, errno);
  const int error = bytes == 0 ? 0 : ::posix_fallocate(buffered.get(), 0, bytes);
  if (error != 0) fail("reserve", bytes, directory, error);
  if (options_.wants_direct) open_direct(file);
}

// A second descriptor of the same file. Whatever refuses it (EINVAL from the file system, no /proc), the first is
// there.
void StripedFile::open_direct(size_t file) {
  File& to = *files_[file];
  to.direct = UniqueFd(::open(path(static_cast<int>(file)).c_str(), O_RDWR | O_DIRECT | O_CLOEXEC));
  to.is_direct = to.direct.valid();
  if (!to.is_direct) note_buffered(file, errno);
}

// Whole pages, so that an aligned read of the end meets no end of file.
int64_t StripedFile::bytes_of(size_t file) const {
  const auto index = static_cast<int64_t>(file), count = static_cast<int64_t>(options_.directories.size());
  const int64_t num_stripes = (options_.bytes + options_.stripe_bytes - 1) / options_.stripe_bytes;
  const int64_t own_stripes = (num_stripes - index + count - 1) / count;
  if (own_stripes <= 0) return 0;
  const int64_t last = index + (own_stripes - 1) * count;  // its number in the range
  const int64_t last_bytes = std::min(options_.stripe_bytes, options_.bytes - last * options_.stripe_bytes);
  const int64_t pages = (last_bytes + kDirectAlignment - 1) / kDirectAlignment;
  return (own_stripes - 1) * options_.stripe_bytes + pages * kDirectAlignment;
}

std::string StripedFile::path(int file) const {
  return fmt::format("/proc/{}/fd/{}", ::getpid(), files_[static_cast<size_t>(file)]->buffered.get());
}

StripedFile::Place StripedFile::locate(int64_t offset) const {
  if (files_.size() == 1) return {0, offset, options_.bytes - offset};
  const int64_t stripe = offset / options_.stripe_bytes, within = offset % options_.stripe_bytes;
  const auto count = static_cast<int64_t>(files_.size());
  return {static_cast<int>(stripe % count), stripe / count * options_.stripe_bytes + within,
          options_.stripe_bytes - within};
}

void StripedFile::open_block(int file, Block& block) const {
  const File& from = *files_[static_cast<size_t>(file)];
  block.is_direct = from.is_direct && is_aligned(block);
  block.fd = block.is_direct ? from.direct.get() : from.buffered.get();
}

void StripedFile::give_up_direct(int file) {
  const auto index = static_cast<size_t>(file);
  if (files_[index]->is_direct.exchange(false)) note_buffered(index, EINVAL);
}

void StripedFile::note_buffered(size_t file, int error) const {
  options_.note(fmt::format("'{}' refuses O_DIRECT ({}): its files are read and written through the page cache",
                            options_.directories[file], describe_errno(error)));
}

}  // namespace dslaunch::file_io
