#include "spawn/program_path.hpp"

#include <algorithm>

namespace dslaunch::spawn {

std::vector<std::string> program_candidates(const std::string& name, const std::string& path) {
  if (name.find('/') != std::string::npos) return {name};
  std::vector<std::string> candidates;
  for (size_t begin = 0; begin <= path.size();) {
    size_t end = std::min(path.find(':', begin), path.size());
    std::string folder = path.substr(begin, end - begin);
    candidates.push_back(folder.empty() ? "./" + name : folder + "/" + name);
    begin = end + 1;
  }
  return candidates;
}

}  // namespace dslaunch::spawn
