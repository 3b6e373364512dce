#include "spawn/failure_table.hpp"

#include <algorithm>
#include <cctype>

#include "base/format.hpp"

namespace dslaunch::spawn {
namespace {

constexpr size_t kMaxNames = 4;

struct Row {
  std::string phase, common_text, text;
  std::vector<std::string> hosts;
};

// The error text without the host's name and everything that looks like an address.
std::string without_addresses(const std::string& host, const LinkFailure& failure) {
  std::string text = failure.text;
  for (size_t at = 0; !host.empty() && (at = text.find(host, at)) != std::string::npos; ++at) {
    text.replace(at, host.size(), "*");
  }
  std::string common_text;
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    while (end < text.size() &&
           (std::isxdigit(static_cast<unsigned char>(text[end])) || text[end] == '.' || text[end] == ':')) {
      ++end;
    }
    std::string word = text.substr(i, end - i);
    bool address = std::count(word.begin(), word.end(), '.') >= 3 || std::count(word.begin(), word.end(), ':') >= 2;
    common_text += address ? "*" : word;
    if (end < text.size()) common_text += text[end];
    i = end + 1;
  }
  return common_text;
}

std::string names(const std::vector<std::string>& hosts) {
  size_t shown = hosts.size() <= kMaxNames ? hosts.size() : kMaxNames - 1;
  std::string text =
      fmt::format("{}", fmt::join(hosts.begin(), hosts.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  return shown == hosts.size() ? text : text + fmt::format(" and {} more", hosts.size() - shown);
}

}  // namespace

std::string failure_table(const std::vector<std::pair<std::string, LinkFailure>>& failures) {
  std::vector<Row> rows;
  for (const auto& [host, failure] : failures) {
    std::string common_text = without_addresses(host, failure);
    auto row = std::find_if(rows.begin(), rows.end(), [&, phase = failure.phase](const Row& other) {
      return other.phase == phase && other.common_text == common_text;
    });
    if (row == rows.end()) row = rows.insert(row, {failure.phase, common_text, failure.text, {}});
    row->hosts.push_back(host);
  }
  if (rows.empty()) return {};
  size_t host_width = 4, phase_width = 5;
  for (const auto& row : rows) {
    host_width = std::max(host_width, names(row.hosts).size());
    phase_width = std::max(phase_width, row.phase.size());
  }
  std::string table = fmt::format("{:<{}}  {:<{}}  error\n", "host", host_width, "phase", phase_width);
  for (const auto& row : rows) {
    table += fmt::format("{:<{}}  {:<{}}  {}\n", names(row.hosts), host_width, row.phase, phase_width, row.text);
  }
  return table;
}

}  // namespace dslaunch::spawn
