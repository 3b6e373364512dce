#include "spawn/program_path.hpp"

#include "base/split.hpp"

namespace dslaunch::spawn {

std::vector<std::string> program_candidates(const std::string& name, const std::string& path) {
  if (name.find('/') != std::string::npos) return {name};
  std::vector<std::string> candidates;
  for (const auto& folder : split(path, ':')) candidates.push_back((folder.empty() ? "." : folder) + "/" + name);
  return candidates;
}

}  // namespace dslaunch::spawn
