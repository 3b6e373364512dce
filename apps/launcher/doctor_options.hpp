// The options of `dslaunch doctor`.
#pragma once
#include <optional>

#include "arguments.hpp"
#include "launch/doctor/doctor.hpp"
#include "launch/launch_options.hpp"

namespace dslaunch::launcher {

struct DoctorCommand {
  launch::DoctorOptions doctor;  // `hosts` is left empty: the hostfile is not read here
  launch::LaunchOptions launch;  // hostfile and filters
};

// UserError(64) for what is not understood. Empty: help was asked for and printed.
std::optional<DoctorCommand> read_doctor_options(const Arguments& arguments);

}  // namespace dslaunch::launcher
