#include "base/described_error.hpp"

#include <filesystem>
#include <new>
#include <optional>
#include <system_error>

#include "base/error.hpp"

namespace dslaunch {
namespace {

// The message for an exception that means that the system refused a thread: a limit of the user, not our bug.
std::optional<std::string> thread_error(const std::exception& error) {
  const auto* system = dynamic_cast<const std::system_error*>(&error);
  if (system == nullptr || system->code() != std::errc::resource_unavailable_try_again) return std::nullopt;
  return "cannot create a thread: check the limits of this user (ulimit -u, ulimit -v) and of the container (pids.max)";
}

}  // namespace

DescribedError described(const std::exception& error) {
  if (const auto* ours = dynamic_cast<const Error*>(&error)) return {ours->code(), ours->what()};
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return {ExitCode::kUnavailable, "out of memory"};
  if (const auto refused = thread_error(error)) return {ExitCode::kUnavailable, *refused};
  // For example, the working directory does not exist, so a relative path cannot be resolved.
  if (dynamic_cast<const std::filesystem::filesystem_error*>(&error) != nullptr) {
    return {ExitCode::kIoError, error.what()};
  }
  return {ExitCode::kInternal, std::string("internal error: ") + error.what() + ". Please report this."};
}

}  // namespace dslaunch
