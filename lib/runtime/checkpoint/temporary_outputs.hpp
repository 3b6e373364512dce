// Output files that appear under their names when all of them are complete. One thread.
#pragma once
#include <functional>
#include <string>
#include <vector>

namespace dslaunch::runtime {

// What a file's name ends with until then.
inline constexpr char kTemporary[] = ".tmp";

// Writes PATH.tmp and flushes it. Throws SystemError (73, 74).
void write_temporary(const std::string& path, const std::string& text);

// Removes the suffix of PATH.tmp from all paths of one directory, in order, and flushes the directory. The last must be
// the one that makes the others a set (an index): it appears after the others are on the device. Throws SystemError(74)
// that names the files which are in place.
void rename_temporaries(const std::vector<std::string>& paths);

}  // namespace dslaunch::runtime
