#include "launch/records/job_id.hpp"

#include <unistd.h>

#include <ctime>

#include "base/bytes.hpp"
#include "base/format.hpp"
#include "base/split.hpp"

namespace dslaunch::launch {

namespace {

constexpr size_t kRandomBytes = 4;

std::string fresh_id() {
  std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  char stamp[32];
  std::strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &local);
  return fmt::format("{}-{}-{}", stamp, ::getpid(), to_hex(random_bytes(kRandomBytes)));
}

}  // namespace

std::string make_job_id(const std::function<bool(const std::string& job_id)>& taken) {
  std::string id = fresh_id();
  while (taken(id)) id = fresh_id();
  return id;
}

bool is_job_id(std::string_view text) {
  const auto parts = split(text, '-');
  const auto is_of = [&](size_t part, const char* letters) {
    return !parts[part].empty() && parts[part].find_first_not_of(letters) == std::string::npos;
  };
  constexpr const char kDigits[] = "0123456789";
  return parts.size() == 4 && parts[0].size() == 8 && is_of(0, kDigits) && parts[1].size() == 6 && is_of(1, kDigits) &&
         is_of(2, kDigits) && (parts[3].size() == 2 * kRandomBytes || parts[3].size() == 4) &&
         is_of(3, "0123456789abcdef");
}

}  // namespace dslaunch::launch
