// Reading a file of variables. What it says is obeyed by every rank (LD_PRELOAD, PATH), so a file that is found without
// being named is read only where nobody but the user and root can have written it.
#pragma once
#include <sys/stat.h>

#include <string>
#include <vector>

#include "launch/plan/env_file.hpp"

namespace dslaunch::launch {

struct EnvFile {
  std::string path;
  bool named = false;  // by --env_file or DS_ENV_FILE; else found by its usual name
};

// Reads and parses. Throws UserError: 66 when there is no such file or it cannot be read; 77 when it was found and
// somebody else owns it or can write it. Of a named file such a thing becomes a warning.
Assignments read_env_file(const EnvFile& file, std::vector<std::string>& warnings);

// Who else may have written the file, with owner and mode; empty: only `user` and root can, and the users of `group`,
// which is the user's own primary one. Pure.
std::string other_writers(const struct stat& file, uid_t user, gid_t group);

}  // namespace dslaunch::launch
