// One connection to an sshd, from the user's configuration to a started command. Used by the link's thread only. Every
// call throws ConnectError, or Interrupted after kill(), and waits until the single deadline of its host.
#pragma once
#include <libssh/callbacks.h>
#include <libssh/libssh.h>

#include <optional>
#include <string>

#include "base/deadline.hpp"
#include "spawn/ssh/libssh/interrupt.hpp"
#include "spawn/ssh/libssh/proxy.hpp"
#include "spawn/ssh/ssh_target.hpp"

namespace dslaunch::spawn {

class SshSession {
 public:
  // Reads the configuration.
  SshSession(const SshTarget& target, const SshOptions& options, Deadline deadline, const Interrupt& interrupt);
  ~SshSession();
  SshSession(const SshSession&) = delete;
  SshSession& operator=(const SshSession&) = delete;

  void connect();         // TCP or proxy, versions and keys exchanged
  void check_host_key();  // host_key.cpp
  void authenticate();    // authenticate.cpp
  // `callbacks` are notified of the command's end; they must live as long as this object.
  ssh_channel start(const std::string& command, ssh_channel_callbacks_struct& callbacks);

  ssh_session get() const { return session_; }
  const SshTarget& target() const { return target_; }
  std::string error() const { return ssh_get_error(session_); }
  // The events to poll the connection for.
  short poll_events(bool reading) const;

  // Calls `step` until its result is not `again`, waiting for the connection in between.
  template <class Step>
  int until_done(int again, const char* phase, Step step) {
    for (;;) {
      int result = step();
      if (result != again) return result;
      wait_for_packets(phase);
    }
  }

 private:
  void read_configuration();
  void wait_for_packets(const char* phase);
  [[noreturn]] void fail_handshake();
  std::string option(enum ssh_options_e name) const;

  const SshTarget& target_;
  const SshOptions& options_;
  const Deadline deadline_;
  const Interrupt& interrupt_;
  ssh_session session_;
  std::string host_, user_;  // as the configuration has them
  uint16_t port_ = 22;
  std::optional<Proxy> proxy_;  // its stream belongs to the session
};

}  // namespace dslaunch::spawn
