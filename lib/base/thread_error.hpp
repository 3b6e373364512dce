// Recognises exceptions that mean that the system refused a thread, for the mains: a limit of the user, not our bug.
#pragma once
#include <exception>
#include <optional>
#include <string>

namespace dslaunch {

// The message for such an exception; empty for any other exception.
std::optional<std::string> thread_error(const std::exception& error);

}  // namespace dslaunch
