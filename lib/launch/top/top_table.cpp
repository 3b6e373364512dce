#include "launch/top/top_table.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/printable.hpp"
#include "base/quantity.hpp"
#include "launch/terminal/line_deduplicator.hpp"

namespace dslaunch::launch {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kNotKnown = "-";

std::string bytes_text(const Json& bytes) {
  if (!bytes.is_number()) return kNotKnown;
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = bytes.get<double>();
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  return fmt::format("{:.{}f} {}", value, unit == 0 || value >= 99.95 ? 0 : 1, kUnits[unit]);
}

std::string step_text(const Json& rank) {
  const Json &step = rank.at("step"), &total = rank.at("total_steps");
  if (!step.is_number()) return kNotKnown;
  return total.is_number() && total.get<int64_t>() > 0 ? fmt::format("{}/{}", step.get<int64_t>(), total.get<int64_t>())
                                                       : fmt::format("{}", step.get<int64_t>());
}

std::string gpu_memory_text(const Json& rank) {
  const Json& total = rank.at("gpu_total_bytes");
  const std::string used = bytes_text(rank.at("gpu_mem_bytes"));
  return total.is_number() && used != kNotKnown ? fmt::format("{} of {}", used, bytes_text(total)) : used;
}

// "waiting 12 s for ranks 1-3", "busy", "stopped"
std::string state_text(const Json& rank) {
  const auto state = rank.at("state").get<std::string>();
  if (state != "waiting") return printable(state);
  const auto missing = rank.at("waiting_for").get<std::vector<int>>();
  std::string text = fmt::format("waiting {:.0f} s", rank.at("waiting_s").get<double>());
  if (!missing.empty()) text += fmt::format(" for {} {}", missing.size() == 1 ? "rank" : "ranks", rank_ranges(missing));
  constexpr size_t kMaxState = 40;
  return text.size() > kMaxState ? text.substr(0, kMaxState - 3) + "..." : text;
}

// The collective that the rank waits in, what it is busy with other than a step, or how it ended.
std::string doing_text(const Json& rank) {
  if (rank.at("state") == "waiting") return printable(rank.at("waiting_in").get<std::string>());
  const Json& activity = rank.at("activity");
  const std::string text = activity.is_string() ? printable(activity.get<std::string>()) : std::string();
  return text.starts_with("step ") ? std::string() : text;
}

RowKind kind_of(const Json& rank) {
  const auto state = rank.at("state").get<std::string>();
  if (state == "waiting" || state == "idle") return RowKind::kWaiting;
  return state == "stopped" || state == "blocked" || state == "no answer" ? RowKind::kHeld : RowKind::kOrdinary;
}

struct Column {
  const char* heading;
  bool right;  // aligned
};
constexpr Column kColumns[] = {{"RANK", true},    {"HOST", false},  {"PLACE", false}, {"STEP", true},
                               {"MS/STEP", true}, {"STATE", false}, {"GPU", true},    {"GPU MEMORY", true},
                               {"MEMORY", true},  {"LOAD", true},   {"DOING", false}};
constexpr size_t kNumColumns = std::size(kColumns), kPlace = 2;
using Cells = std::vector<std::string>;

Cells cells_of(const Json& rank, const std::map<std::string, std::string>& loads) {
  const auto host = rank.at("host").get<std::string>();
  const auto load = loads.find(host);
  const Json &ms = rank.at("step_ms"), &gpu = rank.at("gpu_percent");
  return {fmt::format("{}", rank.at("rank").get<int>()),
          printable(host),
          rank.contains("place") && rank.at("place").is_string() ? printable(rank.at("place").get<std::string>()) : "",
          step_text(rank),
          ms.is_number() ? format_ms(ms.get<double>()) : kNotKnown,
          state_text(rank),
          gpu.is_number() ? fmt::format("{} %", gpu.get<int>()) : kNotKnown,
          gpu_memory_text(rank),
          bytes_text(rank.at("host_mem_bytes")),
          load == loads.end() ? kNotKnown : load->second,
          doing_text(rank)};
}

std::string line_of(const Cells& cells, const std::vector<size_t>& widths) {
  std::string line;
  for (size_t i = 0; i < kNumColumns; ++i) {
    if (widths[i] == 0) continue;  // left out
    if (i + 1 == kNumColumns) {
      line += cells[i];  // nothing follows
    } else if (kColumns[i].right) {
      line += fmt::format("{:>{}}  ", cells[i], widths[i]);
    } else {
      line += fmt::format("{:<{}}  ", cells[i], widths[i]);
    }
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

// "1.5 of 16 cores"
std::map<std::string, std::string> loads_of(const Json& hosts) {
  std::map<std::string, std::string> out;
  for (const Json& host : hosts) {
    out[host.at("host").get<std::string>()] =
        fmt::format("{:.1f} of {}", host.at("load").get<double>(), host.at("cores").get<int>());
  }
  return out;
}

std::string job_line(const Json& json, const std::string& name) {
  std::set<std::string> hosts;
  for (const Json& rank : json.at("ranks")) hosts.insert(rank.at("host").get<std::string>());
  const size_t num_ranks = json.at("ranks").size();
  return fmt::format("job {}: {}, {} rank{} on {}", printable(name), printable(json.at("state").get<std::string>()),
                     num_ranks, num_ranks == 1 ? "" : "s",
                     hosts.size() == 1 ? printable(*hosts.begin()) : fmt::format("{} hosts", hosts.size()));
}

// "memory of a: 3.1 GiB of 15.6 GiB available" for hosts that are short of memory, the first few.
std::vector<TopRow> short_hosts(const Json& hosts) {
  constexpr size_t kMaxShown = 3;
  std::vector<TopRow> out;
  for (const Json& host : hosts) {
    const auto available = host.at("mem_available_bytes").get<double>(), all = host.at("mem_bytes").get<double>();
    if (out.size() == kMaxShown || available >= all * 0.1) continue;
    out.push_back({fmt::format("memory of {}: {} of {} available", printable(host.at("host").get<std::string>()),
                               bytes_text(host.at("mem_available_bytes")), bytes_text(host.at("mem_bytes"))),
                   RowKind::kHeld});
  }
  return out;
}

// At a character of UTF-8, not within one.
std::string cut(const std::string& text, size_t columns) {
  if (text.size() <= columns) return text;
  size_t end = columns;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end);
}

std::string colored(const std::string& text, RowKind kind, bool colors) {
  const char* code = kind == RowKind::kHeading   ? "7"
                     : kind == RowKind::kWaiting ? "33"
                     : kind == RowKind::kHeld    ? "31"
                                                 : "";
  return colors && *code != 0 ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : text;
}

size_t num_shown(const TopTable& table, size_t rows) {
  return rows > table.above.size() + 1 ? rows - table.above.size() - 1 : 0;
}

}  // namespace

TopTable top_table(const std::string& document, const std::string& name) {
  try {
    const Json json = Json::parse(document);
    const auto loads = loads_of(json.at("hosts"));
    Cells headings;
    std::vector<Cells> rows;
    std::vector<size_t> widths;
    for (const auto& column : kColumns) {
      headings.emplace_back(column.heading);
      widths.push_back(headings.back().size());
    }
    for (const Json& rank : json.at("ranks")) {
      rows.push_back(cells_of(rank, loads));
      for (size_t i = 0; i < kNumColumns; ++i) widths[i] = std::max(widths[i], rows.back()[i].size());
    }
    // Where every rank holds a whole model there are no places to show.
    if (std::all_of(rows.begin(), rows.end(), [](const Cells& cells) { return cells[kPlace].empty(); }))
      widths[kPlace] = 0;
    TopTable out;
    out.above.push_back({job_line(json, name)});
    for (auto& row : short_hosts(json.at("hosts"))) out.above.push_back(std::move(row));
    out.above.push_back({line_of(headings, widths), RowKind::kHeading});
    for (size_t i = 0; i < rows.size(); ++i) {
      out.ranks.push_back({line_of(rows[i], widths), kind_of(json.at("ranks").at(i))});
    }
    return out;
  } catch (const Json::exception& error) {
    throw Error(
        ExitCode::kInternal,
        fmt::format("the job's supervisor sent a table that is not of this version of dslaunch ({})", error.what()));
  }
}

std::string plain_text(const TopTable& table) {
  std::string out;
  for (const auto* rows : {&table.above, &table.ranks}) {
    for (const auto& row : *rows) out += row.text + "\n";
  }
  return out;
}

size_t last_first_rank(const TopTable& table, size_t rows) {
  const size_t shown = num_shown(table, rows);
  return table.ranks.size() > shown ? table.ranks.size() - shown : 0;
}

std::vector<std::string> fit_to_screen(const TopTable& table, const ScreenShape& shape) {
  std::vector<std::string> out;
  for (const auto& row : table.above) {
    std::string text = cut(row.text, shape.columns);
    if (row.kind == RowKind::kHeading) text.resize(std::max(text.size(), shape.columns), ' ');
    out.push_back(colored(text, row.kind, shape.colors));
  }
  const size_t first = std::min(shape.first_rank, last_first_rank(table, shape.rows));
  const size_t end = std::min(table.ranks.size(), first + num_shown(table, shape.rows));
  for (size_t i = first; i < end; ++i) {
    out.push_back(colored(cut(table.ranks[i].text, shape.columns), table.ranks[i].kind, shape.colors));
  }
  const bool is_all = end - first == table.ranks.size();
  const std::string help = is_all ? "q ends"
                                  : fmt::format("q ends; arrow keys and page keys show the other {} of {} ranks",
                                                table.ranks.size() - (end - first), table.ranks.size());
  out.push_back(cut(help, shape.columns));
  if (out.size() > shape.rows) out.resize(shape.rows);
  return out;
}

}  // namespace dslaunch::launch
