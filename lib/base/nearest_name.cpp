#include "base/nearest_name.hpp"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <filesystem>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/printable.hpp"

namespace dslaunch {
namespace {

std::string folded(std::string_view name) {
  std::string out(name);
  for (char& c : out) c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// Optimal string alignment distance: insertions, deletions, substitutions and swaps of neighbours each cost one.
size_t typo_distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::vector<std::string> nearest_names(std::string_view name, const std::vector<std::string>& known, size_t max_count) {
  const std::string wanted = folded(name);
  const size_t dashes = wanted.find_first_not_of('_');
  const size_t letters = dashes == wanted.npos ? 0 : wanted.size() - dashes;  // "--lr" has two
  const size_t limit = letters < 6 ? 1 : std::max<size_t>(2, letters / 3);
  std::vector<std::pair<size_t, std::string>> near;
  for (const auto& candidate : known) {
    // The distance is at least the difference in length: this skips the comparison for a name of a megabyte.
    if (std::max(wanted.size(), candidate.size()) - std::min(wanted.size(), candidate.size()) > limit) continue;
    size_t distance = typo_distance(wanted, folded(candidate));
    if (distance <= limit && distance < candidate.size()) near.emplace_back(distance, candidate);
  }
  std::stable_sort(near.begin(), near.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> out;
  for (size_t i = 0; i < near.size() && i < max_count; ++i) out.push_back(near[i].second);
  return out;
}

std::string did_you_mean(std::string_view name, const std::vector<std::string>& known, size_t max_count) {
  auto near = nearest_names(name, known, max_count);
  if (near.empty()) return {};
  std::string out = " (did you mean ";
  for (size_t i = 0; i < near.size(); ++i) out += (i ? " or '" : "'") + near[i] + "'";
  return out + "?)";
}

std::string did_you_mean_file(const std::string& path) {
  constexpr size_t kMaxEntries = 10'000;
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path wanted(path);
  fs::path parent;
  auto part = wanted.begin();
  for (; part != wanted.end() && fs::exists(parent / *part, error); ++part) parent /= *part;
  if (part == wanted.end() || part->empty()) return {};
  std::vector<std::string> names;
  for (fs::directory_iterator entry(parent.empty() ? "." : parent, error), end;
       !error && entry != end && names.size() < kMaxEntries; entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  const auto near = nearest_names(part->string(), names);
  if (near.empty()) return {};
  fs::path found = parent / near.front();
  for (++part; part != wanted.end(); ++part) found /= *part;
  return fs::exists(found, error) ? fmt::format(" (did you mean '{}'?)", printable(found.string())) : std::string();
}

std::string describe_open_error(const std::string& path, int error_number) {
  return describe_errno(error_number) + (error_number == ENOENT ? did_you_mean_file(path) : std::string());
}

}  // namespace dslaunch
