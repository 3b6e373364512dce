// Where the files of a run lie that another one overwrites, until that one has made its first step: in a folder beside
// each of them, so of the run folder and of its checkpoints.
#pragma once
#include <filesystem>
#include <system_error>

namespace dslaunch {

inline constexpr char kOverwritten[] = ".overwritten";

// For good. Whoever holds the run folder.
inline void remove_overwritten(const std::filesystem::path& run_dir, std::error_code& error) {
  std::filesystem::remove_all(run_dir / "checkpoints" / kOverwritten, error);
  if (!error) std::filesystem::remove_all(run_dir / kOverwritten, error);
}

}  // namespace dslaunch
