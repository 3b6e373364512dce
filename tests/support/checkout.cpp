#include "support/checkout.hpp"

namespace dslaunch::test {

std::string source_file(const std::string& path) {
  return DSL_SOURCE_DIR "/" + path;
}

std::string built_file(const std::string& path) {
  return DSL_BINARY_DIR "/" + path;
}

}  // namespace dslaunch::test
