#include "base/error.hpp"

#include <system_error>

namespace dslaunch {

// The limit of the process or of the machine, whatever was to be opened; `otherwise` says what a failed call means.
static ExitCode code_of(int error_number, ExitCode otherwise) {
  return error_number == EMFILE || error_number == ENFILE ? ExitCode::kUnavailable : otherwise;
}

std::string describe_errno(int error_number) {
  std::string text = std::generic_category().message(error_number);
  if (error_number == EMFILE) text += " (ulimit -n raises this limit)";
  if (error_number == ENOSPC) text += " (df, and df -i for inodes, show what has run out)";
  return text;
}

SystemError::SystemError(std::string_view call, std::string_view object, int error_number, ExitCode code)
    : Error(code_of(error_number, code),
            std::string(call) + " " + std::string(object) + ": " + describe_errno(error_number)),
      error_number_(error_number) {}

PeerError::PeerError(int rank, std::string_view host, std::string_view phase, std::string_view what)
    : Error(ExitCode::kPeerLost, (rank >= 0 ? "rank " + std::to_string(rank) : std::string("a peer")) +
                                     (host.empty() ? std::string() : " on " + std::string(host)) + ": " +
                                     std::string(what) + " during " + std::string(phase)),
      rank_(rank) {}

static std::string base_name(std::string_view path) {
  return std::string(path.substr(path.find_last_of('/') + 1));
}

InternalError::InternalError(const char* file, int line, std::string_view condition, const std::string& message)
    : Error(ExitCode::kInternal, "internal error at " + base_name(file) + ":" + std::to_string(line) + " (" +
                                     std::string(condition) + "): " + message + ". Please report this.") {}

}  // namespace dslaunch
