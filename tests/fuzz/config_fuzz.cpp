// Any bytes as a job file that is checked to the end. Issues come out, or a job whose resolved form is a job file with
// the same resolved form. (config_text reads far more texts in the time, but does not look at their keys.)
#include <cstdlib>

#include "config/load.hpp"
#include "config/report.hpp"

using namespace dslaunch::config;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const LoadResult result = load_text({reinterpret_cast<const char*>(data), size}, "fuzz", Format::kHjson);
  check_json(result);
  check_text(result);
  if (!result.ok()) return 0;
  explain_json(result);
  const std::string resolved = resolved_json(result);
  const LoadResult again = load_text(resolved, "resolved", Format::kHjson);
  if (!again.ok() || resolved_json(again) != resolved) std::abort();
  return 0;
}
