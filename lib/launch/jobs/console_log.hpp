// What a job's terminal shows, kept in its folder: for `logs`, for `attach`, and for jobs without a terminal. One
// thread; writing and reading is done by the thread of files. Other processes read the file, and the log lines of a
// detached supervisor go straight into it.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "launch/file_thread.hpp"

namespace dslaunch::launch {

// A part of the console on its way from the file.
struct ConsolePart {
  std::atomic<bool> there = false;
  std::string bytes;  // once there; empty at the console's end
};

class ConsoleLog {
 public:
  // Throws SystemError(73). `thread` outlives this.
  ConsoleLog(const std::string& path, FileThread& thread);

  // A full disk must not end a job: what cannot be written is left out, and the thread reports the first such trouble.
  void append(std::string_view bytes);

  // As far as is known.
  uint64_t size() const;
  // Looks how large the file has become; append() does, too.
  void measure();
  // Up to `most` bytes from `position` on. When they are there, and nothing else is left to do, the thread says so.
  std::shared_ptr<ConsolePart> fetch(uint64_t position, size_t most);
  // What has been appended can be fetched once it is written: then the thread says so.
  void wake_when_written();
  int fd() const;

 private:
  struct File;
  FileThread& thread_;
  std::shared_ptr<File> file_;
};

}  // namespace dslaunch::launch
