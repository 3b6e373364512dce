#include "launch/plan/git_commit.hpp"

#include <filesystem>
#include <sstream>

#include "base/small_file.hpp"

namespace dslaunch::launch {
namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& path) {
  const SmallFile file = read_plain_file(path.string());
  return file.outcome.ok() ? file.bytes.substr(0, file.bytes.find('\n')) : std::string();
}

bool is_commit(const std::string& text) {
  return text.size() >= 40 && text.find_first_not_of("0123456789abcdef") == text.npos;
}

// The directory of the repository's files; .git is a file in a worktree or a submodule. Empty: none.
fs::path find_git_dir(const std::string& dir) {
  std::error_code error;
  for (fs::path at = fs::absolute(dir, error); !error && !at.empty(); at = at.parent_path()) {
    const fs::path git = at / ".git";
    std::error_code missing;
    if (fs::is_directory(git, missing)) return git;
    if (const std::string line = first_line(git); line.starts_with("gitdir: ")) return at / line.substr(8);
    if (at == at.root_path()) break;
  }
  return {};
}

std::string packed_commit(const fs::path& git_dir, const std::string& name) {
  const SmallFile file = read_plain_file((git_dir / "packed-refs").string());
  std::istringstream lines(file.bytes);
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with(" " + name)) return line.substr(0, line.find(' '));
  }
  return {};
}

}  // namespace

std::string git_commit_of(const std::string& dir) {
  const fs::path git_dir = find_git_dir(dir);
  if (git_dir.empty()) return {};
  const std::string head = first_line(git_dir / "HEAD");
  if (is_commit(head)) return head;
  if (!head.starts_with("ref: ")) return {};
  const std::string name = head.substr(5);
  // Branches of a worktree are those of the repository that it belongs to.
  const std::string common = first_line(git_dir / "commondir");
  for (const fs::path& at : {git_dir, common.empty() ? git_dir : git_dir / common}) {
    if (const auto commit = first_line(at / name); is_commit(commit)) return commit;
    if (const auto commit = packed_commit(at, name); is_commit(commit)) return commit;
  }
  return {};
}

}  // namespace dslaunch::launch
