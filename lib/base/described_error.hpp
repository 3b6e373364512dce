// Maps any exception to an exit code and one line of text. For the mains, and for thread entries that must report an
// error before the process exits. Any thread.
#pragma once
#include <exception>
#include <string>

#include "base/exit_code.hpp"

namespace dslaunch {

struct DescribedError {
  ExitCode code = ExitCode::kInternal;
  std::string text;
};

// Our own errors carry code and message; library exceptions with a known external cause are reported by that cause.
DescribedError described(const std::exception& error);

}  // namespace dslaunch
