// Reads a file of variables. Its content affects every rank (LD_PRELOAD, PATH), so a file that was found by its default
// name, not named by the user, is read only if nobody but the user and root can have written it.
#pragma once
#include <sys/stat.h>

#include <string>
#include <vector>

#include "launch/plan/env_file.hpp"

namespace dslaunch::launch {

struct EnvFile {
  std::string path;
  bool named = false;  // by --env_file or DS_ENV_FILE; else found by its default name
};

// Reads and parses. Throws UserError: 66 when the file does not exist or cannot be read; 77 when a file that was not
// named is owned or writable by another user. For a named file the latter is only a warning.
Assignments read_env_file(const EnvFile& file, std::vector<std::string>& warnings);

// Describes who else may have written the file, with owner and mode; empty: only `user`, root, and the users of
// `group`, the user's own primary group, can. Pure.
std::string other_writers(const struct stat& file, uid_t user, gid_t group);

}  // namespace dslaunch::launch
