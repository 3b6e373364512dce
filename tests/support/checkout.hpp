// Files of the checkout and of the build under test. The paths are compiled into one file, so that all others are the
// same in every checkout, and the compiler's cache knows them.
#pragma once
#include <string>

namespace dslaunch::test {

std::string source_file(const std::string& path);  // "docs/migrating.md"
std::string built_file(const std::string& path);   // "bin/dslaunch"

}  // namespace dslaunch::test
