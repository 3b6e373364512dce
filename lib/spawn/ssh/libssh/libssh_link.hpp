// The link over libssh: a thread that makes the connection and then carries bytes between the two pipes and the
// channel, holding a few MiB at most, however slow either side is.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "spawn/command_link.hpp"
#include "spawn/ssh/ssh_target.hpp"

namespace dslaunch::spawn {

class LibsshLink final : public CommandLink {
 public:
  // Throws SystemError.
  LibsshLink(const SshTarget& target, const std::vector<std::string>& argv, const SshOptions& options);
  ~LibsshLink() override;
  LinkEnds take_ends() override;
  std::optional<LinkFailure> failure() const override;
  void kill() override;
  bool wait(Deadline deadline) override;
  std::optional<ExitCause> cause() const override;
  std::string errors() const override;

  struct State;

 private:
  std::shared_ptr<State> state_;
  LinkEnds ends_;
};

}  // namespace dslaunch::spawn
