#include "config/rules.hpp"

#include <algorithm>

#include "base/format.hpp"
#include "base/nearest_name.hpp"

namespace dslaunch::config {
namespace {

// DeepSpeed's names of the collectives that dslaunch issues, and of those that it does not.
const std::vector<std::string> kIssued{"all_reduce",
                                       "reduce_scatter_tensor",
                                       "all_gather_into_tensor",
                                       "all_to_all_single",
                                       "broadcast",
                                       "barrier",
                                       "send",
                                       "recv",
                                       "batch_isend_irecv"};
const std::vector<std::string> kOthers{"all_gather",
                                       "all_gather_object",
                                       "all_reduce_coalesced",
                                       "all_to_all",
                                       "gather",
                                       "irecv",
                                       "isend",
                                       "inference_all_reduce",
                                       "reduce",
                                       "reduce_scatter",
                                       "scatter",
                                       "monitored_barrier",
                                       "all_gather_coalesced"};

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

void check_logged_collectives(Settings& settings) {
  const char* path = "comms_logger.prof_ops";
  bool any = false;
  for (const auto& name : settings.texts(path)) {
    any |= contains(kIssued, name);
    if (contains(kIssued, name)) continue;
    if (contains(kOthers, name)) {
      settings.note(path, fmt::format("'{}' names {}, which dslaunch never issues; it issues: {}", path, name,
                                      fmt::join(kIssued, ", ")));
      continue;
    }
    settings.add_error(Issue::Kind::kRange, path,
                       fmt::format("'{}' has '{}', which is not a collective{}; the collectives are {}", path, name,
                                   did_you_mean(name, kIssued), fmt::join(kIssued, ", ")));
  }
  if (settings.boolean("comms_logger.enabled") && !settings.boolean("comms_logger.prof_all") && !any) {
    settings.note("comms_logger.prof_all",
                  "the comms logger logs nothing: 'comms_logger.prof_all' is off and 'comms_logger.prof_ops' names no "
                  "collective that dslaunch issues");
  }
}

}  // namespace

void apply_monitoring_rules(Settings& settings) {
  check_logged_collectives(settings);
}

}  // namespace dslaunch::config
