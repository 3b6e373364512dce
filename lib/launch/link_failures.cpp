#include "launch/link_failures.hpp"

#include <algorithm>

#include "base/format.hpp"

namespace dslaunch::launch {
namespace {

struct Row {
  std::vector<std::string> hosts;
  std::string phase, text;
};

std::vector<Row> rows_of(const std::vector<std::pair<std::string, spawn::LinkFailure>>& failures) {
  std::vector<Row> rows;
  for (const auto& [host, failure] : failures) {
    auto same = std::find_if(rows.begin(), rows.end(),
                             [&](const Row& row) { return row.phase == failure.phase && row.text == failure.text; });
    if (same == rows.end()) same = rows.insert(rows.end(), {{}, failure.phase, failure.text});
    same->hosts.push_back(host);
  }
  return rows;
}

std::string hosts_text(const std::vector<std::string>& hosts) {
  constexpr size_t kMostNamed = 4;
  if (hosts.size() <= kMostNamed) return fmt::format("{}", fmt::join(hosts, " "));
  return fmt::format("{} and {} more", fmt::join(hosts.begin(), hosts.begin() + kMostNamed, " "),
                     hosts.size() - kMostNamed);
}

}  // namespace

std::string tell_failures(const std::vector<std::pair<std::string, spawn::LinkFailure>>& failures) {
  if (failures.empty()) return {};
  auto rows = rows_of(failures);
  size_t host_width = 4, phase_width = 5;
  for (const auto& row : rows) {
    host_width = std::max(host_width, hosts_text(row.hosts).size());
    phase_width = std::max(phase_width, row.phase.size());
  }
  std::string table = fmt::format("dslaunch: {} host{} failed:\n", failures.size(), failures.size() == 1 ? "" : "s");
  for (const auto& row : rows) {
    table += fmt::format("  {:<{}}  {:<{}}  {}\n", hosts_text(row.hosts), host_width, row.phase, phase_width, row.text);
  }
  return table;
}

}  // namespace dslaunch::launch
