#include "config/fill.hpp"

namespace dslaunch::config {
namespace {

void store(const KeySpec& row, void* to, const Setting& setting) {
  row.binding->store(to, setting.deferred ? Value() : setting.value);
}

}  // namespace

bool is_in_absent_section(const Settings& settings, const KeySpec& row) {
  const KeySpec* section = find_key(section_of(row.path));
  return section && section->absent_by_default && settings.at(std::string(section->path)).value.is_null();
}

void fill(JobConfig& to, const Settings& settings) {
  for (const KeySpec* row : all_keys()) {
    const bool is_bound = row->binding && row->binding->struct_id == &kStructId<JobConfig>;
    if (!is_bound || is_in_absent_section(settings, *row)) continue;
    store(*row, &to, settings.at(std::string(row->path)));
  }
}

void fill_entry(const void* struct_id, void* to, const Settings& settings, const std::string& section,
                const std::string& name) {
  const std::string rows = section + ".*";
  for (const KeySpec* row : all_keys()) {
    const bool is_bound = row->binding && row->binding->struct_id == struct_id && section_of(row->path) == rows;
    const Setting* setting =
        is_bound ? settings.find(section + "." + name + "." + std::string(last_name(row->path))) : nullptr;
    if (setting) store(*row, to, *setting);
  }
}

}  // namespace dslaunch::config
