#include "runtime/checkpoint/temporary_outputs.hpp"

#include <stdio.h>

#include <filesystem>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/state/output_file.hpp"

namespace dslaunch::runtime {

void write_temporary(const std::string& path, const std::string& text) {
  OutputFile file(path + kTemporary);
  file.write(text);
  file.finish(/*sync=*/true);
}

void rename_temporaries(const std::vector<std::string>& paths) {
  const std::string parent = std::filesystem::path(paths[0]).parent_path();
  const std::string directory = parent.empty() ? "." : parent;
  std::vector<std::string> renamed;
  try {
    for (const auto& path : paths) {
      if (!renamed.empty() && &path == &paths.back()) sync_directory(directory);
      if (::rename((path + kTemporary).c_str(), path.c_str()) != 0) throw SystemError("rename to", "'" + path + "'");
      renamed.push_back(path);
    }
    sync_directory(directory);
  } catch (const Error& error) {
    if (renamed.empty()) throw;
    throw Error(error.code(), fmt::format("{}; already in place: {}", error.what(), fmt::join(renamed, ", ")));
  }
}

}  // namespace dslaunch::runtime
