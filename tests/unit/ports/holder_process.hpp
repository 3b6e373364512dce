// A child process that does something with a port until the test lets it go. It is ended and reaped by the destructor.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>

#include "base/unique_fd.hpp"

namespace dslaunch::ports {

class HolderProcess {
 public:
  // `prepare` runs in the child and returns the port to tell; the child then waits. Sockets that `prepare` opened and
  // left open stay open.
  explicit HolderProcess(const std::function<uint16_t()>& prepare);
  ~HolderProcess();
  HolderProcess(const HolderProcess&) = delete;
  HolderProcess& operator=(const HolderProcess&) = delete;

  pid_t pid() const { return pid_; }
  uint16_t port() const { return port_; }
  void end();

 private:
  pid_t pid_ = -1;
  uint16_t port_ = 0;
};

// A listening socket of this process on a port that the kernel chooses.
UniqueFd listen_on(const char* address, uint16_t* port);

// A connection to an IPv4 address; not valid where nobody answers.
UniqueFd connect_to(const char* address, uint16_t port);

// Runs `body` in a child, as an ordinary user when we are root, and returns its text.
std::string output_of_ordinary_user(const std::function<std::string()>& body);

}  // namespace dslaunch::ports
