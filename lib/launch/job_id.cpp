#include "launch/job_id.hpp"

#include <unistd.h>

#include <ctime>
#include <regex>

#include "base/bytes.hpp"
#include "base/format.hpp"

namespace dslaunch::launch {

std::string make_job_id() {
  std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  char stamp[32];
  std::strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &local);
  return fmt::format("{}-{}-{}", stamp, ::getpid(), to_hex(random_bytes(2)));
}

bool is_job_id(std::string_view text) {
  static const std::regex shape("[0-9]{8}-[0-9]{6}-[0-9]+-[0-9a-f]{4}");
  return std::regex_match(text.begin(), text.end(), shape);
}

}  // namespace dslaunch::launch
