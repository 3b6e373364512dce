#include "launch/supervisor/supervisor.hpp"

#include <exception>
#include <utility>

#include "base/described_error.hpp"
#include "launch/supervisor/node_join.hpp"
#include "spawn/process.hpp"

namespace dslaunch::launch {

Supervisor::Supervisor(LaunchPlan plan, SupervisorOptions options)
    : attempt_(std::move(plan), std::move(options)),
      control_(attempt_),
      start_up_(attempt_, control_),
      running_(attempt_, control_, start_up_),
      shutdown_(attempt_) {}

JobReport Supervisor::run() {
  spawn::raise_descriptor_limit();  // a link and two logs for each host and rank
  try {
    attempt_.output.open_logs();
    start_up_.open_links();
    running_.until_done();
  } catch (const std::exception& error) {
    shutdown_.leave_nothing_behind(failure_message(described(error)));
    throw;
  }
  shutdown_.close_links();
  return report_of(attempt_);
}

}  // namespace dslaunch::launch
