// Our programs for hosts that do not have them: copied once into the user's cache there, under the hash of what they
// are, in ${XDG_CACHE_HOME:-$HOME/.cache}/dslaunch/push/HASH/. Written aside, verified there by SHA-256, renamed;
// folders and programs have mode 0700, other files 0600.
// Needs sh, tar, mktemp and sha256sum on the other side.
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
  std::string path;  // here
  std::string name;  // below the folder there: "bin/dslaunch"; letters, digits and ._+-/ only, at most 100
};

// The files read, hashed and packed: once for all hosts. Any number of threads may push it.
struct PushSet {
  std::string hash;     // SHA-256 of `manifest`
  std::string archive;  // ustar, with the manifest in it
};

// Throws UserError(66) for a file that cannot be read, InternalError for a name that is not as above.
PushSet read_push_set(const std::vector<PushedFile>& files);

struct PushResult {
  std::string folder;   // there, absolute; the names lie below it
  bool copied = false;  // false: it was there already, and whole
  std::optional<LinkFailure> failure;
};

// Two connections where something has to be copied, one where not. The deadline bounds both together, `start_timeout`
// each from the look-up to the start of the command behind the login shell.
PushResult push_programs(const SshTarget& target, const PushSet& set, const SshOptions& options, Deadline deadline,
                         std::chrono::milliseconds start_timeout);

}  // namespace dslaunch::spawn
