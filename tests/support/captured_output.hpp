// What the process writes to its standard output (1) or standard error (2) while this lives.
#pragma once
#include <unistd.h>

#include <cstdio>
#include <string>

namespace dslaunch::test {

class CapturedOutput {
 public:
  explicit CapturedOutput(int descriptor) : descriptor_(descriptor), before_(::dup(descriptor)), file_(std::tmpfile()) {
    std::fflush(nullptr);
    ::dup2(::fileno(file_), descriptor_);
  }
  ~CapturedOutput() {
    std::fflush(nullptr);
    ::dup2(before_, descriptor_);
    ::close(before_);
    std::fclose(file_);
  }
  CapturedOutput(const CapturedOutput&) = delete;
  CapturedOutput& operator=(const CapturedOutput&) = delete;

  std::string text() const {
    std::fflush(nullptr);
    std::string out(static_cast<size_t>(::lseek(::fileno(file_), 0, SEEK_END)), '\0');
    const ssize_t size = ::pread(::fileno(file_), out.data(), out.size(), 0);
    out.resize(size < 0 ? 0 : static_cast<size_t>(size));
    return out;
  }

 private:
  const int descriptor_, before_;
  std::FILE* const file_;
};

}  // namespace dslaunch::test
