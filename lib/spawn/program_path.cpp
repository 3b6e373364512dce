#include "spawn/program_path.hpp"

#include "base/split.hpp"

namespace dslaunch::spawn {

std::vector<std::string> program_candidates(const std::string& name, const std::string& path) {
  if (name.find('/') != std::string::npos) return {name};
  std::vector<std::string> candidates;
  for (const auto& dir : split(path, ':')) candidates.push_back((dir.empty() ? "." : dir) + "/" + name);
  return candidates;
}

}  // namespace dslaunch::spawn
