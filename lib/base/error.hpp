// The errors that end a job. A message says what was tried, on what, the result and what to do; the log adds rank and
// host. Outcomes that a caller acts on (a port is busy) are returned (result.hpp), never thrown.
#pragma once
#include <cerrno>
#include <stdexcept>
#include <string>
#include <string_view>

#include "base/exit_code.hpp"

namespace dslaunch {

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

// The user's mistake: what to change, and where. `code` is one of 64, 65, 66, 69, 73, 76, 77, 78.
class UserError : public Error {
 public:
  using Error::Error;
};

// A system call failed: call, object, errno.
class SystemError : public Error {
 public:
  SystemError(std::string_view call, std::string_view object, int error_number = errno,
              ExitCode code = ExitCode::kIoError);
  int error_number() const { return error_number_; }

 private:
  int error_number_;
};

// Another rank is gone or does not answer: rank (-1: unknown), host, phase.
class PeerError : public Error {
 public:
  PeerError(int rank, std::string_view host, std::string_view phase, std::string_view what);
  int rank() const { return rank_; }

 private:
  int rank_;
};

// A deadline passed; the message names what is missing.
class TimeoutError : public Error {
 public:
  explicit TimeoutError(const std::string& message) : Error(ExitCode::kTimeout, message) {}
};

// An internal assumption does not hold; carries the source location. Thrown by DSL_CHECK.
class InternalError : public Error {
 public:
  InternalError(const char* file, int line, std::string_view condition, const std::string& message);
};

#define DSL_CHECK(condition, message)                                             \
  do {                                                                            \
    if (!(condition)) {                                                           \
      throw ::dslaunch::InternalError(__FILE__, __LINE__, #condition, (message)); \
    }                                                                             \
  } while (false)

// "No such file or directory" for ENOENT; safe to call from several threads.
std::string describe_errno(int error_number);

}  // namespace dslaunch
