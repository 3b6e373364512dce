// Any bytes as a file of variables, and each value in it as a length of time and as a list of cores: assignments come
// out whose names are names, or an error of the user's.
#include <cstdlib>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "launch/plan/cpu_list.hpp"
#include "launch/plan/env_file.hpp"

using namespace dslaunch;
using namespace dslaunch::launch;

namespace {

void read_value(const std::string& value) {
  const auto duration = parse_duration(value);
  if (duration && duration->count() < 0) std::abort();
  const auto cpus = read_cpu_list(value);
  if (!cpus.ok() && cpus.error().offset > value.size()) std::abort();
  if (cpus.ok() && *read_cpu_list(cpu_list_text(*cpus)) != *cpus) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    for (const auto& [name, value] : parse_env_file({reinterpret_cast<const char*>(data), size}, "fuzz")) {
      if (!is_variable_name(name) || value.find('\0') != value.npos) std::abort();
      read_value(value);
    }
  } catch (const UserError&) {
  }
  return 0;
}
