// The options of `dslaunch doctor`.
#pragma once
#include <optional>

#include "arguments.hpp"
#include "launch/doctor/doctor.hpp"
#include "launch/plan/launch_options.hpp"

namespace dslaunch::launcher {

struct DoctorCommand {
  launch::DoctorOptions doctor;  // `hosts` stays empty: the hostfile is not read here
  launch::LaunchOptions launch;  // hostfile and filters
};

// Throws UserError(64) for invalid options. Empty: help was requested and printed.
std::optional<DoctorCommand> read_doctor_options(const Arguments& arguments);

}  // namespace dslaunch::launcher
