// What any exception means for whoever waits for the end: an exit code and a line. For the mains, and for the doors
// behind which an end has to be told before the process goes. Any thread.
#pragma once
#include <exception>
#include <string>

#include "base/exit_code.hpp"

namespace dslaunch {

struct DescribedError {
  ExitCode code = ExitCode::kInternal;
  std::string text;
};

// Our own errors say it themselves; of the library's, those that are no fault of ours are told by their cause.
DescribedError described(const std::exception& error);

}  // namespace dslaunch
