#include "launch/job_id.hpp"

#include <unistd.h>

#include <ctime>

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

}  // namespace dslaunch::launch
