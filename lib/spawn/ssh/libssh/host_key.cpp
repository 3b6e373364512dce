// Checks the host's key against known_hosts. Rejects everything but a clear match, with advice on how to fix it.
#include <fstream>
#include <memory>

#include "base/format.hpp"
#include "spawn/ssh/explain.hpp"
#include "spawn/ssh/libssh/session.hpp"

namespace dslaunch::spawn {
namespace {

std::string fingerprint(ssh_session session) {
  ssh_key key = nullptr;
  if (ssh_get_server_publickey(session, &key) != SSH_OK) return "no key";
  std::unique_ptr<ssh_key_struct, void (*)(ssh_key)> owner(key, ssh_key_free);
  unsigned char* hash = nullptr;
  size_t size = 0;
  if (ssh_get_publickey_hash(key, SSH_PUBLICKEY_HASH_SHA256, &hash, &size) != 0) return "no fingerprint";
  char* text = ssh_get_fingerprint_hash(SSH_PUBLICKEY_HASH_SHA256, hash, size);
  std::string result = fmt::format("{} {}", ssh_key_type_to_char(ssh_key_type(key)), text != nullptr ? text : "?");
  ssh_string_free_char(text);
  ssh_clean_pubkey_hash(&hash);
  return result;
}

// "FILE:LINE" of a host's entry in known_hosts, hashed names included; empty when there is none.
std::string known_hosts_entry_of(ssh_session session, const std::string& host) {
  for (auto option : {SSH_OPTIONS_KNOWNHOSTS, SSH_OPTIONS_GLOBAL_KNOWNHOSTS}) {
    char* path = nullptr;
    if (ssh_options_get(session, option, &path) != SSH_OK) continue;
    std::string name = path;
    ssh_string_free_char(path);
    std::ifstream file(name);
    std::string line;
    for (int number = 1; std::getline(file, line); ++number) {
      ssh_knownhosts_entry* entry = nullptr;
      if (ssh_known_hosts_parse_line(host.c_str(), line.c_str(), &entry) != SSH_OK) continue;
      ssh_knownhosts_entry_free(entry);
      return fmt::format("{}:{}", name, number);
    }
  }
  return {};
}

}  // namespace

void SshSession::check_host_key() {
  // In the notation of known_hosts.
  std::string name = port_ == 22 ? host_ : fmt::format("[{}]:{}", host_, port_);
  auto refuse = [&](std::string text) {
    throw ConnectError{{.code = ExitCode::kPermission, .phase = "host key", .text = std::move(text)}};
  };
  const ssh_known_hosts_e state = ssh_session_is_known_server(session_);
  switch (state) {
    case SSH_KNOWN_HOSTS_OK:
      return;
    case SSH_KNOWN_HOSTS_CHANGED:
    case SSH_KNOWN_HOSTS_OTHER: {
      std::string entry = known_hosts_entry_of(session_, name);
      refuse(
          fmt::format("the host key of {} has CHANGED: it shows {}, known_hosts{} holds another: the host was "
                      "reinstalled, or the connection is "
                      "intercepted. Ask its administrator; then remove the old key with: ssh-keygen -R '{}'",
                      name, fingerprint(session_), entry.empty() ? "" : fmt::format(" ({})", entry), name));
      break;
    }
    case SSH_KNOWN_HOSTS_UNKNOWN:
    case SSH_KNOWN_HOSTS_NOT_FOUND:
      refuse(
          fmt::format("the host key of {} is not known: {}. Compare it, then connect once with '{}' or add it: "
                      "ssh-keyscan -p {} {} >> ~/.ssh/known_hosts",
                      name, fingerprint(session_), ssh_line(target_, options_), port_, host_));
      break;
    case SSH_KNOWN_HOSTS_ERROR:
      break;
  }
  // Also for a result that a later libssh may add.
  refuse(fmt::format("cannot check the host key of {}: {}", name, error()));
}

}  // namespace dslaunch::spawn
