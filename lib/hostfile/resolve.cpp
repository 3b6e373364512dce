#include "hostfile/resolve.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/dump_json.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "hostfile/filter.hpp"
#include "hostfile/hostfile.hpp"

namespace dslaunch::hostfile {
namespace {

constexpr const char* kLocalHost = "localhost";
constexpr const char* kLocalSource = "local";

void check_count(const char* option, const std::optional<int>& count) {
  if (count && *count < 1) {
    throw UserError(ExitCode::kUsage, fmt::format("{} {}: must be at least 1", option, *count));
  }
}

void check_combination(const Request& request) {
  check_count("--num_nodes", request.asked.num_nodes);
  check_count("--num_gpus", request.asked.num_gpus);
  bool filtered = !request.asked.include.empty() || !request.asked.exclude.empty();
  if (!request.asked.include.empty() && !request.asked.exclude.empty()) {
    throw UserError(ExitCode::kUsage, "--include and --exclude exclude each other: give one of them");
  }
  if (filtered && (request.asked.num_nodes || request.asked.num_gpus)) {
    throw UserError(ExitCode::kUsage, fmt::format("{} already says which slots to use: leave out {}",
                                                  request.asked.include.empty() ? "--exclude" : "--include",
                                                  request.asked.num_nodes ? "--num_nodes" : "--num_gpus"));
  }
  require_possible_slots(request.asked);
}

// The only entry of a job without a hostfile.
Entry local_entry(const Request& request) {
  Entry entry;
  entry.host.name = kLocalHost;
  entry.host.slots = request.local_slots;
  entry.slots_stated = true;
  if (!request.any_local_slots) return entry;
  int named = std::max(highest_slot_named(request.asked.include), highest_slot_named(request.asked.exclude)) + 1;
  int count = std::max({1, request.asked.num_gpus.value_or(0), std::min(named, kMaxSlots)});
  entry.host.slots = first_slots(count);
  return entry;
}

void keep_first_nodes(std::vector<Entry>& entries, const Request& request, const std::string& source) {
  if (!request.asked.num_nodes) return;
  size_t wanted = static_cast<size_t>(*request.asked.num_nodes);
  if (wanted > entries.size()) {
    throw UserError(ExitCode::kUnavailable,
                    source != kLocalSource
                        ? fmt::format("--num_nodes {}: {} has only {} host{}", wanted, source, entries.size(),
                                      entries.size() == 1 ? "" : "s")
                        : fmt::format("--num_nodes {}: without --hostfile there is only this machine", wanted));
  }
  entries.resize(wanted);
}

void keep_first_slots(std::vector<Entry>& entries, const Request& request) {
  if (!request.asked.num_gpus) return;
  size_t wanted = static_cast<size_t>(*request.asked.num_gpus);
  std::vector<std::string> short_of;
  for (auto& entry : entries) {
    if (!entry.slots_stated) {  // the source does not state the number
      entry.host.slots = first_slots(*request.asked.num_gpus);
    } else if (entry.host.slots.size() >= wanted) {
      entry.host.slots.resize(wanted);
    } else {
      short_of.push_back(fmt::format("{} has {}", entry.host.name, entry.host.slots.size()));
    }
  }
  if (short_of.empty()) return;
  throw UserError(ExitCode::kUnavailable,
                  fmt::format("--num_gpus {}: too few slots: {}", wanted, fmt::join(short_of, ", ")));
}

}  // namespace

void require_possible_slots(const HostOptions& asked) {
  if (asked.num_gpus.value_or(1) <= kMaxSlots) return;
  throw UserError(ExitCode::kUnavailable,
                  fmt::format("--num_gpus {}: no host has more than {} slots", *asked.num_gpus, kMaxSlots));
}

Allocation resolve(const Request& request) {
  check_combination(request);
  std::vector<Entry> entries;
  Allocation allocation;
  if (request.asked.hostfile) {
    entries = read_hostfile(*request.asked.hostfile);
    allocation.source = "hostfile " + *request.asked.hostfile;
    allocation.note = note_doubtful_ports(entries, *request.asked.hostfile);
  } else if (request.allocated) {
    for (const auto& host : request.allocated->hosts) entries.push_back({host, 0, !request.allocated_slots_open});
    allocation.source = request.allocated->source;
  } else {
    entries.push_back(local_entry(request));
    allocation.source = kLocalSource;
  }
  keep_first_nodes(entries, request, allocation.source);
  keep_first_slots(entries, request);
  for (auto& entry : entries) allocation.hosts.push_back(std::move(entry.host));
  if (!request.asked.include.empty()) {
    allocation.hosts = apply_filter(FilterKind::kInclude, request.asked.include, allocation.hosts);
  } else if (!request.asked.exclude.empty()) {
    allocation.hosts = apply_filter(FilterKind::kExclude, request.asked.exclude, allocation.hosts);
  }
  return allocation;
}

std::string hosts_json(const Allocation& allocation) {
  using Json = nlohmann::ordered_json;
  Json hosts = Json::array();
  for (const auto& host : allocation.hosts) {
    hosts.push_back({{"host", host.name},
                     {"user", host.user.empty() ? Json() : Json(host.user)},
                     {"port", host.port ? Json(*host.port) : Json()},
                     {"slots", host.slots}});
  }
  Json document{{"source", allocation.source}, {"world_size", allocation.world_size()}, {"hosts", hosts}};
  return dump_json(document);
}

}  // namespace dslaunch::hostfile
