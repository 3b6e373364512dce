#include "base/thread_error.hpp"

#include <system_error>

namespace dslaunch {

std::optional<std::string> thread_error(const std::exception& error) {
  const auto* system = dynamic_cast<const std::system_error*>(&error);
  if (system == nullptr || system->code() != std::errc::resource_unavailable_try_again) return std::nullopt;
  return "the system refused another thread: a limit of this user (ulimit -u, ulimit -v) or of the container "
         "(pids.max)";
}

}  // namespace dslaunch
