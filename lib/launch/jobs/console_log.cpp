#include "launch/jobs/console_log.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/write_all.hpp"
#include "launch/records/private_files.hpp"

namespace dslaunch::launch {

struct ConsoleLog::File {
  std::string path;
  UniqueFd fd;
  std::atomic<uint64_t> size = 0;
  bool error_reported = false;  // owned by the file thread

  std::string append(std::string_view bytes);
  void measure();
  std::string read(uint64_t position, size_t most) const;
};

std::string ConsoleLog::File::append(std::string_view bytes) {
  const int error = write_all(fd.get(), bytes);
  // After an append, the offset is the end of the file; fstat would cost a round trip to a file server.
  if (off_t end = ::lseek(fd.get(), 0, SEEK_CUR); end >= 0) size = static_cast<uint64_t>(end);
  if (error == 0 || std::exchange(error_reported, true)) return {};
  return fmt::format("cannot write to {}: {}", path, describe_errno(error));
}

void ConsoleLog::File::measure() {
  struct stat found;
  if (::fstat(fd.get(), &found) == 0) size = static_cast<uint64_t>(found.st_size);
}

std::string ConsoleLog::File::read(uint64_t position, size_t most) const {
  std::string bytes(most, '\0');
  ssize_t got = ::pread(fd.get(), bytes.data(), most, static_cast<off_t>(position));
  bytes.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return bytes;
}

ConsoleLog::ConsoleLog(const std::string& path, FileThread& thread) : thread_(thread), file_(std::make_shared<File>()) {
  file_->path = path;
  file_->fd = open_private_log(path);
  if (!file_->fd.valid()) throw SystemError("create", path, errno, ExitCode::kCannotCreate);
  file_->measure();
}

void ConsoleLog::append(std::string_view bytes) {
  thread_.submit(bytes.size(), [file = file_, bytes = std::string(bytes)] { return file->append(bytes); });
}

uint64_t ConsoleLog::size() const {
  return file_->size;
}

void ConsoleLog::measure() {
  thread_.submit(0, [file = file_] {
    file->measure();
    return std::string();
  });
}

std::shared_ptr<ConsolePart> ConsoleLog::fetch(uint64_t position, size_t most) {
  auto part = std::make_shared<ConsolePart>();
  thread_.submit(0, [file = file_, part, position, most] {
    part->bytes = file->read(position, most);
    part->there = true;
    return std::string();
  });
  thread_.wake_when_idle();
  return part;
}

void ConsoleLog::wake_when_written() {
  if (!thread_.idle()) thread_.wake_when_idle();
}

int ConsoleLog::fd() const {
  return file_->fd.get();
}

}  // namespace dslaunch::launch
