// A pipe that no program inherits by accident.
#pragma once
#include <fcntl.h>
#include <unistd.h>

#include <string>

#include "base/error.hpp"
#include "base/unique_fd.hpp"

namespace dslaunch::spawn {

struct Pipe {
  UniqueFd read, write;
};

// `flags` are added to O_CLOEXEC; `what` is for the message. Throws SystemError.
inline Pipe make_pipe(const std::string& what, int flags = 0) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | flags) != 0) throw SystemError("pipe2", what);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

}  // namespace dslaunch::spawn
