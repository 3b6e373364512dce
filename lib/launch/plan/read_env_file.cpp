#include "launch/plan/read_env_file.hpp"

#include <unistd.h>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/small_file.hpp"
#include "ports/process_info.hpp"

namespace dslaunch::launch {
namespace {

void check_writers(const EnvFile& file, const struct stat& opened, std::vector<std::string>& warnings) {
  const std::string problem = other_writers(opened, ::geteuid(), ::getegid());
  if (problem.empty()) return;
  if (file.named) {
    warnings.push_back(
        fmt::format("environment file: {}: {}; its variables are set in every rank", file.path, problem));
    return;
  }
  throw UserError(ExitCode::kPermission,
                  fmt::format("refused an environment file that was not named: {}: {}; remove it, give it an owner and "
                              "a mode that exclude other writers (chmod go-w), or name it with DS_ENV_FILE={} to "
                              "use it",
                              file.path, problem, file.path));
}

}  // namespace

std::string other_writers(const struct stat& file, uid_t user, gid_t group) {
  if (S_ISCHR(file.st_mode)) return {};  // a terminal: the user types the content
  const bool foreign = file.st_uid != user && file.st_uid != 0;
  const bool of_group = (file.st_mode & S_IWGRP) != 0 && file.st_gid != group;
  const bool of_all = (file.st_mode & S_IWOTH) != 0;
  if (!foreign && !of_group && !of_all) return {};
  return fmt::format("{}: it belongs to user {} (uid {}, gid {}) and has mode {:04o}",
                     foreign  ? "another user owns it"
                     : of_all ? "all users can write it"
                              : "a group can write it",
                     ports::user_name(file.st_uid), file.st_uid, file.st_gid, file.st_mode & 07777);
}

Assignments read_env_file(const EnvFile& file, std::vector<std::string>& warnings) {
  auto check = [&](const struct stat& opened) { check_writers(file, opened, warnings); };
  const SmallFile read = file.named ? read_small_file(file.path, kMaxSmallBytes, check)
                                    : read_plain_file(file.path, kMaxSmallBytes, check);
  if (read.outcome.ok()) return parse_env_file(read.bytes, file.path);
  throw UserError(read.too_large ? ExitCode::kBadInput : ExitCode::kNoInput,
                  fmt::format("cannot read the environment file {}: {}", file.path, read.outcome.error()));
}

}  // namespace dslaunch::launch
