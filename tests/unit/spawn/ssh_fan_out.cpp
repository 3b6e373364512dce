// For bench/ssh_fan_out: one command on many hosts at once through our links, or the bare handshake of each and nothing
// else. Prints the seconds.
//
//   ssh_fan_out links|handshake PORT HOST...
#include <libssh/libssh.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "spawn/ssh/ssh_link.hpp"
#include "unit/spawn/link_ends.hpp"

using namespace dslaunch;
using namespace dslaunch::spawn;

namespace {

int run_links(const std::vector<std::string>& hosts, uint16_t port) {
  SshOptions options;
  options.connect_timeout = std::chrono::seconds(60);
  std::vector<std::unique_ptr<CommandLink>> links;
  for (const auto& host : hosts) links.push_back(open_ssh_link({host, "", port}, {"true"}, options));
  int failed = 0;
  for (auto& link : links) {
    converse(*link);
    auto failure = link->failure();
    if (failure) std::fprintf(stderr, "%s\n", failure->text.c_str());
    failed += failure.has_value();
  }
  return failed;
}

bool shake_hands(const std::string& host, unsigned int port) {
  ssh_session session = ssh_new();
  std::string dir = std::string(std::getenv("HOME")) + "/.ssh";
  ssh_options_set(session, SSH_OPTIONS_HOST, host.c_str());
  ssh_options_set(session, SSH_OPTIONS_SSH_DIR, dir.c_str());
  ssh_options_parse_config(session, nullptr);
  ssh_options_set(session, SSH_OPTIONS_PORT, &port);
  bool good = ssh_connect(session) == SSH_OK && ssh_session_is_known_server(session) == SSH_KNOWN_HOSTS_OK &&
              ssh_userauth_publickey_auto(session, nullptr, nullptr) == SSH_AUTH_SUCCESS;
  if (!good) std::fprintf(stderr, "%s: %s\n", host.c_str(), ssh_get_error(session));
  ssh_free(session);
  return good;
}

int run_handshakes(const std::vector<std::string>& hosts, uint16_t port) {
  std::atomic<int> failed = 0;
  std::vector<std::thread> threads;
  for (const auto& host : hosts) threads.emplace_back([&, host] { failed += !shake_hands(host, port); });
  for (auto& thread : threads) thread.join();
  return failed;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 64;
  std::vector<std::string> hosts(argv + 3, argv + argc);
  auto port = static_cast<uint16_t>(std::atoi(argv[2]));
  auto begin = std::chrono::steady_clock::now();
  int failed = std::string(argv[1]) == "links" ? run_links(hosts, port) : run_handshakes(hosts, port);
  std::printf("%.4f\n", std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  return failed == 0 ? 0 : 1;
}
