#include "launch/supervisor/missing_ranks.hpp"

#include "base/format.hpp"

namespace dslaunch::launch {

static std::string describe_one(const RankRecord& record) {
  if (record.cause) {
    return fmt::format("{} (on {}, ended: {})", record.rank, record.host, spawn::describe(*record.cause));
  }
  if (record.pid > 0) {
    return fmt::format("{} (on {}, pid {}, runs but has not joined)", record.rank, record.host, record.pid);
  }
  return fmt::format("{} (on {}, not started)", record.rank, record.host);
}

std::string describe_waiting(const std::string& host, bool greeted) {
  return fmt::format("{} ({})", host, greeted ? "its agent is preparing the job" : "no answer yet");
}

std::string describe_missing_ranks(std::vector<int> missing, const std::vector<RankRecord>& records) {
  constexpr size_t kMaxNamed = 8;
  std::erase_if(missing, [&](int rank) { return rank < 0 || static_cast<size_t>(rank) >= records.size(); });
  std::vector<std::string> named;
  for (size_t i = 0; i < missing.size() && i < kMaxNamed; ++i) named.push_back(describe_one(records.at(missing[i])));
  if (missing.size() > kMaxNamed) named.push_back(fmt::format("and {} more", missing.size() - kMaxNamed));
  return fmt::format("waiting for {} of {} ranks to join: {}", missing.size(), records.size(), fmt::join(named, ", "));
}

}  // namespace dslaunch::launch
