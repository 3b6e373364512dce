// The communicators of a rank, and the watchdog over its waits in them.
#pragma once
#include <c10/core/Device.h>

#include <chrono>
#include <memory>
#include <string>

#include "base/status_page.hpp"
#include "comm/groups.hpp"
#include "comm/watchdog.hpp"
#include "config/job_config.hpp"
#include "rendezvous/launch_env.hpp"
#include "rendezvous/store.hpp"

namespace dslaunch::worker {

struct WatchedGroups {
  comm::OwnedGroups mesh;
  std::unique_ptr<comm::Communicator> gather;     // a second one of the data group, for stage 3 on a device; else null
  std::unique_ptr<comm::Communicator> secondary;  // hpZ: a part of the data group; else null
  std::unique_ptr<comm::Watchdog> watch;          // destroyed first

  // All ranks call it. `hang_limit`: how long one wait for other ranks may take. Throws UserError(78) when
  // hpZ does not divide the data group. `status` gets the hang watch's reports; may be null; outlives this.
  void open(const rendezvous::LaunchEnv& env, const comm::Mesh& of_job, c10::Device device, const config::Zero& zero,
            std::chrono::milliseconds hang_limit, rendezvous::Store& store, StatusWriter* status);
  void abort(const std::string& reason) const;
};

}  // namespace dslaunch::worker
