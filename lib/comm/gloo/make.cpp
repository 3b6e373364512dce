#include <csignal>

#include "comm/backends.hpp"
#include "comm/modules.hpp"

namespace dslaunch::comm {
namespace {

// Gloo writes to its sockets without MSG_NOSIGNAL: with the default action, a rank whose peer has died would die of
// SIGPIPE silently, instead of naming the peer. A program that handles the signal itself keeps its handler.
void outlive_closed_sockets() {
  struct sigaction current {};
  ::sigaction(SIGPIPE, nullptr, &current);
  if (current.sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
}

}  // namespace

std::unique_ptr<Communicator> make_gloo(const CommunicatorOptions& options, rendezvous::Store& store) {
  outlive_closed_sockets();
  auto make = gloo_module().function<ModuleFactory>("dslaunch_make_gloo");
  return std::unique_ptr<Communicator>(make(options, store));
}

}  // namespace dslaunch::comm
