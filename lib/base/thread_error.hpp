// An exception that means that the system refused a thread, for the mains: a limit of the user, no fault of ours.
#pragma once
#include <exception>
#include <optional>
#include <string>

namespace dslaunch {

// What to say of it; nothing of any other exception.
std::optional<std::string> thread_error(const std::exception& error);

}  // namespace dslaunch
