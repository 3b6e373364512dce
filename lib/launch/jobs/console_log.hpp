// The output that a job shows on its terminal, stored in the job's directory: for `logs`, for `attach`, and for jobs
// without a terminal. Used by one thread; reads and writes run on the file thread. Other processes read the file, and a
// detached supervisor writes its log lines directly to it.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "launch/event_loop/file_thread.hpp"

namespace dslaunch::launch {

// A part of the console that is being read from the file.
struct ConsolePart {
  std::atomic<bool> there = false;
  std::string bytes;  // valid once `there` is set; empty at the console's end
};

class ConsoleLog {
 public:
  // Throws SystemError(73). `thread` outlives this.
  ConsoleLog(const std::string& path, FileThread& thread);

  // A full disk must not end a job: bytes that cannot be written are dropped, and the file thread reports the first
  // such error.
  void append(std::string_view bytes);

  // As last measured.
  uint64_t size() const;
  // Updates size() from the file; append() updates it, too.
  void measure();
  // Reads up to `most` bytes from `position` on. The file thread wakes the loop once they are read and its queue is
  // empty.
  std::shared_ptr<ConsolePart> fetch(uint64_t position, size_t most);
  // Appended bytes can be fetched only once they are written: the file thread then wakes the loop.
  void wake_when_written();
  int fd() const;

 private:
  struct File;
  FileThread& thread_;
  std::shared_ptr<File> file_;
};

}  // namespace dslaunch::launch
