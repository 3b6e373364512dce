// The link over libssh: a thread that connects and then moves bytes between the two pipes and the channel, holding a
// few MiB at most, however slow either side is.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "spawn/ssh/ssh_target.hpp"
#include "spawn/threaded_link.hpp"

namespace dslaunch::spawn {

class LibsshLink final : public ThreadedLink {
 public:
  // Throws SystemError.
  LibsshLink(const SshTarget& target, const std::vector<std::string>& argv, const SshOptions& options);
  ~LibsshLink() override;
  void kill() override;

  struct State;

 private:
  LibsshLink(const SshTarget& target, const std::vector<std::string>& argv, const SshOptions& options,
             std::shared_ptr<State> state);

  std::shared_ptr<State> state_;
};

}  // namespace dslaunch::spawn
