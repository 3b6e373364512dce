// Copies our programs to hosts that lack them: once, into the user's cache there, under the hash of their contents, in
// ${XDG_CACHE_HOME:-$HOME/.cache}/dslaunch/push/HASH/. They are written to a temporary directory, verified there by
// SHA-256, then renamed; directories and programs have mode 0700, other files 0600.
// Needs sh, tar, mktemp and sha256sum on the remote host.
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "spawn/agent_link.hpp"
#include "spawn/ssh/ssh_target.hpp"

namespace dslaunch::spawn {

struct PushedFile {
  std::string path;  // on this host
  std::string name;  // below the remote directory: "bin/dslaunch"; letters, digits and ._+-/ only, at most 100
};

// The files, read, hashed and packed once for all hosts. Any number of threads may push the set.
struct PushSet {
  std::string hash;     // SHA-256 of `manifest`
  std::string archive;  // ustar, including the manifest
};

// Throws UserError(66) for a file that cannot be read, InternalError for a name that violates the rule above.
PushSet read_push_set(const std::vector<PushedFile>& files);

struct PushResult {
  std::string dir;      // on the remote host, absolute; contains the names
  bool copied = false;  // false: it already existed, complete
  std::optional<LinkFailure> failure;
};

// Needs two connections if files must be copied, otherwise one. The deadline bounds both together; `start_timeout`
// bounds each from the name lookup to the start of the command after the login shell.
PushResult push_programs(const SshTarget& target, const PushSet& set, const SshOptions& options, Deadline deadline,
                         std::chrono::milliseconds start_timeout);

}  // namespace dslaunch::spawn
