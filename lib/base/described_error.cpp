#include "base/described_error.hpp"

#include <filesystem>
#include <new>

#include "base/error.hpp"
#include "base/thread_error.hpp"

namespace dslaunch {

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
